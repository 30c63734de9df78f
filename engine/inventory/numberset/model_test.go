package numberset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// model is the set, so naive that it cannot be wrong.
type model []bool

func (m model) free() []uint32 {
	var free []uint32
	for offset, taken := range m {
		if !taken {
			free = append(free, uint32(offset))
		}
	}
	return free
}

// runs lists start and length of all free runs.
func (m model) runs() [][2]uint32 {
	var runs [][2]uint32
	for offset, taken := range m {
		switch {
		case taken:
		case offset == 0 || m[offset-1]:
			runs = append(runs, [2]uint32{uint32(offset), 1})
		default:
			runs[len(runs)-1][1]++
		}
	}
	return runs
}

// ranges lists first and last of all taken runs between from and to.
func (m model) ranges(from, to uint32) [][2]uint32 {
	var ranges [][2]uint32
	for offset := from; offset <= to && int(offset) < len(m); offset++ {
		switch {
		case !m[offset]:
		case offset == from || !m[offset-1]:
			ranges = append(ranges, [2]uint32{offset, offset})
		default:
			ranges[len(ranges)-1][1]++
		}
	}
	return ranges
}

// summary is the node of the range of size numbers from start on.
func (m model) summary(start, size uint32) node {
	part := m[start:min(int(start+size), len(m))]
	n := node{free: uint32(len(part.free()))}
	for _, run := range part.runs() {
		n.longest = max(n.longest, run[1])
		if run[0] == 0 {
			n.prefix = run[1]
		}
		if run[0]+run[1] == uint32(len(part)) {
			n.suffix = run[1]
		}
	}
	return n
}

// requireEqual asks a set everything.
func (m model) requireEqual(t *testing.T, s *Set, rng *rand.Rand) {
	t.Helper()
	free := m.free()
	require.Equal(t, uint32(len(m)), s.Count())
	require.Equal(t, uint32(len(free)), s.Free())
	require.Equal(t, uint32(len(m)-len(free)), s.Taken())
	require.Equal(t, m.summary(0, uint32(len(m))), s.root)
	for level, nodes := range s.levels {
		size := uint32(1) << levelShift(level)
		require.Len(t, nodes, (len(m)+int(size)-1)/int(size))
		for i, n := range nodes {
			require.Equal(t, m.summary(uint32(i)*size, size), n, "node %d of level %d", i, level)
		}
	}
	m.requireRanks(t, s, free, rng)
	m.requireRuns(t, s)
}

func (m model) requireRanks(t *testing.T, s *Set, free []uint32, rng *rand.Rand) {
	t.Helper()
	require.Equal(t, s.Free(), s.RankFree(s.Count()))
	require.Equal(t, s.Free(), s.RankFree(1<<32-1))
	for k, offset := range free {
		if len(free) > 1000 && k > 0 && k < len(free)-1 && rng.IntN(len(free)) > 500 {
			continue // a few hundred, with the first and the last
		}
		if s.SelectFree(uint32(k)) != offset || s.RankFree(offset) != uint32(k) {
			require.Equal(t, offset, s.SelectFree(uint32(k)), "select %d", k)
			require.Equal(t, uint32(k), s.RankFree(offset), "rank of %d", offset)
		}
		if int(offset)+1 < len(m) {
			require.Equal(t, uint32(k)+1, s.RankFree(offset+1), "rank of %d", offset+1)
		}
	}
}

// requireRuns asks for a run of every length up to the longest and one more.
func (m model) requireRuns(t *testing.T, s *Set) {
	t.Helper()
	first := map[uint32]uint32{} // the lowest run of exactly a length
	longest := uint32(0)
	for _, run := range m.runs() {
		if _, known := first[run[1]]; !known {
			first[run[1]] = run[0]
		}
		longest = max(longest, run[1])
	}
	start, length := s.LongestRun()
	require.Equal(t, longest, length)
	require.Equal(t, first[longest], start)
	_, ok := s.FirstRun(longest + 1)
	require.False(t, ok)
	lowest := first[longest]
	for n := longest; n > 0; n-- {
		if start, known := first[n]; known {
			lowest = min(lowest, start)
		}
		start, ok := s.FirstRun(n)
		if !ok || start != lowest {
			require.True(t, ok, "no run of %d", n)
			require.Equal(t, lowest, start, "run of %d", n)
		}
	}
	start, ok = s.FirstRun(0)
	require.True(t, ok)
	require.Zero(t, start)
}

