package inventory_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// TestOneUnitManyBuyers sells one number to one of many who ask in the same batch.
func TestOneUnitManyBuyers(t *testing.T) {
	for name, line := range map[string]Line{
		"chosen": chosen("x", 1), "random": anyOf("x", 1, PickRandom),
		"lowest": anyOf("x", 1, PickLowest), "adjacent": anyOf("x", 1, PickAdjacent),
	} {
		t.Run(name, func(t *testing.T) {
			s := openShard(t, DefaultLimits())
			s.put("x", 1)
			var commands []Command
			for i := range 200 {
				commands = append(commands, s.order(BuyerID(fmt.Sprint("b-", i)), line))
			}
			accepted := 0
			for _, o := range s.apply(commands...) {
				if o.Code == CodeOK {
					accepted++
				} else if name == "chosen" {
					require.Equal(t, CodeNumbersTaken, o.Code)
				} else {
					require.Equal(t, CodeInsufficientStock, o.Code)
				}
			}
			require.Equal(t, 1, accepted)
			s.verify()
		})
	}
}

// TestLinesOfOneProduct are decided on their sum, the chosen numbers first.
func TestLinesOfOneProduct(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 5)
	s.refused(CodeInsufficientStock, s.order("b-1", anyOf("x", 3, PickRandom), anyOf("x", 3, PickLowest)))
	o := s.reserve("b-1", anyOf("x", 2, PickLowest), chosen("x", 1), anyOf("x", 1, PickAdjacent), chosen("x", 5))
	require.Len(t, o.Items, 1)
	require.Equal(t, []uint32{1, 2, 3, 4, 5}, o.Items[0].Numbers)
	require.Equal(t, Money{Amount: 5 * 1990, Currency: "BRL"}, o.Total())
	s.verify()
}

// TestBasketIsWhole takes all products of an order or none, also when the last one has no run.
func TestBasketIsWhole(t *testing.T) {
	s := openShard(t, DefaultLimits())
	for _, id := range []ProductID{"a.1", "a.2", "a.3", "a.4"} {
		s.put(id, 10)
	}
	s.ok(&Block{Product: "a.4", Numbers: []uint32{5}})
	before, views := s.e.Digest(), products(s.e)
	c := s.order("b-1", chosen("a.1", 1, 2), anyOf("a.2", 2, PickRandom), anyOf("a.3", 2, PickAdjacent),
		anyOf("a.4", 1, PickLowest), anyOf("a.4", 6, PickAdjacent))
	require.Equal(t, uint32(5), s.refused(CodeNoAdjacentRun, c).Refusal.LongestRun)
	require.Equal(t, before, s.e.Digest())
	require.Equal(t, views, products(s.e))
	for id := range views {
		n := 0
		if id == "a.4" {
			n = 1
		}
		require.Len(t, taken(t, s.e, id), n)
	}
	c.Lines[4].Quantity = 5
	require.Len(t, s.ok(c).Order.Items, 4)
	s.verify()
}

