package inventory

import "slices"

// Finish makes a worked step part of the state, in log order, and decides its Outcome.
func (s *State) Finish(st *Step) {
	for _, p := range st.fell {
		s.fall(p)
		s.mark(p)
		s.tellProduct(st, p.Standing().View(), EventProductChanged)
	}
	var room *answerRoom // a refusal without a change shows no order
	if st.refusal == nil || st.changes {
		room = s.answer()
	}
	o := st.refusal
	if o == nil {
		o = &room.outcome
	} else {
		s.adviseExpiry(st, o)
	}
	switch c := st.Entry.Command.(type) {
	case *Reserve:
		s.finishReserve(st, c, o, room)
	case *PutProduct, *Restock, *Block, *Unblock, *SetSaleState:
		s.finishProduct(st, o)
	case *Attach, *Detach, *Acknowledge, *LowerClock:
		s.operate(st, o)
	default:
		s.finishOrder(st, o, room)
	}
	o.AtUnixMilli = s.clock
	st.Outcome = o
}

// fall notes that a product is halted.
func (s *State) fall(p *Product) {
	p.fallen = true
	s.halted = append(s.halted, p)
}

// adviseExpiry says when something that was missing may come back.
func (s *State) adviseExpiry(st *Step, o *Outcome) {
	if o.Code != CodeNumbersTaken && o.Code != CodeInsufficientStock {
		return
	}
	for i := range st.parts {
		first, ok := s.timers[st.parts[i].product.slot].earliest(s.armed)
		if ok && (o.Refusal.NextExpiryUnixMilli == 0 || first.unixMilli < o.Refusal.NextExpiryUnixMilli) {
			o.Refusal.NextExpiryUnixMilli = first.unixMilli
		}
	}
}

// finishReserve records a new order.
func (s *State) finishReserve(st *Step, c *Reserve, o *Outcome, room *answerRoom) {
	if st.replay {
		o.Replay, o.Order = true, s.view(&st.was, room)
		return
	}
	if st.refusal != nil {
		return
	}
	var next order
	next.key, next.fingerprint, next.buyer = c.KeyHash, st.fingerprint, c.Buyer
	next.status, next.created = StatusReserved, makeUint48(s.clock)
	expires := int64(maxUnixMilli)
	var single [1]item
	items := single[:0]
	for i := range st.parts {
		p := &st.parts[i]
		if p.missing.Numbers != nil || p.missing.Quantity > 0 {
			p.missing.Product = p.product.id
			o.Missing = append(o.Missing, p.missing)
		}
		if len(p.offsets) == 0 {
			continue
		}
		s.mark(p.product)
		slices.Sort(p.offsets)
		items = append(items, item{p.product.slot, s.priceOf(p.product), p.offsets})
		expires = min(expires, s.clock+1000*p.product.settings.HoldSeconds)
	}
	next.setItems(items)
	next.expires = makeUint48(expires)
	next.placed = makeUint40(s.outbox.next)
	st.events = append(st.events, EventOrderCreated, EventInventoryReserved)
	next.changed = makeUint40(s.outbox.last() + uint64(len(st.events)))
	s.arm(s.insert(&st.spot, &next), &next)
	o.Order = s.view(&next, room)
	s.tell(st, o.Order)
}

// finishOrder records what became of an order. A refusal can change it too: see Step.confirm.
func (s *State) finishOrder(st *Step, o *Outcome, room *answerRoom) {
	if !st.changes {
		if st.refusal == nil {
			o.Order = s.view(&st.was, room)
		}
		return
	}
	st.next.changed = makeUint40(s.outbox.last() + uint64(len(st.events)))
	s.replace(st.ref, &st.was, &st.next)
	if st.next.status.Live() && st.next.overdue != overdueHeld && st.next.expires != st.was.expires {
		ref, _ := s.index.find(st.next.key)
		s.arm(ref, &st.next)
	}
	for i := range st.parts {
		s.mark(st.parts[i].product)
	}
	o.Order = s.view(&st.next, room)
	s.tell(st, o.Order)
}

