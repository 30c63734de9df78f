package inventory

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/RoaringBitmap/roaring/v2"
)

// Restore reads a snapshot of the shard into a new State. It fails with ErrSnapshot rather than
// return anything but the state that was frozen, by its digest.
func Restore(shard ShardID, limits Limits, r io.Reader) (s *State, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s, err = nil, fmt.Errorf("%w: %v", ErrSnapshot, reason)
		}
	}()
	rs := restorer{s: New(shard, limits)}
	for !rs.complete {
		kind, body, err := readFrame(r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
		rd := reader{buf: body}
		rs.frame(kind, &rd)
		if rs.foreign != nil {
			return nil, fmt.Errorf("%w: %w", ErrSnapshot, rs.foreign)
		}
		if rd.failed || len(rd.buf) > 0 {
			return nil, fmt.Errorf("%w: frame of kind %d", ErrSnapshot, kind)
		}
	}
	if digest := rs.s.Digest(); digest != rs.digest {
		return nil, fmt.Errorf("%w: digest %x, written as %x", ErrSnapshot, digest, rs.digest)
	}
	return rs.s, nil
}

func readFrame(r io.Reader) (kind byte, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > maxFrameLen {
		return 0, nil, fmt.Errorf("frame of %d bytes", n)
	}
	var buf bytes.Buffer // grows as it is read: a damaged length costs no more than the file has
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return 0, nil, err
	}
	frame := buf.Bytes()
	if crc32.Checksum(frame, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return 0, nil, fmt.Errorf("frame checksum")
	}
	return frame[0], frame[1:], nil
}

// restorer builds a state from frames, which come in the order of their kinds.
type restorer struct {
	s        *State
	last     byte
	next     uint64 // of the outbox, when all events are restored
	digest   uint64
	complete bool
	foreign  error // what is restored is something else
}

func (rs *restorer) frame(kind byte, r *reader) {
	if kind < rs.last || (kind == frameHeader) != (rs.last == 0) {
		r.fail()
		return
	}
	rs.last = kind
	switch kind {
	case frameHeader:
		rs.header(r)
	case frameProducts:
		for len(r.buf) > 0 {
			rs.product(r)
		}
	case framePrices:
		for len(r.buf) > 0 {
			rs.s.price(r.money())
		}
	case frameOrders:
		for len(r.buf) > 0 {
			rs.order(r)
		}
	case frameEnded:
		rs.endedBlock(r)
	case frameOutbox:
		for len(r.buf) > 0 {
			rs.event(r)
		}
	case frameTrailer:
		rs.trailer(r)
	default:
		r.fail()
	}
}

func (rs *restorer) header(r *reader) {
	s := rs.s
	magic, version, shard := r.string(maxShort), r.uvarint(), r.uvarint()
	if magic != snapshotMagic || version != Version || shard != uint64(s.shard) {
		rs.foreign = fmt.Errorf("%q of version %d and shard %d, not %q of version %d and shard %d",
			magic, version, shard, snapshotMagic, Version, s.shard)
		r.fail()
		return
	}
	s.clock = int64(r.atMost(maxUnixMilli))
	rs.next = r.uvarint()
	s.ended.first = uint32(r.atMost(endedBlocks - 1))
	for range r.count(2) {
		s.outbox.consumers = append(s.outbox.consumers, consumer{r.string(maxShort), r.uvarint()})
	}
	kept := rs.next
	for _, c := range s.outbox.consumers {
		kept = min(kept, c.acknowledged+1)
	}
	s.outbox.kept, s.outbox.next = kept, kept // and the events that are kept follow
}