// TestMillionRefusals sends a million refused requests of every kind and then sells exactly what
// there is. Nothing moves the digest, no counter, limit or deadline.
func TestMillionRefusals(t *testing.T) {
	batches, perBatch := 1000, 1000
	if raceDetector {
		batches = 20
	}
	s := openShard(t, DefaultLimits())
	s.put("a.x", 100, func(p *Settings) { p.MaxPerBuyer, p.MinPerOrder = 10, 2 })
	s.put("a.gone", 3)
	s.put("a.closed", 3)
	s.ok(&SetSaleState{Product: "a.closed", State: SaleClosed})
	s.pay(s.reserve("b-1", anyOf("a.gone", 3, PickLowest)))
	held := s.reserve("b-1", anyOf("a.x", 10, PickLowest))
	paid := s.pay(s.reserve("b-2", chosen("a.x", 11, 12)))
	s.ok(&Block{Product: "a.x", Numbers: []uint32{100, 50}})

	commands := []Command{
		s.order("b-1", anyOf("a.x", 2, PickRandom)), s.order("b-3", chosen("a.x", 13, 11)),
		s.order("b-3", chosen("a.x", 200, 1)), s.order("b-3", anyOf("a.x", 1, PickLowest)),
		s.order("b-3", anyOf("a.x", 101, PickLowest)), s.order("b-3", anyOf("a.gone", 1, PickRandom)),
		s.order("b-3", anyOf("a.x", 99, PickAdjacent)), s.order("b-3", chosen("a.closed", 1)),
		s.order("b-3", anyOf("a.x", 2, PickRandom), chosen("a.gone", 1)), s.order("b-3", chosen("a.none", 1)),
		s.order("b-3", anyOf("a.x", 2, PickAdjacent), anyOf("a.x", 60, PickAdjacent)),
		&Extend{on(held)}, &Extend{on(paid)}, &Release{on(paid)}, &Release{OnOrder{held.ID, "b-2"}},
		&BeginPayment{on(paid), "p-1"}, &Confirm{on(paid), "p-2"}, &Refuse{on(held), "p-1"},
		&Ship{on(held)}, &Refund{OnOrder: on(held)},
		&Block{Product: "a.x", Numbers: []uint32{60, 11}}, &Unblock{Product: "a.x", Numbers: []uint32{100, 60}},
		&PutProduct{Product: "a.x", Settings: settings(99)}, &Acknowledge{Consumer: "nobody"},
		&Restock{Product: "a.none", Count: 1, Key: "k"},
	}
	partly := s.order("b-3", chosen("a.gone", 1, 2))
	partly.Partial = true
	commands = append(commands, partly)
	batch := s.batch()
	for i := range perBatch {
		batch.Entries = append(batch.Entries, s.batch(commands[i%len(commands)]).Entries...)
	}
	before, views := s.e.Digest(), products(s.e)
	for i := range batches {
		batch.Seed = uint64(i)
		for k, o := range s.e.Apply(batch) {
			if o.Code == CodeOK {
				require.Fail(t, "accepted", "%+v", batch.Entries[k].Command)
			}
		}
	}
	require.Equal(t, before, s.e.Digest())
	require.Equal(t, views, products(s.e))
	sold := 12
	for i := 0; ; i++ {
		o := s.do(s.order(BuyerID(fmt.Sprint("c-", i)), anyOf("a.x", 2, PickRandom)))
		if o.Code != CodeOK {
			require.Equal(t, CodeInsufficientStock, o.Code)
			break
		}
		sold += 2
	}
	require.Equal(t, 98, sold)
	s.verify()
}

// TestRaceForEverything lets 200 buyers race for ten products by every kind of pick, with payments
// and expiries among them, until all is sold.
func TestRaceForEverything(t *testing.T) {
	const count = 1000
	s := openShard(t, DefaultLimits())
	rnd := rand.New(rand.NewPCG(3, 4))
	var ids []ProductID
	for i := range 10 {
		ids = append(ids, ProductID(fmt.Sprint("a.p", i)))
		s.put(ids[i], count, func(s *Settings) { s.HoldSeconds = 60 })
	}
	var held []*OrderView
	for round := 0; s.e.Stats().Live > 0 || round == 0 || s.available() > 0; round++ {
		var commands []Command
		for i := range 200 {
			id := ids[rnd.IntN(len(ids))]
			lines := []Line{anyOf(id, 1+rnd.Uint32N(6), Pick(rnd.IntN(3)))}
			switch rnd.IntN(4) {
			case 0:
				lines[0] = chosen(id, 1+rnd.Uint32N(count))
			case 1:
				lines = append(lines, anyOf(ids[rnd.IntN(len(ids))], 1, PickRandom))
			}
			c := s.order(BuyerID(fmt.Sprint("b-", i)), lines...)
			c.Partial = rnd.IntN(2) == 0
			commands = append(commands, c)
		}
		for _, o := range held {
			if rnd.IntN(4) > 0 {
				commands = append(commands, &Confirm{on(o), "p-1"})
			}
		}
		held = held[:0]
		for _, o := range s.apply(commands...) {
			if o.Code == CodeOK && o.Order.Status == StatusReserved {
				held = append(held, o.Order)
			}
		}
		if s.now += 20 * second; round%5 == 0 {
			s.verify()
		}
	}
	s.verify()
	for _, id := range ids {
		require.Equal(t, Counters{Count: count, Sold: count}, s.e.Product(id).Counters)
	}
}

