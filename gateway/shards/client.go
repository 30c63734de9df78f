package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// Client reaches the shards of one cluster. Any goroutine may call it.
type Client struct {
	nc     *nats.Conn
	config Config
	info   wire.Info
	began  time.Time
	lanes  []*lane // by shard
	calls  sync.Pool

	inbox        string // batches are answered below it
	subscription *nats.Subscription
	drained      chan struct{}   // closed when the subscription delivers nothing more
	responses    []wire.Response // of the goroutine that receives, to use again
	malformed    atomic.Uint64
	parts        atomic.Int64

	closing    chan struct{} // closed by Close
	closeOnce  sync.Once
	goroutines sync.WaitGroup
}

// New learns what the cluster is, for which it waits Config.InfoTimeout at most, and starts the
// Client. See the package for the options that nc needs. Close must be called before nc is.
func New(nc *nats.Conn, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	info, err := learn(nc, config.InfoTimeout)
	if err != nil {
		return nil, err
	}
	config.BatchBytes = min(config.BatchBytes, int(nc.MaxPayload()))
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("%w: the NATS server takes %d at most", err, nc.MaxPayload())
	}
	c := &Client{
		nc: nc, config: config, info: info, began: time.Now(),
		inbox:   nc.NewInbox() + ".",
		drained: make(chan struct{}), closing: make(chan struct{}),
	}
	c.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	for shard := range info.Shards {
		c.lanes = append(c.lanes, newLane(inventory.ShardID(shard), config, &c.parts))
	}
	if err := c.subscribe(); err != nil {
		return nil, err
	}
	for _, l := range c.lanes {
		c.goroutines.Go(func() { c.send(l) })
	}
	c.goroutines.Go(c.keepTime)
	return c, nil
}

// Info is what the cluster said of itself.
func (c *Client) Info() wire.Info { return c.info }

// learn asks until a node answers.
func learn(nc *nats.Conn, patience time.Duration) (wire.Info, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		info, err := askInfo(ctx, nc)
		if err == nil {
			return info, nil
		}
		select {
		case <-time.After(infoPause):
		case <-ctx.Done():
			return wire.Info{}, fmt.Errorf("%w: %w", ErrNoCluster, err)
		}
	}
}

const (
	infoPause    = 50 * time.Millisecond
	infoPatience = time.Second // with one question
)

func askInfo(ctx context.Context, nc *nats.Conn) (wire.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, infoPatience)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, wire.InfoSubject, nil)
	if err != nil {
		return wire.Info{}, err
	}
	frame, err := wire.Open(m.Data)
	if err != nil {
		return wire.Info{}, err
	}
	return frame.Info()
}

// Close ends all calls, those that may have acted with ErrOutcomeUnknown and the others with
// ErrClosed, and waits for the Client's goroutines.
func (c *Client) Close() {
	c.closeOnce.Do(func() {
		close(c.closing)
		for _, l := range c.lanes {
			l.mu.Lock()
			l.close()
			l.mu.Unlock()
		}
		c.goroutines.Wait()
		// It fails only where nc is closed already, which ends the subscription as well.
		_ = c.subscription.Unsubscribe()
		<-c.drained
	})
}

// now is the time that lanes know: nanoseconds since the Client began, monotonic.
func (c *Client) now() int64 { return int64(time.Since(c.began)) }

// tickPeriod is how exact deadlines and pauses are.
const tickPeriod = 5 * time.Millisecond

func (c *Client) keepTime() {
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.closing:
			return
		}
		now := c.now()
		for _, l := range c.lanes {
			l.mu.Lock()
			l.tick(now)
			l.mu.Unlock()
		}
	}
}

// newCall gives an empty call, to be encoded into, handed to ask, and then to recycle.
func (c *Client) newCall(kind inventory.Kind, want answers) *call {
	q := c.calls.Get().(*call)
	q.kind, q.want = kind, want
	return q
}

func (c *Client) recycle(q *call) {
	q.reset()
	c.calls.Put(q)
}

// ask does one call from queue to answer, which is then in q.response.
func (c *Client) ask(ctx context.Context, shard inventory.ShardID, q *call) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	now := c.now()
	q.deadline = now + int64(c.config.Timeout)
	if deadline, ok := ctx.Deadline(); ok {
		q.deadline = min(q.deadline, int64(deadline.Sub(c.began)))
	}
	l := c.lanes[shard]
	l.mu.Lock()
	err := l.admit(q)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		l.mu.Lock()
		withdrawn := l.withdraw(q)
		l.mu.Unlock()
		<-q.done
		if withdrawn && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", q.err, context.Cause(ctx))
		}
	}
	return q.err
}
