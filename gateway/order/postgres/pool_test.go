package postgres_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Run(m)) }

// TestMigrate brings an empty database to the schema from several processes at once.
func TestMigrate(t *testing.T) {
	dsn := postgrestest.EmptyDSN(t)
	var migrating sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		pool := postgrestest.Open(t, dsn)
		migrating.Go(func() { _, errs[i] = postgres.Migrate(context.Background(), pool) })
	}
	migrating.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	version, err := postgres.Migrate(context.Background(), postgrestest.Open(t, dsn))
	require.NoError(t, err)
	require.NotZero(t, version)
}

// TestDSNKeepsItsPassword is about an error message.
func TestDSNKeepsItsPassword(t *testing.T) {
	_, err := postgres.Open(context.Background(), postgres.PoolConfig{
		DSN: "postgres://numera:s3cret@host:not-a-port/numera",
	})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cret")
}
