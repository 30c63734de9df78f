package inventory

import (
	"fmt"
	"math/bits"
	"slices"
)

// reserve arbitrates an order: it asks each product in turn about its sale, its range, its limits
// and last its stock, so that the first reason in that order is what the buyer hears.
func (st *Step) reserve(c *Reserve) *Outcome {
	for i := range st.parts {
		if refusal := st.parts[i].product.selling(st.now); refusal != nil {
			return refusal
		}
	}
	for i := range st.parts {
		if refusal := st.parts[i].inRange(c); refusal != nil {
			return refusal
		}
		if st.parts[i].currency() != st.parts[0].currency() {
			return invalid(CodeCurrencyMixed, "", "all products of one order have one currency")
		}
	}
	for i := range st.parts {
		if refusal := st.parts[i].withinLimits(c, st.buyer); refusal != nil {
			return refusal
		}
	}
	if !c.Partial {
		return st.takeAll(c)
	}
	return st.takeSome(c)
}

// takeAll takes every line of every product or nothing. Everything that is only counted is looked
// at first: only an unbroken run can be missing later, and then what was taken goes back.
func (st *Step) takeAll(c *Reserve) *Outcome {
	if refusal := st.refuseTaken(c); refusal != nil {
		return refusal
	}
	for i := range st.parts {
		p := &st.parts[i]
		if p.asked > p.product.taken.Free() {
			return p.refuseStock()
		}
	}
	for i := range st.parts {
		st.at = i
		p := &st.parts[i]
		p.takeChosen(c, st.buyer)
		for _, line := range p.lines {
			if refusal := p.takeQuantity(&c.Lines[line], st); refusal != nil {
				st.giveBack(i)
				return refusal
			}
		}
	}
	return nil
}

// giveBack undoes what parts 0 to last have taken.
func (st *Step) giveBack(last int) {
	for i := range st.parts[:last+1] {
		p := &st.parts[i]
		p.product.move(p.offsets, placeReserved, placeFree, st.buyer)
		p.offsets = nil
	}
}

// takeSome takes what can be had of each product, or nothing of it if that is less than its
// smallest order; if there is nothing of any product it answers what takeAll would have.
func (st *Step) takeSome(c *Reserve) *Outcome {
	got := false
	for i := range st.parts {
		st.at = i
		p := &st.parts[i]
		p.takeChosen(c, st.buyer)
		for _, line := range p.lines {
			p.takeQuantityPartly(&c.Lines[line], st)
		}
		if n := uint32(len(p.offsets)); n < p.product.settings.MinPerOrder {
			p.product.move(p.offsets, placeReserved, placeFree, st.buyer)
			p.offsets = nil
			p.missAll(c)
		}
		got = got || len(p.offsets) > 0
	}
	if got {
		return nil
	}
	if refusal := st.refuseTaken(c); refusal != nil {
		return refusal
	}
	for i := range st.parts {
		p := &st.parts[i]
		if p.asked > p.product.taken.Free() {
			return p.refuseStock()
		}
	}
	return st.parts[0].refuseRun()
}

// refuseTaken refuses chosen numbers that are not free, of all products together.
func (st *Step) refuseTaken(c *Reserve) *Outcome {
	var refusal Refusal
	for i := range st.parts {
		p := &st.parts[i]
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

	offsets []uint32 // of the order: those it holds or has just taken
	missing Selection
}

func (p *part) currency() string { return p.product.settings.Price.Currency }

func (p *part) inRange(c *Reserve) *Outcome {
	for _, line := range p.lines {
		for k, number := range c.Lines[line].Numbers {
			if _, ok := p.product.offset(number); !ok {
				return p.product.outOfRange(fmt.Sprintf("/items/%d/numbers/%d", line, k), number)
			}
		}
	}
	return nil
}

func (p *part) withinLimits(c *Reserve, buyer uint32) *Outcome {
	s := &p.product.settings
	p.asked = 0
	for _, line := range p.lines {
		p.asked += uint32(len(c.Lines[line].Numbers)) + c.Lines[line].Quantity
	}
	pointer := fmt.Sprintf("/items/%d", p.lines[0])
	if p.asked < s.MinPerOrder || p.asked > s.MaxPerOrder {
		return refuse(CodeOrderLimit, Refusal{
			Pointer: pointer, Minimum: s.MinPerOrder, Limit: s.MaxPerOrder,
			Detail: fmt.Sprintf("an order of %s has %d to %d numbers, not %d",
				p.product.id, s.MinPerOrder, s.MaxPerOrder, p.asked),
		})
	}
	held := p.product.held[buyer]
	if s.MaxPerBuyer != 0 && held+p.asked > s.MaxPerBuyer {
		return refuse(CodeBuyerLimit, Refusal{
			Pointer: pointer, Limit: s.MaxPerBuyer, Held: held,
			Detail: fmt.Sprintf("a buyer has at most %d numbers of %s, and this one holds %d",
				s.MaxPerBuyer, p.product.id, held),
		})
	}
	return nil
}

func (p *part) refuseStock() *Outcome {
	return refuse(CodeInsufficientStock, Refusal{Available: p.product.taken.Free()})
}

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
func (p *part) takeChosen(c *Reserve, buyer uint32) {
	var free []uint32
	for _, offset := range p.chosen(c) {
		if p.product.taken.Has(offset) {
			p.missing.Numbers = append(p.missing.Numbers, offset+p.product.settings.FirstNumber)
			continue
		}
		free = append(free, offset)
	}
	p.take(free, buyer)
}

func (p *part) take(offsets []uint32, buyer uint32) {
	p.product.move(offsets, placeFree, placeReserved, buyer)
	if p.offsets == nil {
		p.offsets = offsets
		return
	}
	p.offsets = append(p.offsets, offsets...)
}

// takeQuantity takes a quantity line whole, of which enough numbers are free.
func (p *part) takeQuantity(line *Line, st *Step) *Outcome {
	if line.Quantity == 0 {
		return nil
	}
	offsets, ok := p.product.pick(line.Pick, line.Quantity, &st.seed)
	if !ok {
		return p.refuseRun()
	}
	p.take(offsets, st.buyer)
	return nil
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
		offsets, ok := p.product.pick(line.Pick, n, &st.seed)
		assert(ok, "as many numbers can be picked as are free")
		p.take(offsets, st.buyer)
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

// pick chooses n free offsets, of which there are enough; ok is false if no run of n exists.
func (p *Product) pick(pick Pick, n uint32, seed *uint64) (offsets []uint32, ok bool) {
	offsets = make([]uint32, n)
	switch pick {
	case PickAdjacent:
		start, ok := p.taken.FirstRun(n)
		if !ok {
			return nil, false
		}
		for i := range offsets {
			offsets[i] = start + uint32(i)
		}
	case PickLowest:
		for i := range offsets {
			offsets[i] = p.taken.SelectFree(uint32(i))
		}
	default:
		sample(offsets, p.taken.Free(), seed)
		for i, rank := range offsets {
			offsets[i] = p.taken.SelectFree(rank)
		}
	}
	return offsets, true
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
