// Package events relays the outboxes of all shards, and that of payments, to the JetStream stream
// numera-events, for consumers that want to be told rather than to ask.
//
// It promises each event at least once, those of one shard in order, with the message id
// <shard>-<sequence> by which JetStream drops what comes twice within its window. It does not
// promise that JetStream keeps what it has accepted: see Config.SyncDelay. A consumer that sees a
// gap in a shard's sequence scans again.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"numera/engine/inventory"
	"numera/gateway"
	"numera/shard/wire"
)

// The stream, its subjects (the kind of the event follows), and the headers of its messages.
const (
	Stream            = "numera-events"
	SubjectPrefix     = "numera.events."
	HeaderCorrelation = "Numera-Correlation"
	HeaderShard       = "Numera-Shard"
	HeaderSequence    = "Numera-Sequence"
)

// Outbox is where events are pulled from.
type Outbox interface {
	DoOn(context.Context, inventory.ShardID, inventory.Entry) (*inventory.Outcome, error)
	Events(context.Context, inventory.ShardID, wire.EventsQuery) (*wire.Events, error)
}

// Config says how a Relay works. Zero values mean the defaults named beside them.
type Config struct {
	// Consumer is the name by which the outboxes keep events for the relay; default "events".
	Consumer string

	// SyncDelay is how long after JetStream has accepted events the outbox may forget them:
	// longer than JetStream's sync interval, so that what a crash takes from it is relayed
	// again. Default 3 s.
	SyncDelay time.Duration

	// MaxAge and MaxBytes bound the stream; defaults 7 days and 2 GiB. The oldest go first.
	MaxAge   time.Duration
	MaxBytes int64

	Log *slog.Logger // default: nothing is logged
}

func (c Config) withDefaults() Config {
	c.Consumer = cmp.Or(c.Consumer, "events")
	c.SyncDelay = cmp.Or(c.SyncDelay, 3*time.Second)
	c.MaxAge = cmp.Or(c.MaxAge, 7*24*time.Hour)
	c.MaxBytes = cmp.Or(c.MaxBytes, 2<<30)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// openStream makes the stream if it does not exist.
func openStream(ctx context.Context, conn *nats.Conn, c Config) (jetstream.JetStream, error) {
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(2*batch),
		jetstream.WithPublishAsyncTimeout(acceptPatience))
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: Stream, Subjects: []string{SubjectPrefix + ">"}, Storage: jetstream.FileStorage,
		MaxAge: c.MaxAge, MaxBytes: c.MaxBytes, Duplicates: duplicates,
	})
	if err != nil {
		return nil, fmt.Errorf("events: create the stream %s: %w", Stream, err)
	}
	return js, nil
}

// batch is how many events are pulled at once.
const batch = 1000

// acceptPatience is how long JetStream may take to accept what it was handed, or to make room for
// more: an answer of its that was lost is not waited for any longer, and all is handed over again.
const acceptPatience = 10 * time.Second

// duplicates is how long JetStream knows a message again: for longer than acceptPatience, after which
// it is handed over again. It is half of what the collector has to look at where thousands of events
// a second are remembered for two minutes.
const duplicates = 2 * acceptPatience

// idle is how long an empty outbox is left alone.
const idle = 100 * time.Millisecond

// Relay has a goroutine per shard. Close it to end them.
type Relay struct {
	config  Config
	outbox  Outbox
	js      jetstream.JetStream
	cancel  context.CancelFunc
	running sync.WaitGroup
	lag     []atomic.Int64
}

// attachPatience is how long Start waits for the shards to be attached to.
const attachPatience = 5 * time.Second

// Start makes the stream if it does not exist and relays until Close. ctx ends only the start. What happens
// after it has returned is relayed, unless it has warned that a shard could not be attached to: such a
// shard, if it is new, has its events relayed from when it can.
func Start(
	ctx context.Context, conn *nats.Conn, outbox Outbox, shards uint16, c Config,
) (*Relay, error) {
	c = c.withDefaults()
	js, err := openStream(ctx, conn, c)
	if err != nil {
		return nil, err
	}
	r := &Relay{config: c, outbox: outbox, js: js, lag: make([]atomic.Int64, shards)}
	var running context.Context
	running, r.cancel = context.WithCancel(context.Background())
	attached := make(chan struct{}, shards) // gets one for each shard
	for shard := range shards {
		once := sync.OnceFunc(func() { attached <- struct{}{} })
		r.running.Go(func() { r.relay(running, inventory.ShardID(shard), once) })
	}
	patience := time.After(attachPatience)
	for range shards {
		select {
		case <-attached:
		case <-ctx.Done():
			r.Close()
			return nil, fmt.Errorf("events: attach to the shards: %w", ctx.Err())
		case <-patience:
			c.Log.Warn("not all shards can be attached to: events of a new one are relayed from when it can")
			return r, nil
		}
	}
	return r, nil
}

