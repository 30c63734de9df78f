package inventory

import "slices"

// ended keeps the orders that are over, compactly: their records stand one after the other in
// blocks, in the order in which they ended, and are never changed. An order that comes back to
// life, by a late payment or a refund, leaves its old record behind: which record is alive is
// known to the index alone. A block is dropped as a whole when its youngest is old enough.
type ended struct {
	blocks  []*endedBlock
	first   uint32 // number of blocks[0]; numbers wrap at endedBlocks
	scratch []byte
}

type endedBlock struct {
	base      base
	lastEnded int64 // Unix milliseconds of log time
	bytes     []byte
}

// A reference to an ended order is the number of its block and its offset there, below the bit
// that tells it from a slot of a live order.
const (
	endedBlockLen = 1 << 14
	endedBlocks   = 1 << 17
	endedRef      = 1 << 31
)

// append adds a record and returns its reference.
func (e *ended) append(o *order, clockUnixMilli int64) uint32 {
	var tail *endedBlock
	if n := len(e.blocks); n > 0 {
		tail = e.blocks[n-1]
		e.scratch = o.appendRecord(e.scratch[:0], tail.base)
	}
	if tail == nil || len(tail.bytes)+len(e.scratch) > endedBlockLen {
		tail = &endedBlock{
			base:  base{o.created.value(), o.placed.value(), o.changed.value()},
			bytes: make([]byte, 0, endedBlockLen),
		}
		assert(len(e.blocks) < endedBlocks, "ended orders are capped")
		e.blocks = append(e.blocks, tail)
		e.scratch = o.appendRecord(e.scratch[:0], tail.base)
	}
	number := (e.first + uint32(len(e.blocks)-1)) % endedBlocks
	ref := endedRef | number*endedBlockLen | uint32(len(tail.bytes))
	tail.bytes = append(tail.bytes, e.scratch...)
	tail.lastEnded = clockUnixMilli
	return ref
}

// at decodes the record that a reference means.
func (e *ended) at(ref uint32) order {
	b, offset := e.block(ref)
	r := reader{buf: b.bytes[offset:]}
	o := r.record(b.base)
	assert(!r.failed, "an ended order decodes")
	return o
}

// keyAt is the key of the record alone.
func (e *ended) keyAt(ref uint32) KeyHash {
	b, offset := e.block(ref)
	return KeyHash(b.bytes[offset:])
}

func (e *ended) block(ref uint32) (b *endedBlock, offset uint32) {
	number := (ref &^ endedRef) / endedBlockLen
	return e.blocks[(number-e.first)%endedBlocks], ref % endedBlockLen
}

// dropOldest gives up the oldest block if its youngest record ended before the given instant. It
// calls gone with every record of the block and its reference.
func (e *ended) dropOldest(beforeUnixMilli int64, gone func(ref uint32, o *order)) (dropped bool) {
	if len(e.blocks) == 0 || e.blocks[0].lastEnded >= beforeUnixMilli {
		return false
	}
	e.walkBlock(0, gone)
	e.blocks[0] = nil
	e.blocks = e.blocks[1:]
	e.first = (e.first + 1) % endedBlocks
	return true
}

// walkBlock calls visit with every record of the i-th block, dead ones included; it says whether
// all of it could be decoded.
func (e *ended) walkBlock(i int, visit func(ref uint32, o *order)) bool {
	b := e.blocks[i]
	number := (e.first + uint32(i)) % endedBlocks
	r := reader{buf: b.bytes}
	for len(r.buf) > 0 {
		offset := uint32(len(b.bytes) - len(r.buf))
		o := r.record(b.base)
		if r.failed {
			return false
		}
		visit(endedRef|number*endedBlockLen|offset, &o)
	}
	return true
}

// freeze returns a view for any one goroutine: records are never changed, only appended.
func (e *ended) freeze() ended {
	view := ended{first: e.first, blocks: slices.Clone(e.blocks)}
	if n := len(view.blocks); n > 0 {
		tail := *view.blocks[n-1]
		view.blocks[n-1] = &tail
	}
	return view
}
