package inventory

import "bytes"

// texts keeps ids of 1 to 64 bytes without zeros, as Check lets through. Each is in 1 to 4 units of 16 bytes
// side by side in one chunk, filled up with zeros: as a string it would cost 16 bytes more, and the
// collector a look. The same text may be kept many times.
type texts struct {
	units slab[textUnit]
	free  [maxTextLen / textUnitLen][]uint32 // given back: the first units, by how many there are, from 1
}

type textUnit [textUnitLen]byte

const (
	textUnitLen = 16
	maxTextLen  = 64
)

// textRef is where a text is kept: in the two highest bits how many units it has beyond the first, below
// them its first unit, counted from 1. noText is that of the empty one.
type textRef uint32

const (
	noText       textRef = 0
	textRefShift textRef = 30
)

func (r textRef) split() (first, n uint32) {
	return uint32(r&(1<<textRefShift-1)) - 1, uint32(r>>textRefShift) + 1
}

// put keeps a text.
func (t *texts) put(text string) textRef {
	if text == "" {
		return noText
	}
	assert(len(text) <= maxTextLen, "an id is short")
	n := uint32(len(text)+textUnitLen-1) / textUnitLen
	first := t.take(n)
	assert(first+1 < 1<<textRefShift, "there is room for ids")
	units := t.units.own(first)[first%chunkLen:][:n]
	for i := range units {
		clear(units[i][copy(units[i][:], text[i*textUnitLen:]):])
	}
	return textRef(n-1)<<textRefShift | textRef(first+1)
}

// take reserves n units in one chunk. What is left of a chunk is for shorter texts.
func (t *texts) take(n uint32) (first uint32) {
	free := &t.free[n-1]
	if last := len(*free) - 1; last >= 0 {
		first = (*free)[last]
		*free = (*free)[:last]
		return first
	}
	if left := -t.units.used % chunkLen; left > 0 && left < n {
		rest := &t.free[left-1]
		*rest = append(*rest, t.units.extend(left))
	}
	return t.units.extend(n)
}

// append appends a text to buf.
func (t *texts) append(buf []byte, ref textRef) []byte {
	if ref == noText {
		return buf
	}
	first, n := ref.split()
	units := t.units.chunks[first/chunkLen][first%chunkLen:][:n]
	for i := range units[:n-1] {
		buf = append(buf, units[i][:]...)
	}
	return append(buf, bytes.TrimRight(units[n-1][:], "\x00")...)
}

// giveBack forgets a text.
func (t *texts) giveBack(ref textRef) {
	if ref != noText {
		first, n := ref.split()
		t.free[n-1] = append(t.free[n-1], first)
	}
}

// freeze returns a view for any one goroutine.
func (t *texts) freeze() texts { return texts{units: t.units.freeze()} }
