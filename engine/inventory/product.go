package inventory

import (
	"crypto/sha256"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"numera/engine/inventory/numberset"
)

// Product is one product's numbers, counters and limits. Only its actor may touch it while a
// batch is being applied, only the apply goroutine between batches.
//
// A number is in one place: free, reserved, sold or blocked; taken holds all that are not free.
// move is the only way from one place to another. If it finds an invariant broken the product is
// halted: it stays readable and refuses everything, by state that every replica and every restart
// comes to, since a panic would come back at every replay.
type Product struct {
	// What the apply goroutine looks at while the actor is at work, and the actor changes nothing of:
	// far enough from what it does change for the two not to wait for each other's cache lines.
	id       ProductID
	slot     uint32
	fallen   bool      // halted, for the apply goroutine, in log order
	changed  bool      // since counted; the apply goroutine's
	settings *Settings // never written to: Standings share them
	price    uint32    // its place in State.prices, from 1; 0: not looked up since set

	counted        uint64    // the share of the state's digest that was last added to it
	standing       *Standing // as of the end of the last batch that changed it
	counters       Counters  // of standing
	settingsDigest uint64    // of what only admins change
	blockedDigest  uint64    // the sum of the mixed offsets in blocked
	restockDigest  uint64    // the sum of the mixed entries of restocks
	restocks       []restock // the keys of at least the last 24 hours

	state   SaleState
	halted  string // the broken invariant, or ""
	version uint64
	taken   numberset.Set
	counts  [places]uint32  // how many are in each place but free
	sold    *roaring.Bitmap // offsets; nil: none
	blocked *roaring.Bitmap
	held    map[holder]uint32 // numbers reserved or sold; only if MaxPerBuyer is set
}

// restock remembers a key so that a repeat acts once.
type restock struct {
	key         KeyHash
	count       uint32
	atUnixMilli int64
}

func (r *restock) digest() uint64 {
	return mix(mix(mixString(2, string(r.key[:])), uint64(r.count)), uint64(r.atUnixMilli))
}

// maxRestocks bounds the restocks of one product in a day, so that looking for a key stays cheap.
const maxRestocks = 1000

// place is where a number is.
type place uint8

const (
	placeFree place = iota
	placeReserved
	placeSold
	placeBlocked
	places
)

func newProduct(id ProductID, slot uint32, settings Settings) *Product {
	p := &Product{id: id, slot: slot, taken: numberset.Make(settings.Count), version: 1}
	p.set(settings)
	return p
}

// set is the only way to change the settings.
func (p *Product) set(s Settings) {
	p.settings, p.price = &s, 0
	h := mixString(0, string(p.id))
	for _, text := range [...]string{s.Name, s.Price.Currency, s.Campaign} {
		h = mixString(h, text)
	}
	for _, v := range [...]int64{
		s.Price.Amount, s.OpensAtUnixMilli, s.ClosesAtUnixMilli, s.HoldSeconds, s.HoldMaxSeconds,
		s.PaymentGraceSeconds, s.OverdueReleaseSeconds, int64(s.FirstNumber), int64(s.Count),
		int64(s.MinPerOrder), int64(s.MaxPerOrder), int64(s.MaxPerBuyer),
	} {
		h = mix(h, uint64(v))
	}
	for _, flag := range [...]bool{s.CaptureAtShipping, s.RefundLate} {
		if h = mix(h, 0); flag {
			h = mix(h, 1)
		}
	}
	p.settingsDigest = h
}

// Standing is the product as it is now. The counters of a halted one stay those of its fall.
func (p *Product) Standing() *Standing {
	if p.halted == "" {
		p.counters = Counters{
			Count: p.settings.Count, Available: p.taken.Free(), Reserved: p.counts[placeReserved],
			Sold: p.counts[placeSold], Blocked: p.counts[placeBlocked],
		}
	}
	return &Standing{
		id: p.id, settings: p.settings, state: p.state, halted: p.halted,
		counters: p.counters, version: p.version,
	}
}

// Taken freezes the set of numbers that are not free, as offsets from Settings.FirstNumber.
func (p *Product) Taken() numberset.View { return p.taken.Freeze() }

// ID is the product's id; it never changes.
func (p *Product) ID() ProductID { return p.id }

// Slot is the product's position in order of creation; it never changes.
func (p *Product) Slot() uint32 { return p.slot }

// place says where a number is.
func (p *Product) place(offset uint32) place {
	switch {
	case !p.taken.Has(offset):
		return placeFree
	case p.sold != nil && p.sold.Contains(offset):
		return placeSold
	case p.blocked != nil && p.blocked.Contains(offset):
		return placeBlocked
	}
	return placeReserved
}

