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
	receiveSQL = `
		INSERT INTO webhook_events (tenant, provider, event, type, payment, reference, account,
			status, refunded, body, at, received_at, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (tenant, provider, event) DO NOTHING
		RETURNING true`
	webhookSQL = `
		SELECT type, payment, reference, account, status, refunded, body, at, received_at, acted_at
		FROM webhook_events WHERE tenant = $1 AND provider = $2 AND event = $3`
	actedSQL = `
		UPDATE webhook_events SET acted_at = now(), due_at = NULL
		WHERE tenant = $1 AND provider = $2 AND event = $3 AND acted_at IS NULL`
	knownSQL = `
		UPDATE webhook_events AS w SET acted_at = now(), due_at = NULL
		FROM unnest($1::text[], $2::text[], $3::text[]) AS g (tenant, provider, event), payments AS p
		WHERE (w.tenant, w.provider, w.event) = (g.tenant, g.provider, g.event)
			AND w.acted_at IS NULL AND p.id = w.payment AND p.reference = w.reference
			AND p.tenant = w.tenant AND p.provider = w.provider
			AND (w.account = p.account OR w.account = '' OR p.account = '')
			AND (w.status = 'pending'
				OR w.status = 'authorised' AND (p.captured > 0 OR p.status = 'confirmed')
				OR w.status = 'captured' AND p.status = 'captured' AND p.refunded = w.refunded)
		RETURNING w.tenant, w.provider, w.event`
)

// Receive implements order.Store.
func (s *Payments) Receive(ctx context.Context, w order.Webhook) (bool, error) {
	body := bytes.Clone(w.Body) // it is the caller's again when ctx ends, and the group may hold it still
	fresh, err := s.group.do(ctx, receiveSQL, []any{
		w.Tenant, w.Provider, w.Event, w.Type, w.Payment, w.Reference, w.Account, string(w.Status),
		w.Refunded, body, w.At, w.Received, w.Received.Add(s.patience),
	}, new(bool))
	if err != nil {
		return false, fmt.Errorf("postgres: store webhook: %w", err)
	}
	return fresh, nil
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

// Known implements order.Store.
func (s *Payments) Known(ctx context.Context, ids []order.WebhookID) ([]order.WebhookID, error) {
	tenants, providers := make([]string, len(ids)), make([]string, len(ids))
	events := make([]string, len(ids))
	for i, id := range ids {
		tenants[i], providers[i], events[i] = id.Tenant, id.Provider, id.Event
	}
	rows, _ := s.pool.Query(ctx, knownSQL, tenants, providers, events)
	known, err := pgx.CollectRows(rows, pgx.RowToStructByName[order.WebhookID])
	if err != nil {
		return nil, fmt.Errorf("postgres: known webhooks: %w", err)
	}
	return known, nil
}
