package shard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// lane works off queries of one sort, in turn, by goroutines of its own: whoever asks for much of
// one sort holds up neither commands nor those who ask for another.
type lane struct {
	ctx     context.Context
	queue   chan query
	running sync.WaitGroup
}

// query is a read that takes a while.
type query struct {
	deadline time.Time
	work     func() (*wire.Response, error)
	answer   func(*wire.Response, error) // called once
}

// laneLength is how many queries of one sort may wait. They are answered in milliseconds, so the
// last does not wait for long.
const laneLength = 64

func newLane(ctx context.Context) *lane {
	return &lane{ctx: ctx, queue: make(chan query, laneLength)}
}

// start starts the lane's goroutines, which end with its context.
func (l *lane) start(workers int) {
	for range workers {
		l.running.Go(func() {
			for {
				select {
				case <-l.ctx.Done():
					l.refuseWaiting()
					return
				case q := <-l.queue:
					q.run()
				}
			}
		})
	}
}

func (q query) run() {
	if time.Now().After(q.deadline) {
		q.answer(nil, ErrExpired)
		return
	}
	q.answer(q.work())
}

// ask puts a query on the lane, or refuses it.
func (l *lane) ask(q query) {
	select {
	case l.queue <- q:
		if l.ctx.Err() != nil {
			l.refuseWaiting()
		}
	default:
		q.answer(nil, ErrOverloaded)
	}
}

// refuseWaiting is what Shard.refuseWaiting is to its queues.
func (l *lane) refuseWaiting() {
	for {
		select {
		case q := <-l.queue:
			q.answer(nil, ErrUnavailable)
		default:
			return
		}
	}
}

// enlist puts a query that takes a while on its lane.
func (v *server) enlist(r *wire.Request, received time.Time, reply *reply) {
	id := r.ID
	q := query{
		deadline: received.Add(r.Remaining),
		answer: func(r *wire.Response, err error) {
			response := respond(id, r, err)
			reply.gather(&response)
			reply.flush()
			reply.arrived()
		},
	}
	switch ask := r.Query.(type) {
	case wire.NumbersQuery:
		q.work = func() (*wire.Response, error) { return v.numbersOf(ask) }
		v.numbers.ask(q)
	case wire.OrdersQuery:
		q.work = func() (*wire.Response, error) { return v.orders(ask), nil }
		v.listing.ask(q)
	case wire.EventsQuery:
		q.work = func() (*wire.Response, error) { return &wire.Response{Events: v.events(ask)}, nil }
		v.askLinearized(v.outbox, q)
	case wire.ScanQuery:
		q.work = func() (*wire.Response, error) { return v.scan(ask) }
		v.askLinearized(v.outbox, q)
	default:
		q.answer(nil, errBadQuery)
	}
}

func (v *server) askLinearized(l *lane, q query) {
	v.shard.linearize(func(err error) {
		if err != nil {
			q.answer(nil, err)
			return
		}
		l.ask(q)
	})
}

// numbersOf reads taken numbers. From beyond the product's last number on there are none, and To is
// below From.
func (v *server) numbersOf(q wire.NumbersQuery) (*wire.Response, error) {
	view, taken := v.shard.engine.Numbers(q.Product)
	if view == nil {
		return &wire.Response{Outcome: v.product(nil)}, nil
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
		return nil, fmt.Errorf("shard: encode numbers: %w", err)
	}
	return &wire.Response{Numbers: &wire.Numbers{
		AtUnixMilli: v.shard.config.Clock.NowUnixMilli(), Version: view.Version,
		From: from, To: to, Taken: bytes,
	}}, nil
}

const (
	// outboxMost bounds the events or orders of one answer.
	outboxMost = 10_000

	// answerBytes is about how large an answer becomes: whoever wants more asks again. It is well
	// below wire.MaxBody, which an order of a thousand numbers must not make us exceed.
	answerBytes = 4 << 20

	// stretch is how many orders are read at once. The apply goroutine waits meanwhile: some 200 µs.
	stretch = 256
)

// sizeOf is at least about how many bytes an order takes in an answer.
func sizeOf(o *inventory.OrderView) int {
	size := 200
	for _, item := range o.Items {
		size += 150 + 5*len(item.Numbers)
	}
	return size
}

