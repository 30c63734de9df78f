package bench

import (
	"fmt"

	"numera/engine/inventory"
)

// record is what is known of one reservation from its answers. 32 bytes, since there are millions.
type record struct {
	order   inventory.OrderID
	numbers uint64 // fingerprint
	count   uint16
	status  inventory.Status // the last one acknowledged; none: no order was
	doubts  uint8            // requests without an answer
	found   uint8            // by the oracle: orders of this buyer
}

// ledger is what is known of the buyers of one lane, by their number. It grows without moving.
type ledger struct {
	chunks [][]record
	len    int
}

const ledgerChunk = 8192

// add makes a record and returns its number.
func (g *ledger) add() (number int) {
	if g.len%ledgerChunk == 0 {
		g.chunks = append(g.chunks, make([]record, ledgerChunk))
	}
	g.len++
	return g.len - 1
}

func (g *ledger) at(number int) *record { return &g.chunks[number/ledgerChunk][number%ledgerChunk] }

// note takes the answer to an operation into the record, and says what it contradicts.
func (r *record) note(op *operation, a *answer) error {
	switch {
	case a.verdict == garbled:
		return fmt.Errorf("%v: %w", op, a.err)
	case a.verdict == unanswered:
		r.doubts = min(r.doubts+1, 255-1)
		return nil
	case a.verdict != acknowledged:
		return nil
	case a.order == nil:
		return fmt.Errorf("%v: acknowledged without an order", op)
	}
	if owner, ok := parseBuyer(a.order.Buyer); !ok || owner != op.buyer {
		return fmt.Errorf("%v: answered with an order of %q", op, a.order.Buyer)
	}
	sum, count := fingerprint(a.order.Items)
	if r.status == inventory.StatusNone {
		r.order, r.numbers, r.count = a.order.ID, sum, uint16(count)
	}
	switch {
	case r.order != a.order.ID:
		return fmt.Errorf("%v: one key has two orders, %v and %v", op, r.order, a.order.ID)
	case r.numbers != sum:
		return fmt.Errorf("%v: order %v was answered with two sets of numbers", op, r.order)
	case op.kind == inventory.KindReserve && !op.gets(a.order):
		return fmt.Errorf("%v: order %v has other numbers than were asked for", op, r.order)
	}
	if status := reached(op.kind); op.kind != inventory.KindReserve || r.status == inventory.StatusNone {
		r.status = max(status, r.status)
	}
	return nil
}

// gets says whether an order has what a reservation asked for.
func (o *operation) gets(order *inventory.OrderView) bool {
	if len(order.Items) != 1 || order.Items[0].Product != o.product {
		return false
	}
	got := order.Items[0].Numbers
	if len(o.numbers) == 0 {
		return len(got) == int(o.quantity)
	}
	asked, _ := fingerprint([]inventory.ItemView{{Product: o.product, Numbers: o.numbers}})
	sum, count := fingerprint(order.Items)
	return sum == asked && count == len(o.numbers)
}

// String names an operation in a violation.
func (o *operation) String() string {
	names := map[inventory.Kind]string{
		inventory.KindReserve: "reserve", inventory.KindExtend: "extend",
		inventory.KindRelease: "release", inventory.KindBeginPayment: "begin-payment",
		inventory.KindConfirm: "confirm", inventory.KindRefuse: "refuse",
	}
	return names[o.kind] + " of " + o.buyer.text()
}
