package shards

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// rig drives a lane by hand, in a time of its own.
type rig struct {
	t     *testing.T
	lane  *lane
	now   int64
	parts atomic.Int64
}

const (
	testTimeout = 5 * time.Second
	testAttempt = 2 * time.Second
)

func newRig(t *testing.T, change func(*Config)) *rig {
	config := Config{Timeout: testTimeout, AttemptTimeout: testAttempt}
	if change != nil {
		change(&config)
	}
	b := &rig{t: t}
	b.lane = newLane(3, config.withDefaults(), &b.parts)
	return b
}

func (b *rig) call(kind inventory.Kind) *call {
	c := &call{kind: kind, want: wantOutcome, body: []byte("body"), done: make(chan struct{}, 1)}
	c.deadline = b.now + int64(testTimeout)
	return c
}

func (b *rig) admit(kind inventory.Kind) *call {
	b.t.Helper()
	c := b.call(kind)
	require.NoError(b.t, b.lane.admit(c))
	return c
}

// send takes one batch, which must be of this size.
func (b *rig) send(count int) (batch uint64) {
	b.t.Helper()
	_, batch, n := b.lane.take(wire.Begin(nil, wire.KindRequests), b.now)
	require.Equal(b.t, count, n)
	return batch
}

func (b *rig) answer(batch uint64, c *call, r wire.Response) {
	r.ID = uint64(c.id)
	b.lane.answer(batch, &r, b.now)
}

func (b *rig) advance(d time.Duration) {
	b.now += int64(d)
	b.lane.tick(b.now)
}

// sendAgain lets the pause of a delayed call pass and sends it.
func (b *rig) sendAgain() (batch uint64) {
	b.t.Helper()
	b.advance(longestPause)
	return b.send(1)
}

func (b *rig) live(c *call) {
	b.t.Helper()
	require.Empty(b.t, c.done, "the call has ended: %v", c.err)
}

func (b *rig) ended(c *call, want error) {
	b.t.Helper()
	require.Len(b.t, c.done, 1, "the call has not ended")
	if want == nil {
		require.NoError(b.t, c.err)
		require.NotNil(b.t, c.response.Outcome)
		return
	}
	require.ErrorIs(b.t, c.err, want)
	require.Equal(b.t, wire.Response{}, c.response)
}

var (
	accepted = wire.Response{Outcome: &inventory.Outcome{Code: inventory.CodeOK}}
	taken    = wire.Response{Outcome: &inventory.Outcome{
		Code: inventory.CodeNumbersTaken, Refusal: &inventory.Refusal{},
	}}
)

func failure(f wire.Failure) wire.Response {
	return wire.Response{Failure: f, RetryAfter: 700 * time.Millisecond}
}

const reserve = inventory.KindReserve

// kinds says of every command whether it is repeated when it may have acted.
var kinds = map[inventory.Kind]bool{
	inventory.KindReserve:      true,
	inventory.KindExtend:       true,
	inventory.KindBeginPayment: true,
	inventory.KindConfirm:      true,
	inventory.KindRefuse:       true,
	inventory.KindRelease:      true,
	inventory.KindShip:         true,
	inventory.KindRefund:       true,
	inventory.KindRestock:      true,
	inventory.KindAttach:       true,
	inventory.KindDetach:       true,
	inventory.KindAcknowledge:  true,
	inventory.KindPutProduct:   false,
	inventory.KindBlock:        false,
	inventory.KindUnblock:      false,
	inventory.KindSetSaleState: false,
	inventory.KindLowerClock:   false,
}

func TestOutcomeEndsTheCall(t *testing.T) {
	b := newRig(t, nil)
	for _, r := range []wire.Response{accepted, taken} {
		c := b.admit(reserve)
		b.answer(b.send(1), c, r)
		b.ended(c, nil)
		require.Same(t, r.Outcome, c.response.Outcome)
	}
}

