package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
)

// saveSQL is what a change always does: the row, if it is as it was read. The parts below hang on
// it, each where the change has something for it: one statement is one transaction and one round
// trip.
const saveSQL = `
WITH changed AS (
	UPDATE payments SET version = version + 1, updated_at = now(), status = @status,
		reference = coalesce(reference, @reference), captured = @captured, refunding = @refunding,
		refunded = @refunded, return_to_stock = @return_to_stock, action = @action,
		declined_by = @declined_by, expires_at = @expires_at, lapses_at = @lapses_at,
		due_at = @due_at
	WHERE id = @id AND version = @version
	RETURNING id, order_id, tenant, provider, currency, amount, captured, refunded, version,
		updated_at
)`

const saveAnswerSQL = `, answered AS (
	INSERT INTO provider_answers (payment, call, body) SELECT id, @call, @body::jsonb FROM changed
)`

const saveEventsSQL = `, told AS (
	INSERT INTO payment_events (kind, payment, order_id, tenant, currency, amount, captured, refunded)
	SELECT kind, id, order_id, tenant, currency, amount, captured, refunded
	FROM changed, unnest(@events::text[]) AS kind
)`

const saveRefundsSQL = `, given AS (
	INSERT INTO refunds AS r (id, payment, provider, key, fingerprint, reference, currency, amount,
		whole, reason, asked_by, status, due_at, created_at)
	SELECT g.id, c.id, coalesce(c.provider, ''), nullif(g.key, ''), nullif(g.fingerprint, ''::bytea),
		nullif(g.reference, ''), c.currency, g.amount, g.whole, g.reason, g.asked_by, g.status,
		g.due_at, g.created_at
	FROM changed AS c, unnest(@refund_ids::text[], @refund_keys::text[],
		@refund_fingerprints::bytea[], @refund_references::text[], @refund_amounts::bigint[],
		@refund_wholes::bool[], @refund_reasons::text[], @refund_by::text[],
		@refund_statuses::text[], @refund_due::timestamptz[], @refund_created::timestamptz[])
		AS g (id, key, fingerprint, reference, amount, whole, reason, asked_by, status, due_at,
			created_at)
	ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status, reference = EXCLUDED.reference,
		due_at = EXCLUDED.due_at, updated_at = now()
)`

const saveWakeSQL = `, woken AS (
	UPDATE payments AS other SET due_at = now() FROM changed
	WHERE other.order_id = changed.order_id AND other.id <> changed.id AND other.status = 'pending'
)`

const saveResolveSQL = `, resolved AS (
	UPDATE findings SET resolved_at = now() FROM changed
	WHERE kind = @resolves AND subject = changed.id AND resolved_at IS NULL
)`

const saveEndSQL = ` SELECT version, updated_at FROM changed`

// Save implements order.Store.
func (s *Payments) Save(ctx context.Context, c order.Change) (order.Payment, error) {
	p := c.Payment
	sql, args, err := statement(&c)
	if err != nil {
		return order.Payment{}, err
	}
	found, err := s.group.do(ctx, sql, args, &p.Version, &p.UpdatedAt)
	switch {
	case err != nil:
		return order.Payment{}, fmt.Errorf("postgres: save payment: %w", err)
	case !found:
		return order.Payment{}, order.ErrConflict
	}
	return p, nil
}

// The parts that a change can have, in the order in which they stand.
const (
	hasAnswer = 1 << iota
	hasEvents
	hasRefunds
	wakes
	resolves
	partsEnd
)

// saves are the statements of all changes, by their parts. Each is prepared once per connection.
var saves = func() (all [partsEnd]template) {
	parts := [...]string{
		saveAnswerSQL, saveEventsSQL, saveRefundsSQL, saveWakeSQL, saveResolveSQL,
	}
	for set := range all {
		sql := saveSQL
		for i, part := range parts {
			if set&(1<<i) != 0 {
				sql += part
			}
		}
		all[set] = newTemplate(sql + saveEndSQL)
	}
	return all
}()

