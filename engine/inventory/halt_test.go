package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// halt plants a broken invariant in a product and lets a command find it.
func (s *shard) halt(id ProductID) {
	stateOf(s.e).Product(id).BreakCounters()
	s.refused(CodeProductHalted, s.order("b-halt", anyOf(id, s.e.Product(id).Settings.MinPerOrder, PickRandom)))
}

// TestHalt breaks a product in a batch in which another one is sold, and looks at what is left.
func TestHalt(t *testing.T) {
	limits := DefaultLimits()
	limits.ExpirePerBatch = 2
	s := openShard(t, limits)
	s.ok(&Attach{Consumer: "ledger"})
	s.put("a.broken", 20)
	s.put("a.whole", 20)
	var held []*OrderView
	for i := range uint32(5) {
		held = append(held, s.reserve("b-1", anyOf("a.broken", 1+i%2, PickLowest)))
	}
	basket := s.reserve("b-1", anyOf("a.broken", 1, PickLowest), anyOf("a.whole", 1, PickLowest))
	sold := s.pay(s.reserve("b-1", anyOf("a.broken", 1, PickLowest)))
	counters := s.e.Product("a.broken").Counters
	version := s.e.Product("a.broken").Version

	stateOf(s.e).Product("a.broken").BreakCounters()
	outcomes := s.apply(
		s.order("b-2", anyOf("a.whole", 1, PickRandom)), s.order("b-2", anyOf("a.broken", 1, PickRandom)),
		s.order("b-2", anyOf("a.broken", 1, PickRandom)), s.order("b-2", anyOf("a.whole", 1, PickRandom)),
	)
	require.Equal(t, CodeOK, outcomes[0].Code)
	require.Equal(t, CodeProductHalted, outcomes[1].Code)
	require.Equal(t, CodeProductHalted, outcomes[2].Code)
	require.Equal(t, CodeOK, outcomes[3].Code)
	require.Contains(t, outcomes[2].Refusal.Detail, "available + reserved + sold + blocked = count")

	// It is readable, says why, and told the consumers.
	view := s.e.Product("a.broken")
	require.Contains(t, view.Halted, "available + reserved + sold + blocked = count")
	require.Equal(t, counters, view.Counters, "as they were before")
	require.Equal(t, version+1, view.Version)
	require.Equal(t, 1, s.e.Stats().Halted)
	events, _, _ := tailOf(s.e, 0, 1000)
	told := 0
	for _, e := range events {
		e = e.Open()
		if e.Kind == EventProductChanged && e.Product.Halted != "" {
			require.Equal(t, view, e.Product)
			told++
		}
	}
	require.Equal(t, 1, told)
	require.Equal(t, StatusReserved, s.status(held[0]))

	// It refuses everything, and so does every order that has something of it.
	refusedByHalted := func(s *shard) {
		for _, c := range []Command{
			s.order("b-3", anyOf("a.whole", 1, PickRandom), anyOf("a.broken", 1, PickRandom)),
			&Extend{on(held[0])}, &Release{on(held[0])}, &BeginPayment{on(held[1]), "p"},
			&Confirm{on(held[2]), "p"}, &Release{on(basket)}, &Confirm{on(basket), "p"},
			&Confirm{on(sold), "p-1"}, &Ship{on(sold)}, &Refund{OnOrder: on(sold)},
			&PutProduct{Product: "a.broken", Settings: settings(20, func(s *Settings) { s.Name = "new" })},
			&Restock{Product: "a.broken", Count: 1, Key: "k"},
			&Block{Product: "a.broken", Numbers: []uint32{20}},
			&Unblock{Product: "a.broken", Numbers: []uint32{20}},
			&SetSaleState{Product: "a.broken", State: SalePaused},
		} {
			before := s.e.Digest()
			s.refused(CodeProductHalted, c)
			require.Equal(t, before, s.e.Digest())
		}
	}
	refusedByHalted(s)
	s.verify()

	// A replica that is restored goes on as the other one does, also when the orders that cannot end
	// any more are due: they do not take the turns of those that can.
	for range 2 {
		for range 5 {
			s.reserve("b-1", anyOf("a.whole", 1, PickRandom))
		}
		replica := s.restored(limits, 3)
		sameReads(t, s.e, replica.e)
		refusedByHalted(replica)
		replica.n, replica.now = s.n, s.now
		for range 4 {
			for _, either := range []*shard{s, replica} {
				either.wait(29 * minute)
				either.refused(CodeProductHalted, &Release{on(held[3])})
			}
			require.Equal(t, s.e.Digest(), replica.e.Digest())
			require.Equal(t, s.e.NextDeadline(), replica.e.NextDeadline())
		}
	}
	require.Equal(t, uint32(1), s.e.Product("a.whole").Counters.Reserved, "the basket's")
	require.Zero(t, s.e.NextDeadline(), "nothing can end any more")
}

