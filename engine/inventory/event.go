package inventory

import (
	"encoding/binary"
	"fmt"
)

// Event is one change, numbered without a gap within its shard. It carries the order or the
// product as it was right after the change. As State.Events gives it, it is sealed: what it carries
// is still encoded, since a shard only passes it on. Open decodes it.
type Event struct {
	Sequence    uint64
	Kind        EventKind
	AtUnixMilli int64 // log time
	Correlation string
	Order       *OrderView   // with the kinds on orders and inventory
	Product     *ProductView // with the kinds on products

	image []byte // of a sealed one: the encoding of Order or Product
}

// Open returns a sealed event with what it carries; any other as it is.
func (e Event) Open() Event {
	if e.image == nil {
		return e
	}
	r := reader{buf: e.image}
	if e.Kind.AboutProduct() {
		e.Product = r.productView()
	} else {
		e.Order = r.order()
	}
	assert(!r.failed, "an event decodes")
	e.image = nil
	return e
}

// Size is about how many bytes a sealed event takes encoded, and not less.
func (e Event) Size() int { return 32 + len(e.Correlation) + len(e.image) }

// EventKind names a change. String gives the name that consumers see.
type EventKind uint8

// The kinds of events. Their numbers are part of the stored format.
const (
	EventOrderCreated      EventKind = 1
	EventInventoryReserved EventKind = 2
	EventInventoryReleased EventKind = 3
	EventInventorySold     EventKind = 4
	EventOrderExtended     EventKind = 5
	EventOrderOverdue      EventKind = 6
	EventOrderRefunded     EventKind = 7
	EventOrderShipped      EventKind = 8
	EventPaymentStarted    EventKind = 9
	EventPaymentApproved   EventKind = 10
	EventPaymentRefused    EventKind = 11
	EventProductChanged    EventKind = 12
	EventPriceUpdated      EventKind = 13
	eventKindCount         EventKind = 14
)

var eventNames = [eventKindCount]string{
	EventOrderCreated: "order.created", EventInventoryReserved: "inventory.reserved",
	EventInventoryReleased: "inventory.released", EventInventorySold: "inventory.sold",
	EventOrderExtended: "order.extended", EventOrderOverdue: "order.overdue",
	EventOrderRefunded: "order.refunded", EventOrderShipped: "order.shipped",
	EventPaymentStarted: "payment.started", EventPaymentApproved: "payment.approved",
	EventPaymentRefused: "payment.refused", EventProductChanged: "product.changed",
	EventPriceUpdated: "product.price_updated",
}

func (k EventKind) String() string {
	if k < eventKindCount {
		return eventNames[k]
	}
	return "unknown"
}

// AboutProduct says that events of the kind carry a product, not an order.
func (k EventKind) AboutProduct() bool { return k >= EventProductChanged }

// AppendEvent appends the encoding of e.
func AppendEvent(buf []byte, e *Event) []byte {
	buf = binary.AppendUvarint(buf, e.Sequence)
	buf = append(buf, byte(e.Kind))
	buf = binary.AppendVarint(buf, e.AtUnixMilli)
	buf = appendString(buf, e.Correlation)
	switch {
	case e.image != nil:
		return append(buf, e.image...)
	case e.Kind.AboutProduct():
		return AppendProductView(buf, e.Product)
	}
	return e.Order.append(buf)
}

// DecodeEvent reads one event and returns what follows it.
func DecodeEvent(buf []byte) (Event, []byte, error) {
	r := reader{buf: buf}
	e := Event{Sequence: r.uvarint(), Kind: EventKind(r.byte()), AtUnixMilli: r.varint()}
	e.Correlation = r.string(maxCorrelation)
	if e.Kind.AboutProduct() {
		e.Product = r.productView()
	} else {
		e.Order = r.order()
	}
	if r.failed || e.Kind == 0 || e.Kind >= eventKindCount {
		return Event{}, nil, fmt.Errorf("%w: event", ErrMalformed)
	}
	return e, r.buf, nil
}
