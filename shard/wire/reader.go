package wire

import (
	"encoding/binary"
	"math"
	"time"

	"numera/engine/inventory"
)

// reader decodes from buf and remembers the first failure; after it every read is zero.
type reader struct {
	buf    []byte
	failed bool
}

func (r *reader) fail() {
	r.failed, r.buf = true, nil
}

// take gives the next n bytes, in the memory of buf, or nil if there are fewer.
func (r *reader) take(n int) []byte {
	if n > len(r.buf) {
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

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail()
	}
	return b == 1
}

func (r *reader) id() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// uvarint refuses overlong forms, so that equal values have equal bytes.
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

func (r *reader) milliseconds() time.Duration {
	return time.Duration(r.atMost(uint64(MaxRemaining.Milliseconds()))) * time.Millisecond
}

func (r *reader) text() []byte {
	n := r.count(1)
	if n > MaxText {
		r.fail()
		return nil
	}
	return r.take(n)
}

func (r *reader) string() string { return string(r.text()) }

// bytes copies; empty is nil.
func (r *reader) bytes() []byte { return append([]byte(nil), r.take(r.count(1))...) }

// decode reads by one of the decoders of package inventory, which return what follows.
func decode[T any](r *reader, decoder func([]byte) (T, []byte, error)) T {
	var value T
	if r.failed {
		return value
	}
	value, rest, err := decoder(r.buf)
	if err != nil {
		r.fail()
		return value
	}
	r.buf = rest
	return value
}

func (r *reader) orders() []*inventory.OrderView {
	n := r.count(minOrder)
	if n == 0 {
		return nil
	}
	orders := make([]*inventory.OrderView, 0, n)
	for range n {
		order := decode(r, inventory.DecodeOrder)
		if r.failed {
			return nil
		}
		orders = append(orders, order)
	}
	return orders
}

// appendMilliseconds writes whole milliseconds between 0 and MaxRemaining, rounded down.
func appendMilliseconds(buf []byte, d time.Duration) []byte {
	return binary.AppendUvarint(buf, uint64(min(max(d, 0), MaxRemaining).Milliseconds()))
}

func appendBool(buf []byte, b bool) []byte {
	if b {
		return append(buf, 1)
	}
	return append(buf, 0)
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func appendBytes(buf, b []byte) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(b))), b...)
}

func appendOrders(buf []byte, orders []*inventory.OrderView) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(orders)))
	for _, order := range orders {
		buf = inventory.AppendOrder(buf, order)
	}
	return buf
}
