package inventory

import (
	"encoding/binary"
	"fmt"
)

// Event is one change, numbered without a gap within its shard. It carries the order or the
// product as it was right after the change. As Tail.All gives it, it is sealed: what it carries
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

// sameChange, in the byte of the kind, says that an event tells of the same change as the event
// before it: then time, correlation and what it carries are that one's, and are not written twice.
const sameChange = 0x80

// sharesChange says that both tell of one change of an order.
func (e *Event) sharesChange(before *Event) bool {
	if before == nil || e.AtUnixMilli != before.AtUnixMilli || e.Correlation != before.Correlation ||
		e.Kind.AboutProduct() || before.Kind.AboutProduct() {
		return false
	}
	if e.image != nil {
		return before.image != nil && &e.image[0] == &before.image[0]
	}
	return before.image == nil && e.Order == before.Order
}

// AppendEvent appends the encoding of e, which follows before in buf; nil: it is the first.
func AppendEvent(buf []byte, e, before *Event) []byte {
	buf = binary.AppendUvarint(buf, e.Sequence)
	if e.sharesChange(before) {
		return append(buf, byte(e.Kind)|sameChange)
	}
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

// DecodeEvent reads one event and returns what follows it. before is the event before it, or nil;
// events of one change share their Order.
func DecodeEvent(buf []byte, before *Event) (Event, []byte, error) {
	r := reader{buf: buf}
	e := Event{Sequence: r.uvarint()}
	kind := r.byte()
	e.Kind = EventKind(kind &^ sameChange)
	switch {
	case kind&sameChange == 0:
		e.AtUnixMilli, e.Correlation = r.varint(), r.string(maxCorrelation)
		if e.Kind.AboutProduct() {
			e.Product = r.productView()
		} else {
			e.Order = r.order()
		}
	case before == nil || before.Order == nil || e.Kind.AboutProduct():
		r.fail()
	default:
		e.AtUnixMilli, e.Correlation, e.Order = before.AtUnixMilli, before.Correlation, before.Order
	}
	if r.failed || e.Kind == 0 || e.Kind >= eventKindCount {
		return Event{}, nil, fmt.Errorf("%w: event", ErrMalformed)
	}
	return e, r.buf, nil
}
