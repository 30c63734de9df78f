package order

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// RefundRequest asks to give money back.
type RefundRequest struct {
	Order inventory.OrderID
	Key   string // idempotency key, 1–255 visible ASCII, in the scope of the payment

	// Amount is how much, in the order's currency; nil: all that has not gone back yet, and the
	// order ends. An order is not ended by parts, even if they add up.
	Amount        *payment.Money
	ReturnToStock bool // of the whole: its numbers are for sale again; else they are blocked
	Reason        string
	By            string // the admin
}

func (r *RefundRequest) fingerprint(id inventory.PaymentID) []byte {
	amount := ""
	if r.Amount != nil {
		amount = strconv.FormatInt(r.Amount.Amount, 10) + r.Amount.Currency
	}
	return fingerprint(string(id), amount, strconv.FormatBool(r.ReturnToStock), r.Reason)
}

// Refund gives money of the payment that has paid the order back, at the price that was captured,
// and moves it until it is done or ctx ends; then it goes on by itself. Of money that is authorised
// only, the whole can be given back: its refund is of nothing. replay: the key had asked already.
//
// ErrPaymentNotFound: no payment has paid the order. ErrAmount, ErrKeyReused, ErrInProgress.
func (c *Checkout) Refund(
	ctx context.Context, r RefundRequest,
) (refund Refund, replay bool, err error) {
	for range conflictAttempts {
		var w *walk
		w, refund, replay, err = c.beginRefund(ctx, r)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil || replay {
			return refund, replay, err
		}
		if refund.Whole {
			w.run(ctx)
		} else if err := w.drive(ctx, &refund); err != nil {
			w.report(ctx, err)
		}
		if now, err := c.store.Refund(ctx, refund.ID); err == nil {
			refund = now
		}
		return refund, false, nil
	}
	return Refund{}, false, ErrInProgress
}

const conflictAttempts = 5

// beginRefund stores the refund.
func (c *Checkout) beginRefund(
	ctx context.Context, r RefundRequest,
) (*walk, Refund, bool, error) {
	p, err := c.paying(ctx, r.Order)
	if err != nil {
		return nil, Refund{}, false, err
	}
	refunds, err := c.store.Refunds(ctx, p.ID)
	if err != nil {
		return nil, Refund{}, false, err
	}
	for _, known := range refunds {
		if known.Key == r.Key {
			if !bytes.Equal(known.Fingerprint, r.fingerprint(p.ID)) {
				return nil, Refund{}, false, ErrKeyReused
			}
			return nil, known, true, nil
		}
	}
	w := &walk{c: c, p: p}
	change, err := r.change(w)
	if err != nil {
		return nil, Refund{}, false, err
	}
	if err := w.save(ctx, change); err != nil {
		return nil, Refund{}, false, err
	}
	return w, change.Refunds[0], false, nil
}

// change is what the request does to the payment.
func (r *RefundRequest) change(w *walk) (Change, error) {
	refund := Refund{
		ID: newID(), Payment: w.p.ID, Key: r.Key, Fingerprint: r.fingerprint(w.p.ID),
		Amount: payment.Money{Currency: w.p.Amount.Currency},
		Whole:  r.Amount == nil, Reason: r.Reason, By: r.By, CreatedAt: w.c.config.Now(),
	}
	change := Change{Payment: w.p}
	switch {
	case w.p.Status == StatusCaptured:
		left := w.p.left()
		refund.Status, refund.Amount.Amount = RefundRequested, left
		if r.Amount != nil {
			refund.Amount = *r.Amount
			refund.DueAt = refund.CreatedAt.Add(w.c.config.Patience)
			if refund.Amount.Amount < 1 || refund.Amount.Amount > left ||
				refund.Amount.Currency != w.p.Amount.Currency {
				return Change{}, ErrAmount
			}
		} else {
			change.Payment.Status = StatusRefunding
		}
		change.Payment.Refunding += refund.Amount.Amount
		if refund.Amount.Amount == 0 {
			refund.Status = RefundDone
		}
		w.refund = refund.ID
	case !w.p.Status.Rests() && w.p.Status.MayPay(), w.p.Status == StatusCapturing:
		return Change{}, ErrInProgress
	case r.Amount != nil:
		return Change{}, ErrAmount
	case w.p.Status == StatusConfirmed:
		change.Payment.Status = StatusVoiding
		refund.Status = RefundDone
	case w.p.Status == StatusLapsed:
		change.Payment.Status = StatusWithdrawn
		refund.Status = RefundDone
	case w.p.Status.Rests():
		return Change{}, &StatusError{inventory.StatusRefunded}
	default:
		return Change{}, ErrInProgress
	}
	if refund.Whole {
		change.Payment.ReturnToStock = r.ReturnToStock
	}
	change.Refunds = []Refund{refund}
	return change, nil
}

// paying is the payment that has paid an order, or is about to.
func (c *Checkout) paying(ctx context.Context, id inventory.OrderID) (Payment, error) {
	o, err := c.order(ctx, id, "")
	if err != nil {
		return Payment{}, err
	}
	return c.store.Payment(ctx, o.Payment)
}

// AdvanceRefund moves a refund of a part as far as it goes now, as Advance does a payment.
func (c *Checkout) AdvanceRefund(ctx context.Context, id string) error {
	r, err := c.store.Refund(ctx, id)
	if err != nil || r.Status.ended() {
		return err
	}
	w := &walk{c: c}
	if err := w.load(ctx, r.Payment); err != nil {
		return err
	}
	if r.Whole {
		return w.finish(ctx)
	}
	return w.drive(ctx, &r)
}

// postpone says when a refund of a part is looked at again.
func (w *walk) postpone(change *Change, r *Refund) {
	due := w.c.config.Now().Add(w.c.again(r.CreatedAt))
	if len(change.Refunds) == 0 {
		change.Refunds = []Refund{*r}
	}
	change.Refunds[0].DueAt = due
}

// same says that the provider speaks of this refund.
func same(r *Refund, said *payment.Refund) bool {
	return said.ID == r.ID || said.Provider != "" && said.Provider == r.Reference
}
