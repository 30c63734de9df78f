package numberset

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// heapBytes is how much a set keeps alive on the heap, as the mean of n, since the runtime and the
// other tests come and go.
func heapBytes(n int, make func() *Set) int {
	sets := []*Set{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		sets = append(sets, make())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(sets)
	return (int(after.HeapAlloc) - int(before.HeapAlloc)) / n
}

// full is a set of which every page has been written to.
func full(count uint32) func() *Set {
	return func() *Set {
		s := Make(count)
		for offset := uint32(0); offset < count; offset += 4099 {
			s.Add(offset)
		}
		return &s
	}
}

func TestMemory(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Set{}), uintptr(88))
	require.Zero(t, testing.AllocsPerRun(10, func() {
		s := Make(1_000_000)
		s.Grow(MaxCount)
		_ = s.Free()
	}), "an untouched set is nothing but its struct")
	require.LessOrEqual(t, heapBytes(1000, full(1000)), 400)
	require.LessOrEqual(t, heapBytes(10, full(1_000_000)), 140_000)
	require.LessOrEqual(t, heapBytes(1, full(MaxCount)), 13_500_000)
}

func TestFreezeAllocatesNothing(t *testing.T) {
	s := full(1_000_000)()
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Freeze() }))
	require.Equal(t, 3.0, testing.AllocsPerRun(100, func() {
		_ = s.Freeze()
		s.Add(1)
		s.Remove(1)
		s.Add(2)
		s.Remove(2)
	}), "the table, a page and its words")
}
