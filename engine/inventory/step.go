package inventory

import (
	"fmt"
	"slices"
)

// Step is one command on its way through the state: Take, PastDue, Prepare, Work, Finish. See the
// package for which goroutine calls what. A Step may be used again after Finish.
type Step struct {
	task

	// Of a command on an order: where it is, what it was, and what it becomes. Prepare sets what is used of
	// them; a new reservation has nothing to do with them, and to clear them would bring them into the cache.
	ref       uint32
	was, next order
}

// task is what a Step knows of its command, whatever it is. It goes from the apply goroutine to the actor and
// back, that is from one processor to another: first what the actor always looks at.
type task struct {
	Entry Entry

	now     int64
	seed    uint64
	parts   []part
	at      int // the part that is being worked on: its product is halted if that breaks
	moved   int // how many parts have gone whole from from to to, and go back if another one breaks
	from    place
	to      place
	changes bool // the order or the product is not what it was
	replay  bool
	priced  bool // the product has another price
	limited bool // the product limits its buyers, and did not before
	refusal *Outcome

	room struct { // for the common order of one number
		parts  [1]part
		number [1]uint32
		line   [1]int
		events [2]EventKind
	}

	events []EventKind // on the order
	fell   []*Product  // halted in this step

	Outcome     *Outcome // set by Finish
	spot        spot     // of the key of its order, in the index: see PastDue
	fingerprint uint32   // of a reservation
}

// expire is the command that the state gives itself when an order is due. It is never in the log,
// since it follows from the clock.
type expire struct{ ref uint32 }

func (*expire) Kind() Kind                   { return 0 }
func (*expire) Check() *Outcome              { return nil }
func (*expire) appendBody(buf []byte) []byte { return buf }

// Take makes st the step of the i-th entry of a batch.
func (st *Step) Take(b *Batch, i int) {
	st.task = task{Entry: b.Entries[i], seed: b.seedOf(i), fingerprint: b.fingerprintOf(i)}
}

// takeExpiry makes st the step that expires an order.
func (st *Step) takeExpiry(ref uint32) { st.task = task{Entry: Entry{Command: &expire{ref}}} }

// NextDue gives the step that expires the order which is due, the earliest first; ok is false if
// none is. It must be finished before the next one is asked for.
func (s *State) NextDue(st *Step) (ok bool) {
	first, ok := s.due.earliest(s.watched)
	if !ok || first.unixMilli > s.clock {
		return false
	}
	t := &s.timers[first.ref]
	ref := t.first().ref
	t.pop()
	st.takeExpiry(ref)
	return true
}

// PastDue looks up the order that st is about, for Prepare too, and gives the step that must come
// before st: the order is past its deadline, and the sweep has not come to it yet. It must be asked
// once more after that step, since a payment can become overdue and be given up at once. It looks at
// no product, as they may be at work: of a halted one the step is refused.
func (s *State) PastDue(st, before *Step) (ok bool) {
	key, ok := st.Order()
	if !ok {
		return false
	}
	st.spot = s.index.look(key)
	if !st.spot.known || st.spot.ref()&endedRef != 0 {
		return false
	}
	ref := st.spot.ref()
	o := s.orders.at(ref)
	c, about := st.Entry.Command.(interface{ onOrder() OnOrder })
	if about && c.onOrder().Order != s.id(o) {
		return false // an order of another day had the same key
	}
	if !o.status.Live() || o.overdue == overdueHeld || o.expires.value() > s.clock {
		return false
	}
	before.takeExpiry(ref)
	return true
}

// Order is the key of the order that a step is about, if it is about one.
func (st *Step) Order() (KeyHash, bool) {
	switch c := st.Entry.Command.(type) {
	case *Reserve:
		return c.KeyHash, true
	case interface{ onOrder() OnOrder }:
		return c.onOrder().Order.Key(), true
	}
	return KeyHash{}, false
}

func (c *OnOrder) onOrder() OnOrder { return *c }

