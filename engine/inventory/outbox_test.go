package inventory_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// ledger follows a shard from outside, as the rows in Postgres do: by a scan and the events after
// it, or by the events from the beginning on.
type ledger struct {
	name     string
	after    uint64 // of the events
	orders   map[OrderID]*OrderView
	products map[ProductID]*ProductView
}

// attach makes a ledger a consumer. It scans between other batches, a few orders at a time.
func attach(r *randomRun, name string) *ledger {
	l := &ledger{
		name: name, orders: make(map[OrderID]*OrderView), products: make(map[ProductID]*ProductView),
	}
	l.after = r.e.Apply(r.batch(&Attach{Consumer: name}))[0].Sequence
	r.mirror(&Attach{Consumer: name})
	for id, p := range products(r.e) {
		l.products[id] = p
	}
	var c ScanCursor
	for more := true; more; {
		var orders []*OrderView
		orders, c, more, _ = r.e.Scan(c, 3)
		for _, o := range orders {
			l.order(o)
		}
		if r.rnd.IntN(3) == 0 {
			r.busy()
		}
	}
	return l
}

// mirror does a command that the engine has done already with the others.
func (r *randomRun) mirror(c Command) {
	r.follower.e.Apply(&Batch{
		TimeUnixMilli: r.now, Entries: []Entry{{Command: c}},
	})
	r.model.begin(r.now, func(id OrderID) bool { return r.e.Order(OnOrder{Order: id}).Code == CodeOK })
	r.model.apply(c, &Outcome{})
}

// busy sends a batch of random commands.
func (r *randomRun) busy() {
	r.now += r.rnd.Int64N(10 * minute)
	r.step(r.command(), r.command(), r.command())
}

func (l *ledger) order(o *OrderView) {
	if known := l.orders[o.ID]; known == nil || known.Changed < o.Changed {
		l.orders[o.ID] = o
	}
}

// pull reads what is new and acknowledges it.
func (l *ledger) pull(r *randomRun) {
	for {
		events, last, trimmed := tailOf(r.e, l.after, 7)
		require.False(r.t, trimmed, "what is not acknowledged is kept")
		for _, e := range events {
			e = e.Open()
			require.Equal(r.t, l.after+1, e.Sequence, "without a gap")
			l.after++
			if e.Order != nil {
				l.order(e.Order)
			} else {
				l.products[e.Product.ID] = e.Product
			}
		}
		if l.after == last {
			break
		}
	}
	r.step(&Acknowledge{Consumer: l.name, Sequence: l.after})
}

// equal demands that the ledger has what the shard has. It may remember orders that the shard has
// forgotten.
func (l *ledger) equal(r *randomRun) {
	kept := r.orders()
	for id, o := range l.orders {
		if kept[id] == nil {
			require.False(r.t, o.Status.Live() || o.Status.Sold())
			continue
		}
		require.Equal(r.t, kept[id], o)
	}
	for id := range kept {
		require.Contains(r.t, l.orders, id)
	}
	for id, p := range products(r.e) {
		p, told := *p, *l.products[id]
		p.Counters, told.Counters = Counters{}, Counters{} // they change with every order, untold
		p.Version, told.Version = 0, 0
		require.Equal(r.t, p, told)
	}
}

// TestLedger follows a shard from the beginning, from late on, with long stops, and after having
// been detached: every ledger ends with exactly what the shard has.
func TestLedger(t *testing.T) {
	for seed := range uint64(5) {
		r := newRandomRun(t, 1000+seed, DefaultLimits())
		early := attach(r, "early")
		for range 40 {
			r.busy()
			if r.rnd.IntN(3) == 0 {
				early.pull(r)
			}
		}
		late := attach(r, "late")
		for range 20 { // while both stop for long
			r.busy()
		}
		late.pull(r)
		late.equal(r)
		r.step(&Detach{Consumer: "late"})
		for range 30 {
			r.busy()
		}
		early.pull(r)
		early.equal(r)
		require.Greater(t, early.after, late.after)
		_, _, trimmed := tailOf(r.e, late.after, 10)
		require.True(t, trimmed || r.model.backlog() > 0, "it has to scan again")
		again := attach(r, "late")
		for range 20 {
			r.busy()
		}
		again.pull(r)
		again.equal(r)
		early.pull(r)
		early.equal(r)
	}
}

