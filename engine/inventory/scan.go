package inventory

import (
	"encoding/binary"
	"iter"
)

// Tail gives the kept events after a sequence, limit at the most; trimmed says that the next one is no
// longer kept. It must not run beside the apply goroutine, but what it gives may be read beside it.
func (s *State) Tail(after uint64, limit int) (t Tail, trimmed bool) {
	b := &s.outbox
	switch {
	case after+1 < b.kept:
		return Tail{}, true
	case after >= b.last() || limit < 1:
		return Tail{}, false
	}
	return Tail{b.part(after+1, after+min(uint64(limit), b.last()-after))}, false
}

// Tail is some events in a row.
type Tail struct{ outbox outbox }

// Len is how many there are.
func (t Tail) Len() int { return t.outbox.backlog() }

// All gives them one after the other, sealed.
func (t Tail) All() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for sequence := t.outbox.kept; sequence < t.outbox.next; sequence++ {
			if !yield(t.outbox.at(sequence).event(sequence)) {
				return
			}
		}
	}
}

// Sequence is that of the last event, 0 before the first.
func (s *State) Sequence() uint64 { return s.outbox.last() }

func (e *outboxEntry) event(sequence uint64) Event {
	return Event{
		Sequence: sequence, Kind: e.kind, AtUnixMilli: e.at.value(),
		Correlation: string(e.text[:e.correlation]), image: e.image(),
	}
}

// ScanCursor is where a scan goes on; the zero one is its start. It is good for the State that gave
// it only, since another one may keep the same orders in other places: to that it is the start.
type ScanCursor struct {
	scans uint64 // of the State
	ended bool
	at    uint32 // the next slot of the live and sold, or number of block of the ended
}

// NameScans gives the State a name of its own, by which it knows its scans' cursors again. The
// name is no part of what replicas agree on: draw it at random when the State is made or restored.
func (s *State) NameScans(name uint64) { s.scans = name }

// Append encodes the cursor.
func (c ScanCursor) Append(buf []byte) []byte {
	buf = binary.AppendUvarint(buf, c.scans)
	return binary.AppendUvarint(appendBool(buf, c.ended), uint64(c.at))
}

// ParseScanCursor reads what Append wrote; nothing is the start.
func ParseScanCursor(buf []byte) (c ScanCursor, ok bool) {
	if len(buf) == 0 {
		return c, true
	}
	r := reader{buf: buf}
	c = ScanCursor{r.uvarint(), r.bool(), r.uint32()}
	return c, !r.failed && len(r.buf) == 0
}

// Scan visits orders, live and sold ones first, until about limit have been, and says where to go
// on; more is false at the end. The parts of a scan need not be of one state: an order that moves
// while the scan goes on has an event that is newer than the scan's first part. It must not run
// beside the apply goroutine.
func (s *State) Scan(c ScanCursor, limit int, visit func(*OrderView)) (next ScanCursor, more bool) {
	if c.scans != s.scans {
		c = ScanCursor{scans: s.scans}
	}
	if !c.ended {
		for ; c.at < s.orders.used; c.at++ {
			if limit == 0 {
				return c, true
			}
			if o := s.orders.load(c.at); o.status != StatusNone {
				visit(s.view(&o, new(answerRoom)))
				limit--
			}
		}
		c.ended, c.at = true, s.ended.first
	}
	for limit > 0 {
		i := int((c.at - s.ended.first) % endedBlocks)
		if i > len(s.ended.blocks) {
			i, c.at = 0, s.ended.first // the block was dropped meanwhile
		}
		if i == len(s.ended.blocks) {
			return ScanCursor{}, false
		}
		s.ended.walkBlock(i, func(ref uint32, o *order) {
			if alive, ok := s.index.find(o.key); ok && alive == ref {
				visit(s.view(o, new(answerRoom)))
				limit--
			}
		})
		limit = max(limit, 0)
		c.at = (c.at + 1) % endedBlocks
	}
	return c, true
}

// Placed is an order's place in the order of age.
type Placed struct {
	Sequence uint64 // of order.created
	Order    OrderID
}

// Placed lists the orders that hold or held numbers of a product, in no particular order.
func (f *Frozen) Placed(product uint32) []Placed {
	var all []Placed
	visit := func(o *order) {
		for _, it := range o.items(new([1]item), new([1]uint32)) {
			if it.product == product {
				id := MakeOrderID(f.shard, o.created.value(), o.key)
				all = append(all, Placed{o.placed.value(), id})
			}
		}
	}
	for slot := range f.orders.used {
		if o := f.orders.holding(slot); o.status != StatusNone {
			visit(&o)
		}
	}
	for i := range f.ended.blocks {
		f.ended.walkBlock(i, func(_ uint32, o *order) { visit(o) })
	}
	return all
}
