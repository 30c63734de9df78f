package numberset

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
)

// states are how much of a set is taken, and where, as random words.
var states = []struct {
	name string
	word func(rng *rand.Rand) uint64
}{
	{"empty", func(*rand.Rand) uint64 { return 0 }},
	{"half", func(rng *rand.Rand) uint64 { return rng.Uint64() }},
	{"99.9%", func(rng *rand.Rand) uint64 {
		if rng.IntN(16) > 0 {
			return ^uint64(0)
		}
		return ^(1 << rng.Uint64N(64))
	}},
	{"every second", func(*rand.Rand) uint64 { return 0x5555555555555555 }},
}

var benchCounts = []uint32{1_000, 1_000_000, 10_000_000, MaxCount}

// filled makes a set of random words. A hundred million calls of Add would take half a minute.
func filled(count uint32, word func(*rand.Rand) uint64) *Set {
	s := Make(count)
	s.plant()
	rng := rand.New(rand.NewPCG(1, uint64(count)))
	for page := range ceil(count, pageBits) {
		words := s.writable(page)
		for i := range words {
			words[i] = word(rng)
		}
		if rest := count % wordBits; rest > 0 && (page+1)*pageBits >= count {
			words[len(words)-1] &= 1<<rest - 1
		}
	}
	for i := range ceil(count, groupBits) {
		before := s.group(i)
		s.replace(i, before, walk(s.pages.group(i), s.groupLen(i)))
	}
	s.Remove(count - 2) // the one run of three of alternating numbers: as far away as can be
	return &s
}

// walk summarises a group by looking at all of it.
func walk(words []uint64, size uint32) node {
	n := allFree(min(size, wordBits))
	for i, word := range words {
		width := min(wordBits, size-uint32(i)*wordBits)
		part := allFree(width)
		if taken := uint32(bits.OnesCount64(word)); taken > 0 {
			part = node{
				free:    width - taken,
				prefix:  uint32(bits.TrailingZeros64(word)),
				suffix:  uint32(bits.LeadingZeros64(word)) - (wordBits - width),
				longest: longestRun([]uint64{word}, width, 0),
			}
		}
		if i == 0 {
			n = part
		} else {
			n = n.then(part)
		}
	}
	return n
}

// BenchmarkSet asks sets of every size and state for everything, at random places.
func BenchmarkSet(b *testing.B) {
	for _, count := range benchCounts {
		for _, st := range states {
			b.Run(fmt.Sprintf("%d/%s", count, st.name), func(b *testing.B) {
				s := filled(count, st.word)
				for _, op := range operations(s) {
					b.Run(op.name, func(b *testing.B) {
						b.ReportAllocs()
						for i := range b.N {
							op.run(i)
						}
					})
				}
				b.Run("worst", func(b *testing.B) { reportWorst(b, s) })
			})
		}
	}
}

type operation struct {
	name string
	run  func(i int)
}

// sink keeps the compiler from leaving calls out.
var sink uint32

const places = 1 << 16

// operations on random places. Each change is undone at once, so that the state stays: it counts
// an Add and a Remove.
func operations(s *Set) []operation {
	rng := rand.New(rand.NewPCG(3, 3))
	offsets, ranks := make([]uint32, places), make([]uint32, places)
	for i := range places {
		offsets[i], ranks[i] = rng.Uint32N(s.Count()), rng.Uint32N(s.Free())
	}
	_, longest := s.LongestRun()
	return []operation{
		{"change", func(i int) {
			if offset := offsets[i%places]; s.Add(offset) {
				s.Remove(offset)
			} else {
				s.Remove(offset)
				s.Add(offset)
			}
		}},
		{"has", func(i int) {
			if s.Has(offsets[i%places]) {
				sink++
			}
		}},
		{"select", func(i int) { sink += s.SelectFree(ranks[i%places]) }},
		{"rank", func(i int) { sink += s.RankFree(offsets[i%places]) }},
		{"run of 3", func(int) { start, _ := s.FirstRun(min(3, longest)); sink += start }},
		{"longest run", func(int) { start, _ := s.LongestRun(); sink += start }},
	}
}

