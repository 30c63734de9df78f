package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"numera/gateway/order"
	"numera/gateway/payment"
)

const (
	webhookSQL = `
		SELECT type, payment, reference, account, status, refunded, body, at, received_at, acted_at
		FROM webhook_events WHERE tenant = $1 AND provider = $2 AND event = $3`
	actedSQL = `
		UPDATE webhook_events SET acted_at = now(), due_at = NULL
		WHERE tenant = $1 AND provider = $2 AND event = $3 AND acted_at IS NULL`
)

// siftStatement looks at webhooks and the rows of their payments, by key alone: what joins by more
// is planned by more, and badly while the tables are empty.
var siftStatement = newTemplate(`
WITH looked AS (
	SELECT w.tenant, w.provider, w.event, (
		SELECT CASE
			WHEN p.tenant <> w.tenant OR p.provider <> w.provider OR p.reference <> w.reference
				OR p.account <> w.account AND w.account <> '' AND p.account <> '' THEN 'news'
			WHEN p.reference = w.reference AND (w.status = 'pending'
				OR w.status = 'authorised' AND (p.captured > 0 OR p.status = 'confirmed')
				OR w.status = 'captured' AND p.status = 'captured' AND p.refunded = w.refunded)
				THEN 'told'
			WHEN p.status = ANY (@moving) AND p.updated_at > @since THEN 'moving'
			ELSE 'news'
		END FROM payments AS p WHERE p.id = w.payment) AS verdict
	FROM unnest(@tenant::text[], @provider::text[], @event::text[]) AS g (tenant, provider, event)
		JOIN webhook_events AS w USING (tenant, provider, event)
	WHERE w.acted_at IS NULL
), acted AS (
	UPDATE webhook_events AS w SET acted_at = now(), due_at = NULL FROM looked AS l
	WHERE (w.tenant, w.provider, w.event) = (l.tenant, l.provider, l.event) AND l.verdict = 'told'
)
SELECT tenant, provider, event, verdict IS NOT DISTINCT FROM 'moving' FROM looked
WHERE verdict IS DISTINCT FROM 'told'`)

// moving are the statuses in which a payment does not rest.
var moving = func() (moving []string) {
	for _, status := range order.Statuses() {
		if !status.Rests() {
			moving = append(moving, string(status))
		}
	}
	return moving
}()

// receiveStatement stores webhooks, all of different events, and says which were not stored before.
var receiveStatement = newTemplate(`
INSERT INTO webhook_events (tenant, provider, event, type, payment, reference, account, status,
	refunded, body, at, received_at, due_at)
SELECT * FROM unnest(@tenant::text[], @provider::text[], @event::text[], @type::text[],
	@payment::text[], @reference::text[], @account::text[], @status::text[], @refunded::bigint[],
	@body::bytea[], @at::timestamptz[], @received_at::timestamptz[], @due_at::timestamptz[])
ON CONFLICT (tenant, provider, event) DO NOTHING
RETURNING tenant, provider, event`)

// receipt is a webhook to be stored, and what came of it.
type receipt struct {
	webhook order.Webhook
	fresh   bool
}

// Receive implements order.Store.
func (s *Payments) Receive(ctx context.Context, w order.Webhook) (bool, error) {
	w.Body = bytes.Clone(w.Body) // it is the caller's again when ctx ends, and the group may hold it still
	r := &receipt{webhook: w}
	if err := s.receipts.do(ctx, r); err != nil {
		return false, fmt.Errorf("postgres: store webhook: %w", err)
	}
	return r.fresh, nil
}

// receiveAll stores webhooks.
func (s *Payments) receiveAll(ctx context.Context, all []*receipt) error {
	by := make(map[order.WebhookID]*receipt, len(all))
	for _, r := range all {
		r.fresh = false
		by[r.webhook.WebhookID] = r
	}
	rows, _ := s.pool.Query(ctx, receiveStatement.sql,
		receiveStatement.arguments(s.receiveColumns(all))...)
	var id order.WebhookID
	_, err := pgx.ForEachRow(rows, []any{&id.Tenant, &id.Provider, &id.Event}, func() error {
		by[id].fresh = true
		return nil
	})
	return err
}