// TestHaltInBasket breaks one product of a basket in each kind of move, and demands that the others
// are as if nothing had been asked.
func TestHaltInBasket(t *testing.T) {
	ids := []ProductID{"a.x", "a.y", "a.z"}
	lines := func() []Line {
		return []Line{
			chosen("a.x", 2), anyOf("a.x", 2, PickRandom), anyOf("a.y", 2, PickAdjacent),
			anyOf("a.z", 3, PickLowest),
		}
	}
	moves := map[string]func(s *shard, o *OrderView) Command{
		"reserve": func(s *shard, _ *OrderView) Command { return s.order("b-1", lines()[1:]...) },
		"reserve, chosen": func(s *shard, _ *OrderView) Command {
			return s.order("b-1", chosen("a.x", 9), chosen("a.y", 9), chosen("a.z", 9))
		},
		"reserve, without the run": func(s *shard, _ *OrderView) Command {
			s.ok(&Block{Product: "a.z", Numbers: []uint32{5, 10, 15}})
			return s.order("b-1", anyOf("a.x", 1, PickRandom), anyOf("a.y", 1, PickRandom), anyOf("a.z", 9, PickAdjacent))
		},
		"reserve partly": func(s *shard, _ *OrderView) Command {
			c := s.order("b-1", lines()...)
			c.Partial = true
			return c
		},
		"confirm": func(_ *shard, o *OrderView) Command { return &Confirm{on(o), "p"} },
		"confirm late": func(s *shard, o *OrderView) Command {
			s.ok(&Release{on(o)})
			return &Confirm{on(o), "p"}
		},
		"release": func(_ *shard, o *OrderView) Command { return &Release{on(o)} },
		"refuse": func(s *shard, o *OrderView) Command {
			s.ok(&BeginPayment{on(o), "p"})
			return &Refuse{on(o), "p"}
		},
		"refund": func(s *shard, o *OrderView) Command {
			s.pay(o)
			return &Refund{OnOrder: on(o), ReturnToStock: true}
		},
		"refund, blocked": func(s *shard, o *OrderView) Command {
			s.pay(o)
			return &Refund{OnOrder: on(o)}
		},
		"expire": func(s *shard, _ *OrderView) Command {
			s.now += 31 * minute
			return &Detach{Consumer: "nobody"}
		},
	}
	for name, move := range moves {
		for _, broken := range ids {
			if name == "reserve, without the run" && broken == "a.z" {
				continue // nothing of it is moved
			}
			t.Run(name+" "+string(broken), func(t *testing.T) {
				s := openShard(t, DefaultLimits())
				for _, id := range ids {
					s.put(id, 20)
				}
				o := s.reserve("b-1", lines()...)
				c := move(s, o)
				o = s.get(o)
				before, free := products(s.e), make(map[ProductID][]uint32)
				for _, id := range ids {
					free[id] = taken(t, s.e, id)
				}
				stateOf(s.e).Product(broken).BreakCounters()
				outcome := s.do(c)
				if name != "expire" {
					require.Equal(t, CodeProductHalted, outcome.Code)
					require.Contains(t, outcome.Refusal.Detail, string(broken)+" is halted")
				}
				require.Equal(t, 1, s.e.Stats().Halted)
				require.NotEmpty(t, s.e.Product(broken).Halted)
				require.Equal(t, o, s.get(o), "the order is as it was")
				for _, id := range ids {
					if id != broken {
						require.Equal(t, before[id], s.e.Product(id))
						require.Equal(t, free[id], taken(t, s.e, id))
						s.reserve("b-2", anyOf(id, 2, PickRandom))
					}
				}
				s.verify()
				sameReads(t, s.e, s.restored(DefaultLimits(), 2).e)
			})
		}
	}
}

// TestHaltIsNotForeseen: what a buyer hears does not depend on a later command of the batch that
// halts the product, though its actor has done that by then.
func TestHaltIsNotForeseen(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("a.x", 1)
	o := s.reserve("b-1", anyOf("a.x", 1, PickLowest))
	stateOf(s.e).Product("a.x").BreakCounters()
	outcomes := s.apply(s.order("b-2", anyOf("a.x", 1, PickRandom)), &Release{on(o)})
	require.Equal(t, CodeInsufficientStock, outcomes[0].Code)
	require.Equal(t, o.ExpiresUnixMilli, outcomes[0].Refusal.NextExpiryUnixMilli)
	require.Equal(t, CodeProductHalted, outcomes[1].Code)
	require.Zero(t, s.refused(CodeProductHalted, s.order("b-2", anyOf("a.x", 1, PickRandom))).
		Refusal.NextExpiryUnixMilli)
}

// TestHaltFindsOtherDamage plants damage that is not in a counter.
func TestHaltFindsOtherDamage(t *testing.T) {
	for name, test := range map[string]func(s *shard, p *Product, o *OrderView) Command{
		"a number taken by nobody": func(s *shard, p *Product, _ *OrderView) Command {
			p.BreakSet(15)
			return s.order("b-2", anyOf("x", 1, PickRandom))
		},
		"free numbers that are not there": func(s *shard, p *Product, _ *OrderView) Command {
			p.BreakBits()
			return s.order("b-2", anyOf("x", 1, PickRandom))
		},
		"a buyer who holds less than he gives back": func(_ *shard, p *Product, o *OrderView) Command {
			p.BreakHeld()
			return &Release{on(o)}
		},
		"sold numbers that are not": func(s *shard, p *Product, o *OrderView) Command {
			s.pay(o)
			p.BreakSold()
			return &Refund{OnOrder: on(o), ReturnToStock: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openShard(t, DefaultLimits())
			s.put("x", 20, func(p *Settings) { p.MaxPerBuyer = 10 })
			o := s.reserve("b-1", anyOf("x", 2, PickLowest))
			s.refused(CodeProductHalted, test(s, stateOf(s.e).Product("x"), o))
			require.NotEmpty(t, s.e.Product("x").Halted)
			sameReads(t, s.e, s.restored(DefaultLimits(), 2).e)
		})
	}
}
