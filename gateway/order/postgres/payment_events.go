package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PaymentEvent is one change of a payment, for the rest of the world. It holds no personal data.
type PaymentEvent struct {
	ID       int64  // unique, and what makes a repetition known
	Kind     string // an order.Event
	Payment  string
	OrderID  [16]byte
	Tenant   string
	Currency string
	Amount   int64 // of the payment, in minor units, as are the next two
	Captured int64
	Refunded int64
	At       time.Time
}

// PaymentEvents is the outbox of payments. Its rows are written in the transaction of the change
// that they tell of. Whoever publishes them pulls, publishes, and deletes, one at a time: what was
// published and not deleted is pulled again.
//
// Events of one payment come in the order of their changes. Those of several come in the order of
// their ids as far as they are committed: one with a lower id can become visible later, and is then
// pulled before the others. So there is no position to remember, which could step over it.
type PaymentEvents struct{ pool *pgxpool.Pool }

// NewPaymentEvents uses a pool of a migrated database.
func NewPaymentEvents(pool *pgxpool.Pool) *PaymentEvents { return &PaymentEvents{pool} }

const (
	pullEventsSQL = `SELECT id, kind, payment, order_id, tenant, currency, amount, captured,
		refunded, at FROM payment_events ORDER BY id LIMIT $1`
	deleteEventsSQL = `DELETE FROM payment_events WHERE id = ANY ($1)`
)

// Pull reads what is to be published next, at most limit.
func (e *PaymentEvents) Pull(ctx context.Context, limit int) ([]PaymentEvent, error) {
	rows, _ := e.pool.Query(ctx, pullEventsSQL, limit)
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[PaymentEvent])
	if err != nil {
		return nil, fmt.Errorf("postgres: pull payment events: %w", err)
	}
	return events, nil
}

// Delete forgets what was published.
func (e *PaymentEvents) Delete(ctx context.Context, ids []int64) error {
	if _, err := e.pool.Exec(ctx, deleteEventsSQL, ids); err != nil {
		return fmt.Errorf("postgres: delete payment events: %w", err)
	}
	return nil
}