// finishProduct records what an admin did to a product, or creates it.
func (s *State) finishProduct(st *Step, o *Outcome) {
	if c, ok := st.Entry.Command.(*PutProduct); ok && st.parts == nil {
		p := newProduct(c.Product, uint32(len(s.list)), c.Settings)
		s.add(p)
		o.Created, o.Product = true, p.Standing().View()
		s.tellProduct(st, o.Product, EventProductChanged)
		return
	}
	if st.refusal != nil {
		return
	}
	p := st.parts[0].product
	o.Replay, o.Product = st.replay, p.Standing().View()
	if !st.changes {
		return
	}
	s.mark(p)
	if st.limited {
		s.countHeld(p)
	}
	if st.priced {
		s.tellProduct(st, o.Product, EventProductChanged, EventPriceUpdated)
		return
	}
	s.tellProduct(st, o.Product, EventProductChanged)
}

// countHeld counts what buyers hold of a product that has begun to limit them. It walks over all
// live and sold orders of the shard, 0.4 s for a million: rather that once than a map for each product
// that limits nobody.
func (s *State) countHeld(p *Product) {
	p.held = make(map[holder]uint32)
	var single [1]item
	var number [1]uint32
	var buyer [maxTextLen]byte
	for slot := range s.orders.used {
		if s.orders.at(slot).status == StatusNone {
			continue
		}
		o := s.orders.holding(slot)
		for _, it := range o.items(&single, &number) {
			if it.product == p.slot {
				p.held[makeHolder(s.orders.buyers.append(buyer[:0], o.buyerAt))] += uint32(len(it.offsets))
			}
		}
	}
}

// operate does the commands of operation.
func (s *State) operate(st *Step, o *Outcome) {
	switch c := st.Entry.Command.(type) {
	case *Attach:
		o.Sequence = s.outbox.attach(c.Consumer)
	case *Detach:
		s.outbox.detach(c.Consumer)
	case *Acknowledge:
		if !s.outbox.acknowledge(c.Consumer, c.Sequence) {
			o.Code = CodeConsumerUnknown
			o.Refusal = &Refusal{Detail: "attach first"}
		}
	case *LowerClock:
		s.clock = min(s.clock, c.UnixMilli)
	}
}

// tell appends the step's events on an order. They share one image of it.
func (s *State) tell(st *Step, v *OrderView) {
	if s.outbox.wanted() {
		s.scratch = AppendOrder(s.scratch[:0], v)
	}
	s.outbox.tell(s.clock, st.Entry.Correlation, s.scratch, st.events...)
}

// tellProduct appends events on a product. They share one image of it.
func (s *State) tellProduct(st *Step, v *ProductView, kinds ...EventKind) {
	if s.outbox.wanted() {
		s.scratch = AppendProductView(s.scratch[:0], v)
	}
	s.outbox.tell(s.clock, st.Entry.Correlation, s.scratch, kinds...)
}

// add makes a new product known.
func (s *State) add(p *Product) {
	s.products[p.id] = p
	s.list = append(s.list, p)
	s.timers = append(s.timers, deadlines{})
	s.mark(p)
}

// mark notes that a product has changed since TakeChanged.
func (s *State) mark(p *Product) {
	if !p.changed {
		p.changed = true
		s.changed = append(s.changed, p)
	}
}

// Changed lists the products that TakeChanged will visit.
func (s *State) Changed() []*Product { return s.changed }

// TakeChanged calls visit with how every product stands that has changed since the last call. It
// must be called at the end of every batch.
func (s *State) TakeChanged(visit func(slot uint32, now *Standing)) {
	for _, p := range s.changed {
		p.changed = false
		p.standing = p.Standing()
		share := p.digest()
		s.productDigest64 += share - p.counted
		p.counted = share
		visit(p.slot, p.standing)
	}
	s.changed = s.changed[:0]
}
