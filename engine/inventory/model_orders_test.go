package inventory_test

import (
	"slices"

	. "numera/engine/inventory"
)

func (m *model) onOrder(c Command) *Outcome {
	var on OnOrder
	var payment PaymentID
	switch c := c.(type) {
	case *Extend:
		on = c.OnOrder
	case *Release:
		on = c.OnOrder
	case *BeginPayment:
		on, payment = c.OnOrder, c.Payment
	case *Confirm:
		on, payment = c.OnOrder, c.Payment
	case *Refuse:
		on, payment = c.OnOrder, c.Payment
	case *Ship:
		on = c.OnOrder
	case *Refund:
		on = c.OnOrder
	}
	o := m.find(func(o *modelOrder) bool { return o.id == on.Order })
	if o == nil || (on.By != "" && on.By != o.buyer) {
		return no(CodeOrderNotFound)
	}
	if _, extend := c.(*Extend); extend && o.status == StatusReserved && m.outboxFull(1) {
		return no(CodeOverloaded)
	}
	refusal := m.transition(o, c, payment)
	if refusal == nil {
		return &Outcome{Order: o.view()}
	}
	if refusal.Code == CodeOrderStatus {
		refusal.Refusal.Status = o.status
	}
	return refusal
}

// transition is the table of what each status allows; nil is yes.
func (m *model) transition(o *modelOrder, c Command, payment PaymentID) *Outcome {
	impossible := no(CodeOrderStatus)
	switch c := c.(type) {
	case *Extend:
		if o.status != StatusReserved {
			return impossible
		}
		deadline := int64(1 << 62)
		for _, item := range o.items {
			s := m.product(item.Product).settings
			deadline = min(deadline, m.clock+s.HoldSeconds*1000, o.created+s.HoldMaxSeconds*1000)
		}
		if deadline <= o.expires {
			refusal := no(CodeExtensionLimit)
			refusal.Refusal.Status = o.status
			return refusal
		}
		o.expires = deadline
		m.become(o, StatusReserved, "order.extended")
	case *Release:
		switch o.status {
		case StatusReserved:
			m.assign(o, owner{})
			m.become(o, StatusReleased, "inventory.released")
		case StatusReleased:
		default:
			return impossible
		}
	case *BeginPayment:
		switch {
		case o.status == StatusReserved:
			for _, item := range o.items {
				grace := m.product(item.Product).settings.PaymentGraceSeconds
				o.expires = max(o.expires, m.clock+grace*1000)
			}
			o.payment = payment
			m.become(o, StatusPaying, "payment.started")
		case o.status == StatusPaying && o.payment == payment:
		default:
			return impossible
		}
	case *Confirm:
		return m.confirm(o, payment)
	case *Refuse:
		switch {
		case o.status == StatusPaying && o.payment == payment:
			m.assign(o, owner{})
			m.become(o, StatusRefused, "payment.refused", "inventory.released")
		case o.status == StatusRefused && o.payment == payment:
		default:
			return impossible
		}
	case *Ship:
		switch o.status {
		case StatusPaid:
			m.become(o, StatusShipped, "order.shipped")
		case StatusShipped:
		default:
			return impossible
		}
	case *Refund:
		switch {
		case o.status.Sold() && c.ReturnToStock:
			m.assign(o, owner{})
			m.become(o, StatusRefunded, "order.refunded", "inventory.released")
		case o.status.Sold():
			m.assign(o, owner{blocked: true})
			m.become(o, StatusRefunded, "order.refunded")
		case o.status == StatusRefundPending:
			m.become(o, StatusRefunded, "order.refunded")
		case o.status == StatusRefunded:
		default:
			return impossible
		}
	}
	return nil
}

func (m *model) confirm(o *modelOrder, payment PaymentID) *Outcome {
	switch o.status {
	case StatusPaid, StatusShipped:
		if o.payment != payment {
			refusal := no(CodePaidByAnother)
			refusal.Refusal.Status = o.status
			return refusal
		}
		return nil
	case StatusRefundPending, StatusRefunded:
		return no(CodeOrderStatus)
	case StatusExpired, StatusReleased, StatusRefused:
		refusal := no(CodeNumbersTaken)
		var ids []ProductID
		for _, item := range o.items {
			ids = append(ids, item.Product)
			p := m.product(item.Product)
			taken := slices.DeleteFunc(slices.Clone(item.Numbers), p.free)
			if len(taken) > 0 {
				refusal.Refusal.Taken = append(refusal.Refusal.Taken, Selection{Product: p.id, Numbers: taken})
			}
		}
		if refusal.Refusal.Taken != nil {
			o.payment = payment
			m.become(o, StatusRefundPending, "payment.approved")
			refusal.Refusal.Status, refusal.Order = o.status, o.view()
			refusal.Refusal.NextExpiryUnixMilli = m.nextExpiry(ids...)
			return refusal
		}
	}
	m.assign(o, owner{order: o})
	o.payment = payment
	m.become(o, StatusPaid, "payment.approved", "inventory.sold")
	return nil
}