func (s *Payments) receiveColumns(all []*receipt) named {
	text := func(value func(w *order.Webhook) string) []string {
		return column(all, func(r *receipt) string { return value(&r.webhook) })
	}
	instant := func(value func(w *order.Webhook) time.Time) []time.Time {
		return column(all, func(r *receipt) time.Time { return value(&r.webhook) })
	}
	return named{
		"tenant":      text(func(w *order.Webhook) string { return w.Tenant }),
		"provider":    text(func(w *order.Webhook) string { return w.Provider }),
		"event":       text(func(w *order.Webhook) string { return w.Event }),
		"type":        text(func(w *order.Webhook) string { return w.Type }),
		"payment":     text(func(w *order.Webhook) string { return w.Payment }),
		"reference":   text(func(w *order.Webhook) string { return w.Reference }),
		"account":     text(func(w *order.Webhook) string { return w.Account }),
		"status":      text(func(w *order.Webhook) string { return string(w.Status) }),
		"refunded":    column(all, func(r *receipt) int64 { return r.webhook.Refunded }),
		"body":        column(all, func(r *receipt) []byte { return r.webhook.Body }),
		"at":          instant(func(w *order.Webhook) time.Time { return w.At }),
		"received_at": instant(func(w *order.Webhook) time.Time { return w.Received }),
		"due_at":      instant(func(w *order.Webhook) time.Time { return w.Received.Add(s.patience) }),
	}
}

// Webhook implements order.Store.
func (s *Payments) Webhook(ctx context.Context, id order.WebhookID) (order.Webhook, error) {
	type row struct {
		Type, Payment, Reference, Account, Status string
		Refunded                                  int64
		Body                                      []byte
		At, ReceivedAt                            time.Time
		ActedAt                                   *time.Time
	}
	rows, _ := s.pool.Query(ctx, webhookSQL, id.Tenant, id.Provider, id.Event)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[row])
	if errors.Is(err, pgx.ErrNoRows) {
		return order.Webhook{}, order.ErrPaymentNotFound
	}
	if err != nil {
		return order.Webhook{}, fmt.Errorf("postgres: read webhook: %w", err)
	}
	return order.Webhook{
		WebhookID: id, Type: r.Type, Payment: r.Payment, Reference: r.Reference,
		Account: r.Account, Status: payment.Status(r.Status), Refunded: r.Refunded, Body: r.Body,
		At: r.At, Received: r.ReceivedAt, Acted: valueOf(r.ActedAt),
	}, nil
}

// Acted implements order.Store.
func (s *Payments) Acted(ctx context.Context, id order.WebhookID) error {
	_, err := s.pool.Exec(ctx, actedSQL, id.Tenant, id.Provider, id.Event)
	if err != nil {
		return fmt.Errorf("postgres: webhook acted on: %w", err)
	}
	return nil
}

// Sift implements order.Store.
func (s *Payments) Sift(
	ctx context.Context, ids []order.WebhookID, since time.Time,
) (moves, news []order.WebhookID, err error) {
	all := make([]*order.WebhookID, len(ids))
	for i := range ids {
		all[i] = &ids[i]
	}
	rows, _ := s.pool.Query(ctx, siftStatement.sql, siftStatement.arguments(named{
		"tenant":   column(all, func(id *order.WebhookID) string { return id.Tenant }),
		"provider": column(all, func(id *order.WebhookID) string { return id.Provider }),
		"event":    column(all, func(id *order.WebhookID) string { return id.Event }),
		"moving":   moving, "since": since,
	})...)
	var id order.WebhookID
	var still bool
	_, err = pgx.ForEachRow(rows, []any{&id.Tenant, &id.Provider, &id.Event, &still}, func() error {
		if still {
			moves = append(moves, id)
		} else {
			news = append(news, id)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("postgres: sift webhooks: %w", err)
	}
	return moves, news, nil
}
