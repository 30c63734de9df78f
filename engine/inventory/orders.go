package inventory

// orders keeps the live and sold ones. It is the apply goroutine's.
type orders struct {
	slab[record]
	baskets          slab[[]item]
	buyers, payments texts
}

// add keeps an order in a slot of its own.
func (s *orders) add(o *order) (slot uint32) {
	slot = s.take()
	o.buyerAt, o.paymentAt, o.basketAt = s.buyers.put(string(o.buyer)), s.payments.put(string(o.payment)), 0
	if o.basket != nil {
		basket := s.baskets.take()
		*s.baskets.edit(basket) = o.basket
		o.basketAt = basket + 1
	}
	*s.edit(slot) = o.record
	return slot
}

// change replaces what is in a slot by the same order as it is now.
func (s *orders) change(slot uint32, o *order) {
	var room [maxTextLen]byte
	if o.payment != PaymentID(s.payments.append(room[:0], o.paymentAt)) {
		s.payments.giveBack(o.paymentAt)
		o.paymentAt = s.payments.put(string(o.payment))
	}
	*s.edit(slot) = o.record
}

// remove forgets an order.
func (s *orders) remove(slot uint32) {
	r := s.at(slot)
	s.buyers.giveBack(r.buyerAt)
	s.payments.giveBack(r.paymentAt)
	if r.basketAt != 0 {
		s.baskets.giveBack(r.basketAt - 1)
	}
	s.giveBack(slot)
}

// load gives a copy of an order.
func (s *orders) load(slot uint32) order {
	o := s.holding(slot)
	var room [maxTextLen]byte
	o.buyer = BuyerID(s.buyers.append(room[:0], o.buyerAt))
	o.payment = PaymentID(s.payments.append(room[:0], o.paymentAt))
	return o
}

// holding is load without ids.
func (s *orders) holding(slot uint32) order {
	o := order{record: *s.at(slot)}
	if o.basketAt != 0 {
		o.basket = *s.baskets.at(o.basketAt - 1)
	}
	return o
}

// freeze returns a view for any one goroutine.
func (s *orders) freeze() orders {
	return orders{
		slab: s.slab.freeze(), baskets: s.baskets.freeze(),
		buyers: s.buyers.freeze(), payments: s.payments.freeze(),
	}
}