// available is how many numbers of all products are free.
func (s *shard) available() (n uint32) {
	s.e.EachProduct(func(p *ProductView) { n += p.Counters.Available })
	return n
}

// TestPicks holds picks to what they promise in products that are fragmented at random: any number
// is to be had while enough are free, lowest is the lowest, and adjacent finds the lowest run
// whenever there is one.
func TestPicks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		s := openShard(t, DefaultLimits())
		count := 1 + rnd.Uint32N(60)
		s.put("x", count, func(p *Settings) { p.FirstNumber = 7 })
		var free []uint32
		for n := uint32(7); n < 7+count; n++ {
			if rnd.IntN(3) > 0 {
				free = append(free, n)
			} else {
				s.ok(&Block{Product: "x", Numbers: []uint32{n}})
			}
		}
		for n := uint32(1); n <= uint32(len(free)); n++ {
			first, _ := run(free, int(n))
			c := s.order("b-1", anyOf("x", n, PickAdjacent))
			if first == nil {
				s.refused(CodeNoAdjacentRun, c)
			} else {
				o := s.ok(c).Order
				require.Equal(t, first, o.Items[0].Numbers)
				s.ok(&Release{on(o)})
			}
			lowest := s.reserve("b-1", anyOf("x", n, PickLowest))
			require.Equal(t, free[:n], lowest.Items[0].Numbers)
			s.ok(&Release{on(lowest)})
			s.ok(&Release{on(s.reserve("b-1", anyOf("x", n, PickRandom)))})
		}
		s.refused(CodeInsufficientStock, s.order("b-1", anyOf("x", uint32(len(free))+1, PickRandom)))
	}
}

// TestRandomIsUniform counts how often each number is taken, alone and beside its neighbours in the
// batch. The bounds are more than six standard deviations wide.
func TestRandomIsUniform(t *testing.T) {
	if raceDetector {
		return // nothing but arithmetic
	}
	const count, perBatch, rounds = 50, 10, 4000
	s := openShard(t, DefaultLimits())
	s.put("x", count)
	var times, together [count + 1]int
	last := uint32(0)
	for range rounds {
		var commands []Command
		for range perBatch {
			commands = append(commands, s.order("b-1", anyOf("x", 2, PickRandom)))
		}
		var releases []Command
		for _, o := range s.apply(commands...) {
			numbers := o.Order.Items[0].Numbers
			for _, n := range numbers {
				times[n]++
			}
			together[(numbers[0]+count-last)%count]++ // how far it is from that of the order before
			last = numbers[1]
			releases = append(releases, &Release{on(o.Order)})
		}
		s.apply(releases...)
	}
	const each = rounds * perBatch * 2 / count
	for n := 1; n <= count; n++ {
		require.InDelta(t, each, times[n], 250, "number %d", n)
	}
	for distance := 2; distance < count-1; distance++ {
		require.Less(t, together[distance], 2*each, "distance %d", distance)
	}
}

