package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// TestTransitions has what every command does to an order of every status: the status after it, or
// none for a refusal. Repeating what already holds answers the order.
func TestTransitions(t *testing.T) {
	const no = StatusNone
	for _, row := range []struct {
		from                                                                   Status
		extend, release, begin, confirm, refuse, ship, refundBack, refundBlock Status
	}{
		{StatusReserved, StatusReserved, StatusReleased, StatusPaying, StatusPaid, no, no, no, no},
		{StatusPaying, no, no, StatusPaying, StatusPaid, StatusRefused, no, no, no},
		{StatusPaid, no, no, no, StatusPaid, no, StatusShipped, StatusRefunded, StatusRefunded},
		{StatusShipped, no, no, no, StatusShipped, no, StatusShipped, StatusRefunded, StatusRefunded},
		{StatusExpired, no, no, no, StatusPaid, no, no, no, no},
		{StatusReleased, no, StatusReleased, no, StatusPaid, no, no, no, no},
		{StatusRefused, no, no, no, StatusPaid, StatusRefused, no, no, no},
		{StatusRefundPending, no, no, no, no, no, no, StatusRefunded, StatusRefunded},
		{StatusRefunded, no, no, no, no, no, no, StatusRefunded, StatusRefunded},
	} {
		for i, to := range []Status{
			row.extend, row.release, row.begin, row.confirm, row.refuse, row.ship, row.refundBack, row.refundBlock,
		} {
			s := openShard(t, DefaultLimits())
			s.put("x", 10, func(p *Settings) { p.HoldSeconds = 60 })
			o := s.bring(row.from)
			s.now += second
			o = s.get(o)
			command := []Command{
				&Extend{on(o)}, &Release{on(o)}, &BeginPayment{on(o), "p-1"}, &Confirm{on(o), "p-1"},
				&Refuse{on(o), "p-1"}, &Ship{on(o)}, &Refund{OnOrder: on(o), ReturnToStock: true},
				&Refund{OnOrder: on(o)},
			}[i]
			if to == no {
				s.wait(0)
				before := s.e.Digest()
				require.Equal(t, row.from, s.refused(CodeOrderStatus, command).Refusal.Status)
				require.Equal(t, before, s.e.Digest())
				require.Equal(t, o, s.get(o))
				continue
			}
			require.Equal(t, to, s.ok(command).Order.Status, "%T of %s", command, row.from)
			after := s.get(o)
			if to != StatusReserved { // a second renewal is refused: it would not last longer
				require.Equal(t, after, s.ok(command).Order, "%T again", command)
				require.Equal(t, after, s.get(o))
			}
			s.verify()
		}
	}
}

// bring makes an order of number 1 of x and brings it to a status.
func (s *shard) bring(status Status) *OrderView {
	s.t.Helper()
	o := s.reserve("b-1", chosen("x", 1))
	switch status {
	case StatusPaying:
		s.ok(&BeginPayment{on(o), "p-1"})
	case StatusPaid:
		s.pay(o)
	case StatusShipped:
		s.pay(o)
		s.ok(&Ship{on(o)})
	case StatusExpired:
		s.wait(61 * second)
	case StatusReleased:
		s.ok(&Release{on(o)})
	case StatusRefused:
		s.ok(&BeginPayment{on(o), "p-1"})
		s.ok(&Refuse{on(o), "p-1"})
	case StatusRefundPending:
		s.ok(&Release{on(o)})
		s.pay(s.reserve("b-2", chosen("x", 1)))
		s.refused(CodeNumbersTaken, &Confirm{on(o), "p-1"})
	case StatusRefunded:
		s.pay(o)
		s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
	}
	require.Equal(s.t, status, s.status(o))
	return s.get(o)
}