// move takes numbers of a holder from one place to another. It panics
// before it has changed anything if one of them is not where it should be.
func (p *Product) move(offsets []uint32, from, to place, by holder) {
	for _, offset := range offsets {
		assert(offset < p.taken.Count() && p.place(offset) == from, "a number is where it was put")
	}
	n := uint32(len(offsets))
	for _, offset := range offsets {
		switch from {
		case placeFree:
			p.taken.Add(offset)
		case placeSold:
			p.sold.Remove(offset)
		case placeBlocked:
			p.blocked.Remove(offset)
			p.blockedDigest -= mix(1, uint64(offset))
		}
		switch to {
		case placeFree:
			p.taken.Remove(offset)
		case placeSold:
			bitmap(&p.sold).Add(offset)
		case placeBlocked:
			bitmap(&p.blocked).Add(offset)
			p.blockedDigest += mix(1, uint64(offset))
		}
	}
	if from != placeFree {
		p.counts[from] -= n
	}
	if to != placeFree {
		p.counts[to] += n
	}
	p.hold(by, from, to, n)
	p.check()
}

// show marks numbers of a halted product as taken, whatever is wrong with them, for readers.
func (p *Product) show(offsets []uint32) {
	for _, offset := range offsets {
		if offset < p.taken.Count() {
			p.taken.Add(offset)
		}
	}
}

// touch marks the product as changed by a command that was not refused.
func (p *Product) touch() { p.version++ }

func bitmap(b **roaring.Bitmap) *roaring.Bitmap {
	if *b == nil {
		*b = roaring.New()
	}
	return *b
}

// holder stands for a buyer where a product counts what each has: 96 bits of SHA-256 of the id, so that
// nobody finds an id that is counted as somebody else's.
type holder [12]byte

// noHolder is for numbers of which nobody asks who has them.
var noHolder holder

func makeHolder(buyer []byte) holder {
	sum := sha256.Sum256(buyer)
	return holder(sum[:])
}

// holder is who has the numbers of a buyer's order.
func (p *Product) holder(buyer BuyerID) holder {
	if p.settings.MaxPerBuyer == 0 {
		return noHolder
	}
	var room [maxTextLen]byte // a conversion would allocate
	return makeHolder(append(room[:0], buyer...))
}

// hold keeps how many numbers of the product a buyer has, reserved or sold. It is not kept where
// nobody asks: it would be a map for each product. See State.countHeld.
func (p *Product) hold(by holder, from, to place, n uint32) {
	holds := func(at place) bool { return at == placeReserved || at == placeSold }
	if by == noHolder || n == 0 || holds(from) == holds(to) {
		return
	}
	if p.held == nil {
		p.held = make(map[holder]uint32)
	}
	if holds(to) {
		p.held[by] += n
		return
	}
	assert(p.held[by] >= n, "a buyer gives back what he holds")
	if p.held[by] -= n; p.held[by] == 0 {
		delete(p.held, by)
	}
}

// check asserts that the counters add up to the set that is counted apart from them.
func (p *Product) check() {
	sum := uint64(p.counts[placeReserved]) + uint64(p.counts[placeSold]) +
		uint64(p.counts[placeBlocked])
	assert(sum == uint64(p.taken.Taken()), "available + reserved + sold + blocked = count")
	assert(p.taken.Count() == p.settings.Count, "the set is as long as the product")
}

// selling refuses what the product's state or sale window does not allow now.
func (p *Product) selling(nowUnixMilli int64) *Outcome {
	s := p.settings
	switch {
	case p.state == SaleClosed || (s.ClosesAtUnixMilli != 0 && nowUnixMilli >= s.ClosesAtUnixMilli):
		return refuse(CodeSaleClosed, Refusal{ClosesAtUnixMilli: s.ClosesAtUnixMilli})
	case p.state == SalePaused:
		return refuse(CodeSalePaused, Refusal{})
	case nowUnixMilli < s.OpensAtUnixMilli:
		return refuse(CodeSaleNotOpen, Refusal{OpensAtUnixMilli: s.OpensAtUnixMilli})
	}
	return nil
}

// refuseHalted refuses everything if the product is halted.
func (p *part) refuseHalted() *Outcome {
	if p.product.halted == "" {
		return nil
	}
	return refuse(CodeProductHalted, Refusal{
		Detail: fmt.Sprintf("%s is halted, as an invariant was broken: %s",
			p.product.id, p.product.halted),
	})
}

// offset is where a number stands in the sets; ok is false outside of the range.
func (p *Product) offset(number uint32) (offset uint32, ok bool) {
	offset = number - p.settings.FirstNumber
	return offset, number >= p.settings.FirstNumber && offset < p.settings.Count
}

func (p *Product) outOfRange(pointer string, number uint32) *Outcome {
	return invalid(CodeNumbersOutOfRange, pointer, fmt.Sprintf(
		"%d is not a number of %s: they are %d to %d",
		number, p.id, p.settings.FirstNumber, p.settings.LastNumber()))
}

// numbers are offsets as buyers know them.
func (p *Product) numbers(offsets []uint32) []uint32 {
	numbers := make([]uint32, len(offsets))
	for i, offset := range offsets {
		numbers[i] = offset + p.settings.FirstNumber
	}
	return numbers
}

