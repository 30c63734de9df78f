package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
	"numera/gateway/payment"
)

func TestPaymentStatementsPrepare(t *testing.T) {
	pool := postgrestest.New(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for name, sql := range postgres.PaymentStatements() {
		_, err := conn.Conn().Prepare(t.Context(), name, sql)
		require.NoError(t, err, name)
	}
}

// payable is an order as the engine would give it.
func payable(n byte) *inventory.OrderView {
	now := time.Now().UnixMilli()
	return &inventory.OrderView{
		ID:     inventory.MakeOrderID(1, now, inventory.KeyHash{n}),
		Status: inventory.StatusReserved, Buyer: "b-1", Changed: 1,
		CreatedUnixMilli: now, ExpiresUnixMilli: now + 60_000,
		Items: []inventory.ItemView{{
			Product: "rifa-1", Numbers: []uint32{uint32(n)},
			UnitPrice: inventory.Money{Amount: 1990, Currency: "BRL"},
		}},
	}
}

func newPayment(id, key string, o *inventory.OrderView) order.Payment {
	now := time.Now().Truncate(time.Microsecond)
	return order.Payment{
		ID: inventory.PaymentID(id), Tenant: "loja", Order: o.ID, Buyer: o.Buyer, Key: key,
		Fingerprint: make([]byte, 32), Method: payment.MethodCard, Provider: "simulator",
		Policy: order.Policy{CaptureAt: order.CaptureAtConfirmation, Late: order.LateReclaim},
		Amount: payment.Money(o.Total()), Status: order.StatusCreated,
		ExpiresAt: now.Add(time.Minute), DueAt: now.Add(time.Minute), CreatedAt: now,
	}
}

// TestPaymentsKeepWhatTheyAreGiven: what is read is what was written.
func TestPaymentsKeepWhatTheyAreGiven(t *testing.T) {
	pool := postgrestest.New(t)
	store := postgres.NewPayments(pool, 0)
	ctx := t.Context()
	o := payable(1)
	secret := order.Secret{CardToken: "tok", Payer: payment.Payer{
		Name: "Ana", Email: "a@example.com", Document: "1", Phone: "2",
	}}
	made, err := store.Create(ctx, newPayment("p1", "k", o), secret, o)
	require.NoError(t, err)
	require.True(t, made.Alone)
	p := made.Payment
	again, err := store.Create(ctx, newPayment("p2", "k", o), secret, o)
	require.NoError(t, err)
	require.Equal(t, p.ID, again.Payment.ID)
	kept, err := store.Secret(ctx, "p1")
	require.NoError(t, err)
	require.Equal(t, secret, kept)

	p.Status, p.Reference, p.Captured, p.Refunding = order.StatusSettled, "ch_1", 1990, 500
	p.Action = payment.Action{Kind: payment.ActionPix, PixCode: "code", ExpiresAt: p.ExpiresAt.UTC()}
	p.LapsesAt, p.DueAt = p.ExpiresAt, time.Time{}
	refund := order.Refund{
		ID: "r1", Payment: "p1", Key: "rk", Fingerprint: make([]byte, 32), Reason: "why", By: "admin",
		Amount: payment.Money{Amount: 500, Currency: "BRL"}, Status: order.RefundRequested,
		DueAt: p.ExpiresAt, CreatedAt: p.CreatedAt,
	}
	saved, err := store.Save(ctx, order.Change{
		Payment: p, Answers: []order.Answer{{Call: "authorise", Body: []byte(`{"a": 1}`)}},
		Events: []order.Event{order.EventCaptured}, Refunds: []order.Refund{refund},
	})
	require.NoError(t, err)
	require.Equal(t, p.Version+1, saved.Version)
	read, err := store.ByReference(ctx, "simulator", "ch_1")
	require.NoError(t, err)
	require.Equal(t, saved, read)
	refunds, err := store.Refunds(ctx, "p1")
	require.NoError(t, err)
	require.Equal(t, []order.Refund{refund}, refunds)

	_, err = store.Save(ctx, order.Change{Payment: p, Events: []order.Event{order.EventCaptured}})
	require.ErrorIs(t, err, order.ErrConflict, "of a version that is no more")
	outbox := postgres.NewPaymentEvents(pool)
	events, err := outbox.Pull(ctx, 10)
	require.NoError(t, err)
	require.Len(t, events, 1, "a change that was refused tells of nothing")
	require.Equal(t, "payment.captured", events[0].Kind)
	require.Equal(t, int64(1990), events[0].Captured)
	require.NoError(t, outbox.Delete(ctx, []int64{events[0].ID}))
	events, err = outbox.Pull(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, events)
}

// TestAttemptsAreBounded per order, while they are under way.
func TestAttemptsAreBounded(t *testing.T) {
	store := postgres.NewPayments(postgrestest.New(t), 0)
	o := payable(1)
	var last order.Payment
	for i := range order.MaxAttempts {
		p := newPayment(fmt.Sprint("p", i), fmt.Sprint("k", i), o)
		made, err := store.Create(t.Context(), p, order.Secret{}, o)
		require.NoError(t, err)
		require.Equal(t, p.ID, made.Payment.ID)
		require.Equal(t, i == 0, made.Alone)
		last = made.Payment
	}
	one := newPayment("more", "more", o)
	_, err := store.Create(t.Context(), one, order.Secret{}, o)
	require.ErrorIs(t, err, order.ErrTooManyAttempts)
	last.Status = order.StatusRejected
	_, err = store.Save(t.Context(), order.Change{Payment: last})
	require.NoError(t, err)
	made, err := store.Create(t.Context(), one, order.Secret{}, o)
	require.NoError(t, err)
	require.Equal(t, one.ID, made.Payment.ID)
}

// constraint is the one that refused a statement; "" if it was not refused.
func constraint(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var refused *pgconn.PgError
	require.True(t, errors.As(err, &refused), "%v", err)
	return refused.ConstraintName
}

// put makes a payment in a status, with the money that the status has.
func put(t *testing.T, tx pgx.Tx, id string, status order.Status, o *inventory.OrderView) {
	t.Helper()
	_, err := tx.Exec(t.Context(), `
		INSERT INTO payments (id, tenant, order_day, order_id, buyer, key, fingerprint, method,
			provider, account, capture_at, late, currency, amount, captured, status, expires_at,
			created_at)
		VALUES ($1::text, 'loja', date '1970-01-01' + $2::int, $3, 'b-1', $1::text, decode(repeat('00', 32), 'hex'),
			'card', 'simulator', '', 'confirmation', 'reclaim', 'BRL', 1990, $4, $5, now(), now())`,
		id, int(o.CreatedUnixMilli/86_400_000), [16]byte(o.ID), capturedIn(status), string(status))
	require.NoError(t, err)
}

func capturedIn(s order.Status) int64 {
	switch s {
	case order.StatusSettled, order.StatusCaptured, order.StatusSurplus, order.StatusRefunding,
		order.StatusReturned, order.StatusRefunded:
		return 1990
	}
	return 0
}

// inRollback runs f in a transaction that leaves nothing.
func inRollback(t *testing.T, pool *pgxpool.Pool, f func(tx pgx.Tx)) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // also of one that has failed
	f(tx)
}

