package shards

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// lane is the state of the calls to one shard. It does no I/O and reads no clock: the Client's
// goroutines tell it what happened when, and hold mu while they do.
//
// A live call is in one place: queued (to be sent), sent (in flight), delayed (to be queued
// again), or adrift: sent, given up, and not repeatable, so that only a late outcome or its
// deadline ends it. Calls that are live and not sent are at most Config.Queue when one is
// admitted, and sent are at most Config.InFlight, so that there is always a slot.
type lane struct {
	shard  inventory.ShardID
	config Config
	parts  *atomic.Int64 // bytes of incomplete answers, of all lanes

	mu      sync.Mutex
	closed  bool
	slots   []slot
	free    []int // indices of slots without a call
	live    chain // by age; since Timeout is the same for all, also by deadline but for contexts
	queued  chain
	sent    chain // by sentAt, hence by batch
	delayed chain
	batch   uint64 // the last one
	idle    bool   // the sender waits for wake
	stats   ShardStats

	wake chan struct{} // capacity 1: something may be sent
}

type slot struct {
	call       *call
	generation uint32 // of the last call in it
}

func newLane(shard inventory.ShardID, config Config, parts *atomic.Int64) *lane {
	l := &lane{shard: shard, config: config, parts: parts, wake: make(chan struct{}, 1)}
	l.live.order = byAge
	for _, place := range [...]*chain{&l.queued, &l.sent, &l.delayed} {
		place.order = byPlace
	}
	l.stats.Shard = shard
	return l
}

