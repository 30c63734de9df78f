package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"numera/gateway"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
)

// backOffice is the gateway's Desk over Postgres.
type backOffice struct {
	*postgres.Payments
	jobs *postgres.Jobs
	pool *pgxpool.Pool
}

// Findings implements gateway.Desk.
func (b *backOffice) Findings(ctx context.Context, limit int) ([]gateway.Finding, error) {
	open, err := postgres.OpenFindings(ctx, b.pool, limit)
	findings := make([]gateway.Finding, len(open))
	for i, f := range open {
		findings[i] = gateway.Finding{
			Finding: order.Finding{Kind: f.Kind, Subject: f.Subject, Detail: f.Detail},
			FoundAt: f.FoundAt, SeenAt: f.SeenAt,
		}
	}
	return findings, err
}

// DeadLetters implements gateway.Desk.
func (b *backOffice) DeadLetters(
	ctx context.Context, q order.Queue, after int64, limit int,
) ([]gateway.DeadLetter, error) {
	dead, err := b.jobs.DeadLetters(ctx, postgres.DeadFilter{Queue: q, After: after, Limit: limit})
	letters := make([]gateway.DeadLetter, len(dead))
	for i, letter := range dead {
		letters[i] = gateway.DeadLetter(letter)
	}
	return letters, err
}

// Replay implements gateway.Desk.
func (b *backOffice) Replay(ctx context.Context, id int64) error {
	err := b.jobs.Replay(ctx, id)
	if errors.Is(err, postgres.ErrNoDeadLetter) {
		return gateway.ErrNoDeadLetter
	}
	return err
}

// ReplayAll implements gateway.Desk.
func (b *backOffice) ReplayAll(ctx context.Context, q order.Queue) (int, error) {
	return b.jobs.ReplayAll(ctx, postgres.DeadFilter{Queue: q})
}