// put replaces the settings; range and currency are fixed.
func (p *Product) put(settings Settings) *Outcome {
	fixed := func(pointer, detail string) *Outcome {
		return invalid(CodeProductFixed, pointer, detail)
	}
	switch {
	case settings.FirstNumber != p.settings.FirstNumber:
		return fixed("/first_number", fmt.Sprintf("is %d since it was created", p.settings.FirstNumber))
	case settings.Count != p.settings.Count:
		return fixed("/count", fmt.Sprintf("is %d; restock adds numbers", p.settings.Count))
	case settings.Price.Currency != p.settings.Price.Currency:
		return fixed("/price/currency",
			fmt.Sprintf("is %s since it was created", p.settings.Price.Currency))
	}
	if settings != *p.settings {
		if settings.MaxPerBuyer == 0 {
			p.held = nil
		}
		p.set(settings)
		p.touch()
	}
	return nil
}

// restock appends count numbers, unless the key did so before.
func (p *Product) restock(c *Restock, nowUnixMilli int64) (replay bool, refusal *Outcome) {
	for _, done := range p.restocks {
		if done.key == c.KeyHash {
			if done.count != c.Count {
				return false, refuse(CodeKeyReused, Refusal{})
			}
			return true, nil
		}
	}
	grown := *p.settings
	grown.Count += c.Count
	if uint64(p.settings.Count)+uint64(c.Count) > MaxCount || grown.Check() != nil {
		return false, invalid(CodeProductInvalid, "/count",
			"a product has at most 100000000 numbers, the last at most 4294967295")
	}
	forgotten := 0
	for forgotten < len(p.restocks) && p.restocks[forgotten].atUnixMilli < nowUnixMilli-keepMilli {
		forgotten++
	}
	if len(p.restocks)-forgotten >= maxRestocks {
		return false, refuse(CodeOverloaded, Refusal{
			Detail: "a product is restocked at most 1000 times a day",
		})
	}
	for i := range p.restocks[:forgotten] {
		p.restockDigest -= p.restocks[i].digest()
	}
	p.restocks = p.restocks[forgotten:]
	p.remember(restock{c.KeyHash, c.Count, nowUnixMilli})
	p.set(grown)
	p.taken.Grow(grown.Count)
	p.check()
	p.touch()
	return false, nil
}

func (p *Product) remember(done restock) {
	p.restocks = append(p.restocks, done)
	p.restockDigest += done.digest()
}

// block takes free numbers out of sale, all or none.
func (p *Product) block(numbers []uint32) *Outcome {
	offsets, refusal := p.offsets(numbers)
	if refusal != nil {
		return refusal
	}
	if taken := p.notIn(placeFree, offsets); len(taken) > 0 {
		return refuse(CodeNumbersTaken, Refusal{Taken: []Selection{{Product: p.id, Numbers: taken}}})
	}
	p.move(offsets, placeFree, placeBlocked, noHolder)
	p.touch()
	return nil
}

// unblock gives blocked numbers back, all or none.
func (p *Product) unblock(numbers []uint32) *Outcome {
	offsets, refusal := p.offsets(numbers)
	if refusal != nil {
		return refusal
	}
	if others := p.notIn(placeBlocked, offsets); len(others) > 0 {
		return refuse(CodeNumbersNotBlocked, Refusal{
			Pointer: "/numbers", Detail: fmt.Sprintf("%d is not blocked", others[0]),
		})
	}
	p.move(offsets, placeBlocked, placeFree, noHolder)
	p.touch()
	return nil
}

// offsets translates the numbers of an admin, or refuses.
func (p *Product) offsets(numbers []uint32) ([]uint32, *Outcome) {
	offsets := make([]uint32, len(numbers))
	for i, number := range numbers {
		offset, ok := p.offset(number)
		if !ok {
			return nil, p.outOfRange(fmt.Sprintf("/numbers/%d", i), number)
		}
		offsets[i] = offset
	}
	return offsets, nil
}

// notIn lists the numbers that are somewhere else.
func (p *Product) notIn(at place, offsets []uint32) []uint32 {
	var numbers []uint32
	for _, offset := range offsets {
		if p.place(offset) != at {
			numbers = append(numbers, offset+p.settings.FirstNumber)
		}
	}
	return numbers
}

// setState is the admin's switch.
func (p *Product) setState(state SaleState) *Outcome {
	if p.state != state {
		p.state = state
		p.touch()
	}
	return nil
}

// digest is the product's share of the state's digest. The sets follow from the orders and the
// blocked numbers; those of a halted product are beyond trust.
func (p *Product) digest() uint64 {
	h := p.settingsDigest
	for _, v := range [...]uint64{uint64(p.slot), uint64(p.state), p.version, p.restockDigest} {
		h = mix(h, v)
	}
	if p.halted != "" {
		return mixString(h, p.halted)
	}
	for _, count := range p.counts {
		h = mix(h, uint64(count))
	}
	return mix(h, p.blockedDigest)
}
