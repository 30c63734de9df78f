package inventory_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// TestRefusals has a case for every code: what leads to it, and what it says that would help.
func TestRefusals(t *testing.T) {
	covered := map[Code]bool{CodeOK: true}
	for _, c := range refusals {
		covered[c.code] = true
		t.Run(c.code.String()+"/"+c.name, func(t *testing.T) {
			s := openShard(t, DefaultLimits())
			s.put("a.x", 10, func(s *Settings) { s.MaxPerBuyer = 6 })
			s.put("a.y", 10, func(s *Settings) { s.MinPerOrder, s.MaxPerOrder = 2, 5 })
			s.put("b", 5)
			command := c.command(s)
			before, version := s.e.Digest(), s.e.Product("a.x").Version
			o := s.refused(c.code, command)
			require.Equal(t, version, s.e.Product("a.x").Version)
			require.Equal(t, before, s.e.Digest(), "a refusal changes nothing")
			require.Nil(t, o.Order)
			require.Nil(t, o.Product)
			refusal := *o.Refusal
			require.False(t, c.detail && refusal.Detail == "", "a person can read why")
			refusal.Detail = ""
			require.Equal(t, c.says, refusal)
			s.verify()
		})
	}
	for _, code := range Codes() {
		require.True(t, covered[code], "%s has a case", code)
	}
}

