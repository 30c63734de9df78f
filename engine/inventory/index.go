package inventory

import (
	"encoding/binary"
	"math/bits"
)

// index finds orders by their key. It keeps only references (4 bytes) and tags (1), and compares
// keys where the orders are, since a Go map of the keys would cost more than an ended order may.
// The tag spares nearly all looks at orders of another key, each of which is a cache miss. The keys
// are uniform already, so their bits are the hash: ten choose a table, others a place in it, others
// the tag. Many small tables, as one large one would stop the shard while it grows.
type index struct {
	tables [1024]indexTable
	keyOf  func(ref uint32) KeyHash
}

// indexTable is open addressing with linear probing. An empty place has tag 0.
type indexTable struct {
	tags []uint8 // a power of two of them
	refs []uint32
	used uint32
}

func (x *index) table(key KeyHash) *indexTable {
	return &x.tables[binary.BigEndian.Uint16(key[:])>>6]
}

func home(key KeyHash) uint32 { return binary.BigEndian.Uint32(key[2:]) }

func tag(key KeyHash) uint8 { return key[6] | 1 }

// find returns the reference stored under key.
func (x *index) find(key KeyHash) (ref uint32, ok bool) {
	t := x.table(key)
	place, ok := x.place(t, key)
	if !ok {
		return 0, false
	}
	return t.refs[place], true
}

// place is where key is, or the empty place where it would go.
func (x *index) place(t *indexTable, key KeyHash) (place uint32, ok bool) {
	if len(t.tags) == 0 {
		return 0, false
	}
	mask := uint32(len(t.tags) - 1)
	want := tag(key)
	for place = home(key) & mask; t.tags[place] != 0; place = (place + 1) & mask {
		if t.tags[place] == want && x.keyOf(t.refs[place]) == key {
			return place, true
		}
	}
	return place, false
}

// set stores ref under key, instead of the one before.
func (x *index) set(key KeyHash, ref uint32) {
	t := x.table(key)
	place, ok := x.place(t, key)
	if !ok {
		if t.used >= uint32(len(t.tags))*7/8 {
			x.grow(t)
			place, _ = x.place(t, key)
		}
		t.tags[place] = tag(key)
		t.used++
	}
	t.refs[place] = ref
}

func (x *index) grow(t *indexTable) {
	old := *t
	n := max(8, 2*len(old.tags))
	t.tags, t.refs = make([]uint8, n), make([]uint32, n)
	mask := uint32(n - 1)
	for i, tag := range old.tags {
		if tag == 0 {
			continue
		}
		place := home(x.keyOf(old.refs[i])) & mask
		for t.tags[place] != 0 {
			place = (place + 1) & mask
		}
		t.tags[place], t.refs[place] = tag, old.refs[i]
	}
}

// remove forgets key, which must be present, and closes the gap: an entry moves back unless that
// would put it before its home.
func (x *index) remove(key KeyHash) {
	t := x.table(key)
	gap, ok := x.place(t, key)
	assert(ok, "an order that is removed is in the index")
	mask := uint32(len(t.tags) - 1)
	for next := (gap + 1) & mask; t.tags[next] != 0; next = (next + 1) & mask {
		if (next-home(x.keyOf(t.refs[next])))&mask >= (next-gap)&mask {
			t.tags[gap], t.refs[gap] = t.tags[next], t.refs[next]
			gap = next
		}
	}
	t.tags[gap] = 0
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
