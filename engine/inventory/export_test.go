package inventory

import "reflect"

// BreakCounters plants a counter that does not add up in a product: the next move of its numbers
// finds it.
func (p *Product) BreakCounters() { p.counts[placeBlocked]++ }

// BreakSet plants a number that is taken by nobody. It is found when somebody asks for any number
// and the counters are added up.
func (p *Product) BreakSet(offset uint32) { p.taken.Add(offset) }

// BreakBits takes all numbers of the first page, of which the set's summary knows nothing: found when nothing
// can be drawn.
func (p *Product) BreakBits() {
	words := reflect.ValueOf(&p.taken).Elem().FieldByName("pages").Index(0).Elem().FieldByName("words")
	bits := *(*[]uint64)(words.Addr().UnsafePointer()) // as reflect alone only reads them
	for i := range bits {
		bits[i] = 1<<64 - 1
	}
}

// BreakHeld forgets what all buyers hold: found when one gives it back.
func (p *Product) BreakHeld() { p.held = nil }

// BreakSold forgets that numbers are sold: found when they are refunded.
func (p *Product) BreakSold() { p.sold = nil }

// SoldBytes is the size of the set of sold numbers.
func (p *Product) SoldBytes() uint64 { return p.sold.GetSizeInBytes() }

// EndedRecords counts the records of ended orders, dead ones included.
func (s *State) EndedRecords() (n int) {
	for i := range s.ended.blocks {
		s.ended.walkBlock(i, func(uint32, *order) { n++ })
	}
	return n
}

// KeptOfOrders counts the records, baskets and units of texts that are taken.
func (s *State) KeptOfOrders() int {
	n := s.orders.len() + s.orders.baskets.len()
	for _, t := range []*texts{&s.orders.buyers, &s.orders.payments} {
		n += int(t.units.used)
		for i, free := range t.free {
			n -= (i + 1) * len(free)
		}
	}
	return n
}

// KeepMilli is how long ended orders are kept at least.
const KeepMilli = keepMilli

// EndedBlocks is how many blocks of ended orders there are.
func (s *State) EndedBlocks() int { return len(s.ended.blocks) }

// Fingerprint is that of the i-th entry.
func (b *Batch) Fingerprint(i int) uint32 { return b.fingerprintOf(i) }