// TestBuyerLimit counts what a buyer holds over all his orders, and gives it back by every way out.
func TestBuyerLimit(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 100, func(p *Settings) { p.MaxPerBuyer = 5 })
	one := func() *OrderView { return s.reserve("b-1", anyOf("x", 5, PickRandom)) }
	full := func() {
		t.Helper()
		o := s.refused(CodeBuyerLimit, s.order("b-1", anyOf("x", 1, PickRandom)))
		require.Equal(t, uint32(5), o.Refusal.Held)
		s.reserve("b-2", anyOf("x", 1, PickRandom))
		s.wait(0)
	}
	o := one()
	full()
	s.ok(&Release{on(o)})
	o = one()
	s.wait(31 * minute)
	require.Equal(t, StatusExpired, s.status(o))
	o = one()
	s.ok(&BeginPayment{on(o), "p-1"})
	full()
	s.ok(&Refuse{on(o), "p-1"})
	o = s.pay(one())
	full()
	s.ok(&Ship{on(o)})
	full()
	s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
	o = s.pay(one())
	s.ok(&Refund{OnOrder: on(o)})
	o = one()
	s.ok(&Release{on(o)})
	o2 := one()
	s.ok(&Confirm{on(o), "late"}) // the payer has paid: no limit refuses him
	require.Equal(t, uint32(10), s.refused(CodeBuyerLimit, s.order("b-1", anyOf("x", 1, PickRandom))).Refusal.Held)
	s.ok(&Release{on(o2)})
	full()
	s.verify()
}

// TestBuyerLimitLater sets a limit on a product that already sells: what buyers hold by then counts.
func TestBuyerLimitLater(t *testing.T) {
	s := openShard(t, DefaultLimits())
	limit := func(n uint32) { s.put("a.x", 100, func(p *Settings) { p.MaxPerBuyer = n }) }
	full := func(held uint32) {
		t.Helper()
		o := s.refused(CodeBuyerLimit, s.order("b-1", anyOf("a.x", 1, PickRandom)))
		require.Equal(t, held, o.Refusal.Held)
	}
	limit(0)
	s.put("a.y", 100)
	s.pay(s.reserve("b-1", anyOf("a.x", 2, PickRandom)))
	s.reserve("b-1", anyOf("a.x", 1, PickRandom), anyOf("a.y", 50, PickRandom))
	ended := s.reserve("b-1", anyOf("a.x", 7, PickRandom))
	s.ok(&Release{on(ended)})
	s.reserve("b-2", anyOf("a.x", 4, PickRandom))
	limit(3)
	full(3)
	limit(4)
	last := s.reserve("b-1", anyOf("a.x", 1, PickRandom))
	full(4)
	limit(0)
	s.ok(&Release{on(last)})
	s.reserve("b-1", anyOf("a.x", 3, PickRandom))
	limit(4)
	full(6)
	s.verify()
}

// TestKeys binds a key to the order it made, and to nothing else.
func TestKeys(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10)
	c := s.order("b-1", chosen("x", 1, 2))
	taken := s.order("b-2", chosen("x", 2))
	o := s.ok(c).Order
	s.refused(CodeNumbersTaken, taken)
	again := s.ok(c)
	require.True(t, again.Replay)
	require.Equal(t, o, again.Order)
	for _, replica := range []*shard{s, s.restored(DefaultLimits(), 1)} {
		other := *c
		other.Partial = true
		replica.refused(CodeKeyReused, &other)
		other = *c
		other.Lines = []Line{chosen("x", 2, 1)}
		replica.refused(CodeKeyReused, &other)
		require.True(t, replica.ok(c).Replay)
	}
	sameKey := *c
	sameKey.Buyer, sameKey.Lines = "b-3", []Line{chosen("x", 3)}
	require.False(t, s.ok(&sameKey).Replay, "a key belongs to its buyer")
	tenant := *c
	tenant.Tenant, tenant.Lines = "t-1", []Line{chosen("x", 4)}
	require.False(t, s.ok(&tenant).Replay, "and to its tenant")

	outcomes := s.apply(taken, &Release{on(o)}, taken, taken)
	require.Equal(t, CodeNumbersTaken, outcomes[0].Code)
	require.False(t, outcomes[2].Replay, "a refused key is free again, in the same batch too")
	require.True(t, outcomes[3].Replay)
	require.Equal(t, StatusReleased, s.ok(c).Order.Status, "the order as it is now")
	s.wait(23 * hour)
	require.True(t, s.ok(c).Replay)
	require.Equal(t, CodeOK, s.ok(&Confirm{on(o), "late"}).Code, "confirmable for a day")
	s.wait(1000 * hour)
	require.True(t, s.ok(c).Replay, "a sold order never forgets its key")
	s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
	s.wait(24 * hour)
	require.True(t, s.ok(c).Replay, "at 24 hours it is still kept")
	s.wait(1)
	fresh := s.ok(c)
	require.False(t, fresh.Replay, "and then forgotten")
	require.NotEqual(t, o.ID, fresh.Order.ID)
	s.refused(CodeOrderNotFound, &Release{on(o)})
	s.verify()
}

