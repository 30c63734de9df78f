package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// server takes the shard's requests from NATS while the shard leads.
type server struct {
	shard *Shard

	mu           sync.Mutex
	subscription *nats.Subscription // nil while it does not serve

	numbers  *lane
	listing  *lane
	outbox   *lane
	listings listings
}

// Bounds of what the client library queues before the shard has looked at it: what is beyond them
// is dropped by the library, and the gateway asks again. A command that finds the queue full costs
// 2 µs, so that the last of so many bytes is answered after some 100 ms.
const (
	pendingMessages = 1024
	pendingBytes    = 8 << 20
)

// flushTimeout bounds the wait for NATS to know of the subscription. A connection that is being
// made anew subscribes by itself.
const flushTimeout = time.Second

func newServer(s *Shard) *server {
	return &server{
		shard: s, numbers: newLane(s.ctx), listing: newLane(s.ctx), outbox: newLane(s.ctx),
	}
}

// work starts the goroutines that answer the queries that take a while, until the shard stops.
func (v *server) work() {
	v.numbers.start(2)
	v.listing.start(1)
	v.outbox.start(2)
}

// wait returns when they have ended.
func (v *server) wait() {
	v.numbers.running.Wait()
	v.listing.running.Wait()
	v.outbox.running.Wait()
	v.listings.forget()
}

// start subscribes, in a queue group so that during a failover a request reaches one of two.
func (v *server) start() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.subscription != nil {
		return nil
	}
	conn := v.shard.config.Conn
	sub, err := conn.QueueSubscribe(wire.Subject(v.shard.id), "leader", v.receive)
	if err == nil {
		err = sub.SetPendingLimits(pendingMessages, pendingBytes)
	}
	if err != nil {
		return fmt.Errorf("shard %d: subscribe: %w", v.shard.id, err)
	}
	if err := conn.FlushTimeout(flushTimeout); err != nil {
		v.shard.logger.Warn("NATS may not know yet that the shard serves", "error", err)
	}
	v.subscription = sub
	return nil
}

// stop unsubscribes. What has arrived by now is answered.
func (v *server) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.subscription != nil {
		_ = v.subscription.Drain() // fails only if the connection is gone, and then so is it
		v.subscription = nil
	}
}

// receive handles one message of requests, in the order in which they came.
func (v *server) receive(m *nats.Msg) {
	received := time.Now()
	frame, err := wire.Open(m.Data)
	var requests []wire.Request
	if err == nil {
		requests, err = frame.Requests(nil)
	}
	if err != nil || m.Reply == "" {
		v.shard.stats.malformed.Inc()
		v.shard.logger.Warn("dropped a message that is not of requests", "error", err)
		return
	}
	reply := &reply{
		conn: v.shard.config.Conn, logger: v.shard.logger, subject: m.Reply,
		packer: packers.Get().(*wire.Packer),
	}
	reply.waiting.Store(int64(len(requests)) + 1) // one more for this loop
	for i := range requests {
		v.handle(&requests[i], received, reply)
	}
	reply.flush()
	reply.arrived()
}

func (v *server) handle(r *wire.Request, received time.Time, reply *reply) {
	id := r.ID
	outcome := func(o *inventory.Outcome, err error) {
		reply.add(respond(id, &wire.Response{Outcome: o}, err))
	}
	s := v.shard
	if r.Entry != nil {
		s.Propose(&Proposal{Entry: *r.Entry, Deadline: received.Add(r.Remaining), Done: outcome})
		return
	}
	switch q := r.Query.(type) {
	case wire.OrderQuery:
		s.Order(inventory.OnOrder{Order: q.Order, By: q.By}, outcome)
	case wire.ProductQuery:
		if !q.Fresh {
			outcome(v.product(s.engine.Product(q.Product)), nil)
			return
		}
		s.Product(q.Product, func(view *inventory.ProductView, err error) {
			outcome(v.product(view), err)
		})
	default:
		v.enlist(r, received, reply)
	}
}

// respond makes the response to a request, or the failure that err stands for.
func respond(id uint64, r *wire.Response, err error) wire.Response {
	if err == nil {
		answer := *r
		answer.ID = id
		return answer
	}
	failure := wire.Response{ID: id, Failure: wire.OutcomeUnknown}
	switch {
	case errors.Is(err, ErrNotLeader):
		failure.Failure = wire.NotLeader
	case errors.Is(err, ErrOverloaded):
		failure.Failure, failure.RetryAfter = wire.Overloaded, time.Second
	case errors.Is(err, ErrExpired):
		failure.Failure = wire.Expired
	case errors.Is(err, ErrUnavailable):
		failure.Failure, failure.RetryAfter = wire.Unavailable, time.Second
	case errors.Is(err, errBadQuery):
		failure.Failure = wire.Malformed
	}
	return failure
}

var errBadQuery = errors.New("shard: no such query")

// product is the answer to who asks for one; view is nil if there is none.
func (v *server) product(view *inventory.ProductView) *inventory.Outcome {
	at := v.shard.config.Clock.NowUnixMilli()
	if view == nil {
		return &inventory.Outcome{
			Code: inventory.CodeProductNotFound, AtUnixMilli: at, Refusal: &inventory.Refusal{},
		}
	}
	return &inventory.Outcome{AtUnixMilli: at, Product: view}
}

// reply gathers the responses to one message of requests and sends them in as few messages as it
// can: those that are known at once, and the others when the last of them is, but for those of a
// lane, which nobody waits for.
type reply struct {
	conn    *nats.Conn
	logger  *slog.Logger
	subject string
	waiting atomic.Int64 // responses that are not here yet

	mu     sync.Mutex
	packer *wire.Packer // from packers; back there when nothing is waited for
}

// packers are those that no reply uses, with their buffers.
var packers = sync.Pool{New: func() any { return new(wire.Packer) }}

func (p *reply) add(r wire.Response) {
	p.gather(&r)
	p.arrived()
}

// gather encodes a response, of which it keeps nothing.
func (p *reply) gather(r *wire.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warn(p.packer.Add(r, p.send))
}

func (p *reply) arrived() {
	if p.waiting.Add(-1) == 0 {
		p.flush()
		packers.Put(p.packer)
	}
}

// flush sends what has gathered.
func (p *reply) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warn(p.packer.Flush(p.send))
}

func (p *reply) send(message []byte) error { return p.conn.Publish(p.subject, message) }

// warn: a connection that fails leaves the gateway without an answer, and it asks again.
func (p *reply) warn(err error) {
	if err != nil {
		p.logger.Warn("an answer was not sent", "error", err)
	}
}
