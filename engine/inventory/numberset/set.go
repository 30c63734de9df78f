package numberset

// MaxCount is the most numbers a set can have.
const MaxCount = 100_000_000

// The panics of a caller that broke the contract.
const (
	panicOffset = "numberset: the offset is not in the set's range"
	panicRank   = "numberset: the rank is not below the number of free offsets"
	panicCount  = "numberset: the count shrinks or is above the maximum"
)

// Set is the set of taken numbers among the offsets 0 to Count-1. The zero Set has no numbers and
// can Grow. It is to be used from one goroutine at a time, Freeze included, and must not be copied
// once it has been written to.
type Set struct {
	count  uint32
	root   node // of all numbers
	levels [][]node
	pages  pages

	generation      uint64 // counts Freeze
	pagesGeneration uint64 // in which pages was allocated; older: a View sees it
}

// Make returns a set of count numbers, none of them taken. It panics if count is above MaxCount.
func Make(count uint32) Set {
	var s Set
	s.Grow(count)
	return s
}

// Count is how many numbers there are, taken or free.
func (s *Set) Count() uint32 { return s.count }

// Taken is how many numbers are taken.
func (s *Set) Taken() uint32 { return s.count - s.root.free }

// Free is how many numbers are not taken.
func (s *Set) Free() uint32 { return s.root.free }

// Has says whether offset is taken. It panics if offset is not below Count.
func (s *Set) Has(offset uint32) bool {
	if offset >= s.count {
		panic(panicOffset)
	}
	return s.pages.has(offset)
}

// Add takes offset; it is false, and nothing changes, if it was taken already. It panics if offset
// is not below Count.
func (s *Set) Add(offset uint32) bool {
	if s.Has(offset) {
		return false
	}
	if s.untouched() {
		s.plant()
	}
	words := s.writable(offset / pageBits)
	words[offset%pageBits/wordBits] |= 1 << (offset % wordBits)
	group := offset / groupBits
	before := s.group(group)
	after := before.take(s.pages.group(group), offset%groupBits, s.groupLen(group))
	s.replace(group, before, after)
	return true
}

// Remove gives offset back; it is false, and nothing changes, if it was not taken. It panics if
// offset is not below Count.
func (s *Set) Remove(offset uint32) bool {
	if !s.Has(offset) {
		return false
	}
	words := s.writable(offset / pageBits)
	words[offset%pageBits/wordBits] &^= 1 << (offset % wordBits)
	group := offset / groupBits
	before := s.group(group)
	after := before.giveBack(s.pages.group(group), offset%groupBits, s.groupLen(group))
	s.replace(group, before, after)
	return true
}

// SelectFree is the free offset that has k free ones below it. It panics if k is not below Free.
func (s *Set) SelectFree(k uint32) uint32 {
	if k >= s.root.free {
		panic(panicRank)
	}
	i := uint32(0)
	for level := len(s.levels) - 1; level >= 0; level-- {
		nodes := s.levels[level]
		for i *= fanOut; k >= nodes[i].free; i++ {
			k -= nodes[i].free
		}
	}
	return i*groupBits + selectFree(s.pages.group(i), k)
}

// RankFree is how many free offsets are below offset, which may be anything: from Count on it is
// Free.
func (s *Set) RankFree(offset uint32) uint32 {
	if offset >= s.count {
		return s.root.free
	}
	if s.untouched() {
		return offset
	}
	i := offset / groupBits
	rank := rankFree(s.pages.group(i), offset%groupBits)
	for _, nodes := range s.levels {
		for _, n := range nodes[i-i%fanOut : i] {
			rank += n.free
		}
		i /= fanOut
	}
	return rank
}

// FirstRun is the lowest start of n free offsets in an unbroken run; ok is false if there is no
// such run. A run of none starts at 0.
func (s *Set) FirstRun(n uint32) (start uint32, ok bool) {
	if n > s.root.longest {
		return 0, false
	}
	i := uint32(0)
	for level := len(s.levels) - 1; level >= 0; level-- {
		nodes := s.levels[level]
		run := uint32(0) // that ends where node i starts
		for i *= fanOut; run+nodes[i].prefix < n && nodes[i].longest < n; i++ {
			if nodes[i].whole() {
				run += nodes[i].free
			} else {
				run = nodes[i].suffix
			}
		}
		if run+nodes[i].prefix >= n {
			return i<<levelShift(level) - run, true
		}
	}
	return i*groupBits + firstRun(s.pages.group(i), n), true
}

// LongestRun is the longest unbroken run of free offsets, the lowest of equals. Its length is 0
// if nothing is free.
func (s *Set) LongestRun() (start, length uint32) {
	start, _ = s.FirstRun(s.root.longest)
	return start, s.root.longest
}

// Freeze returns the set as it is now, for any goroutine to keep and read. It costs nothing, but
// the first write to each page of 65,536 numbers after it copies the page, and the very first one
// also the table of pages (8 bytes a page).
func (s *Set) Freeze() View {
	s.generation++
	return View{count: s.count, taken: s.Taken(), pages: s.pages}
}

// group is the summary of a group.
func (s *Set) group(i uint32) node {
	if len(s.levels) == 0 {
		return s.root
	}
	return s.levels[0][i]
}

// groupLen is how many numbers a group has: all but the last one have groupBits.
func (s *Set) groupLen(i uint32) uint32 { return min(groupBits, s.count-i*groupBits) }
