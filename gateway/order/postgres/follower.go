package postgres

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// Outboxes are where events and orders are pulled from.
type Outboxes interface {
	Info() wire.Info
	DoOn(context.Context, inventory.ShardID, inventory.Entry) (*inventory.Outcome, error)
	Events(context.Context, inventory.ShardID, wire.EventsQuery) (*wire.Events, error)
	Scan(context.Context, inventory.ShardID, wire.ScanQuery) (*wire.Scan, error)
}

// FollowerConfig says how a Follower works. Zero members take the default.
type FollowerConfig struct {
	// Consumer is the name by which the outboxes keep events for the rows. Default "orders".
	Consumer string
	// Registerer takes the metrics; nil: they are kept and not shown.
	Registerer prometheus.Registerer
	// Log takes what an operator has to know. Default: nothing is logged.
	Log *slog.Logger
}

// Follower writes the rows of orders from the outboxes of all shards. See DESIGN.md for why none is
// missing and none comes twice.
//
// Several may follow the same shards into the same database: one of them works, and another takes
// over when it ends.
type Follower struct {
	config   FollowerConfig
	pool     *pgxpool.Pool
	outboxes Outboxes
	days     partitions
	metrics  *followerMetrics
	lag      []*lag      // by shard
	writing  atomic.Bool // this Follower is the one that works
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	trouble error     // why rows are not being written; nil: they are, by this or another Follower
	since   time.Time // of trouble
}

// Follow starts a Follower over a migrated database, which may be down and come up later. It works
// until Close.
func Follow(pool *pgxpool.Pool, outboxes Outboxes, c FollowerConfig) *Follower {
	if c.Consumer == "" {
		c.Consumer = "orders"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	f := &Follower{
		config: c, pool: pool, outboxes: outboxes, lag: make([]*lag, outboxes.Info().Shards),
	}
	for shard := range f.lag {
		f.lag[shard] = new(lag)
	}
	f.metrics = newFollowerMetrics(f, c.Registerer)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.running.Go(func() { f.run(ctx) })
	return f
}

// Close stops the Follower. What it has not acknowledged will be pulled again by the next.
func (f *Follower) Close() {
	f.cancel()
	f.running.Wait()
}

const (
	standbyPause = time.Second
	firstPause   = 100 * time.Millisecond
	mostPause    = 2 * time.Second
)

// run works in sessions: each begins anew from what the database says.
func (f *Follower) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errStandby) {
			f.settle(nil)
			f.measure(ctx)
			sleep(ctx, standbyPause)
			continue
		}
		if time.Since(began) > mostPause {
			pause = firstPause
		}
		f.settle(err)
		f.measure(ctx)
		sleep(ctx, pause)
		pause = min(2*pause, mostPause)
	}
}

// settle notes why rows are not being written, or that they are, and logs it when that changes.
func (f *Follower) settle(trouble error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case trouble != nil && f.trouble == nil:
		f.since = time.Now()
		f.config.Log.Warn("rows of orders are not being written", "error", trouble)
	case trouble == nil && f.trouble != nil:
		f.config.Log.Info("rows of orders are being written again",
			"after", time.Since(f.since).Round(time.Millisecond))
	}
	f.trouble = trouble
}

// LateSeconds is the lag from which on the rows count as degraded.
const LateSeconds = 10

// Degraded names what is down, for /readyz: "postgres" when the database cannot be reached or
// written, "orders" when the rows lag behind by LateSeconds or more, or a shard cannot be followed.
func (f *Follower) Degraded(context.Context) (names []string) {
	f.mu.Lock()
	trouble := f.trouble
	f.mu.Unlock()
	if trouble != nil {
		names = append(names, "postgres")
	}
	_, seconds := f.Lag()
	stuck := slices.ContainsFunc(f.lag, func(l *lag) bool { return l.stuck.Load() })
	if stuck || seconds >= LateSeconds {
		names = append(names, "orders")
	}
	return names
}

// Trouble is why rows are not being written, nil when they are. The error holds no secret.
func (f *Follower) Trouble() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// Lag is how many events of all shards the rows do not contain yet, and how long ago, in seconds,
// the oldest of them happened. Another Follower at work knows better.
func (f *Follower) Lag() (events int64, seconds float64) {
	now := time.Now().UnixMilli()
	for _, l := range f.lag {
		n, since := l.events.Load(), l.oldestUnixMilli.Load()
		events += n
		if n > 0 && since > 0 {
			seconds = max(seconds, float64(now-since)/1000)
		}
	}
	return events, seconds
}

// Await waits until the rows contain a shard's events up to sequence, and says whether they do: not
// if that takes longer than patience, or if nobody writes rows here. Any goroutine may call it.
func (f *Follower) Await(
	ctx context.Context, shard inventory.ShardID, sequence uint64, patience time.Duration,
) bool {
	if int(shard) >= len(f.lag) || !f.writing.Load() {
		return false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for l := f.lag[shard]; ; {
		moved := l.move()
		if l.offset.Load() >= sequence {
			return true
		}
		select {
		case <-moved:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// measurePatience bounds one look at an outbox while nothing is pulled from it.
const measurePatience = time.Second

// measure updates the lag while nobody pulls, from where the rows were last known to be.
func (f *Follower) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measurePatience)
	defer cancel()
	var looking sync.WaitGroup
	for shard, l := range f.lag {
		if l.offset.Load() == 0 {
			continue // the rows have never been seen
		}
		looking.Go(func() {
			query := wire.EventsQuery{After: l.offset.Load(), Limit: 1}
			next, err := f.outboxes.Events(ctx, inventory.ShardID(shard), query)
			if err == nil {
				l.pulled(next)
			}
		})
	}
	looking.Wait()
}

// attach makes the rows a consumer of a shard's outbox, if they are none.
func (f *Follower) attach(ctx context.Context, shard inventory.ShardID) error {
	return f.command(ctx, shard, &inventory.Attach{Consumer: f.config.Consumer})
}

func (f *Follower) acknowledge(ctx context.Context, shard inventory.ShardID, sequence uint64) error {
	return f.command(ctx, shard,
		&inventory.Acknowledge{Consumer: f.config.Consumer, Sequence: sequence})
}

// homeOrders are the orders of events of a shard that live there.
func homeOrders(shard inventory.ShardID, events []inventory.Event) []*inventory.OrderView {
	orders := make([]*inventory.OrderView, 0, len(events))
	for i := range events {
		if o := events[i].Order; o != nil && o.ID.Shard() == shard {
			orders = append(orders, o)
		}
	}
	return slices.Clip(orders)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
