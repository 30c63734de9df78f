package inventory_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine"
	. "numera/engine/inventory"
)

// TestWindow is exact to the millisecond at both ends, whatever the clock does.
func TestWindow(t *testing.T) {
	s := openShard(t, DefaultLimits())
	opens, closes := s.now+minute, s.now+2*minute
	s.put("x", 100, func(p *Settings) { p.OpensAtUnixMilli, p.ClosesAtUnixMilli = opens, closes })
	ask := func() *Reserve { return s.order("b-1", anyOf("x", 1, PickRandom)) }
	s.now = opens - 1
	o := s.refused(CodeSaleNotOpen, ask())
	require.Equal(t, opens, o.Refusal.OpensAtUnixMilli)
	require.Less(t, o.AtUnixMilli, opens)
	s.now = opens
	require.Equal(t, opens, s.ok(ask()).Order.CreatedUnixMilli)
	s.now = opens - hour
	require.Equal(t, opens, s.ok(ask()).Order.CreatedUnixMilli, "log time does not go back")
	s.now = closes - 1
	s.ok(ask())
	s.now = closes
	require.Equal(t, closes, s.refused(CodeSaleClosed, ask()).Refusal.ClosesAtUnixMilli)
}

// TestDeadlineIsExact expires a reservation at its deadline and never before.
func TestDeadlineIsExact(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10, func(p *Settings) { p.HoldSeconds = 60 })
	o := s.reserve("b-1", chosen("x", 1))
	require.Equal(t, s.now+minute, o.ExpiresUnixMilli)
	require.Equal(t, o.ExpiresUnixMilli, s.e.NextDeadline())
	s.wait(minute - 1)
	require.Equal(t, StatusReserved, s.status(o))
	s.wait(1)
	require.Equal(t, StatusExpired, s.status(o))
	require.Equal(t, uint32(10), s.e.Product("x").Counters.Available)
	require.Zero(t, s.e.NextDeadline())
	s.verify()
}

// TestExtend renews up to a ceiling that nothing moves, and a refused renewal moves nothing.
func TestExtend(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10, func(p *Settings) { p.HoldSeconds, p.HoldMaxSeconds = 60, 150 })
	o := s.reserve("b-1", chosen("x", 1))
	created := o.CreatedUnixMilli
	s.refused(CodeExtensionLimit, &Extend{on(o)})
	require.Equal(t, o, s.get(o))
	s.wait(50 * second)
	require.Equal(t, created+110*second, s.ok(&Extend{on(o)}).Order.ExpiresUnixMilli)
	s.wait(50 * second)
	require.Equal(t, created+150*second, s.ok(&Extend{on(o)}).Order.ExpiresUnixMilli)
	s.wait(40 * second)
	s.refused(CodeExtensionLimit, &Extend{on(o)})
	require.Equal(t, created+150*second, s.get(o).ExpiresUnixMilli)
	s.put("x", 10, func(p *Settings) { p.HoldSeconds, p.HoldMaxSeconds = 1, 150 })
	s.refused(CodeExtensionLimit, &Extend{on(o)}) // a renewal never shortens
	s.wait(10 * second)
	require.Equal(t, StatusExpired, s.status(o))
	s.refused(CodeOrderStatus, &Extend{on(o)})
	s.verify()
}

// TestBasketDeadline is that of the strictest product, also for renewals; payments get the longest
// grace.
func TestBasketDeadline(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("a.x", 10, func(p *Settings) { p.HoldSeconds, p.HoldMaxSeconds, p.PaymentGraceSeconds = 60, 600, 700 })
	s.put("a.y", 10, func(p *Settings) { p.HoldSeconds, p.HoldMaxSeconds, p.PaymentGraceSeconds = 90, 100, 800 })
	o := s.reserve("b-1", chosen("a.x", 1), chosen("a.y", 1))
	require.Equal(t, s.now+60*second, o.ExpiresUnixMilli)
	s.now += 55 * second
	require.Equal(t, o.CreatedUnixMilli+100*second, s.ok(&Extend{on(o)}).Order.ExpiresUnixMilli)
	require.Equal(t, s.now+800*second, s.ok(&BeginPayment{on(o), "p-1"}).Order.ExpiresUnixMilli)
	s.wait(801 * second)
	require.True(t, s.get(o).Overdue)
	s.ok(&Refuse{on(o), "p-1"})
	s.verify()
}

