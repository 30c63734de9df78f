package bench

import (
	"context"
	"fmt"
	"iter"
	"slices"
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
	consumerBatch = 1000   // events of one pull, as the relay's
	consumerTrail = 10_000 // events that may be consumed and not acknowledged while more come
	consumerIdle  = 20 * time.Millisecond
)

// outbox is where a consumer pulls from.
type outbox interface {
	do(context.Context, inventory.ShardID, inventory.Command) (*inventory.Outcome, error)

	// pull reads the events after a sequence; trimmed says that the next is no longer kept.
	pull(ctx context.Context, id inventory.ShardID, after uint64) (
		events iter.Seq[inventory.Event], trimmed bool, err error)
}

// busOutbox pulls through NATS.
type busOutbox struct{ client *shards.Client }

func (b busOutbox) do(
	ctx context.Context, id inventory.ShardID, c inventory.Command,
) (*inventory.Outcome, error) {
	return b.client.DoOn(ctx, id, inventory.Entry{Command: c})
}

func (b busOutbox) pull(ctx context.Context, id inventory.ShardID, after uint64) (
	iter.Seq[inventory.Event], bool, error,
) {
	pulled, err := b.client.Events(ctx, id, wire.EventsQuery{After: after, Limit: consumerBatch})
	if err != nil {
		return nil, false, err
	}
	return slices.Values(pulled.Events), pulled.Trimmed, nil
}

// nodeOutbox pulls from the shards of a node in this process.
type nodeOutbox struct{ node *shard.Node }

func (n nodeOutbox) do(
	ctx context.Context, id inventory.ShardID, c inventory.Command,
) (*inventory.Outcome, error) {
	return n.node.Shard(id).Do(ctx, inventory.Entry{Command: c})
}

func (n nodeOutbox) pull(ctx context.Context, id inventory.ShardID, after uint64) (
	iter.Seq[inventory.Event], bool, error,
) {
	tail, trimmed, err := n.node.Shard(id).Tail(ctx, after, consumerBatch)
	return tail.All(), trimmed, err
}

func startConsumer(ctx context.Context, outbox outbox, shards int) (*consumer, error) {
	c := &consumer{outbox: outbox}
	var from []uint64
	for id := range shards {
		attach := &inventory.Attach{Consumer: consumerName}
		o, err := outbox.do(ctx, inventory.ShardID(id), attach)
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
	trail := 0
	for ctx.Err() == nil {
		events, trimmed, err := c.outbox.pull(ctx, id, after)
		if trimmed {
			c.fail("events after %d of shard %d were trimmed before they were acknowledged", after, id)
			return
		}
		pulled := 0
		if err == nil {
			for event := range events {
				if pulled++; event.Sequence != after+1 {
					c.fail("shard %d has event %d where %d was due", id, event.Sequence, after+1)
					return
				}
				after = event.Sequence
			}
		}
		c.events.Add(int64(pulled))
		trail += pulled
		idle := pulled < consumerBatch/10
		if trail >= consumerTrail || trail > 0 && idle {
			c.acknowledge(ctx, id, after)
			trail = 0
		}
		if idle {
			pause(ctx, consumerIdle)
		}
	}
}

func (c *consumer) fail(format string, args ...any) {
	err := fmt.Errorf("%w: "+format, append([]any{ErrViolated}, args...)...)
	c.failed.Store(&err)
}

func (c *consumer) acknowledge(ctx context.Context, id inventory.ShardID, sequence uint64) {
	done := &inventory.Acknowledge{Consumer: consumerName, Sequence: sequence}
	// A lost one is made good by the next.
	_, _ = c.outbox.do(ctx, id, done)
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