// requireEqualView asks a view everything.
func (m model) requireEqualView(t *testing.T, v View, rng *rand.Rand) {
	t.Helper()
	require.Equal(t, uint32(len(m)), v.Count())
	require.Equal(t, len(m)-len(m.free()), int(v.Taken()))
	for offset, taken := range m {
		if v.Has(uint32(offset)) != taken {
			require.Equal(t, taken, v.Has(uint32(offset)), "has %d", offset)
		}
	}
	for range 10 {
		from, to := rng.Uint32N(v.Count()), uint32(1<<32-1)
		switch rng.IntN(4) {
		case 0:
			from = 0
		case 1:
			to = from + 1000 - rng.Uint32N(1010) // may wrap, and may be below from
		}
		require.True(t, slices.Equal(m.ranges(from, to), v.AppendRanges(nil, from, to)),
			"%d to %d", from, to)
	}
}

// stretch chooses where a test writes: anywhere, or close to where words, groups and pages meet.
func stretch(count uint32, rng *rand.Rand) (from, to uint32) {
	from = rng.Uint32N(count)
	if unit := []uint32{1, wordBits, groupBits, pageBits}[rng.IntN(4)]; unit > 1 {
		from = from/unit*unit + rng.Uint32N(4) - 2 // may wrap
	}
	from = min(from, count-1)
	length := []uint32{1, 1, 3, 70, 5000, 70_000}[rng.IntN(6)]
	return from, min(from+1+rng.Uint32N(length), count)
}

func TestRandomSequencesAgainstModel(t *testing.T) {
	for _, count := range []uint32{
		1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 8192, 65_535, 65_536, 65_537, 70_000, 200_000,
	} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("count=%d/seed=%d", count, seed), func(t *testing.T) {
				t.Parallel()
				randomSequence(t, count, rand.New(rand.NewPCG(seed, uint64(count))))
			})
		}
	}
}

func randomSequence(t *testing.T, count uint32, rng *rand.Rand) {
	s, m := Make(count), make(model, count)
	type frozen struct {
		view  View
		model model
	}
	var all []frozen
	for range max(2, min(25, 100_000/count)) {
		for range 1 + rng.IntN(20) {
			from, to := stretch(uint32(len(m)), rng)
			step := 1 + rng.Uint32N(3)*rng.Uint32N(3) // 1, 2, 3 or 5
			take := rng.IntN(5) < 3
			for offset := from; offset < to; offset += step {
				m.write(t, &s, offset, take)
			}
		}
		if rng.IntN(4) == 0 {
			from, to := stretch(uint32(len(m)), rng)
			m = append(m, make(model, to-from)...)
			s.Grow(uint32(len(m)))
		}
		m.requireEqual(t, &s, rng)
		if rng.IntN(2) == 0 {
			all = append(all, frozen{s.Freeze(), slices.Clone(m)})
		}
	}
	for _, f := range all {
		f.model.requireEqualView(t, f.view, rng)
	}
}

// write takes an offset or gives it back, in the set and in the model.
func (m model) write(t *testing.T, s *Set, offset uint32, take bool) {
	t.Helper()
	before, change := s.Has(offset), s.Remove
	if take {
		change = s.Add
	}
	changed := change(offset)
	if before != m[offset] || changed == (before == take) || s.Has(offset) != take {
		require.Equal(t, m[offset], before, "%d before", offset)
		require.Equal(t, before != take, changed, "%d changes", offset)
		require.Equal(t, take, s.Has(offset), "%d after", offset)
	}
	m[offset] = take
}
