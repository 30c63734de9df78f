package postgres

import (
	"context"
	"time"
)

// Finding is what somebody has to look at. It holds no personal data.
type Finding struct {
	Kind    string // lower case, words joined by _
	Subject string // the id of an order, a payment or a product
	Detail  string
	FoundAt time.Time
	SeenAt  time.Time // last
}

// raise notes a finding, or that an open one is still so.
func raise(ctx context.Context, to executor, f Finding) error {
	_, err := to.Exec(ctx, `
		INSERT INTO findings (kind, subject, detail) VALUES ($1, $2, $3)
		ON CONFLICT (kind, subject) WHERE resolved_at IS NULL
		DO UPDATE SET detail = EXCLUDED.detail, seen_at = now()`, f.Kind, f.Subject, f.Detail)
	return err
}
