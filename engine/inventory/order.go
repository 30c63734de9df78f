package inventory

import (
	"encoding/binary"
	"slices"
)

// record is how a live or sold order is kept, in 64 bytes, a cache line, without a pointer: with its place
// in the index (7 to 14 bytes), its deadline (16) and, if there is a limit, its buyer's count in the
// product (19 to 38), an order of one number has some 120 bytes besides the id of its buyer.
type record struct {
	key         KeyHash
	fingerprint uint32 // CRC-32C of what was asked for: a later use of the key must match
	product     uint32 // of a single number
	offset      uint32
	price       uint32  // in State.prices
	buyerAt     textRef // in orders.buyers
	paymentAt   textRef // in orders.payments
	basketAt    uint32  // in orders.baskets, from 1; 0: it is a single number
	placed      uint40  // sequence of order.created: unique, rises with age
	changed     uint40  // sequence of the last event about it
	created     uint48  // Unix milliseconds of log time
	expires     uint48
	status      Status
	overdue     overdue
}

// order is an order with all that belongs to it. One of several numbers or products has them in basket.
type order struct {
	record
	buyer   BuyerID
	payment PaymentID
	basket  []item
}

// overdue says whether the deadline of a payment has passed.
type overdue uint8

const (
	notOverdue      overdue = 0
	overdueHeld     overdue = 1 // until somebody knows the payment's true state
	overdueReleases overdue = 2 // likewise, but at expires it is given up
)

// item is what an order holds of one product. It never changes, so that views may share it.
type item struct {
	product uint32
	price   uint32
	offsets []uint32 // ascending
}

// uint40 and uint48 are unsigned integers without padding.
type (
	uint40 [5]byte
	uint48 [6]byte
)

func makeUint40(v uint64) (u uint40) {
	assert(v < 1<<40, "a sequence fits 40 bits")
	u[4] = byte(v >> 32)
	binary.LittleEndian.PutUint32(u[:4], uint32(v))
	return u
}

func (u uint40) value() uint64 {
	return uint64(binary.LittleEndian.Uint32(u[:4])) | uint64(u[4])<<32
}

func makeUint48(v int64) (u uint48) {
	assert(v >= 0 && v < 1<<48, "an instant fits 48 bits")
	binary.LittleEndian.PutUint16(u[4:], uint16(v>>32))
	binary.LittleEndian.PutUint32(u[:4], uint32(v))
	return u
}

func (u uint48) value() int64 {
	low, high := binary.LittleEndian.Uint32(u[:4]), binary.LittleEndian.Uint16(u[4:])
	return int64(low) | int64(high)<<32
}

// items gives what the order holds, without allocating for a single number: single and number
// are the caller's room for it.
func (o *order) items(single *[1]item, number *[1]uint32) []item {
	if o.basket != nil {
		return o.basket
	}
	number[0] = o.offset
	single[0] = item{product: o.product, price: o.price, offsets: number[:]}
	return single[:]
}

// setItems stores what the order holds; items is the caller's again afterwards.
func (o *order) setItems(items []item) {
	if len(items) == 1 && len(items[0].offsets) == 1 {
		o.product, o.price, o.offset = items[0].product, items[0].price, items[0].offsets[0]
		return
	}
	o.basket = slices.Clone(items)
}

// base is what records of one block are written relative to, so that they are short.
type base struct {
	created int64
	placed  uint64
	changed uint64
}

// The status byte of a record: 4 bits of status, 2 of overdue, 1 that says basket.
const (
	overdueShift = 4
	flagBasket   = 0x40
	statusMask   = 0x0f
)

