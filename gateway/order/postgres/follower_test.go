package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres/postgrestest"
)

// TestFollow begins with orders that are there already, and goes on with new ones.
func TestFollow(t *testing.T) {
	m, pool := openMarket(t), postgrestest.New(t)
	m.trade("before", 50)
	f := m.follow(pool)
	m.trade("while", 100)
	m.requireRows(pool)
	require.Empty(t, f.Degraded(t.Context()))
	f.Close()
	m.trade("meanwhile", 50)
	m.follow(pool)
	m.requireRows(pool)
}
