package inventory

import (
	"encoding/binary"
	"fmt"
)

// AppendOutcome appends the encoding of o, as shards answer gateways.
func AppendOutcome(buf []byte, o *Outcome) []byte {
	buf = append(buf, byte(o.Code))
	buf = binary.AppendVarint(buf, o.AtUnixMilli)
	buf = appendBool(buf, o.Created)
	buf = appendBool(buf, o.Replay)
	buf = appendBool(buf, o.Order != nil)
	if o.Order != nil {
		buf = o.Order.append(buf)
	}
	buf = appendBool(buf, o.Product != nil)
	if o.Product != nil {
		buf = AppendProductView(buf, o.Product)
	}
	buf = appendSelections(buf, o.Missing)
	buf = binary.AppendUvarint(buf, o.Sequence)
	buf = appendBool(buf, o.Refusal != nil)
	if o.Refusal != nil {
		buf = o.Refusal.append(buf)
	}
	return buf
}

// DecodeOutcome reads one outcome and returns what follows it.
func DecodeOutcome(buf []byte) (*Outcome, []byte, error) {
	r := reader{buf: buf}
	o := &Outcome{Code: Code(r.byte()), AtUnixMilli: r.varint(), Created: r.bool(), Replay: r.bool()}
	if r.bool() {
		o.Order = r.order()
	}
	if r.bool() {
		o.Product = r.productView()
	}
	o.Missing = r.selections()
	o.Sequence = r.uvarint()
	if r.bool() {
		o.Refusal = r.refusal()
	}
	if r.failed || o.Code >= codeCount {
		return nil, nil, fmt.Errorf("%w: outcome", ErrMalformed)
	}
	return o, r.buf, nil
}

// AppendOrder appends the encoding of an order, as outcomes, events and scans carry it.
func AppendOrder(buf []byte, o *OrderView) []byte { return o.append(buf) }

// DecodeOrder reads one order and returns what follows it.
func DecodeOrder(buf []byte) (*OrderView, []byte, error) {
	r := reader{buf: buf}
	o := r.order()
	if r.failed {
		return nil, nil, fmt.Errorf("%w: order", ErrMalformed)
	}
	return o, r.buf, nil
}

func (o *OrderView) append(buf []byte) []byte {
	buf = append(buf, o.ID[:]...)
	buf = append(buf, byte(o.Status))
	buf = appendBool(buf, o.Overdue)
	buf = appendString(buf, string(o.Buyer))
	buf = appendString(buf, string(o.Payment))
	buf = binary.AppendVarint(buf, o.CreatedUnixMilli)
	buf = binary.AppendVarint(buf, o.ExpiresUnixMilli)
	buf = binary.AppendUvarint(buf, o.Changed)
	buf = binary.AppendUvarint(buf, uint64(len(o.Items)))
	for i := range o.Items {
		item := &o.Items[i]
		buf = appendString(buf, string(item.Product))
		buf = appendMoney(buf, item.UnitPrice)
		buf = appendNumbers(buf, item.Numbers)
	}
	return buf
}

func (r *reader) order() *OrderView {
	o := &OrderView{}
	r.copy(o.ID[:])
	o.Status = Status(r.byte())
	if o.Status >= statusCount {
		r.fail()
	}
	o.Overdue = r.bool()
	o.Buyer = BuyerID(r.string(maxShort))
	o.Payment = PaymentID(r.string(maxShort))
	o.CreatedUnixMilli = r.varint()
	o.ExpiresUnixMilli = r.varint()
	o.Changed = r.uvarint()
	o.Items = make([]ItemView, r.count(4))
	for i := range o.Items {
		o.Items[i] = ItemView{Product: r.productID(), UnitPrice: r.money(), Numbers: r.numbers()}
	}
	return o
}

// AppendProductView appends the encoding of a product, as outcomes, reads and events carry it.
func AppendProductView(buf []byte, p *ProductView) []byte {
	buf = appendString(buf, string(p.ID))
	buf = p.Settings.append(buf)
	buf = append(buf, byte(p.State))
	buf = appendString(buf, p.Halted)
	for _, v := range [...]uint32{
		p.Counters.Count, p.Counters.Available, p.Counters.Reserved, p.Counters.Sold,
		p.Counters.Blocked,
	} {
		buf = binary.AppendUvarint(buf, uint64(v))
	}
	return binary.AppendUvarint(buf, p.Version)
}

// DecodeProductView reads one product and returns what follows it.
func DecodeProductView(buf []byte) (*ProductView, []byte, error) {
	r := reader{buf: buf}
	p := r.productView()
	if r.failed {
		return nil, nil, fmt.Errorf("%w: product", ErrMalformed)
	}
	return p, r.buf, nil
}

func (r *reader) productView() *ProductView {
	p := &ProductView{ID: r.productID(), Settings: r.settings()}
	if p.State = SaleState(r.byte()); p.State > SaleClosed {
		r.fail()
	}
	p.Halted = r.string(maxText)
	for _, v := range [...]*uint32{
		&p.Counters.Count, &p.Counters.Available, &p.Counters.Reserved, &p.Counters.Sold,
		&p.Counters.Blocked,
	} {
		*v = r.uint32()
	}
	p.Version = r.uvarint()
	return p
}

func appendSelections(buf []byte, selections []Selection) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(selections)))
	for i := range selections {
		buf = appendString(buf, string(selections[i].Product))
		buf = appendNumbers(buf, selections[i].Numbers)
		buf = binary.AppendUvarint(buf, uint64(selections[i].Quantity))
	}
	return buf
}

func (r *reader) selections() []Selection {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	selections := make([]Selection, n)
	for i := range selections {
		selections[i] = Selection{
			Product: r.productID(), Numbers: r.numbers(), Quantity: r.uint32(),
		}
	}
	return selections
}

func (f *Refusal) append(buf []byte) []byte {
	buf = appendString(buf, f.Pointer)
	buf = appendString(buf, f.Detail)
	buf = appendSelections(buf, f.Taken)
	buf = appendSelections(buf, f.Alternatives)
	for _, v := range [...]int64{f.NextExpiryUnixMilli, f.OpensAtUnixMilli, f.ClosesAtUnixMilli} {
		buf = binary.AppendVarint(buf, v)
	}
	for _, v := range [...]uint32{f.Available, f.LongestRun, f.Minimum, f.Limit, f.Held} {
		buf = binary.AppendUvarint(buf, uint64(v))
	}
	return append(buf, byte(f.Status))
}

func (r *reader) refusal() *Refusal {
	f := &Refusal{
		Pointer: r.string(maxText), Detail: r.string(maxText),
		Taken: r.selections(), Alternatives: r.selections(),
	}
	for _, v := range [...]*int64{
		&f.NextExpiryUnixMilli, &f.OpensAtUnixMilli, &f.ClosesAtUnixMilli,
	} {
		*v = r.varint()
	}
	for _, v := range [...]*uint32{&f.Available, &f.LongestRun, &f.Minimum, &f.Limit, &f.Held} {
		*v = r.uint32()
	}
	f.Status = Status(r.byte())
	return f
}
