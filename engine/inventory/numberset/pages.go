package numberset

// pages are the bits of taken numbers. What isn't stored — a page beyond the end of the table, a
// word beyond the end of a page — is free, so that an untouched product has no pages at all. The
// table has pointers, though they cost a look-up more, since the first write after a Freeze copies
// it: 12 KB at the largest count rather than 49.
type pages []*page

type page struct {
	words      []uint64
	generation uint64 // of the Set, in which the page was allocated; older: a View sees it
}

const (
	wordBits  = 64
	pageBits  = 1 << 16
	groupBits = 1 << groupShift
)

// words returns the stored words of a page.
func (p pages) words(i uint32) []uint64 {
	if int(i) >= len(p) || p[i] == nil {
		return nil
	}
	return p[i].words
}

// group returns the stored words of a group.
func (p pages) group(i uint32) []uint64 {
	const groupWords, pageGroups = groupBits / wordBits, pageBits / groupBits
	words := p.words(i / pageGroups)
	from := min(int(i%pageGroups*groupWords), len(words))
	return words[from:min(from+groupWords, len(words))]
}

func (p pages) has(offset uint32) bool {
	words, i := p.words(offset/pageBits), offset%pageBits/wordBits
	return int(i) < len(words) && words[i]>>(offset%wordBits)&1 != 0
}

// writable returns the words of a page, all of them, which no View sees.
func (s *Set) writable(i uint32) []uint64 {
	if s.pagesGeneration != s.generation || int(i) >= len(s.pages) {
		table := make(pages, ceil(s.count, pageBits))
		copy(table, s.pages)
		s.pages, s.pagesGeneration = table, s.generation
	}
	size := int(ceil(min(pageBits, s.count-i*pageBits), wordBits))
	p := s.pages[i]
	if p == nil || p.generation != s.generation || len(p.words) < size {
		words := make([]uint64, size)
		copy(words, s.pages.words(i))
		p = &page{words, s.generation}
		s.pages[i] = p
	}
	return p.words
}

func ceil(n, unit uint32) uint32 { return (n + unit - 1) / unit }

// WarmAt loads what is looked at to take or give back an offset into the processor's cache. The sum has to be
// used somehow, or the compiler would drop the loads.
func (s *Set) WarmAt(offset uint32) (sum uint32) {
	if s.untouched() || offset >= s.count {
		return 0
	}
	words, i := s.pages.words(offset/pageBits), int(offset%pageBits/wordBits)
	if i < len(words) {
		sum = uint32(words[i])
	}
	return sum + s.group(offset/groupBits).free
}

// Warm loads what stands so many steps from a set of one group into the processor's cache: the table
// of pages (1), the page (2), its words (3). Where to begin in a larger set is not known before it is
// asked for something. The sum has to be used somehow, or the compiler would drop the loads.
func (s *Set) Warm(depth int) (sum uint32) {
	if len(s.levels) > 0 || len(s.pages) == 0 || s.pages[0] == nil {
		return 0
	}
	switch p := s.pages[0]; depth {
	case 1: // p itself
	case 2:
		return uint32(len(p.words))
	case 3:
		const lineWords = 8
		for i := 0; i < len(p.words); i += lineWords {
			sum += uint32(p.words[i])
		}
	}
	return sum
}
