package inventory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is returned when bytes are not the encoding of what was expected: cut, trailing,
// not in the one canonical form, or of a kind this version does not know.
var ErrMalformed = errors.New("inventory: malformed encoding")

// Entry is a command with the correlation id (≤ 128 bytes) that its events will carry.
type Entry struct {
	Correlation string
	Command     Command
}

// AppendEntry appends the encoding of e: kind, correlation, body.
func AppendEntry(buf []byte, e Entry) []byte {
	buf = append(buf, byte(e.Command.Kind()))
	buf = appendString(buf, e.Correlation)
	return e.Command.appendBody(buf)
}

// DecodeEntry reads one entry and returns what follows it. The result shares no memory with buf.
func DecodeEntry(buf []byte) (Entry, []byte, error) {
	r := reader{buf: buf}
	e, err := r.entry(new(Reserve))
	return e, r.buf, err
}

// entry reads an entry; room is the memory of a reservation, and is used again with its lines.
func (r *reader) entry(room *Reserve) (Entry, error) {
	kind := Kind(r.byte())
	e := Entry{Correlation: r.string(maxCorrelation)}
	e.Command = decodeCommand(kind, r, room)
	if r.failed {
		return Entry{}, fmt.Errorf("%w: command of kind %d", ErrMalformed, kind)
	}
	return e, nil
}

// Bounds of the strings in commands, in bytes; Check has the tighter ones of the domain.
const (
	maxCorrelation = 128
	maxShort       = 255
	maxText        = 4096
)

func decodeCommand(kind Kind, r *reader, room *Reserve) Command {
	switch kind {
	case KindReserve:
		decodeReserve(r, room)
		return room
	case KindExtend:
		return &Extend{r.onOrder()}
	case KindRelease:
		return &Release{r.onOrder()}
	case KindBeginPayment:
		return &BeginPayment{r.onOrder(), PaymentID(r.string(maxShort))}
	case KindConfirm:
		return &Confirm{r.onOrder(), PaymentID(r.string(maxShort))}
	case KindRefuse:
		return &Refuse{r.onOrder(), PaymentID(r.string(maxShort))}
	case KindShip:
		return &Ship{r.onOrder()}
	case KindRefund:
		return &Refund{OnOrder: r.onOrder(), ReturnToStock: r.bool(), Reason: r.string(maxText)}
	case KindPutProduct:
		return &PutProduct{Product: r.productID(), Settings: r.settings()}
	case KindRestock:
		c := &Restock{
			Product: r.productID(), Count: r.uint32(),
			Tenant: r.string(maxShort), Key: r.string(maxShort),
		}
		r.copy(c.KeyHash[:])
		return c
	case KindBlock:
		return &Block{r.productID(), r.numbers(), r.string(maxText)}
	case KindUnblock:
		return &Unblock{r.productID(), r.numbers(), r.string(maxText)}
	case KindSetSaleState:
		return &SetSaleState{r.productID(), SaleState(r.byte())}
	case KindAttach:
		return &Attach{r.string(maxShort)}
	case KindDetach:
		return &Detach{r.string(maxShort)}
	case KindAcknowledge:
		return &Acknowledge{r.string(maxShort), r.uvarint()}
	case KindLowerClock:
		return &LowerClock{r.varint()}
	}
	r.fail()
	return nil
}

func decodeReserve(r *reader, c *Reserve) {
	c.Tenant = r.string(maxShort)
	c.Key = r.string(maxShort)
	r.copy(c.KeyHash[:])
	request := r.buf
	c.Buyer = BuyerID(r.string(maxShort))
	c.Partial = r.bool()
	c.Lines = c.Lines[:0]
	for i := range r.count(4) {
		c.Lines = append(c.Lines, Line{})
		line := &c.Lines[i]
		line.Product, line.Numbers = r.productID(), r.numbers()
		line.Quantity, line.Pick = r.uint32(), Pick(r.byte())
	}
	r.request = request[:len(request)-len(r.buf)]
}

func (c *Reserve) appendBody(buf []byte) []byte {
	buf = appendString(buf, c.Tenant)
	buf = appendString(buf, c.Key)
	buf = append(buf, c.KeyHash[:]...)
	return c.appendRequest(buf)
}

// appendRequest encodes what the buyer asked for: what two uses of one key are compared by.
func (c *Reserve) appendRequest(buf []byte) []byte {
	buf = appendString(buf, string(c.Buyer))
	buf = appendBool(buf, c.Partial)
	buf = binary.AppendUvarint(buf, uint64(len(c.Lines)))
	for i := range c.Lines {
		line := &c.Lines[i]
		buf = appendString(buf, string(line.Product))
		buf = appendNumbers(buf, line.Numbers)
		buf = binary.AppendUvarint(buf, uint64(line.Quantity))
		buf = append(buf, byte(line.Pick))
	}
	return buf
}

func (c *OnOrder) append(buf []byte) []byte {
	buf = append(buf, c.Order[:]...)
	return appendString(buf, string(c.By))
}

func (c *OnOrder) appendPaid(buf []byte, payment PaymentID) []byte {
	return appendString(c.append(buf), string(payment))
}

func (c *Extend) appendBody(buf []byte) []byte       { return c.append(buf) }
func (c *Release) appendBody(buf []byte) []byte      { return c.append(buf) }
func (c *Ship) appendBody(buf []byte) []byte         { return c.append(buf) }
func (c *BeginPayment) appendBody(buf []byte) []byte { return c.appendPaid(buf, c.Payment) }
func (c *Confirm) appendBody(buf []byte) []byte      { return c.appendPaid(buf, c.Payment) }
func (c *Refuse) appendBody(buf []byte) []byte       { return c.appendPaid(buf, c.Payment) }

