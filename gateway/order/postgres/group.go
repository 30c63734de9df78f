package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// group has the statements of many goroutines travel together: what waits while others are under way
// becomes one round trip, one transaction and one commit. Most of a small statement's price is in
// those. A statement that the database refuses takes its company down with it, and then each is
// done again alone: so it must be safe to repeat, as what is done for an order.Store is.
//
// It has no goroutines of its own but for flights, which end when nobody waits.
type group struct {
	pool *pgxpool.Pool

	mu      sync.Mutex
	waiting []*grouped
	flights int
}

const (
	mostFlights  = 3  // one is executed while another waits for the disk
	mostTogether = 64 // so that the first does not wait long for the last
)

// grouped is a statement that gives one row or none.
type grouped struct {
	sql  string
	args []any
	row  []any // where to scan it to
	none bool  // there was none
	done chan error
}

// do executes a statement and scans its row; found is false if it gives none. After an error it may
// have been executed.
func (g *group) do(ctx context.Context, sql string, args []any, row ...any) (found bool, err error) {
	s := &grouped{sql: sql, args: args, row: row, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	if g.flights < mostFlights {
		g.flights++
		go g.fly()
	}
	g.mu.Unlock()
	select {
	case err := <-s.done:
		return !s.none, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// fly executes what waits until nothing does.
func (g *group) fly() {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), mostTogether)
		if n == 0 {
			g.waiting = nil
			g.flights--
			g.mu.Unlock()
			return
		}
		together := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.mu.Unlock()
		g.execute(together)
	}
}

// execute answers all of them.
func (g *group) execute(together []*grouped) {
	err := g.send(together)
	var refused *pgconn.PgError
	if len(together) > 1 && errors.As(err, &refused) {
		for i := range together {
			g.execute(together[i : i+1])
		}
		return
	}
	for _, s := range together {
		s.done <- err
	}
}

// send executes statements in one transaction.
func (g *group) send(together []*grouped) error {
	var batch pgx.Batch
	for _, s := range together {
		s.none = false
		batch.Queue(s.sql, s.args...).QueryRow(func(row pgx.Row) error {
			err := row.Scan(s.row...)
			if errors.Is(err, pgx.ErrNoRows) {
				s.none, err = true, nil
			}
			return err
		})
	}
	// Not the context of any of them: the others would be cut off with it.
	ctx, cancel := context.WithTimeout(context.Background(), writePatience)
	defer cancel()
	return g.pool.SendBatch(ctx, &batch).Close()
}