// TestNothingDoneIsAskedAgain: of every kind, also those that are not repeatable, until the
// deadline.
func TestNothingDoneIsAskedAgain(t *testing.T) {
	refusals := map[string]func(b *rig, batch uint64, c *call){
		"no responders": func(b *rig, batch uint64, _ *call) { b.lane.notSent(batch, b.now) },
	}
	for _, f := range []wire.Failure{wire.NotLeader, wire.Unavailable, wire.Expired} {
		refusals[fmt.Sprint("failure ", f)] = func(b *rig, batch uint64, c *call) {
			b.answer(batch, c, failure(f))
		}
	}
	for name, refuse := range refusals {
		for kind := range kinds {
			b := newRig(t, nil)
			c := b.admit(kind)
			refuse(b, b.send(1), c)
			b.advance(firstPause / 2)
			b.send(0)
			refuse(b, b.sendAgain(), c)
			b.live(c)
			b.answer(b.sendAgain(), c, accepted)
			b.ended(c, nil)

			c = b.admit(kind)
			refuse(b, b.send(1), c)
			b.live(c)
			b.advance(testTimeout)
			b.ended(c, ErrUnavailable)
			require.EqualValues(t, 2, b.lane.stats.Retries, name)
		}
	}
}

func TestUnavailableSaysWhenToTryAgain(t *testing.T) {
	b := newRig(t, nil)
	c := b.admit(reserve)
	b.answer(b.send(1), c, failure(wire.Unavailable))
	b.advance(testTimeout)
	var unavailable *UnavailableError
	require.ErrorAs(t, c.err, &unavailable)
	require.Equal(t, 700*time.Millisecond, unavailable.RetryAfter)
}

func TestOverloadedEndsTheCallAtOnce(t *testing.T) {
	b := newRig(t, nil)
	for _, kind := range []inventory.Kind{reserve, inventory.KindBlock, 0} {
		c := b.admit(kind)
		b.answer(b.send(1), c, failure(wire.Overloaded))
		b.ended(c, ErrOverloaded)
		var overloaded *OverloadedError
		require.ErrorAs(t, c.err, &overloaded)
		require.Equal(t, 700*time.Millisecond, overloaded.RetryAfter)
	}
}

func TestMalformedEndsTheCall(t *testing.T) {
	b := newRig(t, nil)
	c := b.admit(reserve)
	b.answer(b.send(1), c, failure(wire.Malformed))
	b.ended(c, ErrRejected)
}

// TestDoubtIsEndedByOutcomesOnly: once an attempt may have acted, nothing that a shard says about
// a later one makes it undone.
func TestDoubtIsEndedByOutcomesOnly(t *testing.T) {
	doubts := map[string]func(b *rig, batch uint64, c *call){
		"unanswered": func(b *rig, _ uint64, _ *call) { b.advance(testAttempt) },
		"lost":       func(b *rig, batch uint64, _ *call) { b.lane.lost(batch) },
		"unknown": func(b *rig, batch uint64, c *call) {
			b.answer(batch, c, failure(wire.OutcomeUnknown))
		},
	}
	for name, doubt := range doubts {
		for f := wire.NotLeader; f <= wire.OutcomeUnknown; f++ {
			b := newRig(t, nil)
			c := b.admit(reserve)
			doubt(b, b.send(1), c)
			b.live(c)
			b.answer(b.sendAgain(), c, failure(f))
			if f == wire.Malformed { // which asking again would not change
				b.ended(c, ErrOutcomeUnknown)
				continue
			}
			b.live(c)
			b.advance(testTimeout)
			b.ended(c, ErrOutcomeUnknown)

			c = b.admit(reserve)
			doubt(b, b.send(1), c)
			b.answer(b.sendAgain(), c, failure(f))
			if f != wire.Malformed {
				b.answer(b.sendAgain(), c, taken)
				b.ended(c, nil)
			}
		}
		b := newRig(t, nil)
		c := b.admit(reserve)
		doubt(b, b.send(1), c)
		b.lane.notSent(b.sendAgain(), b.now)
		b.live(c)
		b.advance(testTimeout)
		b.ended(c, ErrOutcomeUnknown)
		require.EqualValues(t, 1, b.lane.stats.Unknown, name)
	}
}