// TestScanOfAnotherEngine starts over rather than miss an order: another replica keeps the same
// orders in other places.
func TestScanOfAnotherEngine(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 100)
	var all []*OrderView
	for range 10 {
		all = append(all, s.reserve("b-1", anyOf("x", 1, PickRandom)))
	}
	for _, o := range all[:4] { // their places are free now, and a restored engine has none such
		s.ok(&Release{on(o)})
	}
	first, cursor, more, _ := s.e.Scan(ScanCursor{}, 3)
	require.Len(t, first, 3)
	require.True(t, more)
	sent, ok := ParseScanCursor(cursor.Append(nil))
	require.True(t, ok)
	require.Equal(t, cursor, sent)

	seen := make(map[OrderID]bool)
	replica := s.restored(DefaultLimits(), 1)
	for more = true; more; {
		var orders []*OrderView
		orders, sent, more, _ = replica.e.Scan(sent, 4)
		for _, o := range orders {
			require.False(t, seen[o.ID])
			seen[o.ID] = true
		}
	}
	require.Len(t, seen, 10)
	for _, damaged := range [][]byte{{1}, append(cursor.Append(nil), 0), {1, 2, 3}} {
		_, ok := ParseScanCursor(damaged)
		require.False(t, ok)
	}
}

// TestOutboxFull refuses new orders and renewals when nobody takes events away, and nothing else:
// every live order has prepaid what can still happen to it.
func TestOutboxFull(t *testing.T) {
	limits := DefaultLimits()
	limits.OutboxEvents = 100
	s := openShard(t, limits)
	s.put("x", 1000, func(p *Settings) { p.HoldSeconds, p.PaymentGraceSeconds = 60, 60 })
	s.ok(&Attach{Consumer: "ledger"})
	s.now += second
	var held []*OrderView
	for {
		// In one batch with others, so that the last room is not given away twice.
		outcomes := s.apply(s.order("b-1", chosen("x", uint32(len(held)+1))), s.order("b-1", chosen("x", uint32(len(held)+2))))
		for _, o := range outcomes {
			if o.Code == CodeOK {
				held = append(held, o.Order)
			}
		}
		if outcomes[1].Code != CodeOK {
			require.Equal(t, CodeOverloaded, outcomes[1].Code)
			break
		}
	}
	require.Len(t, held, 16, "six each")
	before := s.e.Digest()
	s.refused(CodeOverloaded, s.order("b-1", chosen("x", 100)))
	require.Equal(t, before, s.e.Digest())
	s.now += 30 * second
	s.ok(&BeginPayment{on(held[0]), "p-1"})
	s.ok(&BeginPayment{on(held[1]), "p-1"})
	s.ok(&BeginPayment{on(held[2]), "p-1"})
	s.ok(&Extend{on(held[3])}) // the last slot: a payment that is begun gives none of its own back
	s.now++
	s.refused(CodeOverloaded, &Extend{on(held[3])})
	s.refused(CodeOrderStatus, &Extend{on(held[0])})
	s.refused(CodeOverloaded, s.order("b-1", chosen("x", 100)))
	s.wait(60 * second)
	require.True(t, s.get(held[0]).Overdue)
	require.Equal(t, StatusExpired, s.status(held[4]))
	s.pay(held[0])
	s.pay(held[1])
	s.ok(&Refuse{on(held[2]), "p-1"})
	require.LessOrEqual(t, s.e.Stats().Backlog, limits.OutboxEvents)
	require.Zero(t, s.e.Stats().Live)
	s.restored(limits, 1)
	for o := s.do(s.order("b-1", chosen("x", 100))); o.Code == CodeOK; {
		o = s.do(s.order("b-1", anyOf("x", 1, PickRandom)))
	}
	s.ok(&Acknowledge{Consumer: "ledger", Sequence: stateOf(s.e).Sequence()})
	s.reserve("b-1", chosen("x", 300))
	s.ok(&Detach{Consumer: "ledger"})
	for range 100 {
		s.reserve("b-1", anyOf("x", 1, PickRandom))
	}
	require.Zero(t, s.e.Stats().Backlog, "no consumer, no backlog")
	// A consumer that comes in the same batch counts from then on.
	outcomes := s.apply(&Attach{Consumer: "ledger"}, s.order("b-1", anyOf("x", 1, PickRandom)))
	require.Equal(t, CodeOverloaded, outcomes[1].Code)
	s.verify()
}

