package numberset

import "slices"

// node summarises the free numbers of a range: a group of numbers, or up to fanOut nodes of the
// level below.
//
// The tree is implicit: levels[0] has a node per group, each further level a node per fanOut of
// the one below, up to root, which is apart: a set of one group has no levels, and neither has one
// of which nothing was ever taken. Nothing points anywhere, nothing is padded to a power of two, and
// growing appends.
type node struct {
	free    uint32 // how many
	prefix  uint32 // length of the free run at the start
	suffix  uint32 // length of the free run at the end
	longest uint32 // length of the longest free run
}

const (
	groupShift = 12
	fanShift   = 4
	fanOut     = 1 << fanShift
)

// levelShift is the binary logarithm of how many numbers a node of a level covers.
func levelShift(level int) uint { return groupShift + fanShift*uint(level) }

func allFree(n uint32) node { return node{n, n, n, n} }

// whole says that nothing of the range is taken, since one run is both prefix and suffix.
func (n node) whole() bool { return n.free != 0 && n.prefix == n.free && n.suffix == n.free }

// then summarises the range of n followed by that of next; neither may be of no numbers.
func (n node) then(next node) node {
	joined := n.suffix + next.prefix
	both := node{
		free:    n.free + next.free,
		prefix:  n.prefix,
		suffix:  next.suffix,
		longest: max(n.longest, next.longest, joined),
	}
	if n.whole() {
		both.prefix = joined
	}
	if next.whole() {
		both.suffix = joined
	}
	return both
}

// parent summarises node i of the level above nodes.
func parent(nodes []node, i uint32) node {
	children := nodes[i*fanOut : min(int(i+1)*fanOut, len(nodes))]
	sum := children[0]
	for _, child := range children[1:] {
		sum = sum.then(child)
	}
	return sum
}

// take summarises a group of size numbers in which the bit at was just set.
func (n node) take(words []uint64, at, size uint32) node {
	left, right := n.around(words, at, size)
	n.free--
	if left == at {
		n.prefix = left
	}
	if right == size-1-at {
		n.suffix = right
	}
	if n.longest == left+1+right {
		n.longest = max(left, right)
		if n.free-left-right > n.longest { // else no other run can be longer
			n.longest = longestRun(words, size, n.longest)
		}
	}
	return n
}

// giveBack summarises a group of size numbers in which the bit at was just cleared.
func (n node) giveBack(words []uint64, at, size uint32) node {
	left, right := n.around(words, at, size)
	n.free++
	run := left + 1 + right
	if left == at {
		n.prefix = run
	}
	if right == size-1-at {
		n.suffix = run
	}
	n.longest = max(n.longest, run)
	return n
}

// around measures the free runs that end before and start after position at.
func (n node) around(words []uint64, at, size uint32) (left, right uint32) {
	left, right = at, size-1-at
	if n.prefix < left {
		left = freeBelow(words, at)
	}
	if n.suffix < right {
		right = freeAbove(words, at)
	}
	return left, right
}

// sameRuns says that nodes differ at most in how many numbers are free.
func (n node) sameRuns(other node) bool {
	return n.prefix == other.prefix && n.suffix == other.suffix && n.longest == other.longest
}

// replace changes the summary of a group and of all that contain it. From where the runs of a
// node are as they were, only the counts above it change.
func (s *Set) replace(i uint32, before, after node) {
	delta := after.free - before.free // wraps, and so does the sum
	for level, nodes := range s.levels {
		nodes[i] = after
		sameRuns := after.sameRuns(before)
		i /= fanOut
		before = s.root
		if level+1 < len(s.levels) {
			before = s.levels[level+1][i]
		}
		if sameRuns {
			after = before
			after.free += delta
		} else {
			after = parent(nodes, i)
		}
	}
	s.root = after
}

// Grow appends free numbers until there are count. It costs a few nanoseconds per 4096 of them, or
// the first Add does, and touches no bits. It panics if count is below Count or above MaxCount.
func (s *Set) Grow(count uint32) {
	switch {
	case count < s.count || count > MaxCount:
		panic(panicCount)
	case s.untouched():
		s.count, s.root = count, allFree(count)
	case count > s.count:
		s.grow(count)
	}
}

// untouched says that there is no tree, since nothing was ever taken.
func (s *Set) untouched() bool { return s.pages == nil }

// plant makes the tree of a set that is untouched.
func (s *Set) plant() {
	count := s.count
	s.count, s.root = 0, node{}
	s.grow(count)
}

// grow makes the tree of count numbers, from what there is of it.
func (s *Set) grow(count uint32) {
	old := s.count
	s.count = count
	last := allFree(s.groupLen(old / groupBits)) // the first group that changes
	if rest := old % groupBits; rest > 0 {
		last = s.group(old / groupBits).then(allFree(last.free - rest))
	}
	level := 0
	for ; count > 1<<levelShift(level); level++ {
		if level == len(s.levels) {
			s.levels = append(s.levels, []node{s.root})
		}
		shift := levelShift(level)
		first := old >> shift
		size := ceil(count, 1<<shift)
		nodes := slices.Grow(s.levels[level][:first], int(size-first))[:size]
		nodes[first] = last
		for i := first + 1; i < size; i++ {
			nodes[i] = allFree(min(1<<shift, count-i<<shift))
		}
		s.levels[level] = nodes
		last = parent(nodes, first/fanOut)
	}
	s.root = last
}
