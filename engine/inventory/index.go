package inventory

import (
	"encoding/binary"
	"math/bits"
)

// index finds records by a key of theirs. It keeps only references (4 bytes) and tags (1), and
// compares keys where the records are, since a Go map of the keys would cost more than an ended
// order may. The tag spares nearly all looks at records of another key, each of which is a cache
// miss. Bits of the hash choose a table, others a place in it, others the tag. Many small tables, as
// one large one would stop the shard while it grows.
type index[K indexed] struct {
	tables [1024]indexTable
	keyOf  func(ref uint32) K
}

// indexed is a key with a hash whose bits are uniform.
type indexed interface {
	comparable
	hash() uint64
}

// indexTable is open addressing with linear probing. An empty place has tag 0.
type indexTable struct {
	tags []uint8 // a power of two of them
	refs []uint32
	used uint32
}

func (x *index[K]) table(hash uint64) *indexTable { return &x.tables[hash>>54] }

// home is the place in a table where the search for a hash begins.
func home(hash uint64) uint32 { return uint32(hash >> 16) }

func tag(hash uint64) uint8 { return uint8(hash>>8) | 1 }

// warm brings the home of a key into the cache; the sum only keeps the loads from being dropped.
// To warm many and then find them is faster than to wait for each one's memory in turn.
func (x *index[K]) warm(key K) (sum uint32) {
	hash := key.hash()
	t := x.table(hash)
	if len(t.tags) == 0 {
		return 0
	}
	place := home(hash) & uint32(len(t.tags)-1)
	return uint32(t.tags[place]) + t.refs[place]
}

// find returns the reference stored under key.
func (x *index[K]) find(key K) (ref uint32, ok bool) {
	hash := key.hash()
	t := x.table(hash)
	place, ok := x.place(t, key, hash)
	if !ok {
		return 0, false
	}
	return t.refs[place], true
}

// place is where key is, or the empty place where it would go.
func (x *index[K]) place(t *indexTable, key K, hash uint64) (place uint32, ok bool) {
	if len(t.tags) == 0 {
		return 0, false
	}
	mask := uint32(len(t.tags) - 1)
	want := tag(hash)
	for place = home(hash) & mask; t.tags[place] != 0; place = (place + 1) & mask {
		if t.tags[place] == want && x.keyOf(t.refs[place]) == key {
			return place, true
		}
	}
	return place, false
}

// set stores ref under key, instead of the one before.
func (x *index[K]) set(key K, ref uint32) {
	hash := key.hash()
	t := x.table(hash)
	place, ok := x.place(t, key, hash)
	if !ok {
		if t.used >= uint32(len(t.tags))*7/8 {
			x.grow(t)
			place, _ = x.place(t, key, hash)
		}
		t.tags[place] = tag(hash)
		t.used++
	}
	t.refs[place] = ref
}

func (x *index[K]) grow(t *indexTable) {
	old := *t
	n := max(8, 2*len(old.tags))
	t.tags, t.refs = make([]uint8, n), make([]uint32, n)
	mask := uint32(n - 1)
	for i, tag := range old.tags {
		if tag == 0 {
			continue
		}
		place := home(x.keyOf(old.refs[i]).hash()) & mask
		for t.tags[place] != 0 {
			place = (place + 1) & mask
		}
		t.tags[place], t.refs[place] = tag, old.refs[i]
	}
}

// remove forgets key, which must be present, and closes the gap: an entry moves back unless that
// would put it before its home.
func (x *index[K]) remove(key K) {
	hash := key.hash()
	t := x.table(hash)
	gap, ok := x.place(t, key, hash)
	assert(ok, "what is removed is in the index")
	mask := uint32(len(t.tags) - 1)
	for next := (gap + 1) & mask; t.tags[next] != 0; next = (next + 1) & mask {
		if (next-home(x.keyOf(t.refs[next]).hash()))&mask >= (next-gap)&mask {
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
