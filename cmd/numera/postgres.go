package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/cluster"
)

// database is PostgreSQL as dev uses it: that of a DSN, or a private one under the data directory.
// Selling does not need it. So what is wrong with it is said, tried again, and never ends the
// process: /readyz names it meanwhile, and the outboxes keep what its rows are to contain.
type database struct {
	log  *slog.Logger
	dir  string // of the private one; "" with a DSN
	pool *pgxpool.Pool

	cancel  context.CancelFunc
	running sync.WaitGroup
	first   chan struct{} // closed when it is ready, or was found not to be

	mu      sync.Mutex
	trouble error // why it is not ready; nil: it is
}

const (
	// databasePatience is how long dev waits for it before it sells without.
	databasePatience = 30 * time.Second
	databasePause    = 5 * time.Second
)

// openDatabase returns when the database is ready and migrated, or not to be had just now. An error
// means that the DSN makes no sense.
func openDatabase(ctx context.Context, dsn, dir string, log *slog.Logger) (*database, error) {
	d := &database{log: log, first: make(chan struct{})}
	if dsn == "" {
		d.dir, dsn = dir, cluster.DSN(dir)
	}
	var err error
	if d.pool, err = postgres.Open(ctx, postgres.PoolConfig{DSN: dsn}); err != nil {
		return nil, fmt.Errorf("--postgres: %w", err)
	}
	keeping, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.running.Go(func() { d.keep(keeping) })
	select {
	case <-d.first:
	case <-time.After(databasePatience):
		d.settle(errors.New("it is not ready yet"))
	case <-ctx.Done():
	}
	return d, nil
}

// keep makes the database ready, and starts a private one again that has ended.
func (d *database) keep(ctx context.Context) {
	once := sync.OnceFunc(func() { close(d.first) })
	defer once()
	for ctx.Err() == nil {
		private, err := d.prepare(ctx)
		if ctx.Err() == nil {
			d.settle(err)
		}
		once()
		switch {
		case err != nil:
			d.sleep(ctx)
		case private == nil:
			<-ctx.Done()
		default:
			select {
			case <-ctx.Done():
			case <-private.Exited():
				d.settle(errors.New("it has ended"))
			}
		}
		if private != nil {
			if err := private.Stop(); err != nil {
				d.log.Error("PostgreSQL does not stop", "error", err)
			}
		}
	}
}

// prepare starts the private one, if it is to be, and migrates it.
func (d *database) prepare(ctx context.Context) (private *cluster.Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, databasePatience)
	defer cancel()
	if d.dir != "" {
		if private, err = cluster.Start(ctx, cluster.Config{Dir: d.dir}); err != nil {
			return nil, err
		}
	}
	_, err = postgres.Migrate(ctx, d.pool)
	return private, err
}

// ready says why it is not, or nil.
func (d *database) ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.trouble
}

func (d *database) settle(trouble error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if trouble != nil && d.trouble == nil {
		d.log.Warn("selling without PostgreSQL: orders are kept for it", "error", trouble)
	}
	d.trouble = trouble
}

func (d *database) sleep(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(databasePause):
	}
}

// String says where the database is, or what is wrong with it, without its password.
func (d *database) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trouble != nil {
		return fmt.Sprintf("not available, selling goes on without: %v", d.trouble)
	}
	c := d.pool.Config().ConnConfig
	return fmt.Sprintf("psql 'host=%s port=%d user=%s dbname=%s'", c.Host, c.Port, c.User, c.Database)
}

// private is the DSN of a private one, else "".
func (d *database) private() string {
	if d.dir == "" {
		return ""
	}
	return cluster.DSN(d.dir)
}

// close stops a private one. What uses the pool has to be closed before.
func (d *database) close() error {
	d.cancel()
	d.pool.Close()
	d.running.Wait()
	return nil
}
