package inventory

// transition does a command on an order that exists: what its status allows, with its numbers in
// every product. next is the order after it; changes says whether it differs.
func (st *Step) transition() *Outcome {
	switch c := st.Entry.Command.(type) {
	case *expire:
		st.expire()
		return nil
	case *Extend:
		return st.extend()
	case *Release:
		return st.release()
	case *BeginPayment:
		return st.beginPayment(c.Payment)
	case *Confirm:
		return st.confirm(c.Payment)
	case *Refuse:
		return st.refusePayment(c.Payment)
	case *Ship:
		return st.ship()
	case *Refund:
		return st.refund(c.ReturnToStock)
	}
	panic("inventory: no such command on an order")
}

// become gives the order its next status and says which events tell of it.
func (st *Step) become(status Status, events ...EventKind) {
	st.next.status = status
	st.next.overdue = notOverdue
	st.changes = true
	st.events = append(st.events, events...)
}

func (st *Step) refuseStatus() *Outcome {
	return refuse(CodeOrderStatus, Refusal{Status: st.was.status})
}

// expire does what follows from a deadline: a reservation ends; an order that is being paid
// becomes overdue and stays held, unless its products release overdue orders after a time.
func (st *Step) expire() {
	switch {
	case st.was.status == StatusReserved, st.was.overdue == overdueReleases:
		st.shift(placeReserved, placeFree)
		st.become(StatusExpired, EventInventoryReleased)
	default:
		st.become(StatusPaying, EventOrderOverdue)
		st.next.overdue = overdueHeld
		if at := st.giveUpAt(); at != maxUnixMilli {
			st.next.overdue, st.next.expires = overdueReleases, makeUint48(at)
		}
	}
}

// giveUpAt is when an order that is overdue now is given up, in Unix milliseconds: the latest of
// what its products say now, never (maxUnixMilli) if one of them says never.
func (st *Step) giveUpAt() int64 {
	at := int64(0)
	for i := range st.parts {
		seconds := st.parts[i].product.settings.OverdueReleaseSeconds
		if seconds == 0 {
			return maxUnixMilli
		}
		at = max(at, st.was.expires.value()+1000*seconds)
	}
	return at
}

// extend renews the deadline: min(now + hold, created + hold_max) of the strictest product.
func (st *Step) extend() *Outcome {
	if st.was.status != StatusReserved {
		return st.refuseStatus()
	}
	deadline := int64(maxUnixMilli)
	for i := range st.parts {
		s := st.parts[i].product.settings
		deadline = min(deadline, st.now+1000*s.HoldSeconds,
			st.was.created.value()+1000*s.HoldMaxSeconds)
	}
	if deadline <= st.was.expires.value() {
		return refuse(CodeExtensionLimit, Refusal{
			Status: st.was.status,
			Detail: "the reservation already lasts as long as it may",
		})
	}
	st.become(StatusReserved, EventOrderExtended)
	st.next.expires = makeUint48(deadline)
	return nil
}

func (st *Step) release() *Outcome {
	switch st.was.status {
	case StatusReleased:
		return nil
	case StatusReserved:
		st.shift(placeReserved, placeFree)
		st.become(StatusReleased, EventInventoryReleased)
		return nil
	}
	return st.refuseStatus()
}

// beginPayment gives the payment its time: the longest grace of the products from now on, and
// never less than was left.
func (st *Step) beginPayment(payment PaymentID) *Outcome {
	switch {
	case st.was.status == StatusPaying && st.was.payment == payment:
		return nil
	case st.was.status != StatusReserved:
		return st.refuseStatus()
	}
	deadline := st.was.expires.value()
	for i := range st.parts {
		grace := st.parts[i].product.settings.PaymentGraceSeconds
		deadline = max(deadline, st.now+1000*grace)
	}
	st.become(StatusPaying, EventPaymentStarted)
	st.next.payment = payment
	st.next.expires = makeUint48(deadline)
	return nil
}

// confirm sells the numbers. An order that has ended without payment gets the same ones if all are
// still free; else the money has to go back, and the order remembers that.
func (st *Step) confirm(payment PaymentID) *Outcome {
	switch st.was.status {
	case StatusPaid, StatusShipped:
		if st.was.payment != payment {
			return refuse(CodePaidByAnother, Refusal{Status: st.was.status})
		}
		return nil
	case StatusReserved, StatusPaying:
		st.shift(placeReserved, placeSold)
	case StatusExpired, StatusReleased, StatusRefused:
		if taken := st.taken(); taken != nil {
			st.become(StatusRefundPending, EventPaymentApproved)
			st.next.payment = payment
			return refuse(CodeNumbersTaken, Refusal{Taken: taken, Status: StatusRefundPending})
		}
		st.shift(placeFree, placeSold)
	default:
		return st.refuseStatus()
	}
	st.become(StatusPaid, EventPaymentApproved, EventInventorySold)
	st.next.payment = payment
	return nil
}

// taken lists the order's numbers that are not free.
func (st *Step) taken() []Selection {
	var taken []Selection
	for st.at = range st.parts {
		p := &st.parts[st.at]
		if numbers := p.product.notIn(placeFree, p.offsets); numbers != nil {
			taken = append(taken, Selection{Product: p.product.id, Numbers: numbers})
		}
	}
	return taken
}

func (st *Step) refusePayment(payment PaymentID) *Outcome {
	switch {
	case st.was.payment != payment:
		return st.refuseStatus()
	case st.was.status == StatusRefused:
		return nil
	case st.was.status == StatusPaying:
		st.shift(placeReserved, placeFree)
		st.become(StatusRefused, EventPaymentRefused, EventInventoryReleased)
		return nil
	}
	return st.refuseStatus()
}

func (st *Step) ship() *Outcome {
	switch st.was.status {
	case StatusShipped:
		return nil
	case StatusPaid:
		st.become(StatusShipped, EventOrderShipped)
		return nil
	}
	return st.refuseStatus()
}

// refund is the only way out of sold. Numbers that do not return to stock become blocked.
func (st *Step) refund(returnToStock bool) *Outcome {
	switch st.was.status {
	case StatusRefunded:
		return nil
	case StatusRefundPending:
		st.become(StatusRefunded, EventOrderRefunded)
		return nil
	case StatusPaid, StatusShipped:
		if !returnToStock {
			st.shift(placeSold, placeBlocked)
			st.become(StatusRefunded, EventOrderRefunded)
			return nil
		}
		st.shift(placeSold, placeFree)
		st.become(StatusRefunded, EventOrderRefunded, EventInventoryReleased)
		return nil
	}
	return st.refuseStatus()
}