// Prepare either decides a command, or names the products that must Work. What it is about must have
// been looked up by PastDue: without, no order is known.
func (s *State) Prepare(st *Step) {
	st.now = s.clock
	st.events = st.room.events[:0]
	switch c := st.Entry.Command.(type) {
	case *Reserve:
		s.prepareReserve(st, c)
	case *expire:
		st.ref, st.was = c.ref, s.load(c.ref)
		s.prepareOrder(st)
	case interface{ onOrder() OnOrder }:
		var ok bool
		if st.ref, st.was, ok = s.findAt(&st.spot, c.onOrder()); !ok {
			st.refusal = refuse(CodeOrderNotFound, Refusal{})
			return
		}
		if _, extend := c.(*Extend); extend && st.was.status == StatusReserved && s.outboxFull(1) {
			st.refusal = s.refuseFull()
			return
		}
		s.prepareOrder(st)
	default:
		s.prepareOther(st)
	}
}

// prepareOther looks up the product of an admin's command.
func (s *State) prepareOther(st *Step) {
	var id ProductID
	switch c := st.Entry.Command.(type) {
	case *PutProduct:
		if s.products[c.Product] == nil {
			return // Finish creates it
		}
		id = c.Product
	case *Restock:
		id = c.Product
	case *Block:
		id = c.Product
	case *Unblock:
		id = c.Product
	case *SetSaleState:
		id = c.Product
	default:
		return // a command of operation: Finish does it
	}
	p := s.products[id]
	if p == nil {
		st.refusal = refuse(CodeProductNotFound, Refusal{})
		return
	}
	st.parts = append(st.room.parts[:0], part{product: p})
}

func (s *State) prepareReserve(st *Step, c *Reserve) {
	if st.spot.known {
		ref := st.spot.ref()
		o := s.load(ref)
		if o.fingerprint != st.fingerprint {
			st.refusal = refuse(CodeKeyReused, Refusal{})
			return
		}
		st.replay, st.was = true, o
		return
	}
	if s.full(1) {
		st.refusal = s.refuseFull()
		return
	}
	st.parts = st.room.parts[:0]
	for i := range c.Lines {
		id := c.Lines[i].Product
		k := slices.IndexFunc(st.parts, func(p part) bool { return p.product.id == id })
		if k < 0 {
			p := s.products[id]
			if p == nil {
				st.parts = nil
				st.refusal = invalid(CodeProductNotFound, fmt.Sprintf("/items/%d/product", i),
					fmt.Sprintf("there is no product %s", id))
				return
			}
			k = len(st.parts)
			st.parts = append(st.parts, part{product: p})
			if k == 0 {
				st.parts[k].lines = st.room.line[:0]
			}
		}
		st.parts[k].lines = append(st.parts[k].lines, i)
	}
}

func (s *State) refuseFull() *Outcome {
	return refuse(CodeOverloaded, Refusal{Detail: "the shard keeps all it can"})
}

// slotsPerOrder is how many events a live order may still cause: payment.started, order.overdue,
// and payment.approved with inventory.sold, or as many for another end.
const slotsPerOrder = 4

// slotsToCreate is how many events it takes to create an order and to see it through.
const slotsToCreate = slotsPerOrder + 2

// full says that n more orders are more than the shard may keep.
func (s *State) full(n int) bool {
	return s.count.ended+s.count.live+n > s.limits.EndedOrders ||
		len(s.ended.blocks) > endedBlocks/2 || s.outboxFull(n*slotsToCreate)
}

// outboxFull says that the outbox has no room for so many events beside those that live orders have
// prepaid. Without a consumer it always has.
func (s *State) outboxFull(events int) bool {
	return s.outbox.wanted() &&
		s.outbox.backlog()+s.count.live*slotsPerOrder+events > s.limits.OutboxEvents
}

// Tight says that so little room is left that n more commands can be the end of it: then they must
// be applied one by one. It has to be asked again after a step that was Alone: a consumer may have
// been attached. A command causes at most slotsToCreate events, and ends at most two orders (one
// by PastDue), each with a block of its own at worst.
func (s *State) Tight(n int) bool {
	return s.full(n) || len(s.ended.blocks)+2*n > endedBlocks/2
}

// prepareOrder names the products that hold the numbers of st.was.
func (s *State) prepareOrder(st *Step) {
	st.next = st.was
	st.parts = st.room.parts[:0]
	for _, it := range st.was.items(new([1]item), &st.room.number) {
		st.parts = append(st.parts, part{product: s.list[it.product], offsets: it.offsets})
	}
}

