package inventory

import (
	"encoding/binary"
	"math/bits"
)

// index finds records by a key of theirs. It keeps only a reference (4 bytes) and a tag (2) of each,
// and compares keys where the records are, since a Go map of the keys would cost more than an ended
// order may. The tag is a part of the hash. It spares nearly all looks at records of another key, each
// of which is a cache miss: with 10 million records a new key has 0.15 of them on average. And since it
// also says where the search begins, growing looks at none. Many small tables, as one large one would
// stop the shard while it grows.
type index struct {
	tables [1024]indexTable
	keyOf  func(ref uint32) KeyHash
}

// indexTable is open addressing with linear probing. It may have any number of cells.
type indexTable struct {
	cells []indexCell
	used  int
}

// indexCell is 6 bytes, so that nearly always one cache line has all of it. An empty one has tag 0.
type indexCell struct {
	tagBytes [2]byte
	refBytes [4]byte
}

func (c *indexCell) set(tag uint16, ref uint32) {
	binary.LittleEndian.PutUint16(c.tagBytes[:], tag)
	binary.LittleEndian.PutUint32(c.refBytes[:], ref)
}

func (c *indexCell) tag() uint16 { return binary.LittleEndian.Uint16(c.tagBytes[:]) }
func (c *indexCell) ref() uint32 { return binary.LittleEndian.Uint32(c.refBytes[:]) }

func (x *index) table(hash uint64) *indexTable { return &x.tables[hash>>54] }

func tag(hash uint64) uint16 { return max(1, uint16(hash>>16)) }

// home is where the search for a tag begins. It rises with the tag, however many cells there are.
func (t *indexTable) home(tag uint16) int { return int(tag) * len(t.cells) >> 16 }

// after is the next place to look at.
func (t *indexTable) after(place int) int {
	if place++; place < len(t.cells) {
		return place
	}
	return 0
}

// nearby adds the cells to load before a key is looked for: its home, and one in the next cache line,
// which most searches reach.
func (x *index) nearby(key KeyHash, cells []*indexCell) []*indexCell {
	hash := key.hash()
	at := spot{table: x.table(hash), tag: tag(hash)}
	if len(at.table.cells) == 0 {
		return cells
	}
	home := at.table.home(at.tag)
	next := min(home+cellsPerLine, len(at.table.cells)-1)
	return append(cells, &at.table.cells[home], &at.table.cells[next])
}

// cellsPerLine is how many cells a cache line of 64 bytes has.
const cellsPerLine = 10

// spot is where a key is in an index, or says that it is not there. One of a known key is good until
// another key is set or removed; the other, until somebody else sets the key.
type spot struct {
	table *indexTable
	tag   uint16
	known bool
	place int // its cell, if it is known
}

// look finds the spot of a key.
func (x *index) look(key KeyHash) spot {
	hash := key.hash()
	at := spot{table: x.table(hash), tag: tag(hash)}
	t := at.table
	if len(t.cells) == 0 {
		return at
	}
	for at.place = t.home(at.tag); ; at.place = t.after(at.place) {
		switch cell := &t.cells[at.place]; {
		case cell.tag() == 0:
			return at
		case cell.tag() == at.tag && x.keyOf(cell.ref()) == key:
			at.known = true
			return at
		}
	}
}

// ref is the reference stored at a spot whose key is known.
func (at *spot) ref() uint32 { return at.table.cells[at.place].ref() }

// set stores ref at a spot, instead of the one before.
func (at *spot) set(ref uint32) {
	t := at.table
	if !at.known {
		if t.used >= len(t.cells)*7/8 {
			t.grow()
		}
		t.used++
		at.place = t.free(at.tag)
	}
	t.cells[at.place].set(at.tag, ref)
}

// find returns the reference stored under key.
func (x *index) find(key KeyHash) (ref uint32, ok bool) {
	at := x.look(key)
	if !at.known {
		return 0, false
	}
	return at.ref(), true
}

// set stores ref under key, instead of the one before.
func (x *index) set(key KeyHash, ref uint32) {
	at := x.look(key)
	at.set(ref)
}

// free is the empty place where a tag goes.
func (t *indexTable) free(tag uint16) int {
	place := t.home(tag)
	for t.cells[place].tag() != 0 {
		place = t.after(place)
	}
	return place
}

// grow makes room. The cells stand in the order of their tags but for the ends of runs, so that it
// goes once along the old ones and once along the new.
func (t *indexTable) grow() {
	old := t.cells
	t.cells = make([]indexCell, max(8, 2*len(old)))
	for i := range old {
		if tag := old[i].tag(); tag != 0 {
			t.cells[t.free(tag)] = old[i]
		}
	}
}

// remove forgets key, which must be present, and closes the gap: a cell moves back unless that would
// put it before its home.
func (x *index) remove(key KeyHash) {
	at := x.look(key)
	assert(at.known, "what is removed is in the index")
	t, gap := at.table, at.place
	for next := t.after(gap); t.cells[next].tag() != 0; next = t.after(next) {
		if t.way(t.home(t.cells[next].tag()), next) >= t.way(gap, next) {
			t.cells[gap] = t.cells[next]
			gap = next
		}
	}
	t.cells[gap] = indexCell{}
	t.used--
}

// way is how many places on from one to another.
func (t *indexTable) way(from, to int) int {
	if to < from {
		to += len(t.cells)
	}
	return to - from
}

// mix folds a word into a digest. The constant and the fold are those of splitmix64 and wyhash.
func mix(h, word uint64) uint64 {
	hi, lo := bits.Mul64(h^word, 0x9e3779b97f4a7c15)
	return hi ^ lo ^ bits.RotateLeft64(h, 23)
}

// mixString folds a string into a digest, its length first.
func mixString(h uint64, s string) uint64 {
	h = mix(h, uint64(len(s)))
	for ; len(s) >= 8; s = s[8:] {
		h = mix(h, uint64(first4(s))|uint64(first4(s[4:]))<<32)
	}
	if len(s) > 0 {
		h = mix(h, tail(s))
	}
	return h
}

// tail is the little-endian number of 1 to 7 bytes. Put together in memory instead, it would have to wait for
// the stores: a processor hands a load what several of them have written only when they are through.
func tail(s string) uint64 {
	switch n := len(s); {
	case n >= 4:
		return uint64(first4(s)) | uint64(first4(s[n-4:]))<<(8*(n-4))
	case n >= 2:
		return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[n-1])<<(8*(n-1))
	default:
		return uint64(s[0])
	}
}

// first4 is the little-endian number of the first four bytes.
func first4(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