// TestConfirmOnce: one payment confirms once, another is sent back, and neither comes in after a
// refund.
func TestConfirmOnce(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10)
	o := s.reserve("b-1", chosen("x", 1, 2))
	outcomes := s.apply(&Confirm{on(o), "p-1"}, &Confirm{on(o), "p-1"}, &Confirm{on(o), "p-2"})
	require.Equal(t, outcomes[0].Order, outcomes[1].Order)
	require.Equal(t, CodePaidByAnother, outcomes[2].Code)
	require.Equal(t, uint32(2), s.e.Product("x").Counters.Sold)
	s.refused(CodeOrderStatus, &Release{on(o)})
	s.refused(CodeOrderStatus, &Refuse{on(o), "p-1"})
	s.wait(10_000 * hour)
	require.Equal(t, StatusPaid, s.status(o), "nothing but a refund takes what is sold")

	s.ok(&Refund{OnOrder: on(o), ReturnToStock: true, Reason: "regret"})
	require.Equal(t, uint32(10), s.e.Product("x").Counters.Available)
	for _, payment := range []PaymentID{"p-1", "p-2"} {
		o := s.refused(CodeOrderStatus, &Confirm{on(o), payment})
		require.Equal(t, StatusRefunded, o.Refusal.Status)
	}
	require.Equal(t, uint32(10), s.e.Product("x").Counters.Available, "given back once")
	s.verify()
}

// TestPaidLate gets the same numbers while they are free, and a refund once they are not.
func TestPaidLate(t *testing.T) {
	for _, end := range []Status{StatusExpired, StatusReleased, StatusRefused} {
		t.Run(end.String(), func(t *testing.T) {
			s := openShard(t, DefaultLimits())
			s.put("x", 10, func(p *Settings) { p.HoldSeconds, p.MaxPerBuyer = 60, 1 })
			o := s.bring(end)
			s.ok(&SetSaleState{Product: "x", State: SaleClosed})
			paid := s.ok(&Confirm{on(o), "p-late"}).Order
			require.Equal(t, StatusPaid, paid.Status)
			require.Equal(t, o.Items, paid.Items)
			require.Equal(t, Counters{Count: 10, Available: 9, Sold: 1}, s.e.Product("x").Counters)
			s.restored(DefaultLimits(), 1).verify()
			s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
			require.Equal(t, 2, stateOf(s.e).EndedRecords(), "one of them dead")
			s.restored(DefaultLimits(), 1).verify()
		})
		t.Run(end.String()+", taken", func(t *testing.T) {
			s := openShard(t, DefaultLimits())
			s.put("x", 10, func(p *Settings) { p.HoldSeconds = 60 })
			s.ok(&Attach{Consumer: "ledger"})
			o := s.bring(end)
			other := s.pay(s.reserve("b-2", chosen("x", 1)))
			late := s.refused(CodeNumbersTaken, &Confirm{on(o), "p-late"})
			require.Equal(t, []Selection{{Product: "x", Numbers: []uint32{1}}}, late.Refusal.Taken)
			require.Equal(t, StatusRefundPending, late.Order.Status)
			require.Equal(t, PaymentID("p-late"), late.Order.Payment)
			sequence := stateOf(s.e).Sequence()
			s.refused(CodeOrderStatus, &Confirm{on(o), "p-late"})
			s.ok(&Refund{OnOrder: on(other), ReturnToStock: true})
			s.refused(CodeOrderStatus, &Confirm{on(o), "p-late"}) // never from refund_pending
			require.Equal(t, sequence+2, stateOf(s.e).Sequence(), "told once")
			s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
			require.Equal(t, Counters{Count: 10, Available: 10}, s.e.Product("x").Counters)
			s.refused(CodeOrderStatus, &Confirm{on(o), "p-late"})
			s.restored(DefaultLimits(), 1).verify()
		})
	}
}