var refusals = []struct {
	code    Code
	name    string
	command func(s *shard) Command
	detail  bool
	says    Refusal
}{
	{CodeValueInvalid, "buyer", func(s *shard) Command {
		return s.order("with space", anyOf("a.x", 1, PickRandom))
	}, true, Refusal{Pointer: "/buyer"}},
	{CodeValueInvalid, "buyer too long", func(s *shard) Command {
		return s.order(BuyerID(strings.Repeat("b", 65)), anyOf("a.x", 1, PickRandom))
	}, true, Refusal{Pointer: "/buyer"}},
	{CodeValueInvalid, "pick", func(s *shard) Command {
		return s.order("b-1", anyOf("a.x", 1, 3))
	}, true, Refusal{Pointer: "/items/0/pick"}},
	{CodeValueInvalid, "payment", func(*shard) Command {
		return &Confirm{Payment: ""}
	}, true, Refusal{Pointer: "/payment"}},
	{CodeValueInvalid, "reason", func(*shard) Command {
		return &Refund{Reason: strings.Repeat("r", 501)}
	}, true, Refusal{Pointer: "/reason"}},
	{CodeValueInvalid, "reason not UTF-8", func(*shard) Command {
		return &Block{Product: "a.x", Numbers: []uint32{1}, Reason: "\xff"}
	}, true, Refusal{Pointer: "/reason"}},
	{CodeValueInvalid, "state", func(*shard) Command {
		return &SetSaleState{Product: "a.x", State: 3}
	}, true, Refusal{Pointer: "/state"}},
	{CodeValueInvalid, "consumer", func(*shard) Command {
		return &Attach{}
	}, true, Refusal{Pointer: "/consumer"}},
	{CodeValueInvalid, "time", func(*shard) Command {
		return &LowerClock{UnixMilli: -1}
	}, true, Refusal{Pointer: "/time"}},
	{CodeQuantityInvalid, "no items", func(s *shard) Command {
		return s.order("b-1")
	}, true, Refusal{Pointer: "/items"}},
	{CodeQuantityInvalid, "neither", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 1), Line{Product: "a.x"})
	}, true, Refusal{Pointer: "/items/1"}},
	{CodeQuantityInvalid, "both", func(s *shard) Command {
		return s.order("b-1", Line{Product: "a.x", Numbers: []uint32{1}, Quantity: 1})
	}, true, Refusal{Pointer: "/items/0"}},
	{CodeQuantityInvalid, "nothing to block", func(*shard) Command {
		return &Block{Product: "a.x"}
	}, true, Refusal{Pointer: "/numbers"}},
	{CodeNumbersRepeated, "in one line", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 3, 1, 3))
	}, true, Refusal{Pointer: "/items/0/numbers/2"}},
	{CodeNumbersRepeated, "across lines", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 3), chosen("a.y", 3, 4), chosen("a.x", 4, 3))
	}, true, Refusal{Pointer: "/items/2/numbers/1"}},
	{CodeNumbersRepeated, "unblock", func(*shard) Command {
		return &Unblock{Product: "a.x", Numbers: []uint32{3, 3}}
	}, true, Refusal{Pointer: "/numbers/1"}},
	{CodeBasketNotTogether, "two labels", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 3), chosen("b", 3))
	}, true, Refusal{Pointer: "/items/1/product"}},
	{CodeOrderLimit, "lines", func(s *shard) Command {
		return s.order("b-1", make([]Line, 101)...)
	}, true, Refusal{Pointer: "/items", Limit: 100}},
	{CodeOrderLimit, "numbers", func(s *shard) Command {
		return s.order("b-1", anyOf("a.x", 500, PickRandom), anyOf("a.y", 501, PickRandom))
	}, true, Refusal{Pointer: "/items", Limit: 1000}},
	{CodeOrderLimit, "below the product's", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 1), chosen("a.y", 1))
	}, true, Refusal{Pointer: "/items/1", Minimum: 2, Limit: 5}},
	{CodeOrderLimit, "lines count together", func(s *shard) Command {
		return s.order("b-1", anyOf("a.y", 3, PickRandom), chosen("a.y", 1, 2, 3))
	}, true, Refusal{Pointer: "/items/0", Minimum: 2, Limit: 5}},
	{CodeBuyerLimit, "reserved and sold count", func(s *shard) Command {
		s.pay(s.reserve("b-1", anyOf("a.x", 2, PickRandom)))
		s.reserve("b-1", anyOf("a.x", 3, PickRandom))
		return s.order("b-1", anyOf("a.x", 2, PickRandom))
	}, true, Refusal{Pointer: "/items/0", Limit: 6, Held: 5}},
	{CodeProductNotFound, "reserve", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 1), chosen("a.z", 1))
	}, true, Refusal{Pointer: "/items/1/product"}},
	{CodeProductNotFound, "no such id", func(s *shard) Command {
		return s.order("b-1", chosen("A_x", 1))
	}, true, Refusal{Pointer: "/items/0/product"}},
	{CodeProductNotFound, "restock", func(s *shard) Command {
		return &Restock{Product: "z", Count: 1, Key: s.key()}
	}, false, Refusal{}},
	{CodeProductNotFound, "state", func(*shard) Command {
		return &SetSaleState{Product: "z"}
	}, false, Refusal{}},
	{CodeOrderNotFound, "unknown", func(*shard) Command {
		return &Release{}
	}, false, Refusal{}},
	{CodeOrderNotFound, "another buyer's", func(s *shard) Command {
		o := s.reserve("b-1", chosen("a.x", 1))
		return &Release{OnOrder{Order: o.ID, By: "b-2"}}
	}, false, Refusal{}},
	{CodeOrderNotFound, "another day's", func(s *shard) Command {
		o := s.reserve("b-1", chosen("a.x", 1))
		o.ID[3]++
		return &Release{on(o)}
	}, false, Refusal{}},
	{CodeOrderNotFound, "another shard's", func(s *shard) Command {
		o := s.reserve("b-1", chosen("a.x", 1))
		o.ID[1]++
		return &Release{on(o)}
	}, false, Refusal{}},
	{CodeSaleNotOpen, "1 ms before", func(s *shard) Command {
		s.put("a.x", 10, func(p *Settings) { p.OpensAtUnixMilli = s.now + 1 })
		return s.order("b-1", chosen("a.x", 1))
	}, false, Refusal{OpensAtUnixMilli: opening + 1}},
	{CodeSaleClosed, "at the closing", func(s *shard) Command {
		s.put("a.x", 10, func(p *Settings) { p.ClosesAtUnixMilli = s.now })
		return s.order("b-1", chosen("a.x", 1))
	}, false, Refusal{ClosesAtUnixMilli: opening}},
	{CodeSaleClosed, "by the admin", func(s *shard) Command {
		s.ok(&SetSaleState{Product: "a.x", State: SaleClosed})
		return s.order("b-1", chosen("a.x", 1))
	}, false, Refusal{}},
	{CodeSalePaused, "also before the opening", func(s *shard) Command {
		s.put("a.x", 10, func(p *Settings) { p.OpensAtUnixMilli = s.now + 1 })
		s.ok(&SetSaleState{Product: "a.x", State: SalePaused})
		return s.order("b-1", chosen("a.x", 1))
	}, false, Refusal{}},
	{CodeProductHalted, "everything", func(s *shard) Command {
		s.halt("a.x")
		return s.order("b-1", chosen("a.x", 1))
	}, true, Refusal{}},
	{CodeNumbersOutOfRange, "reserve", func(s *shard) Command {
		return s.order("b-1", chosen("a.x", 10), chosen("a.y", 10, 11))
	}, true, Refusal{Pointer: "/items/1/numbers/1"}},
	{CodeNumbersOutOfRange, "below the first", func(*shard) Command {
		return &Block{Product: "a.x", Numbers: []uint32{1, 0}}
	}, true, Refusal{Pointer: "/numbers/1"}},
	{CodeCurrencyMixed, "basket", func(s *shard) Command {
		s.put("a.dollar", 10, func(p *Settings) { p.Price.Currency = "USD" })
		return s.order("b-1", chosen("a.x", 10), chosen("a.dollar", 10))
	}, true, Refusal{Pointer: "/items/1/product"}},
	{CodeNumbersTaken, "reserve", func(s *shard) Command {
		s.reserve("b-1", chosen("a.x", 3, 4))
		s.ok(&Block{Product: "a.y", Numbers: []uint32{10}})
		return s.order("b-2", chosen("a.x", 4, 5, 3), chosen("a.y", 10, 9))
	}, false, Refusal{
		Taken: []Selection{
			{Product: "a.x", Numbers: []uint32{3, 4}}, {Product: "a.y", Numbers: []uint32{10}},
		},
		Alternatives: []Selection{
			{Product: "a.x", Numbers: []uint32{1, 2, 6, 7, 8, 9}},
			{Product: "a.y", Numbers: []uint32{5, 6, 7, 8}},
		},
		NextExpiryUnixMilli: opening + 30*minute,
	}},
	{CodeNumbersTaken, "block", func(s *shard) Command {
		s.reserve("b-1", chosen("a.x", 3))
		return &Block{Product: "a.x", Numbers: []uint32{2, 3}}
	}, false, Refusal{
		Taken:               []Selection{{Product: "a.x", Numbers: []uint32{3}}},
		NextExpiryUnixMilli: opening + 30*minute,
	}},
	{CodeInsufficientStock, "something may come back", func(s *shard) Command {
		s.reserve("b-1", anyOf("b", 2, PickRandom))
		s.pay(s.reserve("b-1", anyOf("b", 1, PickRandom)))
		return s.order("b-2", chosenFree(s, "b"), anyOf("b", 2, PickRandom))
	}, false, Refusal{Available: 2, NextExpiryUnixMilli: opening + 30*minute}},
	{CodeInsufficientStock, "nothing will", func(s *shard) Command {
		s.pay(s.reserve("b-1", anyOf("b", 5, PickRandom)))
		return s.order("b-2", anyOf("b", 1, PickRandom))
	}, false, Refusal{}},
	{CodeNoAdjacentRun, "reserve", func(s *shard) Command {
		s.ok(&Block{Product: "b", Numbers: []uint32{3}})
		return s.order("b-1", anyOf("b", 3, PickAdjacent))
	}, false, Refusal{LongestRun: 2, Available: 4}},
	{CodeNumbersNotBlocked, "unblock", func(s *shard) Command {
		s.ok(&Block{Product: "b", Numbers: []uint32{3}})
		return &Unblock{Product: "b", Numbers: []uint32{3, 4}}
	}, true, Refusal{Pointer: "/numbers"}},
	{CodeProductFixed, "first number", func(*shard) Command {
		return &PutProduct{Product: "b", Settings: settings(5, func(s *Settings) { s.FirstNumber = 0 })}
	}, true, Refusal{Pointer: "/first_number"}},
	{CodeProductFixed, "count", func(*shard) Command {
		return &PutProduct{Product: "b", Settings: settings(6)}
	}, true, Refusal{Pointer: "/count"}},
	{CodeProductFixed, "currency", func(*shard) Command {
		return &PutProduct{Product: "b", Settings: settings(5, func(s *Settings) { s.Price.Currency = "USD" })}
	}, true, Refusal{Pointer: "/price/currency"}},
	{CodeProductInvalid, "restocked beyond the last number", func(s *shard) Command {
		s.ok(&PutProduct{Product: "end", Settings: settings(5, func(s *Settings) { s.FirstNumber = 1<<32 - 6 })})
		return &Restock{Product: "end", Count: 2, Key: s.key()}
	}, true, Refusal{Pointer: "/count"}},
	{CodeProductInvalid, "id", func(*shard) Command {
		return &PutProduct{Product: "a.b.c", Settings: settings(5)}
	}, true, Refusal{}},
	{CodeOrderStatus, "release while paying", func(s *shard) Command {
		o := s.reserve("b-1", chosen("b", 1))
		s.ok(&BeginPayment{on(o), "p-1"})
		return &Release{on(o)}
	}, false, Refusal{Status: StatusPaying}},
	{CodeExtensionLimit, "not later", func(s *shard) Command {
		return &Extend{on(s.reserve("b-1", chosen("b", 1)))}
	}, true, Refusal{Status: StatusReserved}},
	{CodePaidByAnother, "confirm", func(s *shard) Command {
		o := s.pay(s.reserve("b-1", chosen("b", 1)))
		return &Confirm{on(o), "p-2"}
	}, false, Refusal{Status: StatusPaid}},
	{CodeKeyReused, "reserve", func(s *shard) Command {
		c := s.order("b-1", chosen("b", 1))
		s.ok(c)
		c.Lines = []Line{chosen("b", 2)}
		return c
	}, false, Refusal{}},
	{CodeKeyReused, "restock", func(s *shard) Command {
		s.ok(&Restock{Product: "b", Count: 1, Key: "k"})
		return &Restock{Product: "b", Count: 2, Key: "k"}
	}, false, Refusal{}},
	{CodeOverloaded, "too many restocks", func(s *shard) Command {
		commands := make([]Command, 1000)
		for i := range commands {
			commands[i] = &Restock{Product: "b", Count: 1, Key: s.key()}
		}
		s.apply(commands...)
		return &Restock{Product: "b", Count: 1, Key: s.key()}
	}, true, Refusal{}},
	{CodeConsumerUnknown, "acknowledge", func(*shard) Command {
		return &Acknowledge{Consumer: "nobody", Sequence: 1}
	}, true, Refusal{}},
}