// TestExpiryAgainstConfirm lets both come at the same instant: there is one winner, and the same one
// in a replay from the start and in one from a snapshot.
func TestExpiryAgainstConfirm(t *testing.T) {
	for _, early := range []int64{1, 0} {
		var log [][]byte
		s := openShard(t, DefaultLimits())
		apply := func(commands ...Command) []*Outcome {
			b := s.batch(commands...)
			log = append(log, b.Append(nil))
			return s.e.Apply(b)
		}
		apply(&PutProduct{Product: "x", Settings: settings(1)})
		o := apply(s.order("b-1", chosen("x", 1)))[0].Order
		rival := s.order("b-2", chosen("x", 1))
		middle, at := snapshot(t, s.e), len(log)
		s.now = o.ExpiresUnixMilli - early
		outcomes := apply(&BeginPayment{on(o), "p-1"}, rival, &Confirm{on(o), "p-1"}, &Extend{on(o)})
		if early > 0 {
			require.Equal(t, CodeOK, outcomes[0].Code)
			require.Equal(t, CodeNumbersTaken, outcomes[1].Code)
			require.Equal(t, StatusPaid, s.status(o))
		} else {
			require.Equal(t, CodeOrderStatus, outcomes[0].Code)
			require.Equal(t, CodeOK, outcomes[1].Code, "at the deadline it is past, and the number is free")
			require.Equal(t, CodeNumbersTaken, outcomes[2].Code)
			require.Equal(t, StatusRefundPending, s.status(o))
		}
		s.verify()

		replay := func(e *engine.Engine, entries [][]byte) {
			t.Cleanup(e.Close)
			for i, entry := range entries {
				var b Batch
				require.NoError(t, b.Decode(entry))
				if got := e.Apply(&b); i == len(entries)-1 {
					require.Equal(t, outcomes, got)
				}
			}
			require.Equal(t, s.e.Digest(), e.Digest())
			sameReads(t, s.e, e)
		}
		replay(engine.New(engine.Config{}), log)
		later := engine.New(engine.Config{})
		require.NoError(t, later.Restore(bytes.NewReader(middle)))
		replay(later, log[at:])
	}
}

// TestSweep has 300,000 reservations due in one second: a batch gives up so many at the most, oldest
// first, selling goes on between, and what is past due is past for every command at once.
func TestSweep(t *testing.T) {
	crowd, perBatch := 300_000, 1000
	if raceDetector {
		crowd = 10_000
	}
	limits := DefaultLimits()
	s := openShard(t, limits)
	s.put("x", uint32(crowd)+10)
	var first, last *OrderView
	for i := range crowd / perBatch {
		batch := &Batch{TimeUnixMilli: s.now + int64(i)*3, Seed: uint64(i)}
		for k := range perBatch {
			batch.Entries = append(batch.Entries, Entry{Command: &Reserve{
				KeyHash: hashOf(i*perBatch + k), Buyer: "b-1", Lines: []Line{anyOf("x", 1, PickLowest)},
			}})
		}
		outcomes := s.e.Apply(batch)
		for _, o := range outcomes {
			require.Equal(t, CodeOK, o.Code)
		}
		if first == nil {
			first = outcomes[0].Order
		}
		last = outcomes[perBatch-1].Order
	}
	s.now = last.ExpiresUnixMilli
	s.refused(CodeOrderStatus, &Extend{on(last)})
	require.Equal(t, StatusExpired, s.status(last))
	require.Equal(t, StatusExpired, s.status(first))
	require.Equal(t, crowd-limits.ExpirePerBatch-1, s.e.Stats().Live)
	for batches := 1; s.e.Stats().Live > 0; batches++ {
		before := s.e.Stats().Live
		require.LessOrEqual(t, s.e.NextDeadline(), s.now, "the leader knows that there is more to do")
		s.pay(s.reserve("b-2", anyOf("x", 1, PickRandom)))
		require.GreaterOrEqual(t, s.e.Stats().Live, before-2*limits.ExpirePerBatch)
		require.Less(t, batches, crowd/limits.ExpirePerBatch+2)
	}
	require.Zero(t, s.e.NextDeadline())
}