func (c *Refund) appendBody(buf []byte) []byte {
	return appendString(appendBool(c.append(buf), c.ReturnToStock), c.Reason)
}

func (c *PutProduct) appendBody(buf []byte) []byte {
	return c.Settings.append(appendString(buf, string(c.Product)))
}

func (c *Restock) appendBody(buf []byte) []byte {
	buf = appendString(buf, string(c.Product))
	buf = binary.AppendUvarint(buf, uint64(c.Count))
	buf = appendString(buf, c.Tenant)
	buf = appendString(buf, c.Key)
	return append(buf, c.KeyHash[:]...)
}

func appendNumbersOf(buf []byte, product ProductID, numbers []uint32, reason string) []byte {
	buf = appendNumbers(appendString(buf, string(product)), numbers)
	return appendString(buf, reason)
}

func (c *Block) appendBody(buf []byte) []byte {
	return appendNumbersOf(buf, c.Product, c.Numbers, c.Reason)
}

func (c *Unblock) appendBody(buf []byte) []byte {
	return appendNumbersOf(buf, c.Product, c.Numbers, c.Reason)
}

func (c *SetSaleState) appendBody(buf []byte) []byte {
	return append(appendString(buf, string(c.Product)), byte(c.State))
}

func (c *Attach) appendBody(buf []byte) []byte { return appendString(buf, c.Consumer) }
func (c *Detach) appendBody(buf []byte) []byte { return appendString(buf, c.Consumer) }

func (c *Acknowledge) appendBody(buf []byte) []byte {
	return binary.AppendUvarint(appendString(buf, c.Consumer), c.Sequence)
}

func (c *LowerClock) appendBody(buf []byte) []byte {
	return binary.AppendVarint(buf, c.UnixMilli)
}

func (s *Settings) append(buf []byte) []byte {
	buf = appendString(buf, s.Name)
	buf = appendMoney(buf, s.Price)
	for _, v := range [...]uint32{
		s.FirstNumber, s.Count, s.MinPerOrder, s.MaxPerOrder, s.MaxPerBuyer,
	} {
		buf = binary.AppendUvarint(buf, uint64(v))
	}
	for _, v := range [...]int64{
		s.OpensAtUnixMilli, s.ClosesAtUnixMilli, s.HoldSeconds, s.HoldMaxSeconds,
		s.PaymentGraceSeconds, s.OverdueReleaseSeconds,
	} {
		buf = binary.AppendVarint(buf, v)
	}
	buf = appendString(buf, s.Campaign)
	return appendBool(appendBool(buf, s.CaptureAtShipping), s.RefundLate)
}

func (r *reader) settings() Settings {
	var s Settings
	s.Name = r.string(maxText)
	s.Price = r.money()
	for _, v := range [...]*uint32{
		&s.FirstNumber, &s.Count, &s.MinPerOrder, &s.MaxPerOrder, &s.MaxPerBuyer,
	} {
		*v = r.uint32()
	}
	for _, v := range [...]*int64{
		&s.OpensAtUnixMilli, &s.ClosesAtUnixMilli, &s.HoldSeconds, &s.HoldMaxSeconds,
		&s.PaymentGraceSeconds, &s.OverdueReleaseSeconds,
	} {
		*v = r.varint()
	}
	s.Campaign = r.string(maxText)
	s.CaptureAtShipping, s.RefundLate = r.bool(), r.bool()
	return s
}

func appendMoney(buf []byte, m Money) []byte {
	return appendString(binary.AppendVarint(buf, m.Amount), m.Currency)
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func appendBool(buf []byte, b bool) []byte {
	if b {
		return append(buf, 1)
	}
	return append(buf, 0)
}

func appendNumbers(buf []byte, numbers []uint32) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(numbers)))
	for _, n := range numbers {
		buf = binary.AppendUvarint(buf, uint64(n))
	}
	return buf
}

// reader decodes from buf and remembers the first failure; after it every read is zero.
type reader struct {
	buf     []byte
	failed  bool
	product ProductID // the last one read: that of the next command too, in a crowd
	request []byte    // what appendRequest gives of the last reservation
}

func (r *reader) fail() {
	r.failed, r.buf = true, nil
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.buf) {
		r.fail()
		return nil
	}
	taken := r.buf[:n]
	r.buf = r.buf[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) copy(dst []byte) { copy(dst, r.take(len(dst))) }

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail()
	}
	return b == 1
}

// uvarint reads the one canonical form: an overlong one is refused, so that equal values have
// equal bytes.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 || (n > 1 && r.buf[n-1] == 0) {
		r.fail()
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) atMost(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail()
		return 0
	}
	return v
}

func (r *reader) uint32() uint32 { return uint32(r.atMost(math.MaxUint32)) }

// count reads a length of elements that take at least size bytes each, so that a forged length
// cannot make the caller allocate more than the input is worth.
func (r *reader) count(size int) int { return int(r.atMost(uint64(len(r.buf) / size))) }

func (r *reader) string(limit int) string {
	return string(r.text(limit))
}

// text reads a string in place.
func (r *reader) text(limit int) []byte {
	n := r.count(1)
	if n > limit {
		r.fail()
		return nil
	}
	return r.take(n)
}

func (r *reader) numbers() []uint32 {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	numbers := make([]uint32, n)
	for i := range numbers {
		numbers[i] = r.uint32()
	}
	return numbers
}

func (r *reader) productID() ProductID {
	if text := r.text(maxShort); string(text) != string(r.product) {
		r.product = ProductID(text)
	}
	return r.product
}

func (r *reader) money() Money {
	return Money{Amount: r.varint(), Currency: r.string(maxShort)}
}

func (r *reader) onOrder() OnOrder {
	var c OnOrder
	r.copy(c.Order[:])
	c.By = BuyerID(r.string(maxShort))
	return c
}