// TestOverdue holds what is being paid beyond its deadline, until somebody knows.
func TestOverdue(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10, func(p *Settings) { p.HoldSeconds = 60; p.PaymentGraceSeconds = 300 })
	o := s.reserve("b-1", chosen("x", 1))
	s.now += 59 * second
	o = s.ok(&BeginPayment{on(o), "p-1"}).Order
	require.Equal(t, s.now+300*second, o.ExpiresUnixMilli)
	s.refused(CodeOrderStatus, &BeginPayment{on(o), "p-2"}) // once per order
	s.wait(299 * second)
	require.False(t, s.get(o).Overdue)
	s.wait(second)
	require.True(t, s.get(o).Overdue)
	s.wait(1000 * hour)
	require.Equal(t, StatusPaying, s.status(o))
	require.True(t, s.get(o).Overdue)
	s.refused(CodeOrderStatus, &Release{on(o)})
	s.refused(CodeOrderStatus, &Extend{on(o)})
	s.refused(CodeOrderStatus, &Refuse{on(o), "p-2"})
	require.Zero(t, s.restored(DefaultLimits(), 1).e.NextDeadline())
	paid := s.ok(&Confirm{on(o), "p-1"}).Order
	require.Equal(t, StatusPaid, paid.Status)
	require.False(t, paid.Overdue)
	s.verify()
}

// TestOverdueReleases gives overdue orders up where the product says so.
func TestOverdueReleases(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10, func(p *Settings) { p.PaymentGraceSeconds, p.HoldSeconds, p.OverdueReleaseSeconds = 60, 60, 100 })
	o := s.reserve("b-1", chosen("x", 1))
	o = s.ok(&BeginPayment{on(o), "p-1"}).Order
	s.wait(60 * second)
	require.True(t, s.get(o).Overdue)
	require.Equal(t, o.ExpiresUnixMilli+100*second, s.e.NextDeadline())
	s.wait(100*second - 1)
	require.Equal(t, StatusPaying, s.status(o))
	s.wait(1)
	require.Equal(t, StatusExpired, s.status(o))
	require.Equal(t, uint32(10), s.e.Product("x").Counters.Available)
	s.verify()

	o = s.reserve("b-1", chosen("x", 2))
	s.ok(&BeginPayment{on(o), "p-1"})
	s.now += hour // both deadlines are past when the command comes
	s.refused(CodeOrderStatus, &Refuse{on(o), "p-1"})
	require.Equal(t, StatusExpired, s.status(o))
}

// TestRefundBlocks keeps numbers that do not return to stock out of sale.
func TestRefundBlocks(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 3)
	o := s.pay(s.reserve("b-1", chosen("x", 1, 2)))
	s.ok(&Refund{OnOrder: on(o)})
	require.Equal(t, Counters{Count: 3, Available: 1, Blocked: 2}, s.e.Product("x").Counters)
	s.refused(CodeNumbersTaken, s.order("b-1", chosen("x", 1)))
	s.restored(DefaultLimits(), 1).verify()
	s.ok(&Unblock{Product: "x", Numbers: []uint32{2, 1}})
	s.ok(&Refund{OnOrder: on(o), ReturnToStock: true})
	require.Equal(t, Counters{Count: 3, Available: 3}, s.e.Product("x").Counters)
}

// TestPriceIsCaptured: an order keeps the price at which it was made, also beside the change of it.
func TestPriceIsCaptured(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("x", 10)
	dearer := &PutProduct{Product: "x", Settings: settings(10, func(p *Settings) { p.Price.Amount, p.HoldSeconds = 2990, 7 })}
	outcomes := s.apply(s.order("b-1", chosen("x", 1)), dearer, s.order("b-1", chosen("x", 2)))
	require.Equal(t, int64(1990), outcomes[0].Order.Items[0].UnitPrice.Amount)
	require.Equal(t, s.now+30*minute, outcomes[0].Order.ExpiresUnixMilli)
	require.Equal(t, uint32(1), outcomes[1].Product.Counters.Reserved, "as it was after the command")
	require.Equal(t, int64(2990), outcomes[2].Order.Items[0].UnitPrice.Amount)
	require.Equal(t, s.now+7*second, outcomes[2].Order.ExpiresUnixMilli)
	require.Equal(t, int64(1990), s.get(outcomes[0].Order).Items[0].UnitPrice.Amount)
}
