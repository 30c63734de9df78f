package inventory

import (
	"fmt"
	"math/bits"
	"slices"
)

// reserve arbitrates an order: it asks each product in turn about its sale, its range, its limits
// and last its stock, so that the first reason in that order is what the buyer hears.
func (st *Step) reserve(c *Reserve) *Outcome {
	refusal := st.ask(func(p *part) *Outcome { return p.product.selling(st.now) })
	if refusal == nil {
		refusal = st.ask(func(p *part) *Outcome { return st.inRange(p, c) })
	}
	if refusal == nil {
		refusal = st.ask(func(p *part) *Outcome { return p.withinLimits(c) })
	}
	switch {
	case refusal != nil:
		return refusal
	case c.Partial:
		return st.takeSome(c)
	}
	return st.takeAll(c)
}

// takeAll takes every line of every product or nothing. Everything that is only counted is looked
// at first: only an unbroken run can be missing later, and then what was taken goes back.
func (st *Step) takeAll(c *Reserve) *Outcome {
	refusal := st.refuseTaken(c)
	if refusal == nil {
		refusal = st.ask((*part).refuseStock)
	}
	if refusal != nil {
		return refusal
	}
	for st.at = range st.parts {
		p := &st.parts[st.at]
		p.takeChosen(c)
		for _, line := range p.lines {
			if !p.takeQuantity(&c.Lines[line], st) {
				refusal := p.refuseRun()
				st.giveBack()
				return refusal
			}
		}
		st.moved++
	}
	return nil
}

// giveBack undoes what the present part and those before it have taken. Should one break, those
// before it are still whole.
func (st *Step) giveBack() {
	for ; ; st.at-- {
		st.moved = st.at
		st.parts[st.at].giveBack()
		if st.at == 0 {
			return
		}
	}
}

// takeSome takes what can be had of each product, or nothing of it if that is less than its
// smallest order; if there is nothing of any product it answers what takeAll would have.
func (st *Step) takeSome(c *Reserve) *Outcome {
	got := false
	for st.at = range st.parts {
		p := &st.parts[st.at]
		p.takeChosen(c)
		for _, line := range p.lines {
			p.takeQuantityPartly(&c.Lines[line], st)
		}
		if n := uint32(len(p.offsets)); n < p.product.settings.MinPerOrder {
			p.giveBack()
			p.missAll(c)
		}
		got = got || len(p.offsets) > 0
		st.moved++
	}
	if got {
		return nil
	}
	for i := range st.parts {
		st.parts[i].missing = Selection{}
	}
	st.moved = 0
	return st.takeAll(c)
}

// refuseTaken refuses chosen numbers that are not free, of all products together.
func (st *Step) refuseTaken(c *Reserve) *Outcome {
	var refusal Refusal
	for st.at = range st.parts {
		p := &st.parts[st.at]
		var taken []uint32
		for _, line := range p.lines {
			for _, number := range c.Lines[line].Numbers {
				if offset, _ := p.product.offset(number); p.product.taken.Has(offset) {
					taken = append(taken, offset)
				}
			}
		}
		if len(taken) == 0 {
			continue
		}
		slices.Sort(taken)
		near := p.product.nearFree(taken, p.chosen(c))
		refusal.Taken = append(refusal.Taken,
			Selection{Product: p.product.id, Numbers: p.product.numbers(taken)})
		if len(near) > 0 {
			refusal.Alternatives = append(refusal.Alternatives,
				Selection{Product: p.product.id, Numbers: p.product.numbers(near)})
		}
	}
	if refusal.Taken == nil {
		return nil
	}
	return refuse(CodeNumbersTaken, refusal)
}

// part is one product's share of a step.
type part struct {
	product *Product
	lines   []int // of the Reserve
	asked   uint32
	by      holder

	offsets []uint32 // of the order: those it holds or has just taken
	missing Selection
}

// inRange refuses items that the product does not have, or that are paid in another currency than
// the first of the order.
func (st *Step) inRange(p *part, c *Reserve) *Outcome {
	if p.product.settings.Price.Currency != st.parts[0].product.settings.Price.Currency {
		return invalid(CodeCurrencyMixed, fmt.Sprintf("/items/%d/product", p.lines[0]),
			"all products of one order have one currency")
	}
	for _, line := range p.lines {
		for k, number := range c.Lines[line].Numbers {
			if _, ok := p.product.offset(number); !ok {
				return p.product.outOfRange(fmt.Sprintf("/items/%d/numbers/%d", line, k), number)
			}
		}
	}
	return nil
}

