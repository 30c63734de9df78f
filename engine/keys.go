package engine

import (
	"encoding/binary"

	"numera/engine/inventory"
)

// keySet is a set of keys that is emptied often: every place says in which round it was filled.
// The keys are hashes, and it keeps 32 bits of each, so that the set of a batch takes little of the
// cache: one key in some million is taken for another one. Linear probing; at most half full.
type keySet struct {
	places []keyPlace // a power of two of them
	round  uint32     // from 1
	used   int
}

type keyPlace struct{ bits, round uint32 }

// clear empties the set.
func (s *keySet) clear() {
	s.used = 0
	if s.round++; s.round == 0 { // after 2³² rounds the old ones would seem new
		clear(s.places)
		s.round = 1
	}
}

// add puts a key into the set, and says whether it was surely not there.
func (s *keySet) add(key inventory.KeyHash) (fresh bool) {
	return s.addBits(binary.LittleEndian.Uint32(key[:]))
}

func (s *keySet) addBits(bits uint32) (fresh bool) {
	if 2*s.used >= len(s.places) {
		s.grow()
	}
	mask := uint32(len(s.places) - 1)
	for i := bits & mask; ; i = (i + 1) & mask {
		switch place := &s.places[i]; {
		case place.round != s.round:
			*place = keyPlace{bits, s.round}
			s.used++
			return true
		case place.bits == bits:
			return false
		}
	}
}

func (s *keySet) grow() {
	old := s.places
	s.places, s.used = make([]keyPlace, max(64, 2*len(old))), 0
	s.round = max(1, s.round)
	for _, place := range old {
		if place.round == s.round {
			s.addBits(place.bits)
		}
	}
}
