package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Group is a group, for tests.
type Group struct{ group }

// NewGroup makes one.
func NewGroup(pool *pgxpool.Pool) *Group { return &Group{group{pool: pool}} }

// Do is do.
func (g *Group) Do(ctx context.Context, sql string, args []any, row ...any) (bool, error) {
	return g.do(ctx, sql, args, row...)
}

// Flights is how many are under way.
func (g *Group) Flights() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flights
}
