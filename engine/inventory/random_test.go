package inventory_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine"
	. "numera/engine/inventory"
)

// TestRandomSequences compares an engine with the model over random sequences of all commands: the
// outcome of every command, and after every batch all counters, numbers, orders and events. A
// second engine is restored from a snapshot of the first now and then, gets the same batches, and
// must stay equal to it.
func TestRandomSequences(t *testing.T) {
	seeds := uint64(24)
	if raceDetector {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			limits := DefaultLimits()
			switch seed % 4 {
			case 1: // the sweep falls behind
				limits.ExpirePerBatch = 2
			case 2: // the outbox fills up
				limits.OutboxEvents = 120
			case 3: // the ended orders fill up
				limits.EndedOrders = 60
			}
			newRandomRun(t, seed, limits).run(150)
		})
	}
}

type randomRun struct {
	*shard
	rnd      *rand.Rand
	limits   Limits
	model    *model
	follower *shard
	asked    []Command // to be asked again
}

func newRandomRun(t *testing.T, seed uint64, limits Limits) *randomRun {
	r := &randomRun{
		shard: openShard(t, limits), rnd: rand.New(rand.NewPCG(seed, 7)), limits: limits,
		model: newModel(limits), follower: openShard(t, limits),
	}
	for i, id := range []ProductID{"a.x", "a.y", "a.dollar", "b"} {
		s := settings([]uint32{60, 30, 10, 40}[i], func(s *Settings) { s.FirstNumber = uint32(i * 100) })
		if id == "a.dollar" {
			s.Price.Currency = "USD"
		}
		r.step(&PutProduct{Product: id, Settings: s})
	}
	return r
}

func (r *randomRun) run(batches int) {
	for i := range batches {
		r.now += []int64{0, 1, 100, second, minute, 20 * minute}[r.rnd.IntN(6)]
		if r.rnd.IntN(40) == 0 {
			r.now += 25 * hour
		}
		var commands []Command
		for range []int{1, 1, 1, 2, 5, 12}[r.rnd.IntN(6)] {
			commands = append(commands, r.command())
		}
		r.step(commands...)
		if i%25 == 24 {
			r.restoreFollower()
		}
	}
}

// step applies a batch everywhere and compares.
func (r *randomRun) step(commands ...Command) {
	t := r.t
	wellFormed := slices.DeleteFunc(slices.Clone(commands), func(c Command) bool { return c.Check() != nil })
	batch := r.batch(wellFormed...)
	got := r.e.Apply(batch)
	require.Equal(t, got, r.follower.e.Apply(batch), "both engines answer the same")
	require.Equal(t, r.e.Digest(), r.follower.e.Digest())
	r.model.begin(r.now, func(id OrderID) bool {
		return r.e.Order(OnOrder{Order: id}).Code == CodeOK
	})
	for _, c := range commands {
		var o *Outcome
		if o = c.Check(); o == nil {
			o, got = got[0], got[1:]
		}
		r.compare(c, r.model.apply(c, o), o)
	}
	r.compareState()
}

func (r *randomRun) compare(c Command, want, got *Outcome) {
	t := r.t
	context := fmt.Sprintf("%T %+v\nat %d\ngot %s: %+v", c, c, r.model.clock, got.Code, got.Refusal)
	require.Equal(t, want.Code, got.Code, "%s instead of %s: %s", got.Code, want.Code, context)
	require.Equal(t, want.Order, got.Order, context)
	require.Equal(t, want.Missing, got.Missing, context)
	require.Equal(t, want.Replay, got.Replay, context)
	require.Equal(t, want.Created, got.Created, context)
	require.Equal(t, want.Sequence, got.Sequence, context)
	require.Equal(t, want.Product != nil, got.Product != nil, context)
	if got.Product != nil {
		r.compareProduct(r.model.product(want.Product.ID), got.Product)
	}
	if want.Refusal == nil {
		require.Nil(t, got.Refusal)
		return
	}
	refusal := *got.Refusal
	if reserve, ok := c.(*Reserve); ok && got.Code == CodeNumbersTaken {
		r.compareAlternatives(reserve, refusal.Alternatives)
	} else {
		require.Empty(t, refusal.Alternatives)
	}
	refusal.Pointer, refusal.Detail, refusal.Alternatives = "", "", nil
	if got.Code == CodeNumbersRepeated {
		return
	}
	require.Equal(t, *want.Refusal, refusal, context)
}