// reportWorst finds the slowest of many operations. The same ones run several times, and the least
// time of each counts: what the machine did in between doesn't, what the operation costs does.
func reportWorst(b *testing.B, s *Set) {
	const trials, calls = 7, 20_000
	for _, op := range operations(s) {
		least := make([]time.Duration, calls)
		for trial := range trials {
			for i := range calls {
				start := time.Now()
				op.run(i)
				took := time.Since(start)
				if trial == 0 || took < least[i] {
					least[i] = took
				}
			}
		}
		unit := "ns-" + strings.ReplaceAll(op.name, " ", "-")
		b.ReportMetric(float64(slices.Max(least).Nanoseconds()), unit)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFreeze writes to a set of the largest size that has just been frozen.
func BenchmarkFreeze(b *testing.B) {
	s := filled(MaxCount, states[1].word)
	run := operations(s)[0].run
	b.Run("freeze", func(b *testing.B) {
		for range b.N {
			sink += s.Freeze().Taken()
		}
	})
	b.Run("freeze and change", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			sink += s.Freeze().Taken()
			run(i)
		}
	})
	b.Run("ranges of a million", func(b *testing.B) {
		v := s.Freeze()
		var ranges [][2]uint32
		for range b.N {
			ranges = v.AppendRanges(ranges[:0], 1_000_000, 1_999_999)
		}
		sink += uint32(len(ranges))
	})
	b.Run("to roaring", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			sink += uint32(s.Freeze().Roaring(1).GetCardinality())
		}
	})
}

// BenchmarkGrow restocks sets of which a number is taken, and the empty set, whose tree is made when
// one is taken then. The least time is what it costs on a machine of one's own, with memory that the
// runtime has at hand.
func BenchmarkGrow(b *testing.B) {
	for _, from := range []uint32{0, 1, MaxCount / 2, MaxCount - 1_000_000, MaxCount - 50} {
		b.Run(fmt.Sprintf("%d to %d", from, MaxCount), func(b *testing.B) {
			least := time.Hour
			for range b.N {
				s := Make(from)
				if from > 0 {
					s.Add(0)
				}
				start := time.Now()
				s.Grow(MaxCount)
				s.Add(1)
				least = min(least, time.Since(start))
				sink += s.Free()
			}
			b.ReportMetric(float64(least.Nanoseconds()), "ns-least")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRoaring does what roaring can of the same: changes on a bitmap of taken numbers, select
// on one of free numbers, the longest run as the widest gap between taken numbers: NextAbsentValue
// of v2.30.0 is wrong after a full container.
func BenchmarkRoaring(b *testing.B) {
	for _, count := range benchCounts {
		for _, st := range states {
			b.Run(fmt.Sprintf("%d/%s", count, st.name), func(b *testing.B) {
				benchmarkRoaring(b, filled(count, st.word))
			})
		}
	}
}

func benchmarkRoaring(b *testing.B, s *Set) {
	rng := rand.New(rand.NewPCG(3, 3))
	offsets, ranks := make([]uint32, places), make([]uint32, places)
	for i := range places {
		offsets[i], ranks[i] = rng.Uint32N(s.Count()), rng.Uint32N(s.Free())
	}
	taken := s.Freeze().Roaring(0)
	free := roaring.Flip(taken, 0, uint64(s.Count()))
	free.RunOptimize()
	b.Run("change", func(b *testing.B) {
		for i := range b.N {
			if offset := offsets[i%places]; taken.CheckedAdd(offset) {
				taken.CheckedRemove(offset)
			} else {
				taken.CheckedRemove(offset)
				taken.CheckedAdd(offset)
			}
		}
	})
	b.Run("select", func(b *testing.B) {
		for i := range b.N {
			offset, _ := free.Select(ranks[i%places])
			sink += offset
		}
	})
	b.Run("longest run", func(b *testing.B) {
		values := make([]uint32, 4096)
		for range b.N {
			longest, next := uint32(0), uint32(0)
			many := taken.ManyIterator()
			for n := many.NextMany(values); n > 0; n = many.NextMany(values) {
				for _, value := range values[:n] {
					longest, next = max(longest, value-next), value+1
				}
			}
			sink += max(longest, s.Count()-next)
		}
	})
	b.Run("clone", func(b *testing.B) {
		for range b.N {
			sink += uint32(taken.Clone().GetCardinality())
		}
	})
}
