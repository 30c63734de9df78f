package inventory

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// ErrSnapshot is returned when a snapshot cannot be restored: damaged, cut, of another shard or
// version, or not adding up to the digest it was written with.
var ErrSnapshot = errors.New("inventory: unusable snapshot")

var errFrameLen = errors.New("inventory: frame of a snapshot is too long")

// Frozen is a State as it was when it was frozen. It belongs to whoever has it; the State goes on.
//
// Of a product's numbers only the blocked are written: reserved and sold ones follow from the
// orders, so a snapshot cannot contradict itself.
type Frozen struct {
	shard    ShardID
	clock    int64
	products []frozenProduct
	orders   orders
	ended    ended
	prices   []Money
	outbox   outbox
	count    int // live and sold orders
	digest   uint64
}

type frozenProduct struct {
	standing *Standing
	blocked  *roaring.Bitmap
	restocks []restock
}

// Freeze costs a pointer per product and per few hundred orders. It must be called between
// batches.
func (s *State) Freeze() *Frozen {
	f := s.FreezeOrders()
	f.clock, f.digest = s.clock, s.Digest()
	f.count = s.count.live + s.count.sold
	f.prices, f.outbox = slices.Clip(s.prices), s.outbox.freeze()
	f.products = make([]frozenProduct, len(s.list))
	for i, p := range s.list {
		f.products[i] = frozenProduct{standing: p.standing, restocks: p.restocks}
		if p.blocked != nil && !p.blocked.IsEmpty() {
			f.products[i].blocked = p.blocked.Clone()
		}
	}
	return f
}

// FreezeOrders is Freeze for Placed alone: it costs nothing per product.
func (s *State) FreezeOrders() *Frozen {
	return &Frozen{shard: s.shard, orders: s.orders.freeze(), ended: s.ended.freeze()}
}

// The frames of a snapshot: length (4 bytes, of what follows the checksum), CRC-32C, kind, body.
const (
	frameHeader   = 1
	frameProducts = 2
	framePrices   = 3
	frameOrders   = 4
	frameEnded    = 5
	frameOutbox   = 6
	frameTrailer  = 7
)

const (
	snapshotMagic = "numera-snapshot"
	frameLen      = 64 << 10 // a frame is closed when it is longer; one entry more may stand in it
	maxFrameLen   = 16 << 20 // the blocked numbers of a product of MaxCount are below 13 MB
)

// WriteTo writes the snapshot. The view may be used again afterwards.
func (f *Frozen) WriteTo(w io.Writer) (int64, error) {
	fw := frameWriter{w: w}
	fw.open(frameHeader)
	fw.buf = appendString(fw.buf, snapshotMagic)
	fw.buf = binary.AppendUvarint(fw.buf, Version)
	fw.buf = binary.AppendUvarint(fw.buf, uint64(f.shard))
	fw.buf = binary.AppendUvarint(fw.buf, uint64(f.clock))
	fw.buf = binary.AppendUvarint(fw.buf, f.outbox.next)
	fw.buf = binary.AppendUvarint(fw.buf, uint64(f.ended.first))
	fw.buf = binary.AppendUvarint(fw.buf, uint64(len(f.outbox.consumers)))
	for _, c := range f.outbox.consumers {
		fw.buf = binary.AppendUvarint(appendString(fw.buf, c.name), c.acknowledged)
	}
	f.writeProducts(&fw)
	for _, price := range f.prices {
		fw.entry(framePrices)
		fw.buf = appendMoney(fw.buf, price)
	}
	var buyer, payment [maxTextLen]byte
	for slot := range f.orders.used {
		if o := f.orders.holding(slot); o.status != StatusNone {
			o.buyer = BuyerID(f.orders.buyers.append(buyer[:0], o.buyerAt)) // load would allocate
			o.payment = PaymentID(f.orders.payments.append(payment[:0], o.paymentAt))
			fw.entry(frameOrders)
			fw.buf = o.appendRecord(fw.buf, base{})
		}
	}
	for _, b := range f.ended.blocks {
		fw.open(frameEnded)
		fw.buf = binary.AppendUvarint(fw.buf, uint64(b.base.created))
		fw.buf = binary.AppendUvarint(fw.buf, b.base.placed)
		fw.buf = binary.AppendUvarint(fw.buf, b.base.changed)
		fw.buf = binary.AppendUvarint(fw.buf, uint64(b.lastEnded))
		fw.buf = append(fw.buf, b.bytes...)
	}
	for sequence := f.outbox.kept; sequence < f.outbox.next; sequence++ {
		e := f.outbox.at(sequence)
		fw.entry(frameOutbox)
		fw.buf = append(fw.buf, byte(e.kind))
		fw.buf = binary.AppendUvarint(fw.buf, uint64(e.at.value()))
		fw.buf = appendString(fw.buf, string(e.text[:e.correlation]))
		fw.buf = appendString(fw.buf, string(e.image()))
	}
	fw.open(frameTrailer)
	fw.buf = binary.BigEndian.AppendUint64(fw.buf, f.digest)
	fw.buf = binary.AppendUvarint(fw.buf, uint64(f.count))
	fw.close()
	return fw.written, fw.err
}

func (f *Frozen) writeProducts(fw *frameWriter) {
	for _, p := range f.products {
		fw.entry(frameProducts)
		fw.buf = AppendProductView(fw.buf, p.standing.View())
		fw.buf = binary.AppendUvarint(fw.buf, uint64(len(p.restocks)))
		for _, r := range p.restocks {
			fw.buf = append(fw.buf, r.key[:]...)
			fw.buf = binary.AppendUvarint(fw.buf, uint64(r.count))
			fw.buf = binary.AppendUvarint(fw.buf, uint64(r.atUnixMilli))
		}
		var blocked []byte
		if p.blocked != nil {
			var err error
			if blocked, err = p.blocked.ToBytes(); err != nil {
				fw.err = err
			}
		}
		fw.buf = appendString(fw.buf, string(blocked))
	}
}

// frameWriter gathers entries into frames. After the first error it writes nothing.
type frameWriter struct {
	w       io.Writer
	buf     []byte
	written int64
	err     error
}

// entry makes room for an entry of a kind, in the open frame if it is of that kind.
func (fw *frameWriter) entry(kind byte) {
	if len(fw.buf) == 0 || fw.buf[8] != kind || len(fw.buf) >= frameLen {
		fw.open(kind)
	}
}

func (fw *frameWriter) open(kind byte) {
	fw.close()
	fw.buf = append(fw.buf, 0, 0, 0, 0, 0, 0, 0, 0, kind)
}

func (fw *frameWriter) close() {
	if len(fw.buf) > 8+maxFrameLen && fw.err == nil {
		fw.err = errFrameLen // rather than a snapshot that could not be restored
	}
	if len(fw.buf) == 0 || fw.err != nil {
		fw.buf = fw.buf[:0]
		return
	}
	binary.BigEndian.PutUint32(fw.buf, uint32(len(fw.buf)-8))
	binary.BigEndian.PutUint32(fw.buf[4:], crc32.Checksum(fw.buf[8:], castagnoli))
	n, err := fw.w.Write(fw.buf)
	fw.written += int64(n)
	fw.err = err
	fw.buf = fw.buf[:0]
}