// compareAlternatives demands numbers that are free and not asked for already; when there are such
// numbers at all some are named.
func (r *randomRun) compareAlternatives(c *Reserve, alternatives []Selection) {
	for _, s := range alternatives {
		require.NotEmpty(r.t, s.Numbers)
		require.LessOrEqual(r.t, len(s.Numbers), 10)
		require.True(r.t, slices.IsSorted(s.Numbers))
		for _, n := range s.Numbers {
			require.True(r.t, r.model.product(s.Product).free(n))
			for _, line := range c.Lines {
				require.False(r.t, line.Product == s.Product && slices.Contains(line.Numbers, n))
			}
		}
	}
}

func (r *randomRun) compareProduct(want *modelProduct, got *ProductView) {
	require.Equal(r.t, want.id, got.ID)
	require.Equal(r.t, want.settings, got.Settings)
	require.Equal(r.t, want.state, got.State)
	require.Equal(r.t, want.counters(), got.Counters)
	require.Empty(r.t, got.Halted)
}

func (r *randomRun) compareState() {
	t := r.t
	require.Equal(t, r.model.clock, r.e.Clock())
	for _, p := range r.model.products {
		r.compareProduct(p, r.e.Product(p.id))
		want := []uint32{}
		for i := range p.numbers {
			if p.numbers[i] != (owner{}) {
				want = append(want, p.settings.FirstNumber+uint32(i))
			}
		}
		require.Equal(t, want, taken(t, r.e, p.id))
	}
	orders := r.orders()
	for _, o := range r.model.orders {
		require.Equal(t, o.view(), orders[o.id])
		delete(orders, o.id)
	}
	require.Empty(t, orders)
	if len(r.model.consumers) > 0 {
		r.compareEvents()
	}
	require.Equal(t, len(r.model.events), int(stateOf(r.e).Sequence()))
	next := int64(0)
	if all := r.model.nextExpiry("a.x", "a.y", "a.dollar", "b"); all > 0 {
		next = all
	}
	require.Equal(t, next, r.e.NextDeadline())
}

func (r *randomRun) compareEvents() {
	t := r.t
	first := len(r.model.events) - r.model.backlog()
	events, last, trimmed := tailOf(r.e, uint64(first), 1<<20)
	require.False(t, trimmed)
	require.Equal(t, len(r.model.events), int(last))
	require.Len(t, events, r.model.backlog())
	for i, e := range events {
		e = e.Open()
		want := r.model.events[first+i]
		require.Equal(t, first+i+1, int(e.Sequence), "no gap")
		require.Equal(t, want.kind, e.Kind.String())
		require.Equal(t, want.order, e.Order)
		if want.order == nil {
			require.Equal(t, want.product, e.Product.ID)
		}
	}
	if first > 0 {
		_, _, trimmed := tailOf(r.e, uint64(first-1), 1)
		require.True(t, trimmed, "what everybody has acknowledged is gone")
	}
}

// restoreFollower replaces the follower by what a snapshot of the leader says.
func (r *randomRun) restoreFollower() {
	e := engine.New(engine.Config{Limits: r.limits, Actors: 1 + r.rnd.IntN(4)})
	r.t.Cleanup(e.Close)
	require.NoError(r.t, e.Restore(bytes.NewReader(snapshot(r.t, r.e))))
	r.follower.e = e
	sameReads(r.t, r.e, e)
}

// command draws a command. Old ones are asked again now and then.
func (r *randomRun) command() Command {
	rnd := r.rnd
	if len(r.asked) > 0 && rnd.IntN(8) == 0 {
		return r.asked[rnd.IntN(len(r.asked))]
	}
	var c Command
	switch rnd.IntN(16) {
	case 0, 1, 2, 3, 4, 5:
		c = r.reserveCommand()
	case 6:
		c = r.adminCommand()
	case 7:
		if rnd.IntN(3) > 0 {
			return r.operateCommand() // never asked again: that would not be a retry
		}
		return r.reserveCommand()
	default:
		c = r.orderCommand()
	}
	r.asked = append(r.asked, c)
	return c
}

func (r *randomRun) reserveCommand() Command {
	rnd := r.rnd
	c := &Reserve{
		Buyer: BuyerID(fmt.Sprint("b-", rnd.IntN(5))), Key: r.key(), Partial: rnd.IntN(3) == 0,
	}
	if rnd.IntN(12) == 0 {
		c.Key = "the same"
	}
	ids := []ProductID{"a.x", "a.x", "a.x", "a.y", "a.dollar", "a.none"}[:4+rnd.IntN(3)]
	if rnd.IntN(4) == 0 {
		ids = []ProductID{"b"}
	}
	for range []int{1, 1, 2, 3}[rnd.IntN(4)] {
		id := ids[rnd.IntN(len(ids))]
		line := Line{Product: id}
		if rnd.IntN(2) == 0 {
			for range 1 + rnd.IntN(3) {
				line.Numbers = append(line.Numbers, r.number(id))
			}
		} else {
			line.Quantity, line.Pick = []uint32{1, 1, 2, 3, 9}[rnd.IntN(5)], Pick(rnd.IntN(3))
		}
		c.Lines = append(c.Lines, line)
	}
	// What a line finds after a random one of the same product cannot be foretold: random ones go last,
	// and one of a product is enough.
	random := make(map[ProductID]bool)
	c.Lines = slices.DeleteFunc(c.Lines, func(l Line) bool {
		again := l.Quantity > 0 && random[l.Product]
		random[l.Product] = random[l.Product] || l.Quantity > 0 && l.Pick == PickRandom
		return again
	})
	return c
}