func (p *part) withinLimits(c *Reserve) *Outcome {
	s := p.product.settings
	p.asked = 0
	for _, line := range p.lines {
		p.asked += uint32(len(c.Lines[line].Numbers)) + c.Lines[line].Quantity
	}
	if p.asked < s.MinPerOrder || p.asked > s.MaxPerOrder {
		return refuse(CodeOrderLimit, Refusal{
			Pointer: p.pointer(), Minimum: s.MinPerOrder, Limit: s.MaxPerOrder,
			Detail: fmt.Sprintf("an order of %s has %d to %d numbers, not %d",
				p.product.id, s.MinPerOrder, s.MaxPerOrder, p.asked),
		})
	}
	if s.MaxPerBuyer == 0 {
		return nil
	}
	p.by = p.product.holder(c.Buyer)
	if held := p.product.held[p.by]; held+p.asked > s.MaxPerBuyer {
		return refuse(CodeBuyerLimit, Refusal{
			Pointer: p.pointer(), Limit: s.MaxPerBuyer, Held: held,
			Detail: fmt.Sprintf("a buyer has at most %d numbers of %s, and this one holds %d",
				s.MaxPerBuyer, p.product.id, held),
		})
	}
	return nil
}

// pointer is where the order first asks for the product.
func (p *part) pointer() string { return fmt.Sprintf("/items/%d", p.lines[0]) }

// refuseStock refuses if fewer numbers are free than were asked for.
func (p *part) refuseStock() *Outcome {
	if p.asked <= p.product.taken.Free() {
		return nil
	}
	return refuse(CodeInsufficientStock, Refusal{Available: p.product.taken.Free()})
}

// refuseRun says how long an unbroken run there is beside what the order itself has taken already.
func (p *part) refuseRun() *Outcome {
	_, longest := p.product.taken.LongestRun()
	return refuse(CodeNoAdjacentRun, Refusal{
		LongestRun: longest, Available: p.product.taken.Free(),
	})
}

