package numberset

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// heapBytes is how much more is alive on the heap after make than before.
func heapBytes(make func() *Set) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(s)
	return max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
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
		s := Make(1000)
		_ = s.Free()
	}), "an untouched small set is nothing but its struct")
	require.LessOrEqual(t, heapBytes(full(1000)), uint64(1000))
	require.LessOrEqual(t, heapBytes(full(1_000_000)), uint64(140_000))
	require.LessOrEqual(t, heapBytes(full(MaxCount)), uint64(13_500_000))
}

func TestFreezeAllocatesNothing(t *testing.T) {
	s := full(1_000_000)()
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Freeze() }))
	require.Equal(t, 2.0, testing.AllocsPerRun(100, func() {
		_ = s.Freeze()
		s.Add(1)
		s.Remove(1)
		s.Add(2)
		s.Remove(2)
	}), "the table and one page")
}