// admit makes c live and queues it.
func (l *lane) admit(c *call) error {
	switch {
	case l.closed:
		return ErrClosed
	case l.live.len-l.sent.len >= l.config.Queue:
		return l.overloaded(retryAfterFull)
	}
	if len(l.free) == 0 {
		l.free = append(l.free, len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	at := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	s := &l.slots[at]
	s.generation++
	s.call = c
	c.id = makeCallID(l.shard, s.generation, at)
	l.live.push(c)
	l.move(c, &l.queued)
	l.stats.Calls++
	return nil
}

// retryAfterFull is what a full queue recommends: it is empty again within a second, or the shard
// has worse troubles.
const retryAfterFull = time.Second

// move puts c into another place, nil for none, and wakes the sender if that gives it something
// to do.
func (l *lane) move(c *call, place *chain) {
	if c.in != nil {
		c.in.remove(c)
	}
	if c.in = place; place != nil {
		place.push(c)
	}
	if l.idle && l.queued.len > 0 && l.sent.len < l.config.InFlight {
		l.idle = false
		select {
		case l.wake <- struct{}{}:
		default: // it has been woken and not looked yet
		}
	}
}

// take moves what can be sent now into one batch and appends its requests to buf. With count 0
// there is nothing, and the sender must wait for wake.
func (l *lane) take(buf []byte, now int64) (message []byte, batch uint64, count int) {
	for l.queued.len > 0 && l.sent.len < l.config.InFlight && count < l.config.BatchRequests {
		c := l.queued.head
		remaining := time.Duration(c.deadline - now)
		if remaining < time.Millisecond {
			l.finish(c, wire.Response{}, l.verdict(c))
			continue
		}
		if count > 0 && len(buf)+requestHeader+len(c.body) > l.config.BatchBytes {
			break
		}
		if count++; count == 1 {
			l.batch++
		}
		buf = wire.AppendRequestHeader(buf, uint64(c.id), remaining)
		buf = append(buf, c.body...)
		if c.attempts++; c.attempts == 1 {
			c.first = l.batch
		} else {
			l.stats.Retries++
		}
		c.batch, c.sentAt = l.batch, now
		l.move(c, &l.sent)
	}
	if count == 0 {
		l.idle = true
		return buf, 0, 0
	}
	l.stats.Batches++
	l.stats.BatchedRequests += uint64(count)
	return buf, l.batch, count
}

const requestHeader = 8 + 5 // the most bytes of id and remaining time

// find gives the live call that a response to a batch is for, or nil.
func (l *lane) find(batch, id uint64) *call {
	at := callID(id).slot()
	if at >= len(l.slots) {
		return nil
	}
	c := l.slots[at].call
	if c == nil || c.id != callID(id) || c.attempts == 0 || batch < c.first || batch > c.batch {
		return nil
	}
	return c
}

// answer takes a response to a batch. What no call waits for, or has not asked for, is ignored.
func (l *lane) answer(batch uint64, r *wire.Response, now int64) {
	c := l.find(batch, r.ID)
	if c == nil || r.Failure == wire.NoFailure && answerOf(r)&c.want == 0 {
		l.stats.Ignored++
		return
	}
	late := batch != c.batch || c.in != &l.sent
	if late {
		l.stats.Late++
	}
	switch {
	case r.Failure != wire.NoFailure:
		if !late { // else it can't undo the doubt, see DESIGN.md
			l.fail(c, r, now)
		}
	case c.unanswered && doubtful(c.kind, r.Outcome):
		l.finish(c, wire.Response{}, l.unknown())
	default:
		l.finish(c, *r, nil)
	}
}

// fail takes the failure that answers the attempt of c which is in flight.
func (l *lane) fail(c *call, r *wire.Response, now int64) {
	c.retryAfter = r.RetryAfter
	doubted := c.unanswered && !c.query()
	switch r.Failure {
	case wire.OutcomeUnknown:
		c.unanswered = true
		if !repeatable(c.kind) {
			l.finish(c, wire.Response{}, l.unknown())
			return
		}
	case wire.Overloaded:
		if !doubted {
			l.finish(c, wire.Response{}, l.overloaded(r.RetryAfter))
			return
		}
	case wire.Malformed:
		err := fmt.Errorf("%w: by shard %d", ErrRejected, l.shard)
		if doubted {
			err = l.unknown()
		}
		l.finish(c, wire.Response{}, err)
		return
	}
	l.delay(c, now)
}

func (l *lane) unknown() error {
	l.stats.Unknown++
	return ErrOutcomeUnknown
}

func (l *lane) overloaded(retryAfter time.Duration) error {
	l.stats.Overloaded++
	return &OverloadedError{RetryAfter: retryAfter}
}

// join takes a part of a large answer to a batch. With the last one it gives the whole answer:
// whoever called decodes it without the lock, and then calls answer.
func (l *lane) join(batch uint64, p wire.Part) (whole *wire.Reassembler) {
	c := l.find(batch, p.ID)
	if c == nil {
		l.stats.Ignored++
		return nil
	}
	held := c.parts.Held()
	complete, err := c.parts.Add(batch, p)
	total := l.parts.Add(int64(c.parts.Held() - held))
	switch {
	case err != nil:
		l.stats.Ignored++
	case complete:
		joined := c.parts
		l.dropParts(c)
		return &joined
	case total > l.config.PartBytes:
		l.finish(c, wire.Response{}, l.overloaded(retryAfterFull))
	}
	return nil
}

func (l *lane) dropParts(c *call) {
	l.parts.Add(-int64(c.parts.Held()))
	c.parts = wire.Reassembler{}
}

// notSent is told of a batch of which the shard has seen nothing: no responders, or not published.
func (l *lane) notSent(batch uint64, now int64) {
	l.eachOf(batch, func(c *call) { l.delay(c, now) })
}

// lost is told of a batch of which the shard may have seen something, and that will not be
// answered.
func (l *lane) lost(batch uint64) { l.eachOf(batch, l.giveUp) }

func (l *lane) eachOf(batch uint64, do func(*call)) {
	for c := l.sent.head; c != nil && c.batch <= batch; {
		next := l.sent.next(c)
		if c.batch == batch {
			do(c)
		}
		c = next
	}
}

// giveUp ends an attempt without an answer.
func (l *lane) giveUp(c *call) {
	c.unanswered = true
	if repeatable(c.kind) {
		l.move(c, &l.queued)
	} else {
		l.move(c, nil)
	}
}

// delay queues c again after a while: 10 ms, and twice as long from time to time up to 250 ms,
// each by chance up to a quarter less, so that gateways do not all come back at once.
func (l *lane) delay(c *call, now int64) {
	pause := min(firstPause<<min(c.attempts-1, 10), longestPause)
	c.resumeAt = now + int64(pause-rand.N(pause/4))
	l.move(c, &l.delayed)
}

const (
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// tick does what is due.
func (l *lane) tick(now int64) {
	patience := int64(l.config.AttemptTimeout)
	for c := l.sent.head; c != nil && now-c.sentAt >= patience; c = l.sent.head {
		l.stats.Unanswered++
		l.giveUp(c)
	}
	for c := l.delayed.head; c != nil; {
		next := l.delayed.next(c)
		if c.resumeAt <= now {
			l.move(c, &l.queued)
		}
		c = next
	}
	for c := l.live.head; c != nil && c.deadline <= now; c = l.live.head {
		l.finish(c, wire.Response{}, l.verdict(c))
	}
}

// verdict is the error of a call that ends now without an answer.
func (l *lane) verdict(c *call) error {
	switch {
	case l.mayHaveActed(c):
		return l.unknown()
	case c.attempts == 0:
		return l.overloaded(retryAfterFull)
	}
	l.stats.Unavailable++
	return &UnavailableError{RetryAfter: c.retryAfter}
}

func (l *lane) mayHaveActed(c *call) bool {
	return !c.query() && (c.unanswered || c.in == &l.sent)
}

// withdraw ends c if it is still live; its caller waits no longer.
func (l *lane) withdraw(c *call) (withdrawn bool) {
	if l.slots[c.id.slot()].call != c {
		return false
	}
	l.finish(c, wire.Response{}, l.verdict(c))
	return true
}

// finish takes c out of the lane and gives it back to its caller.
func (l *lane) finish(c *call, r wire.Response, err error) {
	l.dropParts(c)
	l.move(c, nil)
	l.live.remove(c)
	at := c.id.slot()
	l.slots[at].call = nil
	l.free = append(l.free, at)
	c.response, c.err = r, err
	c.done <- struct{}{}
}

// close ends all calls and refuses new ones.
func (l *lane) close() {
	l.closed = true
	for c := l.live.head; c != nil; c = l.live.head {
		err := ErrClosed
		if l.mayHaveActed(c) {
			err = l.unknown()
		}
		l.finish(c, wire.Response{}, err)
	}
}
