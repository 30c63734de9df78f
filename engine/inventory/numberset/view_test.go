package numberset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoaringHoldsTheAbsoluteNumbers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, count := range []uint32{1, 64, 1000, 65_536, 65_537, 140_000} {
		for _, fill := range []float64{0, 0.01, 0.5, 1} {
			s := Make(count)
			var offsets []uint32
			for offset := range count {
				if rng.Float64() < fill {
					s.Add(offset)
					offsets = append(offsets, offset)
				}
			}
			for _, first := range []uint32{0, 1, 64, 65_535, 65_536, 3<<16 + 77, -count} {
				requireRoaring(t, s.Freeze(), first, offsets)
			}
		}
	}
}

func requireRoaring(t *testing.T, view View, first uint32, offsets []uint32) {
	t.Helper()
	numbers := make([]uint32, len(offsets))
	for i, offset := range offsets {
		numbers[i] = first + offset
	}
	bitmap := view.Roaring(first)
	require.True(t, slices.Equal(numbers, bitmap.ToArray()),
		"%d of %d numbers from %d on", len(numbers), view.Count(), first)
	if len(numbers) > 0 { // roaring calls an empty bitmap invalid
		require.NoError(t, bitmap.Validate())
	}
}

func TestRoaringIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	for _, first := range []uint32{0, 1, 1 << 16} {
		s := Make(200_000)
		for offset := uint32(0); offset < 200_000; offset += 2 {
			s.Add(offset)
		}
		view := s.Freeze()
		view.Roaring(first).Flip(uint64(first), uint64(first)+200_000)
		require.Equal(t, [][2]uint32{{0, 0}, {2, 2}}, view.AppendRanges(nil, 0, 3))
		require.True(t, view.Roaring(first).Contains(first+199_998))
	}
}

func TestRangesKeepWhatWasThere(t *testing.T) {
	t.Parallel()
	s := Make(100)
	s.Add(17)
	require.Equal(t, [][2]uint32{{1, 2}, {17, 17}},
		s.Freeze().AppendRanges([][2]uint32{{1, 2}}, 0, 99))
	sparse := Make(300_000)
	sparse.Add(17)
	sparse.Add(250_000)
	require.Equal(t, [][2]uint32{{17, 17}, {250_000, 250_000}},
		sparse.Freeze().AppendRanges(nil, 0, 1<<32-1), "over pages that were never written to")
	require.Empty(t, View{}.AppendRanges(nil, 0, 1<<32-1))
	require.True(t, View{}.Roaring(7).IsEmpty())
}

// The owner writes while others read views that it froze: what they see is each view's number of
// taken offsets, which are all below it. The race detector watches.
func TestViewsAreReadWhileTheOwnerWrites(t *testing.T) {
	t.Parallel()
	const count = 3*pageBits + 100
	s := Make(count)
	views := make(chan View)
	wrong := make(chan string)
	for range 2 {
		go func() {
			defer func() { wrong <- "" }()
			for v := range views {
				want := [][2]uint32{{0, v.Taken() - 1}}
				if got := v.AppendRanges(nil, 0, count); len(got) != 1 || got[0] != want[0] {
					wrong <- fmt.Sprintf("%d taken: ranges %v", v.Taken(), got)
				}
				if got := v.Roaring(1).GetCardinality(); got != uint64(v.Taken()) {
					wrong <- fmt.Sprintf("%d taken: roaring has %d", v.Taken(), got)
				}
			}
		}()
	}
	for offset := range uint32(count) {
		s.Add(offset)
		if offset%2000 == 0 {
			select {
			case views <- s.Freeze():
			case message := <-wrong:
				require.Empty(t, message)
			}
		}
	}
	close(views)
	for range 2 {
		require.Empty(t, <-wrong)
	}
}
