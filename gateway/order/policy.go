package order

import "numera/engine/inventory"

// PolicyOf is what a product's settings say of its payments.
func PolicyOf(s *inventory.Settings) Policy {
	p := Policy{CaptureAt: CaptureAtConfirmation, Late: LateReclaim}
	if s.CaptureAtShipping {
		p.CaptureAt = CaptureAtShipping
	}
	if s.RefundLate {
		p.Late = LateRefund
	}
	return p
}
