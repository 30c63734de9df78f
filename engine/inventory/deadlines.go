package inventory

// deadlines is a binary heap of instants, the earliest first, ties by seniority. Entries are not
// removed when what they refer to changes: whoever looks at the earliest checks whether it still
// holds. Order does not depend on what an entry refers to, so stale ones do no harm.
//
// The heap stands in pieces, of which only the first is ever moved to grow: a crowd's deadlines are
// tens of megabytes, and to copy them would stop the shard.
type deadlines struct {
	pieces [][]deadline
	n      int
}

const deadlinesPiece = 1024

// deadlinesAtFirst is how many a product has room for at first: a cache line of them.
const deadlinesAtFirst = 4

func (h *deadlines) at(i int) *deadline { return &h.pieces[i/deadlinesPiece][i%deadlinesPiece] }

// first is the earliest entry; there must be one.
func (h *deadlines) first() deadline { return h.pieces[0][0] }

// deadline is 16 bytes: every live order has one.
type deadline struct {
	unixMilli int64
	tie       uint32 // the lower goes first among equal instants
	ref       uint32
}

func (d deadline) before(e deadline) bool {
	if d.unixMilli != e.unixMilli {
		return d.unixMilli < e.unixMilli
	}
	return d.tie < e.tie
}

func (h *deadlines) push(e deadline) {
	h.extend()
	i := h.n - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(*h.at(parent)) {
			break
		}
		*h.at(i) = *h.at(parent)
		i = parent
	}
	*h.at(i) = e
}

// extend makes room for one more entry at the end.
func (h *deadlines) extend() {
	piece := h.n / deadlinesPiece
	switch {
	case piece == len(h.pieces) && piece == 0:
		h.pieces = append(h.pieces, make([]deadline, 0, deadlinesAtFirst))
	case piece == len(h.pieces):
		h.pieces = append(h.pieces, make([]deadline, 0, deadlinesPiece))
	}
	h.pieces[piece] = append(h.pieces[piece], deadline{})
	h.n++
}

// shorten drops the last entry, and gives the memory of a crowd back.
func (h *deadlines) shorten() deadline {
	h.n--
	piece := h.n / deadlinesPiece
	e := *h.at(h.n)
	h.pieces[piece] = h.pieces[piece][:h.n%deadlinesPiece]
	if spare := piece + 2; spare < len(h.pieces) { // one is kept, for a heap that rises and falls
		h.pieces[spare] = nil
		h.pieces = h.pieces[:spare]
	}
	return e
}

// pop removes the earliest; the heap must not be empty.
func (h *deadlines) pop() {
	if last := h.shorten(); h.n > 0 {
		h.sink(0, last)
	}
}

// sink puts e at i or below.
func (h *deadlines) sink(i int, e deadline) {
	for {
		child := 2*i + 1
		if child >= h.n {
			break
		}
		if child+1 < h.n && h.at(child+1).before(*h.at(child)) {
			child++
		}
		if !h.at(child).before(e) {
			break
		}
		*h.at(i) = *h.at(child)
		i = child
	}
	*h.at(i) = e
}

// compact drops the entries that no longer hold.
func (h *deadlines) compact(holds func(deadline) bool) {
	kept := 0
	for i := range h.n {
		if e := *h.at(i); holds(e) {
			*h.at(kept) = e
			kept++
		}
	}
	for h.n > kept {
		h.shorten()
	}
	for i := h.n/2 - 1; i >= 0; i-- {
		h.sink(i, *h.at(i))
	}
}

// earliest gives the first entry that holds, dropping those before it that do not.
func (h *deadlines) earliest(holds func(deadline) bool) (deadline, bool) {
	for h.n > 0 {
		if first := h.first(); holds(first) {
			return first, true
		}
		h.pop()
	}
	return deadline{}, false
}
