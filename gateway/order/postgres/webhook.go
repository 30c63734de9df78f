package postgres

import (
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
		ON CONFLICT (tenant, provider, event) DO NOTHING`
	webhookSQL = `
		SELECT type, payment, reference, account, status, refunded, body, at, received_at, acted_at
		FROM webhook_events WHERE tenant = $1 AND provider = $2 AND event = $3`
	actedSQL = `
		UPDATE webhook_events SET acted_at = now(), due_at = NULL
		WHERE tenant = $1 AND provider = $2 AND event = $3 AND acted_at IS NULL`
)

// Receive implements order.Store.
func (s *Payments) Receive(ctx context.Context, w order.Webhook) (bool, error) {
	tag, err := s.pool.Exec(ctx, receiveSQL, w.Tenant, w.Provider, w.Event, w.Type, w.Payment,
		w.Reference, w.Account, string(w.Status), w.Refunded, w.Body, w.At, w.Received,
		w.Received.Add(s.patience))
	if err != nil {
		return false, fmt.Errorf("postgres: store webhook: %w", err)
	}
	return tag.RowsAffected() == 1, nil
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
