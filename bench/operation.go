package bench

import (
	"hash/maphash"
	"strconv"
	"strings"

	"numera/engine/inventory"
)

// buyer numbers the buyers of a load, one for each reservation: the lane that made it and the
// place in the lane's ledger. Its text is the buyer's id and the idempotency key, so that an order
// that is read back tells where it came from.
type buyer uint64

func makeBuyer(lane, record int) buyer { return buyer(lane)<<40 | buyer(record) }

func (b buyer) lane() int   { return int(b >> 40) }
func (b buyer) record() int { return int(b & (1<<40 - 1)) }

const buyerPrefix = "bench-"

func (b buyer) text() string {
	text := make([]byte, 0, 24)
	return string(strconv.AppendUint(append(text, buyerPrefix...), uint64(b), 36))
}

func parseBuyer(text inventory.BuyerID) (b buyer, ok bool) {
	digits, ok := strings.CutPrefix(string(text), buyerPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 36, 64)
	return buyer(n), err == nil
}

// operation is one request. Its numbers are shared and never changed.
type operation struct {
	kind     inventory.Kind
	buyer    buyer
	product  inventory.ProductID // of a reservation
	numbers  []uint32            // chosen, or
	quantity uint32              // any
	order    inventory.OrderID   // of all but reservations
	repeat   bool                // a reservation that has been asked for already
}

// payment is the id that every payment of an order has.
func (o *operation) payment() inventory.PaymentID { return inventory.PaymentID(o.buyer.text()) }

// command is the operation as shards take it. into is reused for reservations.
func (o *operation) command(into *inventory.Reserve) inventory.Command {
	on := inventory.OnOrder{Order: o.order}
	switch o.kind {
	case inventory.KindExtend:
		return &inventory.Extend{OnOrder: on}
	case inventory.KindRelease:
		return &inventory.Release{OnOrder: on}
	case inventory.KindBeginPayment:
		return &inventory.BeginPayment{OnOrder: on, Payment: o.payment()}
	case inventory.KindConfirm:
		return &inventory.Confirm{OnOrder: on, Payment: o.payment()}
	case inventory.KindRefuse:
		return &inventory.Refuse{OnOrder: on, Payment: o.payment()}
	}
	text := o.buyer.text()
	into.Key, into.Buyer = text, inventory.BuyerID(text)
	if cap(into.Lines) == 0 {
		into.Lines = make([]inventory.Line, 1)
	}
	into.Lines[0] = inventory.Line{Product: o.product, Numbers: o.numbers, Quantity: o.quantity}
	return into
}

// reached is the status that an acknowledged operation leaves an order in.
func reached(kind inventory.Kind) inventory.Status {
	switch kind {
	case inventory.KindBeginPayment:
		return inventory.StatusPaying
	case inventory.KindConfirm:
		return inventory.StatusPaid
	case inventory.KindRefuse:
		return inventory.StatusRefused
	case inventory.KindRelease:
		return inventory.StatusReleased
	}
	return inventory.StatusReserved
}

// answer is what came of an operation.
type answer struct {
	verdict verdict
	code    string               // "ok", a refusal's code, or why there is no outcome
	order   *inventory.OrderView // with acknowledged
	replay  bool
	err     error // what was wrong with a garbled answer
}

// verdict says what an answer means for the one who asked.
type verdict uint8

const (
	acknowledged verdict = iota
	refused              // decided: nothing was done
	turnedAway           // not decided: nothing was done
	unanswered           // it may have acted
	garbled              // an answer that the contract does not allow
)

// outcomeAnswer reads what a shard decided.
func outcomeAnswer(o *inventory.Outcome) answer {
	a := answer{code: o.Code.String(), order: o.Order, replay: o.Replay}
	switch {
	case o.Code == inventory.CodeOverloaded:
		a.verdict = turnedAway
	case o.Code != inventory.CodeOK:
		a.verdict = refused
	}
	return a
}

var fingerprintSeed = maphash.MakeSeed()

// fingerprint is equal for equal items, in any order, and counts their numbers.
func fingerprint(items []inventory.ItemView) (sum uint64, count int) {
	for i := range items {
		product := maphash.String(fingerprintSeed, string(items[i].Product))
		for _, number := range items[i].Numbers {
			h := (product ^ uint64(number)) * 0x9e3779b97f4a7c15
			h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
			sum += h ^ h>>32
		}
		count += len(items[i].Numbers)
	}
	return sum, count
}
