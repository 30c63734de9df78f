package postgres_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

// TestGroup has many rows travel together: each gets its own answer, one that the database refuses
// fails alone, two of one key never travel together, and far fewer transactions are made than rows.
func TestGroup(t *testing.T) {
	pool := postgrestest.New(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE g (id int PRIMARY KEY CHECK (id <> 13))")
	require.NoError(t, err)
	transactions := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::int").Scan(&n))
		return n
	}
	before := transactions()
	write := func(ctx context.Context, together []*int) error {
		ids := make([]int, len(together))
		for i, id := range together {
			ids[i] = *id
		}
		// One that is there twice could be written twice by one statement.
		rows, _ := pool.Query(ctx, "INSERT INTO g SELECT unnest($1::int[]) "+
			"ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id RETURNING -id", ids)
		written, err := pgx.CollectRows(rows, pgx.RowTo[int])
		for _, id := range together {
			if slices.Contains(written, -*id) {
				*id = -*id
			}
		}
		return err
	}
	g := postgres.NewGroup(write, func(id *int) string { return strconv.Itoa(*id) })
	var written, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			id := i%900 + 1
			err := g.Do(t.Context(), &id)
			var failure *pgconn.PgError
			if err == nil {
				require.Equal(t, -(i%900 + 1), id)
				written.Add(1)
				return
			}
			require.ErrorAs(t, err, &failure)
			require.Equal(t, "23514", failure.Code, "%v", err)
			require.Equal(t, 12, i%900)
			refused.Add(1)
		})
	}
	all.Wait()
	require.Equal(t, []int64{998, 2}, []int64{written.Load(), refused.Load()})
	require.Less(t, transactions()-before, 500)
	require.Eventually(t, func() bool { return g.Flights() == 0 }, time.Minute, time.Millisecond)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Do(over, new(int)), context.Canceled)
	pool.Close()
	require.Error(t, g.Do(t.Context(), new(int)))
}
