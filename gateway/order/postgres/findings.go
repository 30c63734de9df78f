package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"numera/gateway/order"
)

// Finding is what somebody has to look at.
type Finding = order.Finding

// OpenFinding is one that nobody has resolved yet.
type OpenFinding struct {
	Kind    string
	Subject string
	Detail  string
	FoundAt time.Time
	SeenAt  time.Time // last
}

// OpenFindings reads all of them, oldest first, limit at the most.
func OpenFindings(ctx context.Context, pool *pgxpool.Pool, limit int) ([]OpenFinding, error) {
	rows, err := pool.Query(ctx, `SELECT kind, subject, detail, found_at, seen_at FROM findings
		WHERE resolved_at IS NULL ORDER BY found_at, id LIMIT $1`, limit)
	if err == nil {
		var open []OpenFinding
		if open, err = pgx.CollectRows(rows, pgx.RowToStructByName[OpenFinding]); err == nil {
			return open, nil
		}
	}
	return nil, fmt.Errorf("postgres: findings: %w", err)
}

// CountFindings counts the open ones by kind.
func CountFindings(ctx context.Context, pool *pgxpool.Pool) (map[string]int, error) {
	rows, err := pool.Query(ctx,
		"SELECT kind, count(*)::int FROM findings WHERE resolved_at IS NULL GROUP BY kind")
	if err != nil {
		return nil, fmt.Errorf("postgres: findings: %w", err)
	}
	counts := make(map[string]int)
	var kind string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&kind, &n}, func() error {
		counts[kind] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: findings: %w", err)
	}
	return counts, nil
}

// raise notes a finding, or that an open one is still so.
func raise(ctx context.Context, to executor, f Finding) error {
	return raiseAll(ctx, to, []Finding{f}, false)
}

// raiseAll notes findings as open or as resolved already; of two of one kind and subject one.
func raiseAll(ctx context.Context, to executor, all []Finding, resolved bool) error {
	kinds, subjects, details := make([]string, len(all)), make([]string, len(all)), make([]string, len(all))
	for i, f := range all {
		kinds[i], subjects[i], details[i] = f.Kind, f.Subject, f.Detail
	}
	_, err := to.Exec(ctx, `
		INSERT INTO findings (kind, subject, detail, resolved_at)
		SELECT DISTINCT ON (kind, subject) kind, subject, detail, CASE WHEN $4 THEN now() END
		FROM unnest($1::text[], $2::text[], $3::text[]) AS f (kind, subject, detail)
		ON CONFLICT (kind, subject) WHERE resolved_at IS NULL
		DO UPDATE SET detail = EXCLUDED.detail, seen_at = now()`, kinds, subjects, details, resolved)
	return err
}

// Settle implements order.Rows.
func (o *Orders) Settle(ctx context.Context, left, repaired []Finding, kinds []string) error {
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// Those that are seen again get a newer seen_at; all others of these kinds are over.
		if err := raiseAll(ctx, tx, left, false); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE findings SET resolved_at = now()
			WHERE resolved_at IS NULL AND kind = ANY ($1) AND seen_at < now()`, kinds)
		if err != nil {
			return err
		}
		return raiseAll(ctx, tx, repaired, true)
	})
	if err != nil {
		return fmt.Errorf("postgres: settle findings: %w", err)
	}
	return nil
}
