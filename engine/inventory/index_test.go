package inventory

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// crowded is one of many keys with the same table and tag, most of them the last ones, so that runs of
// cells go round the end of the table.
func crowded(i int) (k KeyHash) {
	binary.BigEndian.PutUint64(k[:], 0xfff0<<16|uint64(i%23)<<16)
	binary.BigEndian.PutUint32(k[8:], uint32(i))
	return k
}

// TestIndex holds an index against a map, through growth, gaps and runs that go round the end.
func TestIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var keys []KeyHash // by reference
	x := index{keyOf: func(ref uint32) KeyHash { return keys[ref] }}
	want := make(map[KeyHash]uint32)
	for range 20_000 {
		key := crowded(random.IntN(300))
		switch _, known := want[key]; {
		case known && random.IntN(2) == 0:
			x.remove(key)
			delete(want, key)
		default:
			keys = append(keys, key)
			want[key] = uint32(len(keys) - 1)
			x.set(key, want[key])
		}
		if random.IntN(100) == 0 {
			for i := range 300 {
				key := crowded(i)
				ref, ok := x.find(key)
				expected, known := want[key]
				require.Equal(t, known, ok, "%d", key)
				require.Equal(t, expected, ref)
			}
		}
	}
}

// TestMixString: digests of strings are in snapshots, so they must stay what they are: the length, and
// then words of eight bytes, the last one filled up with zeros.
func TestMixString(t *testing.T) {
	text := "numera: 0123456789, \xff\xfe\x80"
	for n := range len(text) {
		for from := range len(text) - n {
			s := text[from : from+n]
			padded := []byte(s + strings.Repeat("\x00", -n&7))
			want := mix(7, uint64(n))
			for i := 0; i < len(padded); i += 8 {
				want = mix(want, binary.LittleEndian.Uint64(padded[i:]))
			}
			require.Equal(t, want, mixString(7, s), "%q", s)
		}
	}
}