func (rs *restorer) product(r *reader) {
	view := r.productView()
	if r.failed || view.Settings.Check() != nil || rs.s.products[view.ID] != nil {
		r.fail()
		return
	}
	p := newProduct(view.ID, uint32(len(rs.s.list)), view.Settings)
	p.state, p.halted, p.version = view.State, view.Halted, view.Version
	for range r.count(14) {
		var done restock
		r.copy(done.key[:])
		done.count, done.atUnixMilli = r.uint32(), int64(r.uvarint())
		p.remember(done)
	}
	if blocked := r.take(r.count(1)); len(blocked) > 0 {
		set := roaring.New()
		if err := set.UnmarshalBinary(blocked); err != nil || set.Validate() != nil ||
			set.IsEmpty() || set.Maximum() >= view.Settings.Count {
			r.fail()
			return
		}
		rs.block(p, set)
	}
	if p.halted != "" {
		p.counters = view.Counters
		rs.s.fall(p)
	}
	rs.s.add(p)
}

// block puts blocked numbers where they were, some at a time: there may be millions.
func (rs *restorer) block(p *Product, set *roaring.Bitmap) {
	var some [4096]uint32
	for rest := set.ManyIterator(); ; {
		n := rest.NextMany(some[:])
		if n == 0 {
			return
		}
		rs.put(p, some[:n], placeBlocked, noHolder)
	}
}

// put puts numbers where they were. Of a halted product they are only shown.
func (rs *restorer) put(p *Product, offsets []uint32, to place, by holder) {
	if p.halted == "" {
		p.move(offsets, placeFree, to, by)
		return
	}
	p.show(offsets)
}

// valid says whether a record refers to what there is.
func (rs *restorer) valid(o *order) bool {
	s := rs.s
	var single [1]item
	var number [1]uint32
	for _, it := range o.items(&single, &number) {
		if int(it.product) >= len(s.list) || int(it.price) >= len(s.prices) ||
			len(it.offsets) == 0 {
			return false
		}
	}
	return o.buyer != ""
}

func (rs *restorer) order(r *reader) {
	o := r.record(base{})
	if r.failed || !rs.valid(&o) || o.over() {
		r.fail()
		return
	}
	s := rs.s
	at := s.index.look(o.key)
	ref := s.insert(&at, &o)
	if s.awaits(&o.record) {
		s.arm(ref, &o)
	}
	to := placeReserved
	if o.status.Sold() {
		to = placeSold
	}
	for _, it := range o.items(new([1]item), new([1]uint32)) {
		p := s.list[it.product]
		rs.put(p, it.offsets, to, p.holder(o.buyer))
	}
}

// endedBlock restores a block as it was. Its records are alive unless the order is live again, or
// has ended again later.
func (rs *restorer) endedBlock(r *reader) {
	s := rs.s
	b := &endedBlock{base: base{
		created: int64(r.atMost(maxUnixMilli)), placed: r.uvarint(), changed: r.uvarint(),
	}}
	b.lastEnded = int64(r.atMost(maxUnixMilli))
	if r.failed || len(r.buf) > endedBlockLen || len(s.ended.blocks) == endedBlocks {
		r.fail()
		return
	}
	b.bytes = append(make([]byte, 0, endedBlockLen), r.take(len(r.buf))...)
	s.ended.blocks = append(s.ended.blocks, b)
	whole := s.ended.walkBlock(len(s.ended.blocks)-1, func(ref uint32, o *order) {
		before, known := s.index.find(o.key)
		if known && before&endedRef == 0 || !rs.valid(o) {
			return
		}
		if known {
			was := s.ended.at(before)
			s.orderDigest64 -= s.orderDigest(&was)
			s.count.ended--
		}
		s.index.set(o.key, ref)
		s.orderDigest64 += s.orderDigest(o)
		s.count.ended++
	})
	if !whole {
		r.fail()
	}
}

func (rs *restorer) event(r *reader) {
	kind, at := EventKind(r.byte()), int64(r.atMost(maxUnixMilli))
	rs.s.outbox.tell(at, r.string(maxCorrelation), r.take(r.count(1)), kind)
}

func (rs *restorer) trailer(r *reader) {
	if digest := r.take(8); digest != nil {
		rs.digest = binary.BigEndian.Uint64(digest)
	}
	live := r.uvarint()
	if live != uint64(rs.s.count.live+rs.s.count.sold) || rs.s.outbox.next != rs.next {
		r.fail()
		return
	}
	rs.s.TakeChanged(func(uint32, *Standing) {})
	rs.complete = true
}
