package shards

import (
	"time"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// call is one request on its way. While it is live, that is from lane.admit to lane.finish, all
// of it belongs to the lock of its lane; before and after, to the goroutine that makes the call.
type call struct {
	kind inventory.Kind // of the command; 0: a query
	want answers
	body []byte // encoded once, sent with every attempt

	id         callID
	deadline   int64 // as all times here, nanoseconds since the Client began
	attempts   int
	first      uint64        // the batch of the first attempt
	batch      uint64        // the batch of the last attempt
	sentAt     int64         // when the last attempt was made
	resumeAt   int64         // while delayed: when the next one may be
	unanswered bool          // an attempt may have acted: only an outcome ends that
	retryAfter time.Duration // what the shard last said
	parts      wire.Reassembler

	in    *chain // queued, sent or delayed of its lane; nil: none of them
	links [2]struct{ before, after *call }

	done     chan struct{} // one signal per use, by lane.finish: the two below are set
	response wire.Response
	err      error
}

// callID tells calls of one Client apart: shard, generation of the slot, slot.
type callID uint64

func makeCallID(shard inventory.ShardID, generation uint32, slot int) callID {
	return callID(shard)<<48 | callID(generation)<<16 | callID(slot)
}

func (id callID) slot() int { return int(id & 0xffff) }

func (c *call) query() bool { return c.kind == 0 }

// reset makes c ready for another use, without keeping what the last one answered.
func (c *call) reset() {
	body := c.body[:0]
	if cap(body) > keptBody {
		body = nil
	}
	*c = call{body: body, done: c.done}
}

const keptBody = 4 << 10

// answers are the kinds of bodies that answer a request.
type answers uint8

const (
	wantOutcome answers = 1 << iota
	wantNumbers
	wantOrders
	wantEvents
	wantScan
)

func answerOf(r *wire.Response) answers {
	switch {
	case r.Outcome != nil:
		return wantOutcome
	case r.Numbers != nil:
		return wantNumbers
	case r.Orders != nil:
		return wantOrders
	case r.Events != nil:
		return wantEvents
	case r.Scan != nil:
		return wantScan
	}
	return 0
}

// The two orders in which calls are linked: a call is in the chain of live calls and in at most
// one of those that say where it is.
const (
	byAge = iota
	byPlace
)

// chain is a list of calls that takes no memory of its own.
type chain struct {
	order      int // byAge or byPlace
	head, tail *call
	len        int
}

func (l *chain) push(c *call) {
	link := &c.links[l.order]
	link.before, link.after = l.tail, nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.links[l.order].after = c
	}
	l.tail = c
	l.len++
}

func (l *chain) remove(c *call) {
	link := &c.links[l.order]
	if link.before == nil {
		l.head = link.after
	} else {
		link.before.links[l.order].after = link.after
	}
	if link.after == nil {
		l.tail = link.before
	} else {
		link.after.links[l.order].before = link.before
	}
	link.before, link.after = nil, nil
	l.len--
}

func (l *chain) next(c *call) *call { return c.links[l.order].after }
