package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

// TestGroup has many statements travel together: each gets its own answer, one that the database
// refuses fails alone, and far fewer transactions are made than statements.
func TestGroup(t *testing.T) {
	pool := postgrestest.New(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE g (id int PRIMARY KEY CHECK (id <> 13))")
	require.NoError(t, err)
	transactions := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::int").Scan(&n))
		return n
	}
	before := transactions()
	g := postgres.NewGroup(pool)
	const insert = "INSERT INTO g VALUES ($1) ON CONFLICT DO NOTHING RETURNING id"
	var inserted, refused, conflicts atomic.Int64
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			var got int
			found, err := g.Do(t.Context(), insert, []any{i % 900}, &got)
			var failure *pgconn.PgError
			switch {
			case err != nil:
				require.ErrorAs(t, err, &failure)
				require.Equal(t, 13, i%900)
				refused.Add(1)
			case found:
				require.Equal(t, i%900, got)
				inserted.Add(1)
			default:
				conflicts.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, []int64{899, 2, 99}, []int64{inserted.Load(), refused.Load(), conflicts.Load()})
	require.Less(t, transactions()-before, 500)
	require.Eventually(t, func() bool { return g.Flights() == 0 }, time.Second, time.Millisecond)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Do(over, "SELECT pg_sleep(0.1)::text", nil, new(string))
	require.ErrorIs(t, err, context.Canceled)
	pool.Close()
	_, err = g.Do(t.Context(), insert, []any{1}, new(int))
	require.Error(t, err)
}
