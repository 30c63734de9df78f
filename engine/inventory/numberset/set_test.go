package numberset

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutOfRangePanics(t *testing.T) {
	t.Parallel()
	s := Make(100)
	s.Add(3)
	view := s.Freeze()
	for name, call := range map[string]func(){
		panicOffset + " (has)":    func() { s.Has(100) },
		panicOffset + " (add)":    func() { s.Add(100) },
		panicOffset + " (remove)": func() { s.Remove(100) },
		panicOffset + " (view)":   func() { view.Has(100) },
		panicRank:                 func() { s.SelectFree(99) },
		panicCount + " (shrink)":  func() { s.Grow(99) },
		panicCount + " (grow)":    func() { s.Grow(MaxCount + 1) },
		panicCount + " (make)":    func() { Make(MaxCount + 1) },
	} {
		require.Panics(t, call, name)
	}
	model{3: true, 99: false}.requireEqual(t, &s, rand.New(rand.NewPCG(1, 1)))
}

func TestZeroSetGrows(t *testing.T) {
	t.Parallel()
	var s Set
	_, ok := s.FirstRun(1)
	require.False(t, ok)
	start, length := s.LongestRun()
	require.Zero(t, start+length+s.Free()+s.Count()+s.RankFree(0))
	m := model{}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, count := range []uint32{1, 64, 4096, 4097, 65_536, 65_537, 1 << 20, 1<<20 + 1} {
		s.Grow(count)
		m = append(m, make(model, int(count)-len(m))...)
		m.write(t, &s, count-1, true)
		if count <= 65_537 {
			m.requireEqual(t, &s, rng)
		}
	}
	require.Len(t, s.levels, 3)
	require.Equal(t, m.summary(0, s.Count()), s.root)
}

// What a product of 100 million numbers needs is the same code with more levels.
func TestLargestSet(t *testing.T) {
	s := Make(MaxCount)
	require.Empty(t, s.levels)
	require.Equal(t, uint32(50_000_000), s.RankFree(50_000_000))
	require.Equal(t, uint32(50_000_000), s.SelectFree(50_000_000))
	taken := []uint32{0, 5, 4096, 65_536, 1 << 20, 1<<24 - 1, 1 << 24, 50_000_000, MaxCount - 1}
	for i, offset := range taken {
		require.True(t, s.Add(offset))
		require.Equal(t, offset-uint32(i), s.RankFree(offset))
	}
	require.Len(t, s.levels, 4)
	for i, offset := range taken[1:] {
		start, ok := s.FirstRun(offset - taken[i] - 1)
		require.True(t, ok)
		require.LessOrEqual(t, start, taken[i]+1)
	}
	start, length := s.LongestRun()
	require.Equal(t, uint32(50_000_001), start)
	require.Equal(t, uint32(MaxCount-50_000_002), length)
	require.Equal(t, uint32(MaxCount-2), s.SelectFree(s.Free()-1))
	require.Equal(t, uint32(1<<24+1), s.SelectFree(1<<24+1-7))
	for _, offset := range taken {
		require.True(t, s.Remove(offset))
	}
	require.Equal(t, allFree(MaxCount), s.root)
}

// FuzzSet reads operations, three bytes each, on a set of up to 70,000 numbers.
func FuzzSet(f *testing.F) {
	f.Add(uint32(1), []byte{0, 0, 0})
	f.Add(uint32(4096), []byte("\x03\x00\x00\x01\x10\x00\x02\x00\x10\x00\xff\x0f"))
	f.Add(uint32(66_000), []byte("\x03\x80\xff\x02\x00\xff\x00\xff\xff\x01\x00\x80"))
	f.Fuzz(func(t *testing.T, count uint32, ops []byte) {
		count = count%70_000 + 1
		s, m := Make(count), make(model, count)
		view, before := s.Freeze(), make(model, count)
		for ; len(ops) >= 3 && len(m) < 80_000; ops = ops[3:] {
			at := (uint32(ops[1]) | uint32(ops[2])<<8) % uint32(len(m))
			switch ops[0] % 6 {
			case 0, 1:
				m.write(t, &s, at, ops[0]%6 == 0)
			case 2, 3: // a stretch
				for offset := at; offset < min(at+uint32(ops[0])*20, uint32(len(m))); offset++ {
					m.write(t, &s, offset, ops[0]%6 == 2)
				}
			case 4:
				m = append(m, make(model, at/4)...)
				s.Grow(uint32(len(m)))
			case 5:
				before.requireEqualView(t, view, rand.New(rand.NewPCG(1, 1)))
				view, before = s.Freeze(), append(model{}, m...)
			}
		}
		m.requireEqual(t, &s, rand.New(rand.NewPCG(1, 1)))
		before.requireEqualView(t, view, rand.New(rand.NewPCG(1, 1)))
	})
}