// chosen lists the offsets of the chosen numbers.
func (p *part) chosen(c *Reserve) []uint32 {
	var offsets []uint32
	for _, line := range p.lines {
		for _, number := range c.Lines[line].Numbers {
			offset, _ := p.product.offset(number)
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

// takeChosen takes the chosen numbers that are free and notes the others as missing.
func (p *part) takeChosen(c *Reserve) {
	var free []uint32
	for _, offset := range p.chosen(c) {
		if p.product.taken.Has(offset) {
			p.missing.Numbers = append(p.missing.Numbers, offset+p.product.settings.FirstNumber)
			continue
		}
		free = append(free, offset)
	}
	p.take(free)
}

func (p *part) take(offsets []uint32) {
	if len(offsets) == 0 {
		return
	}
	p.product.move(offsets, placeFree, placeReserved, p.by)
	if p.offsets == nil {
		p.offsets = offsets
		return
	}
	p.offsets = append(p.offsets, offsets...)
}

// giveBack undoes what the part has taken.
func (p *part) giveBack() {
	p.product.move(p.offsets, placeReserved, placeFree, p.by)
	p.offsets = nil
}

// takeQuantity takes a quantity line whole, of which enough numbers are free; ok is false if they
// have no run as long as it asks for.
func (p *part) takeQuantity(line *Line, st *Step) (ok bool) {
	if line.Quantity == 0 {
		return true
	}
	var offsets []uint32
	if line.Quantity == 1 && len(st.parts) == 1 && p.offsets == nil {
		offsets = st.room.number[:]
	} else {
		offsets = make([]uint32, line.Quantity)
	}
	if !p.product.pick(line.Pick, offsets, &st.seed) {
		return false
	}
	p.take(offsets)
	return true
}

// takeQuantityPartly takes as much of a quantity line as there is.
func (p *part) takeQuantityPartly(line *Line, st *Step) {
	n := min(line.Quantity, p.product.taken.Free())
	if line.Pick == PickAdjacent {
		_, longest := p.product.taken.LongestRun()
		n = min(n, longest)
	}
	p.missing.Quantity += line.Quantity - n
	if n > 0 {
		offsets := make([]uint32, n)
		ok := p.product.pick(line.Pick, offsets, &st.seed)
		assert(ok, "as many numbers can be picked as are free")
		p.take(offsets)
	}
}

// missAll notes everything that was asked for as missing.
func (p *part) missAll(c *Reserve) {
	p.missing = Selection{}
	for _, line := range p.lines {
		p.missing.Numbers = append(p.missing.Numbers, c.Lines[line].Numbers...)
		p.missing.Quantity += c.Lines[line].Quantity
	}
}

// pick fills offsets with free ones, of which there are enough; ok is false if no run of so many
// exists.
func (p *Product) pick(pick Pick, offsets []uint32, seed *uint64) (ok bool) {
	switch pick {
	case PickAdjacent:
		start, ok := p.taken.FirstRun(uint32(len(offsets)))
		if !ok {
			return false
		}
		for i := range offsets {
			offsets[i] = start + uint32(i)
		}
	case PickLowest:
		for i := range offsets {
			offsets[i] = p.taken.SelectFree(uint32(i))
		}
	default:
		p.pickRandom(offsets, seed)
	}
	return true
}

// drawsAny says how n numbers are picked at random: while at least half stay free, any numbers are drawn
// until enough of them are free, which looks at one word of the set each; else ranks among the free.
func (p *Product) drawsAny(n uint32) bool { return p.taken.Free()-n >= p.taken.Count()/2 }

// draw draws any number, taken or not.
func (p *Product) draw(seed *uint64) uint32 { return uint32(below(uint64(p.taken.Count()), seed)) }

// pickRandom fills offsets with free ones, every subset as likely as any other, in ascending order.
func (p *Product) pickRandom(offsets []uint32, seed *uint64) {
	if !p.drawsAny(uint32(len(offsets))) {
		sample(offsets, p.taken.Free(), seed)
		for i, rank := range offsets {
			offsets[i] = p.taken.SelectFree(rank)
		}
		return
	}
	chosen := offsets[:0]
	for draws := 0; len(chosen) < len(offsets); draws++ {
		// It takes two for each, and one more again for each other: more than so many never.
		assert(draws < 64*(len(offsets)+4), "what is counted as free can be drawn")
		offset := p.draw(seed)
		i, present := slices.BinarySearch(chosen, offset)
		if !present && !p.taken.Has(offset) {
			chosen = slices.Insert(chosen, i, offset)
		}
	}
}

// sample fills ranks with distinct values below n, every subset as likely as any other, in
// ascending order: R. W. Floyd's algorithm (Communications of the ACM 30(9), 1987).
func sample(ranks []uint32, n uint32, seed *uint64) {
	chosen := ranks[:0]
	for j := n - uint32(len(ranks)); j < n; j++ {
		rank := uint32(below(uint64(j)+1, seed))
		i, present := slices.BinarySearch(chosen, rank)
		if present {
			chosen = append(chosen, j) // above all others so far
			continue
		}
		chosen = slices.Insert(chosen, i, rank)
	}
}

// below draws a number < n from the seed, which moves on (splitmix64). The bias of at most
// n / 2⁶⁴ is nothing.
func below(n uint64, seed *uint64) uint64 {
	*seed += 0x9e3779b97f4a7c15
	z := *seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(z^z>>31, n)
	return high
}

// most alternatives that a refusal names for one product.
const mostAlternatives = 10

// nearFree lists free offsets around the taken ones, ascending, none of those already chosen.
func (p *Product) nearFree(taken, chosen []uint32) []uint32 {
	var near []uint32
	free := p.taken.Free()
	offer := func(rank uint32) {
		if rank >= free || len(near) == mostAlternatives {
			return
		}
		offset := p.taken.SelectFree(rank)
		i, present := slices.BinarySearch(near, offset)
		if !present && !slices.Contains(chosen, offset) {
			near = slices.Insert(near, i, offset)
		}
	}
	for _, offset := range taken[:min(len(taken), mostAlternatives)] {
		rank := p.taken.RankFree(offset)
		for step := range uint32(mostAlternatives / 2) {
			offer(rank + step)
			offer(rank - 1 - step) // wraps above every rank when there is none below
		}
	}
	return near
}
