package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"numera/engine/inventory"
	"numera/gateway/shards"
	"numera/shard/wire"
)

// consumer pulls the outboxes of all shards and acknowledges what it has pulled, as the relay of
// events does. It has a goroutine per shard, which stop waits for.
type consumer struct {
	client  *shards.Client
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

func startConsumer(ctx context.Context, client *shards.Client) (*consumer, error) {
	c := &consumer{client: client}
	var from []uint64
	for id := range client.Info().Shards {
		attach := inventory.Entry{Command: &inventory.Attach{Consumer: consumerName}}
		o, err := client.DoOn(ctx, inventory.ShardID(id), attach)
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
		pulled, err := c.client.Events(ctx, id, wire.EventsQuery{After: after, Limit: consumerBatch})
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
	_, _ = c.client.DoOn(ctx, id, inventory.Entry{Command: done})
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