// appendRecord encodes o, the same on all replicas.
func (o *order) appendRecord(buf []byte, b base) []byte {
	buf = append(buf, o.key[:]...)
	buf = binary.LittleEndian.AppendUint32(buf, o.fingerprint)
	buf = appendString(buf, string(o.buyer))
	status := byte(o.status) | byte(o.overdue)<<overdueShift
	if o.basket != nil {
		status |= flagBasket
	}
	buf = append(buf, status)
	buf = binary.AppendVarint(buf, o.created.value()-b.created)
	buf = binary.AppendUvarint(buf, uint64(o.expires.value()-o.created.value()))
	buf = binary.AppendVarint(buf, int64(o.placed.value()-b.placed))
	buf = binary.AppendVarint(buf, int64(o.changed.value()-b.changed))
	buf = appendString(buf, string(o.payment))
	if o.basket == nil {
		buf = binary.AppendUvarint(buf, uint64(o.product))
		buf = binary.AppendUvarint(buf, uint64(o.price))
		return binary.AppendUvarint(buf, uint64(o.offset))
	}
	buf = binary.AppendUvarint(buf, uint64(len(o.basket)))
	for _, it := range o.basket {
		buf = binary.AppendUvarint(buf, uint64(it.product))
		buf = binary.AppendUvarint(buf, uint64(it.price))
		buf = binary.AppendUvarint(buf, uint64(len(it.offsets)))
		last := uint32(0)
		for _, offset := range it.offsets {
			buf = binary.AppendUvarint(buf, uint64(offset-last))
			last = offset
		}
	}
	return buf
}

// record decodes what appendRecord wrote, relative to the same base.
func (r *reader) record(b base) order {
	var o order
	r.copy(o.key[:])
	o.fingerprint = r.fixed32()
	o.buyer = BuyerID(r.string(maxTextLen))
	status := r.byte()
	o.status, o.overdue = Status(status&statusMask), overdue(status>>overdueShift&3)
	created := b.created + r.varint()
	expires := created + int64(r.uvarint())
	placed, changed := b.placed+uint64(r.varint()), b.changed+uint64(r.varint())
	o.payment = PaymentID(r.string(maxTextLen))
	if o.status == StatusNone || o.status >= statusCount || uint64(created) >= 1<<48 ||
		uint64(expires) >= 1<<48 || placed >= 1<<40 || changed >= 1<<40 {
		r.fail()
		return order{}
	}
	o.created, o.expires = makeUint48(created), makeUint48(expires)
	o.placed, o.changed = makeUint40(placed), makeUint40(changed)
	if status&flagBasket == 0 {
		o.product, o.price, o.offset = r.uint32(), r.uint32(), r.uint32()
		return o
	}
	items := make([]item, r.count(3))
	for i := range items {
		items[i] = item{product: r.uint32(), price: r.uint32()}
		items[i].offsets = make([]uint32, r.count(1))
		last := uint32(0)
		for k := range items[i].offsets {
			last += r.uint32()
			items[i].offsets[k] = last
		}
	}
	o.basket = items
	return o
}

func (r *reader) fixed32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// orderDigest is o's share of the state's digest.
func (s *State) orderDigest(o *order) uint64 {
	h := mix(binary.LittleEndian.Uint64(o.key[:8]),
		uint64(binary.LittleEndian.Uint32(o.key[8:]))<<32|uint64(o.fingerprint))
	h = mix(h, uint64(o.created.value()))
	h = mix(h, uint64(o.expires.value()))
	h = mix(h, o.placed.value())
	h = mix(h, o.changed.value())
	h = mix(h, mixString(0, string(o.buyer)))
	h = mix(h, uint64(o.status)<<8|uint64(o.overdue))
	if o.payment != "" {
		h = mixString(h, string(o.payment))
	}
	if o.basket == nil {
		h = mix(h, uint64(o.product)<<32|1)
		h = mix(h, uint64(s.prices[o.price].Amount))
		return mix(h, uint64(o.offset))
	}
	for _, it := range o.basket {
		h = mix(h, uint64(it.product)<<32|uint64(len(it.offsets)))
		h = mix(h, uint64(s.prices[it.price].Amount))
		for _, offset := range it.offsets {
			h = mix(h, uint64(offset))
		}
	}
	return h
}
