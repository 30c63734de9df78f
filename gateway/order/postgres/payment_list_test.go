package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

// TestPaymentsInStatus finds each where it is, and those that did not go well by their index.
func TestPaymentsInStatus(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	store := postgres.NewPayments(pool, 0)
	_, err := pool.Exec(t.Context(), `ALTER TABLE payments DROP CONSTRAINT payments_order`)
	require.NoError(t, err)
	for _, status := range order.Statuses() {
		_, err := pool.Exec(t.Context(), `INSERT INTO payments (id, tenant, order_day, order_id, buyer,
			key, fingerprint, method, provider, account, capture_at, late, currency, amount, captured,
			status, expires_at, created_at)
			SELECT $1::text, '', '2026-11-29', gen_random_uuid(), 'b', 'k', sha256(''), 'card', 'psp', 'a',
				'confirmation', 'refund', 'BRL', 1,
				($1::text IN ('settled', 'captured', 'surplus', 'refunding'))::int, $1, now(), now()`,
			string(status))
		require.NoError(t, err, status)
	}
	for _, status := range order.Statuses() {
		found, err := store.InStatus(t.Context(), status, "", 10)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, status, found[0].Status)
		found, err = store.InStatus(t.Context(), status, found[0].ID, 10)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "PREPARE listing AS "+postgres.OffTheWaySQL)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE listing('review', '', 10)")
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "payments_off_the_way")
}
