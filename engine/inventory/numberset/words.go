package numberset

import "math/bits"

// The words of a group may be fewer than its numbers need, see pages; bits beyond its size are
// clear in the last one.

// selectFree is the position of the free bit that has k free ones below it.
func selectFree(words []uint64, k uint32) uint32 {
	for i, word := range words {
		free := wordBits - uint32(bits.OnesCount64(word))
		if k >= free {
			k -= free
			continue
		}
		for word = ^word; k > 0; k-- {
			word &= word - 1
		}
		return uint32(i)*wordBits + uint32(bits.TrailingZeros64(word))
	}
	return uint32(len(words))*wordBits + k
}

// rankFree is how many bits below position at are free.
func rankFree(words []uint64, at uint32) uint32 {
	rank := at
	for _, word := range words[:min(int(at/wordBits), len(words))] {
		rank -= uint32(bits.OnesCount64(word))
	}
	if i := at / wordBits; int(i) < len(words) {
		rank -= uint32(bits.OnesCount64(words[i] & (1<<(at%wordBits) - 1)))
	}
	return rank
}

// freeBelow is the length of the free run that ends just below position at, and above a taken bit.
func freeBelow(words []uint64, at uint32) uint32 {
	i, bit := int(at/wordBits), at%wordBits
	if below := words[i] & (1<<bit - 1); below != 0 {
		return bit - uint32(bits.Len64(below))
	}
	run := bit
	for i--; words[i] == 0; i-- {
		run += wordBits
	}
	return run + uint32(bits.LeadingZeros64(words[i]))
}

// freeAbove is the length of the free run that starts just above position at, and below a taken
// bit.
func freeAbove(words []uint64, at uint32) uint32 {
	i, bit := int(at/wordBits), at%wordBits
	if above := words[i] >> bit >> 1; above != 0 {
		return uint32(bits.TrailingZeros64(above))
	}
	run := wordBits - 1 - bit
	for i++; words[i] == 0; i++ {
		run += wordBits
	}
	return run + uint32(bits.TrailingZeros64(words[i]))
}

// longestRun is the length of the longest free run of a group of size numbers, but at least floor.
func longestRun(words []uint64, size, floor uint32) uint32 {
	longest := floor
	run := uint32(0) // that ends where the word starts
	for _, word := range words {
		if word == 0 {
			run += wordBits
			continue
		}
		longest = max(longest, run+uint32(bits.TrailingZeros64(word)))
		run = uint32(bits.LeadingZeros64(word))
		if longest >= wordBits-2 {
			continue // no run between two taken bits of a word is longer
		}
		// Between the outer taken bits; the run above them goes on in the next word.
		free := ^word & (1<<(bits.Len64(word)-1) - 1)
		for starts := runStarts(free, longest+1); starts != 0; starts &= free >> longest {
			longest++
		}
	}
	return max(longest, run+size-uint32(len(words))*wordBits)
}

// firstRun is the start of the first free run of n in a group that has one.
func firstRun(words []uint64, n uint32) uint32 {
	run := uint32(0) // that ends where the word starts
	for i, word := range words {
		start := uint32(i) * wordBits
		if run+uint32(bits.TrailingZeros64(word)) >= n {
			return start - run
		}
		if word == 0 {
			run += wordBits
			continue
		}
		if starts := runStarts(^word, n); starts != 0 {
			return start + uint32(bits.TrailingZeros64(starts))
		}
		run = uint32(bits.LeadingZeros64(word))
	}
	return uint32(len(words))*wordBits - run
}

// runStarts keeps the set bits that start a run of n, n ≥ 1, set bits of the word. Each round
// doubles the length that is known.
func runStarts(word uint64, n uint32) uint64 {
	for known := uint32(1); known < n && word != 0; {
		step := min(known, n-known)
		word &= word >> step
		known += step
	}
	return word
}
