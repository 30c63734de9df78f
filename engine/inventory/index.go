package inventory

import (
	"encoding/binary"
	"math/bits"
)

// index finds orders by their key. It keeps only references (4 bytes) and compares keys where the
// orders are, since a Go map of the keys would cost more than an ended order may. The keys are
// uniform already, so their bits are the hash: ten choose a table, the others a place in it.
// Many small tables, as one large one would stop the shard while it grows.
type index struct {
	tables [1024]indexTable
	keyOf  func(ref uint32) KeyHash
}

// indexTable is open addressing with linear probing. A place holds ref+1; 0 is empty.
type indexTable struct {
	places []uint32 // a power of two
	used   uint32
}

func split(key KeyHash) (table, home uint32) {
	return uint32(binary.BigEndian.Uint16(key[:]) >> 6), binary.BigEndian.Uint32(key[2:])
}

// find returns the reference stored under key.
func (x *index) find(key KeyHash) (ref uint32, ok bool) {
	table, _ := split(key)
	t := &x.tables[table]
	place, ok := x.place(t, key)
	if !ok {
		return 0, false
	}
	return t.places[place] - 1, true
}

// place is where key is, or the empty place where it would go.
func (x *index) place(t *indexTable, key KeyHash) (place uint32, ok bool) {
	if len(t.places) == 0 {
		return 0, false
	}
	mask := uint32(len(t.places) - 1)
	_, home := split(key)
	for place = home & mask; t.places[place] != 0; place = (place + 1) & mask {
		if x.keyOf(t.places[place]-1) == key {
			return place, true
		}
	}
	return place, false
}

// set stores ref under key, instead of the one before.
func (x *index) set(key KeyHash, ref uint32) {
	table, _ := split(key)
	t := &x.tables[table]
	if place, ok := x.place(t, key); ok {
		t.places[place] = ref + 1
		return
	}
	if t.used >= uint32(len(t.places))*7/8 {
		x.grow(t)
	}
	place, _ := x.place(t, key)
	t.places[place] = ref + 1
	t.used++
}

func (x *index) grow(t *indexTable) {
	old := t.places
	t.places = make([]uint32, max(8, 2*len(old)))
	for _, entry := range old {
		if entry != 0 {
			place, _ := x.place(t, x.keyOf(entry-1))
			t.places[place] = entry
		}
	}
}

// remove forgets key, which must be present, and closes the gap: an entry moves back unless that
// would put it before its home.
func (x *index) remove(key KeyHash) {
	table, _ := split(key)
	t := &x.tables[table]
	gap, ok := x.place(t, key)
	assert(ok, "an order that is removed is in the index")
	mask := uint32(len(t.places) - 1)
	for next := (gap + 1) & mask; t.places[next] != 0; next = (next + 1) & mask {
		_, home := split(x.keyOf(t.places[next] - 1))
		if (next-home)&mask >= (next-gap)&mask {
			t.places[gap] = t.places[next]
			gap = next
		}
	}
	t.places[gap] = 0
	t.used--
}

// mix folds a word into a digest. The constant and the fold are those of splitmix64 and wyhash.
func mix(h, word uint64) uint64 {
	hi, lo := bits.Mul64(h^word, 0x9e3779b97f4a7c15)
	return hi ^ lo ^ bits.RotateLeft64(h, 23)
}

// mixString folds a string into a digest, its length first.
func mixString(h uint64, s string) uint64 {
	h = mix(h, uint64(len(s)))
	for len(s) > 0 {
		var word [8]byte
		n := copy(word[:], s)
		h = mix(h, binary.LittleEndian.Uint64(word[:]))
		s = s[n:]
	}
	return h
}