// statement is the SQL of a change and its arguments.
func statement(c *order.Change) (string, []any, error) {
	p := &c.Payment
	args := named{
		"id": string(p.ID), "version": p.Version, "status": string(p.Status),
		"reference": orNull(p.Reference), "captured": p.Captured, "refunding": p.Refunding,
		"refunded": p.Refunded, "return_to_stock": p.ReturnToStock, "action": []byte(nil),
		"declined_by": p.DeclinedBy, "expires_at": p.ExpiresAt, "lapses_at": orNull(p.LapsesAt),
		"due_at": orNull(p.DueAt),
	}
	if p.Action != (payment.Action{}) {
		action, err := json.Marshal(p.Action)
		if err != nil {
			return "", nil, fmt.Errorf("postgres: save payment: %w", err)
		}
		args["action"] = action
	}
	parts := 0
	if c.Answer != nil {
		parts |= hasAnswer
		args["call"], args["body"] = c.Answer.Call, string(c.Answer.Body)
	}
	if len(c.Events) > 0 {
		parts |= hasEvents
		args["events"] = c.Events
	}
	if len(c.Refunds) > 0 {
		parts |= hasRefunds
		refundArguments(c.Refunds, args)
	}
	if c.WakeSiblings {
		parts |= wakes
	}
	if c.Resolves != "" {
		parts |= resolves
		args["resolves"] = c.Resolves
	}
	return saves[parts].sql, saves[parts].arguments(args), nil
}

func refundArguments(refunds []order.Refund, args named) {
	n := len(refunds)
	ids, keys, references := make([]string, n), make([]string, n), make([]string, n)
	fingerprints, amounts := make([][]byte, n), make([]int64, n)
	wholes, reasons, by := make([]bool, n), make([]string, n), make([]string, n)
	statuses, due, created := make([]string, n), make([]*time.Time, n), make([]time.Time, n)
	for i := range refunds {
		r := &refunds[i]
		ids[i], keys[i], references[i] = r.ID, r.Key, r.Reference
		fingerprints[i], amounts[i] = r.Fingerprint, r.Amount.Amount
		wholes[i], reasons[i], by[i] = r.Whole, r.Reason, r.By
		statuses[i], due[i], created[i] = string(r.Status), orNull(r.DueAt), r.CreatedAt
	}
	args["refund_ids"], args["refund_keys"], args["refund_references"] = ids, keys, references
	args["refund_fingerprints"], args["refund_amounts"] = fingerprints, amounts
	args["refund_wholes"], args["refund_reasons"], args["refund_by"] = wholes, reasons, by
	args["refund_statuses"], args["refund_due"], args["refund_created"] = statuses, due, created
}

// refundRow is a row of refunds.
type refundRow struct {
	ID          string
	Payment     string
	Key         *string
	Fingerprint []byte
	Reference   *string
	Currency    string
	Amount      int64
	Whole       bool
	Reason      string
	AskedBy     string
	Status      string
	DueAt       *time.Time
	CreatedAt   time.Time
}

func (r *refundRow) refund() order.Refund {
	return order.Refund{
		ID: r.ID, Payment: inventory.PaymentID(r.Payment), Key: valueOf(r.Key),
		Fingerprint: r.Fingerprint, Reference: valueOf(r.Reference),
		Amount: payment.Money{Amount: r.Amount, Currency: r.Currency}, Whole: r.Whole,
		Reason: r.Reason, By: r.AskedBy, Status: order.RefundStatus(r.Status),
		DueAt: valueOf(r.DueAt), CreatedAt: r.CreatedAt,
	}
}

const refundColumns = `id, payment, key, fingerprint, reference, currency, amount, whole, reason,
	asked_by, status, due_at, created_at`

const (
	refundsSQL = `SELECT ` + refundColumns + ` FROM refunds WHERE payment = $1 ORDER BY created_at, id`
	refundSQL  = `SELECT ` + refundColumns + ` FROM refunds WHERE id = $1`
)

// Refunds implements order.Store.
func (s *Payments) Refunds(
	ctx context.Context, id inventory.PaymentID,
) ([]order.Refund, error) {
	rows, _ := s.pool.Query(ctx, refundsSQL, string(id))
	read, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[refundRow])
	if err != nil {
		return nil, fmt.Errorf("postgres: read refunds: %w", err)
	}
	refunds := make([]order.Refund, len(read))
	for i, row := range read {
		refunds[i] = row.refund()
	}
	return refunds, nil
}

// Refund implements order.Store.
func (s *Payments) Refund(ctx context.Context, id string) (order.Refund, error) {
	rows, _ := s.pool.Query(ctx, refundSQL, id)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[refundRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return order.Refund{}, order.ErrPaymentNotFound
	}
	if err != nil {
		return order.Refund{}, fmt.Errorf("postgres: read refund: %w", err)
	}
	return row.refund(), nil
}
