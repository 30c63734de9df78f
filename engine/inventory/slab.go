package inventory

import "slices"

// slab holds records in chunks that never move, and can be frozen: a view goes on showing the
// records as they were while the owner changes them, since the owner copies a chunk before its
// first change after that. Slots are reused, the last one given back first.
type slab[T any] struct {
	chunks []*[chunkLen]T
	epochs []uint64 // of the chunks: one of an older epoch belongs to a view too
	epoch  uint64
	used   uint32 // slots ever taken
	free   []uint32
}

// chunkLen is how many records a chunk has: a multiple of what fills a page, so that a record that is as
// long as a cache line has one for itself.
const chunkLen = 256

// take reserves a slot. What it holds is zero or left over: the caller overwrites it.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	return s.extend(1)
}

// extend takes n slots that were never used, side by side, and gives the first. The last chunk must have room
// for all of them, or for none.
func (s *slab[T]) extend(n uint32) uint32 {
	if s.used%chunkLen == 0 {
		s.chunks = append(s.chunks, new([chunkLen]T))
		s.epochs = append(s.epochs, s.epoch)
	}
	s.used += n
	return s.used - n
}

// len is how many slots are taken.
func (s *slab[T]) len() int { return int(s.used) - len(s.free) }

func (s *slab[T]) giveBack(slot uint32) {
	var zero T
	*s.edit(slot) = zero
	s.free = append(s.free, slot)
}

// at reads a record. It must not be changed through the pointer.
func (s *slab[T]) at(slot uint32) *T { return &s.chunks[slot/chunkLen][slot%chunkLen] }

// edit gives a record to change, until the next freeze.
func (s *slab[T]) edit(slot uint32) *T { return &s.own(slot)[slot%chunkLen] }

// own makes the chunk of a slot one that no view has.
func (s *slab[T]) own(slot uint32) *[chunkLen]T {
	i := slot / chunkLen
	if s.epochs[i] != s.epoch {
		owned := *s.chunks[i]
		s.chunks[i], s.epochs[i] = &owned, s.epoch
	}
	return s.chunks[i]
}

// freeze returns a view for any one goroutine. It costs one copy of the list of chunks.
func (s *slab[T]) freeze() slab[T] {
	s.epoch++
	return slab[T]{chunks: slices.Clone(s.chunks), used: s.used}
}