// Tail reads the outbox after a sequence linearizably, limit events at the most; trimmed says that what comes
// next is no longer kept. It waits for the proof of leadership, or for ctx.
func (s *Shard) Tail(ctx context.Context, after uint64, limit int) (
	t inventory.Tail, trimmed bool, err error,
) {
	proven := make(chan error, 1)
	s.linearize(func(err error) { proven <- err })
	select {
	case err = <-proven:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return t, false, err
	}
	t, _, trimmed = s.engine.Tail(after, limit)
	return t, trimmed, nil
}

// events reads from the outbox.
func (v *server) events(q wire.EventsQuery) *wire.Events {
	tail, last, trimmed := v.shard.engine.Tail(q.After, int(min(max(q.Limit, 1), outboxMost)))
	answer := &wire.Events{Last: last, Trimmed: trimmed, Events: make([]inventory.Event, 0, tail.Len())}
	size := 0
	for event := range tail.All() {
		answer.Events = append(answer.Events, event)
		if size += event.Size(); size > answerBytes {
			break
		}
	}
	return answer
}

// scan reads a part of the orders.
func (v *server) scan(q wire.ScanQuery) (*wire.Response, error) {
	cursor, ok := inventory.ParseScanCursor(q.After)
	if !ok {
		return nil, errBadQuery
	}
	limit := int(min(max(q.Limit, 1), outboxMost))
	answer := &wire.Scan{}
	for size, more := 0, true; more && len(answer.Orders) < limit && size < answerBytes; {
		orders, next, rest, sequence := v.shard.engine.Scan(
			cursor, min(stretch, limit-len(answer.Orders)))
		if len(answer.Orders) == 0 { // of the first stretch: the others contain at least as much
			answer.Sequence = sequence
		}
		answer.Orders = append(answer.Orders, orders...)
		for _, order := range orders {
			size += sizeOf(order)
		}
		if cursor, more = next, rest; more {
			answer.Next = next.Append(nil)
		} else {
			answer.Next = nil
		}
	}
	return &wire.Response{Scan: answer}, nil
}

// listings remembers, for a while, in which order the orders of a product were placed: making the
// list costs a walk over all orders of the shard, and whoever reads one page reads the next.
type listings struct {
	mu      sync.Mutex
	product inventory.ProductID
	placed  []inventory.Placed // 24 bytes an order
	expiry  *time.Timer
}

// listingAge is how long a list is used and kept. An order that has been placed since it was made
// appears when it has been read to its end.
const listingAge = 30 * time.Second

// page gives the orders placed after a sequence, n at the most. The first page, and one that the
// list cannot fill, make the list anew.
func (l *listings) page(
	v *server, id inventory.ProductID, after uint64, n int,
) ([]inventory.Placed, bool) {
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
	if after == 0 || l.product != id || len(rest()) < n {
		placed, ok := v.shard.engine.Placed(id, 0)
		if !ok {
			return nil, false
		}
		if l.expiry != nil {
			l.expiry.Stop()
		}
		l.product, l.placed, l.expiry = id, placed, time.AfterFunc(listingAge, l.forget)
	}
	page := rest()
	return page[:min(n, len(page))], true
}

// forget gives the list's memory back.
func (l *listings) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.product, l.placed = "", nil
	if l.expiry != nil {
		l.expiry.Stop()
	}
}

// orders reads a page of a product's orders. Those that are no longer kept are left out, so that a
// page may be shorter than asked for and not be the last.
func (v *server) orders(q wire.OrdersQuery) *wire.Response {
	n := int(min(max(q.Limit, 1), 1000))
	placed, ok := v.listings.page(v, q.Product, q.After, n)
	if !ok {
		return &wire.Response{Outcome: v.product(nil)}
	}
	page := &wire.OrdersPage{
		AtUnixMilli: v.shard.config.Clock.NowUnixMilli(), Orders: v.shard.engine.Orders(placed),
	}
	if len(placed) == n {
		page.Next = placed[n-1].Sequence
	}
	return &wire.Response{Orders: page}
}
