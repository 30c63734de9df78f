package postgres

import "context"

// Group is a group of numbers, for tests.
type Group struct{ group[int] }

// NewGroup makes one; of two with one key, only one is written at once.
func NewGroup(
	write func(ctx context.Context, together []*int) error, key func(*int) string,
) *Group {
	return &Group{group[int]{write: write, key: key, most: 2}}
}

// Do is do.
func (g *Group) Do(ctx context.Context, it *int) error { return g.do(ctx, it) }

// Flights is how many are under way.
func (g *Group) Flights() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flights
}
