package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"numera/engine/inventory"
	"numera/gateway/shards"
	"numera/shard"
	"numera/shard/wire"
)

// consumer pulls the outboxes of all shards and acknowledges what it has pulled, as the relay of
// events does. It has a goroutine per shard, which stop waits for.
type consumer struct {
	outbox  outbox
	cancel  context.CancelFunc
	running sync.WaitGroup
	events  atomic.Int64
	failed  atomic.Pointer[error]
}

const (
	consumerName  = "bench"
	consumerBatch = 2000
	consumerIdle  = 20 * time.Millisecond
)

// outbox is where a consumer pulls from: package shards' client, or the shards themselves.
type outbox interface {
	DoOn(context.Context, inventory.ShardID, inventory.Entry) (*inventory.Outcome, error)
	Events(context.Context, inventory.ShardID, wire.EventsQuery) (*wire.Events, error)
}

var _ outbox = (*shards.Client)(nil)

// nodeOutbox is that of the shards of a node in this process.
type nodeOutbox struct{ node *shard.Node }

// DoOn implements outbox.
func (n nodeOutbox) DoOn(
	ctx context.Context, id inventory.ShardID, e inventory.Entry,
) (*inventory.Outcome, error) {
	return n.node.Shard(id).Do(ctx, e)
}

// Events implements outbox.
func (n nodeOutbox) Events(
	ctx context.Context, id inventory.ShardID, q wire.EventsQuery,
) (*wire.Events, error) {
	return n.node.Shard(id).Events(ctx, q)
}

func startConsumer(ctx context.Context, outbox outbox, shards int) (*consumer, error) {
	c := &consumer{outbox: outbox}
	var from []uint64
	for id := range shards {
		attach := inventory.Entry{Command: &inventory.Attach{Consumer: consumerName}}
		o, err := outbox.DoOn(ctx, inventory.ShardID(id), attach)
		if err != nil {
			return nil, fmt.Errorf("%w: attach a consumer: %w", ErrIncomplete, err)
		}
		from = append(from, o.Sequence)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	for id, after := range from {
		c.running.Go(func() { c.follow(ctx, inventory.ShardID(id), after) })
	}
	return c, nil
}

// follow pulls from one shard until ctx ends. A pull or an acknowledgement that fails is tried
// again: what was not acknowledged is still there.
func (c *consumer) follow(ctx context.Context, id inventory.ShardID, after uint64) {
	for ctx.Err() == nil {
		pulled, err := c.outbox.Events(ctx, id, wire.EventsQuery{After: after, Limit: consumerBatch})
		switch {
		case err == nil && pulled.Trimmed:
			err = fmt.Errorf("%w: events after %d of shard %d were trimmed before they were "+
				"acknowledged", ErrViolated, after, id)
			c.failed.Store(&err)
			return
		case err == nil:
			for i := range pulled.Events {
				if after++; pulled.Events[i].Sequence != after {
					err = fmt.Errorf("%w: shard %d has event %d where %d was due", ErrViolated, id,
						pulled.Events[i].Sequence, after)
					c.failed.Store(&err)
					return
				}
			}
			c.events.Add(int64(len(pulled.Events)))
			if len(pulled.Events) > 0 {
				c.acknowledge(ctx, id, after)
			}
		}
		if err != nil || len(pulled.Events) < consumerBatch/10 {
			pause(ctx, consumerIdle)
		}
	}
}

func (c *consumer) acknowledge(ctx context.Context, id inventory.ShardID, sequence uint64) {
	done := &inventory.Acknowledge{Consumer: consumerName, Sequence: sequence}
	// A lost one is made good by the next.
	_, _ = c.outbox.DoOn(ctx, id, inventory.Entry{Command: done})
}

// stop ends the consumer and says what it found wrong.
func (c *consumer) stop() error {
	c.cancel()
	c.running.Wait()
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