// TestTransitionsAreTheDatabases compares the table of order.Status with what the database lets
// happen, for every pair.
func TestTransitionsAreTheDatabases(t *testing.T) {
	pool := postgrestest.New(t)
	o := payable(1)
	require.NoError(t, postgres.NewOrders(pool).Upsert(t.Context(), o))
	for _, from := range order.Statuses() {
		legal := make(map[order.Status]bool)
		for _, to := range from.Next() {
			legal[to] = true
		}
		for _, to := range order.Statuses() {
			inRollback(t, pool, func(tx pgx.Tx) {
				put(t, tx, "p", from, o)
				_, err := tx.Exec(t.Context(), `UPDATE payments SET status = $1, captured = $2`,
					string(to), capturedIn(to))
				want := ""
				if from != to && !legal[to] {
					want = "payments_transition"
				}
				require.Equal(t, want, constraint(t, err), "%s → %s", from, to)
			})
		}
	}
}

// TestTheDatabaseRefusesWhatNoPaymentCanBe, whatever the code does.
func TestTheDatabaseRefusesWhatNoPaymentCanBe(t *testing.T) {
	pool := postgrestest.New(t)
	o := payable(1)
	require.NoError(t, postgres.NewOrders(pool).Upsert(t.Context(), o))
	cases := []struct{ sql, constraint string }{
		{`UPDATE payments SET refunded = 1991`, "payments_money"},
		{`UPDATE payments SET refunded = 1000, refunding = 991`, "payments_money"},
		{`UPDATE payments SET refunding = -1`, "payments_money"},
		{`UPDATE payments SET captured = 1991`, "payments_captured_whole"},
		{`UPDATE payments SET captured = 1989`, "payments_captured_whole"},
		{`UPDATE payments SET status = 'gone'`, "payment_status_check"},
		{`UPDATE payments SET order_id = gen_random_uuid()`, "payments_order"},
		{`UPDATE payments SET provider = NULL`, "payments_provider_where_money"},
		{
			`INSERT INTO refunds (id, payment, provider, currency, amount, whole, reason, asked_by, status,
			created_at) VALUES ('r', 'p', 's', 'BRL', 0, true, '', '', 'requested', now())`,
			"refunds_amount",
		},
		{`INSERT INTO refunds (id, payment, provider, currency, amount, whole, reason, asked_by, status,
			created_at) SELECT 'r' || i, 'p', 's', 'BRL', 1, true, '', '', 'requested', now()
			FROM generate_series(1, 2) AS i`, "refunds_one_whole"},
	}
	for _, c := range cases {
		inRollback(t, pool, func(tx pgx.Tx) {
			put(t, tx, "p", order.StatusCaptured, o)
			_, err := tx.Exec(t.Context(), c.sql)
			require.Equal(t, c.constraint, constraint(t, err), c.sql)
		})
	}
	// No two payments pay one order.
	inRollback(t, pool, func(tx pgx.Tx) {
		put(t, tx, "p", order.StatusCaptured, o)
		put(t, tx, "q", order.StatusSettled, o)
		_, err := tx.Exec(t.Context(), `UPDATE payments SET status = 'captured' WHERE id = 'q'`)
		require.Equal(t, "payments_one_pays", constraint(t, err))
	})
	// Nor does one charge two payments.
	inRollback(t, pool, func(tx pgx.Tx) {
		put(t, tx, "p", order.StatusCaptured, o)
		put(t, tx, "q", order.StatusSettled, o)
		_, err := tx.Exec(t.Context(), `UPDATE payments SET reference = 'ch_1'`)
		require.Equal(t, "payments_one_per_charge", constraint(t, err))
	})
}
