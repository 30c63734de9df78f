package order

import (
	"context"
	"fmt"
	"slices"
	"time"

	"numera/gateway/payment"
)

// match takes over what the provider says of refunds into a change of the payment. A refund is
// known by its id, ours or the provider's; one that is not known was made at the provider, and
// counts.
func (w *walk) match(
	ctx context.Context, change *Change, known []Refund, said []payment.Refund,
) {
	for i := range said {
		s := &said[i]
		at := slices.IndexFunc(known, func(r Refund) bool { return same(&r, s) })
		if at >= 0 {
			w.take(ctx, change, known[at], s)
			continue
		}
		if s.Status == payment.RefundFailed {
			continue
		}
		if s.Amount.Amount > change.Payment.left() || s.Amount.Currency != w.p.Amount.Currency {
			w.raise(ctx, FindingMismatch, fmt.Sprintf("refund %s of %d %s at the provider",
				s.Provider, s.Amount.Amount, s.Amount.Currency))
			continue
		}
		w.raise(ctx, FindingRefundByHand, "refund "+s.Provider)
		change.Payment.Refunding += s.Amount.Amount
		w.take(ctx, change, Refund{
			ID: newID(), Payment: w.p.ID, Amount: s.Amount, Status: RefundRequested,
			Reason: "made at the provider", CreatedAt: w.c.config.Now(),
		}, s)
	}
}

// take takes over what the provider says of one refund.
func (w *walk) take(ctx context.Context, change *Change, r Refund, s *payment.Refund) {
	if s.Amount != r.Amount {
		w.raise(ctx, FindingMismatch, fmt.Sprintf("refund %s of %d instead of %d",
			r.ID, s.Amount.Amount, r.Amount.Amount))
		return
	}
	was := r
	if r.Status.ended() {
		return
	}
	r.Reference = s.Provider
	switch s.Status {
	case payment.RefundPending:
		r.Status = RefundPending
	case payment.RefundDone:
		r.Status = RefundDone
		change.Payment.Refunding -= r.Amount.Amount
		change.Payment.Refunded += r.Amount.Amount
		if !r.Whole {
			change.Events = append(change.Events, EventRefund)
		}
	case payment.RefundFailed:
		r.Status = RefundFailed
		change.Payment.Refunding -= r.Amount.Amount
		change.Events = append(change.Events, EventRefundFail)
	}
	if r.Status == was.Status && r.Reference == was.Reference {
		return
	}
	if r.Status.ended() {
		r.DueAt = time.Time{}
	}
	change.Refunds = append(change.Refunds, r)
}