// TestRepeatable: what is not repeatable is never sent again once it may have acted.
func TestRepeatable(t *testing.T) {
	for kind, again := range kinds {
		b := newRig(t, nil)
		c := b.admit(kind)
		batch := b.send(1)
		b.advance(testAttempt)
		b.live(c)
		if again {
			b.send(1)
		} else {
			b.send(0)
			b.answer(batch, c, accepted)
			b.ended(c, nil)

			c = b.admit(kind)
			b.send(1)
			b.advance(testAttempt)
			b.advance(testTimeout - testAttempt)
			b.ended(c, ErrOutcomeUnknown)
		}

		b = newRig(t, nil)
		c = b.admit(kind)
		b.answer(b.send(1), c, failure(wire.OutcomeUnknown))
		if again {
			b.sendAgain()
		} else {
			b.ended(c, ErrOutcomeUnknown)
		}
	}
}

// TestExtendDoesNotMistakeItsOwnDoing: the limit may have been reached by the first attempt.
func TestExtendDoesNotMistakeItsOwnDoing(t *testing.T) {
	limit := wire.Response{Outcome: &inventory.Outcome{
		Code: inventory.CodeExtensionLimit, Refusal: &inventory.Refusal{},
	}}
	b := newRig(t, nil)
	c := b.admit(inventory.KindExtend)
	b.answer(b.send(1), c, limit)
	b.ended(c, nil)

	c = b.admit(inventory.KindExtend)
	b.answer(b.send(1), c, failure(wire.NotLeader))
	b.answer(b.sendAgain(), c, limit)
	b.ended(c, nil)

	c = b.admit(inventory.KindExtend)
	b.send(1)
	b.advance(testAttempt)
	b.answer(b.send(1), c, limit)
	b.ended(c, ErrOutcomeUnknown)
}

// TestLateOutcomeIsTaken, wherever the call is by then; a late failure is not.
func TestLateOutcomeIsTaken(t *testing.T) {
	where := map[string]func(b *rig, c *call){
		"queued":  func(*rig, *call) {},
		"sent":    func(b *rig, _ *call) { b.send(1) },
		"delayed": func(b *rig, c *call) { b.answer(b.send(1), c, failure(wire.NotLeader)) },
	}
	for name, goThere := range where {
		b := newRig(t, nil)
		c := b.admit(reserve)
		first := b.send(1)
		b.advance(testAttempt)
		goThere(b, c)
		before := c.in
		for f := wire.NotLeader; f <= wire.OutcomeUnknown; f++ {
			b.answer(first, c, failure(f))
		}
		require.Same(t, before, c.in, name)
		b.live(c)
		b.answer(first, c, accepted)
		b.ended(c, nil)
		b.send(0)
		require.EqualValues(t, 7, b.lane.stats.Late, name)
	}
}

func TestQueriesAreNeverUnknown(t *testing.T) {
	b := newRig(t, nil)
	c := b.admit(0)
	b.send(1)
	b.advance(testAttempt)
	b.answer(b.send(1), c, failure(wire.OutcomeUnknown))
	b.answer(b.sendAgain(), c, accepted)
	b.ended(c, nil)

	c = b.admit(0)
	b.send(1)
	b.advance(testAttempt)
	b.answer(b.send(1), c, failure(wire.Overloaded))
	b.ended(c, ErrOverloaded)

	c = b.admit(0)
	b.send(1)
	b.advance(testAttempt)
	b.send(1)
	b.advance(testTimeout)
	b.ended(c, ErrUnavailable)
}