// TestClock jumps ahead, back, and is lowered by an admin.
func TestClock(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10)
	o := s.reserve("b-1", chosen("x", 1))
	ahead := s.now + 10*365*24*hour
	s.now = ahead
	s.wait(0)
	require.Equal(t, StatusExpired, s.status(o))
	s.now = opening + minute
	late := s.reserve("b-1", chosen("x", 1))
	require.Equal(t, ahead, late.CreatedUnixMilli, "a lower time moves nothing")
	s.ok(&LowerClock{UnixMilli: s.now})
	require.Equal(t, s.now, s.e.Clock())
	s.ok(&LowerClock{UnixMilli: s.now + hour})
	require.Equal(t, s.now, s.e.Clock(), "it only lowers")
	now := s.reserve("b-1", chosen("x", 2))
	require.Equal(t, s.now, now.CreatedUnixMilli)
	s.refused(CodeExtensionLimit, &Extend{on(late)})
	s.wait(31 * minute)
	require.Equal(t, StatusExpired, s.status(now))
	require.Equal(t, StatusReserved, s.status(late))
	s.restored(DefaultLimits(), 1)
	s.now = 1<<63 - 1 // a clock beyond every calendar
	s.wait(0)
	require.Equal(t, StatusExpired, s.status(late))
	s.reserve("b-1", chosen("x", 3))
	s.now = -1 << 63
	s.reserve("b-1", chosen("x", 4))
	s.restored(DefaultLimits(), 1)
	s.verify()
}

// TestForgetting gives up ended orders after a day, as fast as they can come in.
func TestForgetting(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 2000)
	cycle := func() {
		for range 2 {
			var commands []Command
			for range 2000 {
				commands = append(commands, s.order("b-1", anyOf("x", 1, PickLowest)))
			}
			s.apply(commands...)
			s.wait(31 * minute)
		}
	}
	for range 5 {
		cycle()
	}
	kept := s.e.Stats().Ended
	require.Equal(t, 20_000, kept)
	s.now += 25 * hour
	for range 8 {
		cycle()
	}
	require.LessOrEqual(t, s.e.Stats().Ended, 32_000+1000)
	s.wait(25 * hour)
	for range 100 {
		s.wait(0)
	}
	require.Zero(t, s.e.Stats().Ended)
	require.Zero(t, stateOf(s.e).EndedBlocks())
	require.Zero(t, stateOf(s.e).KeptOfOrders(), "nothing of an order is forgotten")
	s.verify()
}

// TestNothingOfAnOrderIsLeft ends orders of every kind in every way and waits until they are given up:
// their records, baskets and ids are, too.
func TestNothingOfAnOrderIsLeft(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("a.x", 100)
	s.put("a.y", 100, func(p *Settings) { p.OverdueReleaseSeconds = 60 })
	long := func(c string) string { return strings.Repeat(c, 40) }
	for _, lines := range [][]Line{
		{anyOf("a.x", 1, PickLowest)},
		{anyOf("a.x", 3, PickAdjacent)},
		{anyOf("a.x", 1, PickLowest), anyOf("a.y", 2, PickLowest)},
	} {
		order := func() *OrderView { return s.reserve(BuyerID(long("b")), lines...) }
		s.ok(&Release{on(order())})
		order() // expires
		o := order()
		s.ok(&BeginPayment{on(o), "p-1"})
		s.ok(&Confirm{on(o), PaymentID(long("p"))})
		s.ok(&Ship{on(o)})
		s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
		o = order()
		s.ok(&BeginPayment{on(o), PaymentID(long("p"))})
		s.ok(&Refuse{on(o), PaymentID(long("p"))})
		s.ok(&Confirm{on(o), "p-2"}) // paid late
		s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
	}
	require.NotZero(t, stateOf(s.e).KeptOfOrders())
	replica := s.restored(DefaultLimits(), 1)
	for _, s := range []*shard{s, replica} {
		s.wait(25 * hour)
		s.wait(26 * hour)
		s.wait(0)
		require.Zero(t, s.e.Stats().Live)
		require.Zero(t, s.e.Stats().Ended)
		require.Zero(t, stateOf(s.e).KeptOfOrders())
	}
}