// chosenFree is a line of the lowest number that is free.
func chosenFree(s *shard, id ProductID) Line {
	view := s.e.Product(id)
	for n := view.Settings.FirstNumber; ; n++ {
		if o := s.do(&Block{Product: id, Numbers: []uint32{n}}); o.Code == CodeOK {
			s.ok(&Unblock{Product: id, Numbers: []uint32{n}})
			return chosen(id, n)
		}
	}
}

// TestOrderOfRefusals starts from a request with everything wrong and mends one thing after the
// other: form, key, product, sale state and window, items, limits, stock.
func TestOrderOfRefusals(t *testing.T) {
	s := openShard(t, DefaultLimits())
	limits := func(p *Settings) {
		p.OpensAtUnixMilli, p.ClosesAtUnixMilli = s.now+minute, s.now+hour
		p.MinPerOrder, p.MaxPerOrder, p.MaxPerBuyer = 2, 5, 6
	}
	s.put("a.x", 10)
	s.put("a.sold", 4)
	s.reserve("b-9", anyOf("a.sold", 4, PickLowest))
	first := &Reserve{Buyer: "b-1", Key: "k", Lines: []Line{anyOf("a.x", 5, PickLowest)}}
	o := s.ok(first).Order // numbers 1 to 5
	s.put("a.x", 10, limits)
	s.ok(&SetSaleState{Product: "a.x", State: SaleClosed})

	c := &Reserve{Buyer: "b-1", Key: "k", Lines: []Line{
		chosen("a.x", 11, 1, 1), chosen("a.none", 1), anyOf("a.x", 4, PickAdjacent),
	}}
	s.refused(CodeNumbersRepeated, c)
	c.Lines[0].Numbers = []uint32{11, 1}
	s.refused(CodeKeyReused, c)
	c.Key = "another"
	s.refused(CodeProductNotFound, c)
	c.Lines[1] = anyOf("a.sold", 1, PickRandom)
	s.refused(CodeSaleClosed, c)
	s.ok(&SetSaleState{Product: "a.x", State: SalePaused})
	s.refused(CodeSalePaused, c)
	s.ok(&SetSaleState{Product: "a.x", State: SaleOpen})
	s.refused(CodeSaleNotOpen, c)
	s.now += minute
	s.refused(CodeNumbersOutOfRange, c)
	c.Lines[0].Numbers = []uint32{1, 8}
	s.refused(CodeOrderLimit, c)
	c.Lines[2].Quantity = 2
	s.refused(CodeBuyerLimit, c)
	c.Buyer = "b-2"
	s.refused(CodeNumbersTaken, c)
	c.Lines[0].Numbers = []uint32{8}
	s.refused(CodeInsufficientStock, c)
	c.Lines = []Line{c.Lines[0], anyOf("a.x", 3, PickAdjacent)}
	require.Equal(t, uint32(2), s.refused(CodeNoAdjacentRun, c).Refusal.LongestRun)
	c.Lines[1].Quantity = 2
	require.Equal(t, []uint32{6, 7, 8}, s.ok(c).Order.Items[0].Numbers)
	require.Equal(t, o, s.ok(first).Order, "a repeat is answered whatever has become of the sale")
	s.verify()
}