// Close stops relaying. What was not acknowledged will be relayed again after a start.
func (r *Relay) Close() {
	r.cancel()
	r.running.Wait()
}

// Lag is how many events of all shards have not been relayed yet, as of the last pulls.
func (r *Relay) Lag() int64 {
	sum := int64(0)
	for i := range r.lag {
		sum += r.lag[i].Load()
	}
	return sum
}

// relay attaches to one shard's outbox, says so, and follows it, beginning anew after every error.
func (r *Relay) relay(ctx context.Context, shard inventory.ShardID, attached func()) {
	for ctx.Err() == nil {
		if err := r.follow(ctx, shard, attached); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("relaying events was interrupted", "shard", shard, "error", err)
			sleep(ctx, time.Second)
		}
	}
}

// accepted is how far JetStream had taken a shard's events at an instant.
type accepted struct {
	sequence uint64
	at       time.Time
}

func (r *Relay) follow(ctx context.Context, shard inventory.ShardID, attached func()) error {
	after, err := r.command(ctx, shard, &inventory.Attach{Consumer: r.config.Consumer})
	if err != nil {
		return err
	}
	attached()
	var waiting []accepted // for SyncDelay to pass
	for ctx.Err() == nil {
		pulled, err := r.outbox.Events(ctx, shard, wire.EventsQuery{After: after, Limit: batch})
		if err != nil {
			return fmt.Errorf("events: pull: %w", err)
		}
		if pulled.Trimmed {
			return errors.New("events: the outbox no longer keeps what comes next: " +
				"the consumer was detached, and its readers have a gap")
		}
		if len(pulled.Events) > 0 {
			if err := r.publish(ctx, shard, pulled.Events); err != nil {
				return err
			}
			after = pulled.Events[len(pulled.Events)-1].Sequence
			waiting = append(waiting, accepted{after, time.Now()})
		}
		r.lag[shard].Store(int64(pulled.Last - after))
		if waiting, err = r.acknowledge(ctx, shard, waiting); err != nil {
			return err
		}
		if len(pulled.Events) < batch {
			sleep(ctx, idle)
		}
	}
	return nil
}

// publish hands events to JetStream and waits until it has accepted all.
func (r *Relay) publish(ctx context.Context, shard inventory.ShardID, events []inventory.Event) error {
	messages := make([]message, len(events))
	number := strconv.Itoa(int(shard))
	for i := range events {
		e := &events[i]
		sequence := strconv.FormatUint(e.Sequence, 10)
		m := nats.NewMsg(SubjectPrefix + e.Kind.String())
		m.Header.Set(HeaderCorrelation, e.Correlation)
		m.Header.Set(HeaderShard, number)
		m.Header.Set(HeaderSequence, sequence)
		m.Data = gateway.AppendEvent(nil, shard, e)
		messages[i] = message{m, number + "-" + sequence}
	}
	return publish(ctx, r.js, messages)
}

// message is one event with the id by which JetStream drops what comes twice.
type message struct {
	*nats.Msg
	id string
}

// publish hands messages to JetStream, in order, and waits until it has accepted all.
func publish(ctx context.Context, js jetstream.JetStream, messages []message) error {
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i := range messages {
		var err error
		futures[i], err = js.PublishMsgAsync(messages[i].Msg, jetstream.WithMsgID(messages[i].id),
			jetstream.WithStallWait(acceptPatience))
		if err != nil {
			return fmt.Errorf("events: publish: %w", err)
		}
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return fmt.Errorf("events: publish: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// acknowledge lets the outbox forget what JetStream has had for SyncDelay.
func (r *Relay) acknowledge(
	ctx context.Context, shard inventory.ShardID, waiting []accepted,
) ([]accepted, error) {
	done := uint64(0)
	for len(waiting) > 0 && time.Since(waiting[0].at) > r.config.SyncDelay {
		done, waiting = waiting[0].sequence, waiting[1:]
	}
	if done == 0 {
		return waiting, nil
	}
	ack := &inventory.Acknowledge{Consumer: r.config.Consumer, Sequence: done}
	_, err := r.command(ctx, shard, ack)
	return waiting, err
}

// command has a command of operation decided and returns the outcome's sequence.
func (r *Relay) command(ctx context.Context, shard inventory.ShardID, c inventory.Command) (uint64, error) {
	o, err := r.outbox.DoOn(ctx, shard, inventory.Entry{Command: c})
	if err != nil {
		return 0, fmt.Errorf("events: %w", err)
	}
	if o.Code != inventory.CodeOK {
		return 0, fmt.Errorf("events: refused: %v", o.Code)
	}
	return o.Sequence, nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
