package shard

import (
	"errors"
	"fmt"
	"slices"
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

	slow     chan struct{} // a place for each query that takes a while
	listings listings
}

// Bounds of what the client library queues before the shard has looked at it: what is beyond them
// is dropped by the library, and the gateway asks again.
const (
	pendingMessages = 4096
	pendingBytes    = 64 << 20
)

func newServer(s *Shard) *server { return &server{shard: s, slow: make(chan struct{}, 2)} }

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
		err = errors.Join(sub.SetPendingLimits(pendingMessages, pendingBytes), conn.Flush())
	}
	if err != nil {
		return fmt.Errorf("shard %d: subscribe: %w", v.shard.id, err)
	}
	v.subscription = sub
	return nil
}

func (v *server) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.subscription != nil {
		v.subscription.Unsubscribe() // fails only if the connection is gone, and then so is it
		v.subscription = nil
	}
}

// receive handles one message of requests, in the order in which they came.
func (v *server) receive(m *nats.Msg) {
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
	received := time.Now()
	reply := &reply{conn: v.shard.config.Conn, subject: m.Reply}
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
			outcome(v.product(q.Product), nil)
			return
		}
		s.linearize(func(err error) {
			if err != nil {
				outcome(nil, err)
				return
			}
			outcome(v.product(q.Product), nil)
		})
	default:
		v.handleSlow(id, r.Query, reply)
	}
}

// respond makes the response to a request, or the failure that err stands for.
func respond(id uint64, r *wire.Response, err error) wire.Response {
	r.ID = id
	if err == nil {
		return *r
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

func (v *server) product(id inventory.ProductID) *inventory.Outcome {
	at := v.shard.config.Clock.NowUnixMilli()
	view := v.shard.engine.Product(id)
	if view == nil {
		return &inventory.Outcome{
			Code: inventory.CodeProductNotFound, AtUnixMilli: at, Refusal: &inventory.Refusal{},
		}
	}
	return &inventory.Outcome{AtUnixMilli: at, Product: view}
}

// handleSlow answers a query that walks over much, in a goroutine of its own, a few at a time.
func (v *server) handleSlow(id uint64, q wire.Query, reply *reply) {
	select {
	case v.slow <- struct{}{}:
	default:
		reply.add(respond(id, &wire.Response{}, ErrOverloaded))
		return
	}
	answer := func(r *wire.Response, err error) {
		reply.add(respond(id, r, err))
		<-v.slow
	}
	switch q := q.(type) {
	case wire.NumbersQuery:
		go func() { answer(v.numbers(q), nil) }()
	case wire.OrdersQuery:
		go func() { answer(v.orders(q), nil) }()
	case wire.EventsQuery, wire.ScanQuery:
		v.shard.linearize(func(err error) {
			go func() {
				if err != nil {
					answer(&wire.Response{}, err)
					return
				}
				answer(v.outbox(q))
			}()
		})
	default:
		answer(&wire.Response{}, errBadQuery)
	}
}

func (v *server) numbers(q wire.NumbersQuery) *wire.Response {
	view, taken := v.shard.engine.Numbers(q.Product)
	if view == nil {
		return &wire.Response{Outcome: v.product(q.Product)}
	}
	first, last := view.Settings.FirstNumber, view.Settings.LastNumber()
	from, to := max(q.From, first), last
	if q.Limit > 0 {
		to = uint32(min(uint64(last), uint64(from)+uint64(q.Limit)-1))
	}
	set := taken.Roaring(first)
	set.RemoveRange(0, uint64(from))
	set.RemoveRange(uint64(to)+1, 1<<32)
	bytes, err := set.ToBytes()
	if err != nil {
		v.shard.config.OnFault(fmt.Errorf("shard: encode numbers: %w", err))
	}
	return &wire.Response{Numbers: &wire.Numbers{
		AtUnixMilli: v.shard.config.Clock.NowUnixMilli(), Version: view.Version,
		From: from, To: to, Taken: bytes,
	}}
}

// outbox reads events or scans orders.
func (v *server) outbox(q wire.Query) (*wire.Response, error) {
	switch q := q.(type) {
	case wire.EventsQuery:
		events, last, trimmed := v.shard.engine.Events(q.After, int(min(q.Limit, 10_000)))
		return &wire.Response{Events: &wire.Events{
			Trimmed: trimmed, Events: events, Last: last,
		}}, nil
	case wire.ScanQuery:
		cursor, ok := inventory.ParseScanCursor(q.After)
		if !ok {
			return &wire.Response{}, errBadQuery
		}
		orders, next, more, sequence := v.shard.engine.Scan(cursor, int(min(q.Limit, 10_000)))
		scan := &wire.Scan{Sequence: sequence, Orders: orders}
		if more {
			scan.Next = next.Append(nil)
		}
		return &wire.Response{Scan: scan}, nil
	}
	return &wire.Response{}, errBadQuery
}

// listings remembers, for a while, in which order the orders of a product were placed: making the
// list costs a walk over all orders of the shard, and whoever reads one page reads the next.
type listings struct {
	mu      sync.Mutex
	product inventory.ProductID
	placed  []inventory.Placed
	made    time.Time
}

const listingAge = 30 * time.Second

// page gives the orders placed after a sequence, n at the most. A list that has been read to its
// end is made anew, so that new orders are found.
func (l *listings) page(v *server, id inventory.ProductID, after uint64, n int) ([]inventory.Placed, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := func() []inventory.Placed {
		i, _ := slices.BinarySearchFunc(l.placed, after+1, func(p inventory.Placed, seq uint64) int {
			if p.Sequence < seq {
				return -1
			}
			return 1
		})
		return l.placed[i:]
	}
	known := l.product == id && len(l.placed) > 0 && l.placed[0].Sequence <= after &&
		time.Since(l.made) < listingAge
	if !known || len(rest()) < n {
		placed, ok := v.shard.engine.Placed(id, 0)
		if !ok {
			return nil, false
		}
		l.product, l.placed, l.made = id, placed, time.Now()
	}
	page := rest()
	return page[:min(n, len(page))], true
}

func (v *server) orders(q wire.OrdersQuery) *wire.Response {
	n := int(min(max(q.Limit, 1), 1000))
	placed, ok := v.listings.page(v, q.Product, q.After, n)
	if !ok {
		return &wire.Response{Outcome: v.product(q.Product)}
	}
	page := &wire.OrdersPage{
		AtUnixMilli: v.shard.config.Clock.NowUnixMilli(), Orders: v.shard.engine.Orders(placed),
	}
	if len(placed) == n {
		page.Next = placed[n-1].Sequence
	}
	return &wire.Response{Orders: page}
}

// reply gathers the responses to one message of requests and sends them in as few messages as it
// can: those that are known at once, and the others when the last of them is.
type reply struct {
	conn    *nats.Conn
	subject string
	waiting atomic.Int64

	mu        sync.Mutex
	responses []wire.Response
	packer    wire.Packer
}

func (p *reply) add(r wire.Response) {
	p.mu.Lock()
	p.responses = append(p.responses, r)
	p.mu.Unlock()
	p.arrived()
}

func (p *reply) arrived() {
	if p.waiting.Add(-1) == 0 {
		p.flush()
	}
}

// flush sends what has gathered. A connection that fails leaves the gateway without an answer,
// and it asks again.
func (p *reply) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.responses) == 0 {
		return
	}
	p.packer.Pack(p.responses, func(message []byte) error { return p.conn.Publish(p.subject, message) })
	p.responses = p.responses[:0]
}