// TestProductSettings has the bounds of every setting, at them and one beyond.
func TestProductSettings(t *testing.T) {
	s := openShard(t, DefaultLimits())
	good := []func(*Settings){
		func(s *Settings) { s.Name = strings.Repeat("n", 200) },
		func(s *Settings) { s.Price.Amount = 0 },
		func(s *Settings) { s.Count = MaxCount },
		func(s *Settings) { s.FirstNumber, s.Count = 1<<32-10, 10 },
		func(s *Settings) { s.FirstNumber = 0 },
		func(s *Settings) { s.OpensAtUnixMilli, s.ClosesAtUnixMilli = 5, 6 },
		func(s *Settings) { s.HoldSeconds, s.HoldMaxSeconds, s.PaymentGraceSeconds = 1, 1, 1 },
		func(s *Settings) { s.OverdueReleaseSeconds = 1 },
		func(s *Settings) { s.MinPerOrder, s.MaxPerOrder = 1000, 1000 },
		func(s *Settings) { s.Count, s.MaxPerOrder = 5, 100 },
		func(s *Settings) { s.Campaign = strings.Repeat("c", 64) },
	}
	for i, change := range good {
		c := &PutProduct{Product: ProductID(strings.Repeat("p", i+1)), Settings: settings(10, change)}
		require.True(t, s.ok(c).Created)
		require.False(t, s.ok(c).Created)
		require.Equal(t, uint64(1), s.e.Product(c.Product).Version, "put again changes nothing")
	}
	bad := map[string][]func(*Settings){
		"/name": {
			func(s *Settings) { s.Name = "" }, func(s *Settings) { s.Name = strings.Repeat("n", 201) },
			func(s *Settings) { s.Name = "\xff" },
		},
		"/price/amount": {
			func(s *Settings) { s.Price.Amount = -1 }, func(s *Settings) { s.Price.Amount = 1 << 53 / 1000 * 2 },
		},
		"/price/currency": {
			func(s *Settings) { s.Price.Currency = "brl" }, func(s *Settings) { s.Price.Currency = "BR" },
		},
		"/count":        {func(s *Settings) { s.Count = 0 }, func(s *Settings) { s.Count = MaxCount + 1 }},
		"/first_number": {func(s *Settings) { s.FirstNumber = 1<<32 - 9 }},
		"/opens_at":     {func(s *Settings) { s.OpensAtUnixMilli = -1 }},
		"/closes_at": {
			func(s *Settings) { s.OpensAtUnixMilli, s.ClosesAtUnixMilli = 5, 5 },
			func(s *Settings) { s.ClosesAtUnixMilli = 1 << 50 },
		},
		"/hold_seconds":            {func(s *Settings) { s.HoldSeconds = 0 }},
		"/hold_max_seconds":        {func(s *Settings) { s.HoldMaxSeconds = s.HoldSeconds - 1 }},
		"/payment_grace_seconds":   {func(s *Settings) { s.PaymentGraceSeconds = 0 }},
		"/overdue_release_seconds": {func(s *Settings) { s.OverdueReleaseSeconds = -1 }},
		"/min_per_order": {
			func(s *Settings) { s.MinPerOrder = 0 }, func(s *Settings) { s.MinPerOrder = s.MaxPerOrder + 1 },
		},
		"/max_per_order": {func(s *Settings) { s.MaxPerOrder = 1001 }},
		"/campaign":      {func(s *Settings) { s.Campaign = strings.Repeat("c", 65) }},
	}
	for pointer, changes := range bad {
		for _, change := range changes {
			o := s.refused(CodeProductInvalid, &PutProduct{Product: "x", Settings: settings(10, change)})
			require.Equal(t, pointer, o.Refusal.Pointer)
		}
	}
}