// TestOutboxFullAtOnce attaches a consumer in the batch whose reservations then fill the outbox.
func TestOutboxFullAtOnce(t *testing.T) {
	limits := DefaultLimits()
	limits.OutboxEvents = 100
	s := openShard(t, limits)
	s.put("x", 1000)
	for range 20 {
		s.reserve("b-1", anyOf("x", 1, PickRandom))
	}
	commands := []Command{&Attach{Consumer: "ledger"}}
	for range 10 {
		commands = append(commands, s.order("b-1", anyOf("x", 1, PickRandom)))
	}
	for i, o := range s.apply(commands...) {
		if i <= 3 { // 20 orders have prepaid 80 slots, and each new one takes 6
			require.Equal(t, CodeOK, o.Code, i)
		} else {
			require.Equal(t, CodeOverloaded, o.Code, i)
		}
	}
}

// TestEndedFull refuses new orders when the shard keeps as many ended ones as it may.
func TestEndedFull(t *testing.T) {
	limits := DefaultLimits()
	limits.EndedOrders = 10
	s := openShard(t, limits)
	s.put("x", 1000)
	var commands []Command
	for range 12 {
		commands = append(commands, s.order("b-1", anyOf("x", 1, PickRandom)))
	}
	var held []*OrderView
	for i, o := range s.apply(commands...) {
		if i >= 10 {
			require.Equal(t, CodeOverloaded, o.Code)
			continue
		}
		held = append(held, o.Order)
	}
	s.ok(&Release{on(held[0])})
	s.refused(CodeOverloaded, s.order("b-1", chosen("x", 1)))
	s.pay(held[1])
	o := s.reserve("b-1", anyOf("x", 1, PickRandom))
	s.now++
	s.ok(&Extend{on(o)})
	s.wait(31 * minute)
	s.refused(CodeOverloaded, s.order("b-1", chosen("x", 1)))
	s.wait(24*hour + 1)
	s.reserve("b-1", chosen("x", 1))
	s.verify()
}

// TestEventsOfOneChange are written once, and read as if they were not; what only looks alike is
// written whole.
func TestEventsOfOneChange(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.ok(&Attach{"c"})
	s.put("x", 10)
	s.reserve("b-1", chosen("x", 1))
	s.reserve("b-1", chosen("x", 2))
	sealed, _, _ := tailOf(s.e, 1, 100)
	require.Len(t, sealed, 4)
	var shared, whole []byte
	var before *Event
	for i := range sealed {
		shared = AppendEvent(shared, &sealed[i], before)
		whole = AppendEvent(whole, &sealed[i], nil)
		before = &sealed[i]
	}
	require.Less(t, len(shared), len(whole)*2/3)

	var read []Event
	before = nil
	for rest := shared; len(rest) > 0; {
		e, after, err := DecodeEvent(rest, before)
		require.NoError(t, err)
		read = append(read, e)
		before, rest = &read[len(read)-1], after
	}
	for i := range sealed {
		require.Equal(t, sealed[i].Open(), read[i])
	}
	require.Same(t, read[0].Order, read[1].Order)
	require.NotSame(t, read[1].Order, read[2].Order)

	again := AppendEvent(nil, &read[0], nil)
	again = AppendEvent(again, &read[1], &read[0])
	require.Equal(t, shared[:len(again)], again)
	orphan := AppendEvent(nil, &read[1], &read[0])
	_, _, err := DecodeEvent(orphan, nil)
	require.ErrorIs(t, err, ErrMalformed, "it tells of a change before, and there is none")
}

// TestTailOutlives reads a tail after its events have been acknowledged, and others have come.
func TestTailOutlives(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10_000)
	s.ok(&Attach{Consumer: "ledger"})
	orders := func() {
		var commands []Command
		for range 2000 {
			commands = append(commands, s.order("b-1", anyOf("x", 1, PickRandom)))
		}
		s.apply(commands...)
	}
	orders()
	first := stateOf(s.e).Sequence() - 4000
	tail, last, trimmed := s.e.Tail(first, 3000)
	require.False(t, trimmed)
	require.Equal(t, first+4000, last)
	require.Equal(t, 3000, tail.Len())
	want := slices.Collect(tail.All())
	none, _, _ := s.e.Tail(first, 0)
	require.Zero(t, none.Len())
	s.ok(&Acknowledge{Consumer: "ledger", Sequence: last - 1})
	orders()
	_, _, trimmed = s.e.Tail(first, 1)
	require.True(t, trimmed)
	require.Equal(t, want, slices.Collect(tail.All()))
	for event := range tail.All() {
		require.Equal(t, first+1, event.Sequence)
		break // and no further
	}
}
