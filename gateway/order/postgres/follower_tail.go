package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// batch is a stretch of one shard: orders to write, and the offset that they bring the rows to.
type batch struct {
	shard    inventory.ShardID
	orders   []*inventory.OrderView
	move     bool          // false: a part of a scan, which moves no offset
	from, to offset        // with move
	written  chan struct{} // closed after the commit
}

// offset is how far the rows follow a shard.
type offset struct {
	known    bool // false: they have to be scanned
	sequence uint64
}

const (
	// pullMost is how many events are pulled at once.
	pullMost = 4000
	// scanMost is how many orders of a scan are.
	scanMost = 2000
	// idle is how long an outbox is left alone that has given less than it was asked for. Under
	// load it is what makes batches out of events.
	idle = 100 * time.Millisecond
	// acknowledgePeriod is how often a shard is told how far the rows are: it is a command in its
	// log.
	acknowledgePeriod = 500 * time.Millisecond
	// durableDelay is how long after a commit it is certain to be on disk: see Follower.lead.
	// PostgreSQL's own bound is three times wal_writer_delay, which is 200 ms unless somebody has
	// said otherwise. Where it is longer, a crash of PostgreSQL costs a scan.
	durableDelay = 2 * time.Second
)

// tail follows one shard in a session.
type tail struct {
	*session
	shard        inventory.ShardID
	at           offset // of what is committed
	acknowledged time.Time
	waiting      []committed // to be durable, and then to be acknowledged
}

// committed is how far a shard's events were at an instant.
type committed struct {
	sequence uint64
	at       time.Time
}

// run follows until ctx ends. What goes wrong at the shard is its own affair: the other shards go
// on.
func (t *tail) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errTrimmed) {
			t.at.known = false
			continue
		}
		if !t.lag[t.shard].stuck.Swap(true) {
			t.config.Log.Warn("following a shard was interrupted", "shard", t.shard, "error", err)
		}
		sleep(ctx, time.Second)
	}
}

// follow attaches, before it looks at anything: so that nothing is forgotten from then on.
func (t *tail) follow(ctx context.Context) error {
	if err := t.attach(ctx, t.shard); err != nil {
		return err
	}
	if !t.at.known {
		if err := t.scan(ctx); err != nil {
			return err
		}
	}
	t.waiting = append(t.waiting[:0], committed{t.at.sequence, time.Now()})
	for ctx.Err() == nil {
		query := wire.EventsQuery{After: t.at.sequence, Limit: pullMost}
		pulled, err := t.outboxes.Events(ctx, t.shard, query)
		switch {
		case err != nil:
			return fmt.Errorf("pull: %w", err)
		case pulled.Trimmed:
			return errTrimmed
		case pulled.Last < t.at.sequence:
			return fmt.Errorf("%w: event %d of %d", ErrEngineBehind, pulled.Last, t.at.sequence)
		}
		t.lag[t.shard].pulled(pulled)
		t.lag[t.shard].stuck.Store(false)
		if len(pulled.Events) > 0 {
			if err := t.take(ctx, pulled); err != nil {
				return err
			}
		}
		if err := t.tell(ctx); err != nil {
			return err
		}
		if len(pulled.Events) < pullMost/2 { // an answer is shorter than asked for when it is large
			sleep(ctx, idle)
		}
	}
	return ctx.Err()
}

// take has pulled events written.
func (t *tail) take(ctx context.Context, pulled *wire.Events) error {
	events := pulled.Events
	to := offset{true, events[len(events)-1].Sequence}
	b := &batch{
		shard: t.shard, orders: homeOrders(t.shard, events), move: true, from: t.at, to: to,
	}
	if err := t.submit(ctx, b); err != nil {
		return err
	}
	t.at = to
	t.waiting = append(t.waiting, committed{to.sequence, time.Now()})
	t.lag[t.shard].written(to.sequence, pulled.Last)
	t.metrics.rows.Add(float64(len(events)))
	t.metrics.delay.Observe(float64(time.Now().UnixMilli()-events[0].AtUnixMilli) / 1000)
	return nil
}

// scan writes all orders that the shard keeps. Its parts are of different moments, each of them not
// before the first; what happens since then is pulled afterwards.
func (t *tail) scan(ctx context.Context) error {
	began := time.Now()
	t.metrics.scans.Inc()
	sequence, orders := uint64(0), 0
	for cursor := []byte(nil); ; {
		part, err := t.outboxes.Scan(ctx, t.shard, wire.ScanQuery{After: cursor, Limit: scanMost})
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		if cursor == nil {
			sequence = part.Sequence
		}
		orders += len(part.Orders)
		b := &batch{shard: t.shard, orders: part.Orders}
		last := len(part.Next) == 0
		if last {
			b.move, b.from, b.to = true, t.stored[t.shard], offset{true, sequence}
		}
		if err := t.submit(ctx, b); err != nil {
			return err
		}
		if last {
			break
		}
		cursor = part.Next
	}
	t.at = offset{true, sequence}
	t.lag[t.shard].written(sequence, sequence)
	level := slog.LevelInfo
	if orders == 0 {
		level = slog.LevelDebug
	}
	t.config.Log.Log(ctx, level, "scanned the orders of a shard", "shard", t.shard, "orders", orders,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// submit gives a batch to the session's writer and waits for its commit.
func (t *tail) submit(ctx context.Context, b *batch) error {
	b.written = make(chan struct{})
	select {
	case t.batches <- b:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-b.written:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell acknowledges what is durable, from time to time.
func (t *tail) tell(ctx context.Context) error {
	if time.Since(t.acknowledged) < acknowledgePeriod {
		return nil
	}
	durable := 0
	for durable < len(t.waiting) && time.Since(t.waiting[durable].at) > durableDelay {
		durable++
	}
	if durable == 0 {
		return nil
	}
	if err := t.acknowledge(ctx, t.shard, t.waiting[durable-1].sequence); err != nil {
		return err
	}
	t.waiting, t.acknowledged = t.waiting[durable:], time.Now()
	return nil
}

// command has a command of operation decided.
func (f *Follower) command(ctx context.Context, shard inventory.ShardID, c inventory.Command) error {
	o, err := f.outboxes.DoOn(ctx, shard, inventory.Entry{Command: c})
	if err != nil {
		return err
	}
	if o.Code != inventory.CodeOK {
		return fmt.Errorf("the shard refused: %v", o.Code)
	}
	return nil
}