// Decided says that there is no Work: Prepare has answered already, or it is an acknowledgement, which only
// makes room. Consumers send them all the time: the others should not wait for them.
func (st *Step) Decided() bool {
	return st.refusal != nil || st.replay || st.Entry.Command.Kind() == KindAcknowledge
}

// Alone says that a step that is not decided must be worked and finished while no other is under
// way: it needs several products or the whole state, or it changes settings and answers with the
// whole product, which a step that is finished later must not see. Any other step belongs to the
// actor of its only product.
func (st *Step) Alone() bool {
	return len(st.parts) != 1 || st.Entry.Command.Kind() >= KindPutProduct
}

// Slot is the slot of the only product of a step that is not Alone.
func (st *Step) Slot() uint32 { return st.parts[0].product.slot }

// Work does the products' part. Whatever breaks in it halts the product in whose part it broke,
// after what the command did to the others has been undone.
func (st *Step) Work() {
	if len(st.parts) == 0 {
		return
	}
	defer st.halt()
	if st.refusal = st.ask((*part).refuseHalted); st.refusal != nil {
		return
	}
	switch c := st.Entry.Command.(type) {
	case *Reserve:
		st.from, st.to = placeFree, placeReserved
		if st.refusal = st.reserve(c); st.refusal == nil {
			st.touch()
		}
	case *PutProduct, *Restock, *Block, *Unblock, *SetSaleState:
		p := st.parts[0].product
		before := p.version
		st.refusal = st.administer(p)
		st.changes = p.version != before
	default:
		st.refusal = st.transition()
	}
}

// administer does an admin's command.
func (st *Step) administer(p *Product) (refusal *Outcome) {
	switch c := st.Entry.Command.(type) {
	case *PutProduct:
		was := p.settings
		refusal = p.put(c.Settings)
		st.priced = p.settings.Price != was.Price
		st.limited = p.settings.MaxPerBuyer != 0 && was.MaxPerBuyer == 0
		return refusal
	case *Restock:
		st.replay, refusal = p.restock(c, st.now)
		return refusal
	case *Block:
		return p.block(c.Numbers)
	case *Unblock:
		return p.unblock(c.Numbers)
	case *SetSaleState:
		return p.setState(c.State)
	}
	panic("inventory: no such command of an admin")
}

// ask puts a question to every part in turn until one refuses.
func (st *Step) ask(question func(*part) *Outcome) *Outcome {
	for st.at = range st.parts {
		if refusal := question(&st.parts[st.at]); refusal != nil {
			return refusal
		}
	}
	return nil
}

// shift moves the order's numbers in every product.
func (st *Step) shift(from, to place) {
	st.from, st.to = from, to
	for st.at = range st.parts {
		p := &st.parts[st.at]
		p.by = p.product.holder(st.was.buyer)
		p.product.move(p.offsets, from, to, p.by)
		st.moved++
	}
	st.touch()
}

// touch marks the order as changed, and the products of which it has something.
func (st *Step) touch() {
	st.changes = true
	for i := range st.parts {
		if p := &st.parts[i]; len(p.offsets) > 0 {
			p.product.touch()
		}
	}
}

// halt stops the product whose part of the work panicked, and undoes what the others did.
func (st *Step) halt() {
	reason := recover()
	if reason == nil {
		return
	}
	st.fall(st.at, reason)
	for st.moved > 0 {
		st.moved--
		st.undo(st.moved)
	}
	st.changes = false
	st.refusal = st.parts[st.at].refuseHalted()
}

func (st *Step) fall(i int, reason any) {
	p := st.parts[i].product
	p.halted = fmt.Sprint(reason)
	p.touch()
	st.fell = append(st.fell, p)
}

// undo moves a part back. If that breaks too its product is halted as well: the step is refused
// all the same, and the other parts are whole.
func (st *Step) undo(i int) {
	defer func() {
		if reason := recover(); reason != nil {
			st.fall(i, reason)
		}
	}()
	p := &st.parts[i]
	p.product.move(p.offsets, st.to, st.from, p.by)
}
