package inventory

// slab holds records in chunks that never move, and can be frozen: a view goes on showing the
// records as they were while the owner changes them, since the owner copies a chunk before its
// first change after that. Slots are reused, the last one given back first.
type slab[T any] struct {
	chunks []*chunk[T]
	epoch  uint64 // chunks of an older epoch belong to a view too
	used   uint32 // slots ever taken
	free   []uint32
}

const chunkLen = 256

type chunk[T any] struct {
	epoch   uint64
	records [chunkLen]T
}

// take reserves a slot. What it holds is zero or left over: the caller overwrites it.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	if s.used%chunkLen == 0 {
		s.chunks = append(s.chunks, &chunk[T]{epoch: s.epoch})
	}
	s.used++
	return s.used - 1
}

func (s *slab[T]) giveBack(slot uint32) {
	var zero T
	*s.edit(slot) = zero
	s.free = append(s.free, slot)
}

// at reads a record. It must not be changed through the pointer.
func (s *slab[T]) at(slot uint32) *T { return &s.chunks[slot/chunkLen].records[slot%chunkLen] }

// edit gives a record to change, until the next freeze.
func (s *slab[T]) edit(slot uint32) *T {
	c := s.chunks[slot/chunkLen]
	if c.epoch != s.epoch {
		owned := *c
		owned.epoch = s.epoch
		c = &owned
		s.chunks[slot/chunkLen] = c
	}
	return &c.records[slot%chunkLen]
}

// len is how many slots are taken.
func (s *slab[T]) len() int { return int(s.used) - len(s.free) }

// freeze returns a view for any one goroutine. It costs one copy of the list of chunks.
func (s *slab[T]) freeze() slab[T] {
	s.epoch++
	return slab[T]{chunks: append([]*chunk[T](nil), s.chunks...), used: s.used}
}
