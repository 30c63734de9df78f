package numberset

import (
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2"
)

// View is a set as it was when it was frozen. It never changes, and any number of goroutines may
// read it. The zero View has no numbers. While one is kept, so are the pages it saw.
type View struct {
	count, taken uint32
	pages        pages
}

// Count is how many numbers there are, taken or free.
func (v View) Count() uint32 { return v.count }

// Taken is how many numbers are taken.
func (v View) Taken() uint32 { return v.taken }

// Has says whether offset is taken. It panics if offset is not below Count.
func (v View) Has(offset uint32) bool {
	if offset >= v.count {
		panic(panicOffset)
	}
	return v.pages.has(offset)
}

// AppendRanges appends the taken offsets between from and to, both included, as ranges: the first
// and the last offset of each unbroken run, ascending, cut at from and to. What is not below Count
// is not taken.
func (v View) AppendRanges(dst [][2]uint32, from, to uint32) [][2]uint32 {
	end := min(uint64(to)+1, uint64(v.count))
	for at := uint64(from); at < end; {
		start := uint64(v.next(uint32(at), true))
		if start >= end {
			break
		}
		at = min(uint64(v.next(uint32(start), false)), end)
		dst = append(dst, [2]uint32{uint32(start), uint32(at - 1)})
	}
	return dst
}

// next is the lowest offset from at on that is taken, or that is free; not below Count if there is
// none.
func (v View) next(at uint32, taken bool) uint32 {
	for at < v.count {
		words, i := v.pages.words(at/pageBits), at%pageBits/wordBits
		if int(i) >= len(words) { // to the end of the page all is free
			if !taken {
				return at
			}
			at = (at/pageBits + 1) * pageBits
			continue
		}
		word := words[i]
		if !taken {
			word = ^word
		}
		if word >>= at % wordBits; word != 0 {
			return at + uint32(bits.TrailingZeros64(word))
		}
		at = (at/wordBits + 1) * wordBits
	}
	return v.count
}

// Roaring returns the taken numbers as first + offset, which must stay below 2³², in a bitmap of
// the caller's own.
func (v View) Roaring(first uint32) *roaring.Bitmap {
	inPage := first % pageBits
	bitmap := roaring.FromDense(v.dense(inPage), false)
	bitmap.RunOptimize()
	if first == inPage {
		return bitmap
	}
	// A move by whole containers copies them as they are.
	return roaring.AddOffset64(bitmap, int64(first-inPage))
}

// dense is a copy of all words, with offset 0 at bit first.
func (v View) dense(first uint32) []uint64 {
	dense := make([]uint64, ceil(first+v.count, wordBits))
	bit := first % wordBits
	for p := range v.pages {
		to := dense[(first+uint32(p)*pageBits)/wordBits:]
		for i, word := range v.pages.words(uint32(p)) {
			to[i] |= word << bit
			if over := word >> (wordBits - bit); over != 0 {
				to[i+1] = over
			}
		}
	}
	return dense
}
