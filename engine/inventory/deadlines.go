package inventory

import "slices"

// deadlines is a binary heap of instants, the earliest first, ties by seniority. Entries are not
// removed when what they refer to changes: whoever looks at the earliest checks whether it still
// holds. Order does not depend on what an entry refers to, so stale ones do no harm.
type deadlines struct {
	entries []deadline
}

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
	h.entries = append(h.entries, e)
	i := len(h.entries) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(h.entries[parent]) {
			break
		}
		h.entries[i] = h.entries[parent]
		i = parent
	}
	h.entries[i] = e
}

// pop removes the earliest; the heap must not be empty.
func (h *deadlines) pop() {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries = h.entries[:last]
	if last > 0 {
		h.sink(0, e)
	}
	if cap(h.entries) > 64 && last < cap(h.entries)/4 {
		h.entries = slices.Clone(h.entries) // a crowd's worth of memory is given back
	}
}

// sink puts e at i or below.
func (h *deadlines) sink(i int, e deadline) {
	for {
		child := 2*i + 1
		if child >= len(h.entries) {
			break
		}
		if child+1 < len(h.entries) && h.entries[child+1].before(h.entries[child]) {
			child++
		}
		if !h.entries[child].before(e) {
			break
		}
		h.entries[i] = h.entries[child]
		i = child
	}
	h.entries[i] = e
}

// earliest gives the first entry that holds, dropping those before it that do not.
func (h *deadlines) earliest(holds func(deadline) bool) (deadline, bool) {
	for len(h.entries) > 0 {
		if holds(h.entries[0]) {
			return h.entries[0], true
		}
		h.pop()
	}
	return deadline{}, false
}
