package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
)

// saveStatement writes changes of payments, of each order one: those whose row is as it was read,
// with all that hangs on them.
var saveStatement = newTemplate(`
WITH changed AS (
	UPDATE payments AS p SET version = p.version + 1, updated_at = now(), status = a.status,
		reference = coalesce(p.reference, a.reference), captured = a.captured,
		refunding = a.refunding, refunded = a.refunded, return_to_stock = a.return_to_stock,
		action = a.action::jsonb, declined_by = a.declined_by, expires_at = a.expires_at,
		lapses_at = a.lapses_at, due_at = a.due_at
	FROM unnest(@id::text[], @version::bigint[], @status::text[], @reference::text[],
		@captured::bigint[], @refunding::bigint[], @refunded::bigint[], @return_to_stock::bool[],
		@action::text[], @declined_by::text[], @expires_at::timestamptz[],
		@lapses_at::timestamptz[], @due_at::timestamptz[], @answers::text[], @events::text[])
		AS a (id, version, status, reference, captured, refunding, refunded, return_to_stock, action,
			declined_by, expires_at, lapses_at, due_at, answers, events)
	WHERE p.id = a.id AND p.version = a.version
	RETURNING p.id, p.order_id, p.tenant, p.provider, p.currency, p.amount, p.captured, p.refunded,
		p.version, p.updated_at, a.answers, a.events
), answered AS (
	INSERT INTO provider_answers (payment, call, body)
	SELECT id, answer ->> 'call', answer -> 'body'
	FROM changed, jsonb_array_elements(answers::jsonb) AS answer
), told AS (
	INSERT INTO payment_events (kind, payment, order_id, tenant, currency, amount, captured, refunded)
	SELECT kind, id, order_id, tenant, currency, amount, captured, refunded
	FROM changed, unnest(string_to_array(events, ' ')) AS kind
), given AS (
	INSERT INTO refunds AS r (id, payment, provider, key, fingerprint, reference, currency, amount,
		whole, reason, asked_by, status, due_at, created_at)
	SELECT g.id, c.id, coalesce(c.provider, ''), nullif(g.key, ''), nullif(g.fingerprint, ''::bytea),
		nullif(g.reference, ''), c.currency, g.amount, g.whole, g.reason, g.asked_by, g.status,
		g.due_at, g.created_at
	FROM unnest(@refund_of::text[], @refund_id::text[], @refund_key::text[],
		@refund_fingerprint::bytea[], @refund_reference::text[], @refund_amount::bigint[],
		@refund_whole::bool[], @refund_reason::text[], @refund_by::text[],
		@refund_status::text[], @refund_due::timestamptz[], @refund_created::timestamptz[])
		AS g (payment, id, key, fingerprint, reference, amount, whole, reason, asked_by, status,
			due_at, created_at)
		JOIN changed AS c ON c.id = g.payment
	ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status, reference = EXCLUDED.reference,
		due_at = EXCLUDED.due_at, updated_at = now()
), woken AS (
	UPDATE payments AS other SET due_at = now()
	FROM changed
	WHERE changed.id = ANY (@wakes::text[]) AND other.order_id = changed.order_id
		AND other.id <> changed.id AND other.status = 'pending'
), resolved AS (
	UPDATE findings AS f SET resolved_at = now()
	FROM unnest(@resolved::text[], @resolves::text[]) AS g (id, kind) JOIN changed USING (id)
	WHERE f.kind = g.kind AND f.subject = changed.id AND f.resolved_at IS NULL
)
SELECT id, version, updated_at FROM changed`)

// saving is a change to be saved, and what came of it.
type saving struct {
	change  *order.Change
	action  *string   // of the payment, as JSON
	answers string    // all of them, as JSON
	version int64     // of the row; 0: it was not as it was read
	updated time.Time // likewise
}

// Save implements order.Store.
func (s *Payments) Save(ctx context.Context, c order.Change) (order.Payment, error) {
	p := c.Payment
	saving := &saving{change: &c}
	if p.Action != (payment.Action{}) {
		action, err := json.Marshal(p.Action)
		if err != nil {
			return order.Payment{}, fmt.Errorf("postgres: save payment: %w", err)
		}
		text := string(action)
		saving.action = &text
	}
	answers, err := json.Marshal(append([]order.Answer{}, c.Answers...)) // [], not null
	if err != nil {
		return order.Payment{}, fmt.Errorf("postgres: save payment: %w", err)
	}
	saving.answers = string(answers)
	if err := s.saves.do(ctx, saving); err != nil {
		return order.Payment{}, fmt.Errorf("postgres: save payment: %w", err)
	}
	if saving.version == 0 {
		return order.Payment{}, order.ErrConflict
	}
	p.Version, p.UpdatedAt = saving.version, saving.updated
	return p, nil
}