// number is mostly one of the product.
func (r *randomRun) number(id ProductID) uint32 {
	p := r.model.product(id)
	if p == nil {
		return 1
	}
	n := p.settings.FirstNumber + r.rnd.Uint32N(uint32(len(p.numbers)))
	if r.rnd.IntN(30) == 0 {
		n += 1000
	}
	return n
}

func (r *randomRun) orderCommand() Command {
	rnd := r.rnd
	var on OnOrder
	if n := len(r.model.orders); n > 0 {
		o := r.model.orders[max(rnd.IntN(n), rnd.IntN(n))]
		on.Order = o.id
		if rnd.IntN(4) == 0 {
			on.By = BuyerID(fmt.Sprint("b-", rnd.IntN(5)))
		}
	}
	payment := PaymentID(fmt.Sprint("p-", max(0, rnd.IntN(6)-3)))
	switch rnd.IntN(10) {
	case 0:
		return &Extend{OnOrder: on}
	case 1:
		return &Release{OnOrder: on}
	case 2, 3, 4:
		return &BeginPayment{OnOrder: on, Payment: payment}
	case 5, 6:
		return &Confirm{OnOrder: on, Payment: payment}
	case 7:
		return &Refuse{OnOrder: on, Payment: payment}
	case 8:
		return &Ship{OnOrder: on}
	}
	return &Refund{OnOrder: on, ReturnToStock: rnd.IntN(2) == 0, Reason: "regret"}
}

func (r *randomRun) adminCommand() Command {
	rnd := r.rnd
	id := []ProductID{"a.x", "a.x", "a.y", "a.dollar", "b", "none"}[rnd.IntN(6)]
	var numbers []uint32
	for range 1 + rnd.IntN(4) {
		numbers = append(numbers, r.number(id))
	}
	switch rnd.IntN(6) {
	case 0:
		return &Restock{Product: id, Count: 1 + rnd.Uint32N(5), Key: fmt.Sprint("restock-", rnd.IntN(50))}
	case 1:
		return &Block{Product: id, Numbers: numbers}
	case 2:
		return &Unblock{Product: id, Numbers: numbers}
	case 3:
		return &SetSaleState{Product: id, State: SaleState(max(0, rnd.IntN(7)-4))}
	}
	if id == "none" {
		id = "b"
	}
	s := r.model.product(id).settings
	s.Price.Amount = 1000 + rnd.Int64N(3)
	s.HoldSeconds, s.HoldMaxSeconds = 60+rnd.Int64N(1000), 1060+rnd.Int64N(3000)
	s.PaymentGraceSeconds = 1 + rnd.Int64N(600)
	s.OverdueReleaseSeconds = max(0, rnd.Int64N(1000)-500)
	s.MinPerOrder, s.MaxPerOrder = 1+rnd.Uint32N(3), 3+rnd.Uint32N(20)
	s.MaxPerBuyer = max(5, rnd.Uint32N(30)) - 5
	s.OpensAtUnixMilli, s.ClosesAtUnixMilli = 0, 0
	switch rnd.IntN(8) {
	case 0:
		s.OpensAtUnixMilli = r.now + rnd.Int64N(minute)
	case 1:
		s.ClosesAtUnixMilli = r.now + rnd.Int64N(hour) + 1
	case 2:
		s.Count++
	}
	return &PutProduct{Product: id, Settings: s}
}

func (r *randomRun) operateCommand() Command {
	name := []string{"ledger", "mirror"}[r.rnd.IntN(2)]
	switch r.rnd.IntN(8) {
	case 0, 1:
		return &Attach{Consumer: name}
	case 2:
		return &Detach{Consumer: name}
	case 3:
		return &LowerClock{UnixMilli: r.now - r.rnd.Int64N(minute)}
	}
	return &Acknowledge{Consumer: name, Sequence: uint64(max(0, len(r.model.events)-r.rnd.IntN(30)+2))}
}
