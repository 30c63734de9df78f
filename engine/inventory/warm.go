package inventory

// WarmProducts brings the products that applying these entries will look up into the processor's
// cache. In a shard of many products that is a chain of misses for each command, one after the
// other; here all commands take the first step of their chains together, then all take the next. It
// changes nothing. No actor may be at work.
func (s *State) WarmProducts(entries []Entry) {
	sum := uint32(0)
	s.findProducts(entries)
	for depth := range warmDepths {
		for _, p := range s.warming {
			sum += p.warm(depth) + s.timers[p.slot].warm(depth)
		}
	}
	s.warmth = sum
}

// warmDepths is how many steps the longest chain from a product has: the product, its table of
// pages, a page, the words of it.
const warmDepths = 4

// WarmKeys does the same for the keys of some entries, in their index. Actors may be at work.
// First all places are worked out, then all are loaded: a processor looks only some hundred
// instructions ahead for loads that it can begin while it waits for another.
func (s *State) WarmKeys(b *Batch, from, to int) {
	cells := s.nearby[:0]
	for i := from; i < to; i++ {
		switch c := b.Entries[i].Command.(type) {
		case *Reserve:
			cells = s.index.nearby(c.KeyHash, cells)
		case interface{ onOrder() OnOrder }:
			cells = s.index.nearby(c.onOrder().Order.Key(), cells)
		}
	}
	sum := uint32(0)
	for _, cell := range cells {
		sum += uint32(cell.refBytes[0])
	}
	s.nearby, s.warmth = cells, sum
}

// WarmKey loads where the key of a new order goes, which has left the cache since Prepare. An actor may
// be at work on the step. The result only keeps the load from being dropped.
func (st *Step) WarmKey() uint32 {
	t := st.spot.table
	if t == nil || len(t.cells) == 0 {
		return 0
	}
	return t.cells[t.home(st.spot.tag)].ref()
}

// WarmNumber loads where the first number of a step stands. It is for the step's actor, before it works on
// several steps: in a large set each would be a cache miss or two, one after the other.
func (st *Step) WarmNumber() uint32 {
	if len(st.parts) == 0 {
		return 0
	}
	p := &st.parts[0]
	c, ok := st.Entry.Command.(*Reserve)
	switch {
	case !ok && len(p.offsets) > 0:
		return p.product.taken.WarmAt(p.offsets[0])
	case !ok:
		return 0
	}
	line, seed := &c.Lines[p.lines[0]], st.seed
	switch {
	case len(line.Numbers) > 0:
		return p.product.taken.WarmAt(line.Numbers[0] - p.product.settings.FirstNumber)
	case line.Pick == PickRandom && p.product.drawsAny(line.Quantity):
		return p.product.taken.WarmAt(p.product.draw(&seed))
	}
	return 0
}

// findProducts leaves in warming what the entries are about, but nothing twice in succession: most
// often everybody wants the same product.
func (s *State) findProducts(entries []Entry) {
	s.warming = s.warming[:0]
	var id ProductID
	var last *Product
	note := func(p *Product) {
		if p != nil && p != last {
			s.warming, last = append(s.warming, p), p
		}
	}
	for i := range entries {
		switch c := entries[i].Command.(type) {
		case *Reserve:
			for k := range c.Lines {
				if line := &c.Lines[k]; line.Product != id {
					id = line.Product
					note(s.products[id])
				}
			}
		case interface{ onOrder() OnOrder }:
			ref, ok := s.index.find(c.onOrder().Order.Key())
			if !ok || ref&endedRef != 0 {
				continue
			}
			o := s.orders.holding(ref)
			for _, it := range o.items(new([1]item), new([1]uint32)) {
				note(s.list[it.product])
			}
		}
	}
}

// warm loads what stands so many steps from the product.
func (p *Product) warm(depth int) uint32 {
	switch depth {
	case 0: // a word of each cache line
		return p.slot + p.taken.Count() + p.counts[placeReserved] + uint32(p.settingsDigest) +
			p.counters.Count
	case 1:
		return uint32(p.settings.Price.Amount) + p.settings.MaxPerBuyer + p.taken.Warm(depth)
	default:
		return p.taken.Warm(depth)
	}
}

// warm loads what stands so many steps from the heap.
func (h *deadlines) warm(depth int) uint32 {
	switch {
	case len(h.pieces) == 0:
		return 0
	case depth == 1:
		return uint32(len(h.pieces[0]))
	case depth == 2 && h.n == 0:
		return h.pieces[0][:1][0].ref // where the next one goes
	case depth == 2:
		return h.first().ref + h.at(h.n-1).ref
	}
	return 0
}
