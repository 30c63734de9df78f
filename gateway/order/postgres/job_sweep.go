package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"numera/engine/inventory"
	"numera/gateway/order"
)

func paymentID(text string) inventory.PaymentID { return inventory.PaymentID(text) }

// sweepBatch bounds what one transaction hands over of each kind.
const sweepBatch = 500

// What is due is handed over: from then on its job looks after it, until the row is written again.
const (
	duePaymentsSQL = `
		WITH due AS (
			SELECT id FROM payments WHERE due_at <= now() ORDER BY due_at LIMIT $1
			FOR UPDATE SKIP LOCKED
		)
		UPDATE payments SET due_at = NULL FROM due WHERE payments.id = due.id
		RETURNING payments.id, payments.status`
	dueRefundsSQL = `
		WITH due AS (
			SELECT id FROM refunds WHERE due_at <= now() ORDER BY due_at LIMIT $1
			FOR UPDATE SKIP LOCKED
		)
		UPDATE refunds SET due_at = NULL FROM due WHERE refunds.id = due.id
		RETURNING refunds.id AS refund, refunds.payment`
	dueWebhooksSQL = `
		WITH due AS (
			SELECT tenant, provider, event FROM webhook_events WHERE due_at <= now()
			ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
		)
		UPDATE webhook_events AS w SET due_at = NULL FROM due
		WHERE (w.tenant, w.provider, w.event) = (due.tenant, due.provider, due.event)
		RETURNING w.tenant, w.provider, w.event, w.payment`
)

// Sweep makes a job of everything that is due, and says how many. Run does it; tests and operators
// may. What is due and its job are written in one transaction: neither is without the other.
func (j *Jobs) Sweep(ctx context.Context) (handed int, err error) {
	for {
		var jobs []river.InsertManyParams
		err = pgx.BeginFunc(ctx, j.config.Pool, func(tx pgx.Tx) error {
			if jobs, err = due(ctx, tx); err != nil || len(jobs) == 0 {
				return err
			}
			_, err = j.client.InsertManyTx(ctx, tx, jobs)
			return err
		})
		if err != nil {
			return handed, fmt.Errorf("postgres: sweep: %w", err)
		}
		handed += len(jobs)
		if len(jobs) < sweepBatch {
			return handed, nil
		}
	}
}

// due takes what is due, as jobs.
func due(ctx context.Context, tx pgx.Tx) (jobs []river.InsertManyParams, err error) {
	rows, _ := tx.Query(ctx, duePaymentsSQL, sweepBatch)
	type still struct{ ID, Status string }
	payments, err := pgx.CollectRows(rows, pgx.RowToStructByName[still])
	if err != nil {
		return nil, err
	}
	for _, p := range payments {
		jobs = append(jobs, insertion(order.Status(p.Status).Queue(), paymentJob{p.ID}))
	}
	rows, _ = tx.Query(ctx, dueRefundsSQL, sweepBatch)
	refunds, err := pgx.CollectRows(rows, pgx.RowToStructByName[refundJob])
	if err != nil {
		return nil, err
	}
	for _, r := range refunds {
		jobs = append(jobs, insertion(order.QueueCompensation, r))
	}
	rows, _ = tx.Query(ctx, dueWebhooksSQL, sweepBatch)
	webhooks, err := pgx.CollectRows(rows, pgx.RowToStructByName[webhookJob])
	if err != nil {
		return nil, err
	}
	for _, w := range webhooks {
		jobs = append(jobs, insertion(order.QueueWebhook, w))
	}
	return jobs, nil
}
