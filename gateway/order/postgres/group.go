package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// group has what many goroutines write travel together: what waits while others are under way
// becomes one statement, that is one round trip, one transaction and one commit, and the executor
// is set up once for all of it. Most of a small statement's price is in those. What the database
// refuses takes its company down with it, and then each is written again alone: so it must be safe
// to repeat, as what is done for an order.Store is.
//
// It has no goroutines of its own but for flights, which end when nobody waits.
type group[T any] struct {
	// write writes all of them, in one transaction, and puts what came of each into it.
	write func(ctx context.Context, together []*T) error
	// key tells those apart that must not be written by one statement, as they may be about one row.
	key func(*T) string
	// most is how many statements may be under way at once: 1 makes the largest of what comes, 2 has
	// one executed while another waits for the disk.
	most int

	mu      sync.Mutex
	waiting []*passenger[T]
	flights int
}

type passenger[T any] struct {
	it   *T
	done chan error
}

// mostTogether is how many one statement writes, so that the first does not wait long for the last.
const mostTogether = 128

// do has it written. It belongs to the group: after an error it may have been written, or be written
// still, and must not be looked at.
func (g *group[T]) do(ctx context.Context, it *T) error {
	p := &passenger[T]{it: it, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	if g.flights < g.most {
		g.flights++
		go g.fly()
	}
	g.mu.Unlock()
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fly writes what waits until nothing does.
func (g *group[T]) fly() {
	for {
		together := g.board()
		if together == nil {
			return
		}
		g.execute(together)
	}
}

// board takes what waits, of each key the first. None: the flight has ended.
func (g *group[T]) board() (together []*passenger[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	keys := make(map[string]bool)
	left := g.waiting[:0]
	for _, p := range g.waiting {
		if key := g.key(p.it); len(together) == mostTogether || keys[key] {
			left = append(left, p)
		} else {
			keys[key] = true
			together = append(together, p)
		}
	}
	clear(g.waiting[len(left):])
	g.waiting = left
	if together == nil {
		g.flights--
	}
	return together
}

// execute writes and answers all of them.
func (g *group[T]) execute(together []*passenger[T]) {
	its := make([]*T, len(together))
	for i, p := range together {
		its[i] = p.it
	}
	// Not the context of any of them: the others would be cut off with it.
	ctx, cancel := context.WithTimeout(context.Background(), writePatience)
	err := g.write(ctx, its)
	cancel()
	var refused *pgconn.PgError
	if len(together) > 1 && errors.As(err, &refused) {
		for i := range together {
			g.execute(together[i : i+1])
		}
		return
	}
	for _, p := range together {
		p.done <- err
	}
}

// column is one value of each.
func column[T, V any](of []*T, value func(*T) V) []V {
	values := make([]V, len(of))
	for i, it := range of {
		values[i] = value(it)
	}
	return values
}