// TestPartial takes what can be had.
func TestPartial(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("a.x", 10, func(p *Settings) { p.MinPerOrder = 2 })
	s.put("a.y", 4)
	s.ok(&Block{Product: "a.x", Numbers: []uint32{4, 8}})
	partly := func(lines ...Line) *Reserve {
		c := s.order("b-1", lines...)
		c.Partial = true
		return c
	}
	untouched := s.e.Product("a.x").Version
	o := s.ok(partly(chosen("a.x", 3, 4, 8), anyOf("a.y", 9, PickRandom)))
	require.Equal(t, untouched, s.e.Product("a.x").Version, "below the smallest order nothing is taken")
	require.Equal(t, []Selection{
		{Product: "a.x", Numbers: []uint32{3, 4, 8}}, {Product: "a.y", Quantity: 5},
	}, o.Missing)
	require.Len(t, o.Order.Items, 1)
	o = s.ok(partly(anyOf("a.x", 9, PickAdjacent), chosen("a.x", 4, 10), anyOf("a.y", 1, PickRandom)))
	require.Equal(t, []ItemView{{
		Product: "a.x", Numbers: []uint32{1, 2, 3, 10}, UnitPrice: Money{Amount: 1990, Currency: "BRL"},
	}}, o.Order.Items)
	require.Equal(t, []Selection{
		{Product: "a.x", Numbers: []uint32{4}, Quantity: 6}, {Product: "a.y", Quantity: 1},
	}, o.Missing)
	s.refused(CodeInsufficientStock, partly(anyOf("a.y", 1, PickRandom)))
	s.refused(CodeNumbersTaken, partly(chosen("a.x", 4, 3)))
	s.put("a.x", 10, func(p *Settings) { p.MinPerOrder = 4 })
	require.Equal(t, uint32(3), s.refused(CodeNoAdjacentRun, partly(anyOf("a.x", 4, PickAdjacent))).Refusal.LongestRun)
	s.verify()
}

// TestRandomIsUniformAmongTheFree lets many orders each pick a few numbers at random, of a product that is empty, half
// taken or nearly sold out: every free number is picked as often as any other, by chi-squared.
func TestRandomIsUniformAmongTheFree(t *testing.T) {
	if raceDetector {
		return // nothing but arithmetic
	}
	const count, orders, each = 100, 20_000, 3
	for _, taken := range []uint32{0, 40, 60, 90} {
		s := openShard(t, DefaultLimits())
		s.put("x", count)
		if taken > 0 {
			block := &Block{Product: "x"}
			for n := range taken {
				block.Numbers = append(block.Numbers, 1+n*7%count)
			}
			s.ok(block)
		}
		picked := make(map[uint32]float64)
		for range orders {
			o := s.reserve("b-1", anyOf("x", each, PickRandom))
			require.True(t, slices.IsSorted(o.Items[0].Numbers))
			for _, n := range o.Items[0].Numbers {
				picked[n]++
			}
			s.ok(&Release{on(o)})
		}
		free := float64(count - taken)
		expected, chi := orders*each/free, 0.0
		require.Len(t, picked, count-int(taken))
		for _, n := range picked {
			chi += (n - expected) * (n - expected) / expected
		}
		// Its mean is free - 1 and its variance twice that, less as the picks of an order differ.
		require.Less(t, chi, free-1+5*math.Sqrt(2*(free-1)), "%d taken", taken)
	}
}