// saveAll saves changes.
func (s *Payments) saveAll(ctx context.Context, all []*saving) error {
	by := make(map[inventory.PaymentID]*saving, len(all))
	for _, s := range all {
		s.version = 0
		by[s.change.Payment.ID] = s
	}
	rows, _ := s.pool.Query(ctx, saveStatement.sql, saveStatement.arguments(saveColumns(all))...)
	var id string
	var version int64
	var updated time.Time
	_, err := pgx.ForEachRow(rows, []any{&id, &version, &updated}, func() error {
		saved := by[inventory.PaymentID(id)]
		saved.version, saved.updated = version, updated
		return nil
	})
	return err
}

func saveColumns(all []*saving) named {
	text := func(value func(p *order.Payment) string) []string {
		return column(all, func(s *saving) string { return value(&s.change.Payment) })
	}
	number := func(value func(p *order.Payment) int64) []int64 {
		return column(all, func(s *saving) int64 { return value(&s.change.Payment) })
	}
	instant := func(value func(p *order.Payment) time.Time) []*time.Time {
		return column(all, func(s *saving) *time.Time { return orNull(value(&s.change.Payment)) })
	}
	args := named{
		"id":        text(func(p *order.Payment) string { return string(p.ID) }),
		"version":   number(func(p *order.Payment) int64 { return p.Version }),
		"status":    text(func(p *order.Payment) string { return string(p.Status) }),
		"reference": column(all, func(s *saving) *string { return orNull(s.change.Payment.Reference) }),
		"captured":  number(func(p *order.Payment) int64 { return p.Captured }),
		"refunding": number(func(p *order.Payment) int64 { return p.Refunding }),
		"refunded":  number(func(p *order.Payment) int64 { return p.Refunded }),
		"return_to_stock": column(all, func(s *saving) bool {
			return s.change.Payment.ReturnToStock
		}),
		"action":      column(all, func(s *saving) *string { return s.action }),
		"declined_by": text(func(p *order.Payment) string { return p.DeclinedBy }),
		"expires_at":  instant(func(p *order.Payment) time.Time { return p.ExpiresAt }),
		"lapses_at":   instant(func(p *order.Payment) time.Time { return p.LapsesAt }),
		"due_at":      instant(func(p *order.Payment) time.Time { return p.DueAt }),
		"answers":     column(all, func(s *saving) string { return s.answers }),
		"events": column(all, func(s *saving) string {
			var words []string
			for _, event := range s.change.Events {
				words = append(words, string(event))
			}
			return strings.Join(words, " ")
		}),
	}
	addHanging(args, all)
	return args
}

// addHanging adds what hangs on the changes and seldom does.
func addHanging(args named, all []*saving) {
	var refunds []*order.Refund
	var wakes, resolves []*order.Change
	for _, s := range all {
		for i := range s.change.Refunds {
			refunds = append(refunds, &s.change.Refunds[i])
		}
		if s.change.WakeSiblings {
			wakes = append(wakes, s.change)
		}
		if s.change.Resolves != "" {
			resolves = append(resolves, s.change)
		}
	}
	subject := func(c *order.Change) string { return string(c.Payment.ID) }
	args["wakes"], args["resolved"] = column(wakes, subject), column(resolves, subject)
	args["resolves"] = column(resolves, func(c *order.Change) string { return c.Resolves })
	addRefunds(args, refunds)
}

func addRefunds(args named, all []*order.Refund) {
	text := func(value func(r *order.Refund) string) []string { return column(all, value) }
	args["refund_of"] = text(func(r *order.Refund) string { return string(r.Payment) })
	args["refund_id"] = text(func(r *order.Refund) string { return r.ID })
	args["refund_key"] = text(func(r *order.Refund) string { return r.Key })
	args["refund_reference"] = text(func(r *order.Refund) string { return r.Reference })
	args["refund_reason"] = text(func(r *order.Refund) string { return r.Reason })
	args["refund_by"] = text(func(r *order.Refund) string { return r.By })
	args["refund_status"] = text(func(r *order.Refund) string { return string(r.Status) })
	args["refund_fingerprint"] = column(all, func(r *order.Refund) []byte { return r.Fingerprint })
	args["refund_amount"] = column(all, func(r *order.Refund) int64 { return r.Amount.Amount })
	args["refund_whole"] = column(all, func(r *order.Refund) bool { return r.Whole })
	args["refund_due"] = column(all, func(r *order.Refund) *time.Time { return orNull(r.DueAt) })
	args["refund_created"] = column(all, func(r *order.Refund) time.Time { return r.CreatedAt })
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
