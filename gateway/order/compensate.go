package order

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// confirm has the engine sell the numbers to this payment. What it cannot sell has to go back.
func (w *walk) confirm(ctx context.Context) error {
	if w.p.Policy.Late == LateRefund {
		o, err := w.c.order(ctx, w.p.Order, "")
		if err != nil && !errors.Is(err, ErrOrderNotFound) {
			return err
		}
		if err != nil || !o.Status.Live() && !o.Status.Sold() {
			return w.undo(ctx)
		}
	}
	outcome, err := w.do(ctx, &inventory.Confirm{OnOrder: w.onOrder(), Payment: w.p.ID})
	if err != nil {
		return err
	}
	switch outcome.Code {
	case inventory.CodeOK:
		return w.confirmed(ctx)
	case inventory.CodePaidByAnother, inventory.CodeNumbersTaken, inventory.CodeOrderStatus,
		inventory.CodeOrderNotFound:
		return w.undo(ctx)
	}
	return w.refusedByEngine(ctx, outcome.Code)
}

// confirmed goes on with an order that is paid. What is captured next needs no point of its own to
// recover from: confirming again is confirming once, and so is capturing.
func (w *walk) confirmed(ctx context.Context) error {
	change := Change{Payment: w.p, WakeSiblings: !w.alone}
	switch {
	case w.p.Status == StatusSettled:
		change.Payment.Status = StatusCaptured
		if w.p.Provider != "" {
			change.Events = []Event{EventCaptured}
		}
	case w.p.Policy.CaptureAt == CaptureAtShipping:
		change.Payment.Status = StatusConfirmed
	case w.alone:
		return w.soften(StatusCapturing)
	default:
		change.Payment.Status = StatusCapturing
	}
	return w.save(ctx, change)
}

// undo gives back the money that the order does not take.
func (w *walk) undo(ctx context.Context) error {
	change := Change{Payment: w.p}
	if w.p.Status == StatusAuthorised {
		change.Payment.Status = StatusVoiding
		return w.save(ctx, change)
	}
	change.Payment.Status = StatusSurplus
	change.Payment.ReturnToStock = true
	change.Events = []Event{EventSurplus}
	w.raise(ctx, FindingSurplus, "the order is not paid by it")
	return w.save(ctx, change)
}

// capture takes what was authorised. Doing it again is one capture.
func (w *walk) capture(ctx context.Context) error {
	var charge payment.Charge
	err := w.provider(ctx, func(ctx context.Context, p payment.Provider) (err error) {
		charge, err = p.Capture(ctx, payment.Capture{
			Key: w.key("capture"), Reference: w.reference(), Amount: w.p.Amount,
		})
		return err
	})
	return w.did(ctx, "capture", charge, err)
}

// key is that of a call about the payment's charge: the same for every repetition. But a provider
// may have stored a failure under it, which it then repeats for ever. A key that has not worked for
// long is given up for another: that a charge is captured, or voided, once is certain without it.
func (w *walk) key(call string) string {
	key := string(w.p.ID) + "-" + call
	if n := w.c.config.Now().Sub(w.p.UpdatedAt) / w.c.keyLife(); n > 0 {
		key += "-" + strconv.FormatInt(int64(n), 10)
	}
	return key
}

// keyLife is for how long a call is repeated with one key.
func (c *Checkout) keyLife() time.Duration { return 20 * c.config.Patience }

// void gives back what is not captured, or finds that it was paid meanwhile.
func (w *walk) void(ctx context.Context) error {
	var charge payment.Charge
	err := w.provider(ctx, func(ctx context.Context, p payment.Provider) (err error) {
		charge, err = p.Void(ctx, payment.Void{
			Key: w.key("void"), Reference: w.reference(),
		})
		return err
	})
	if errors.Is(err, payment.ErrNotFound) {
		next := w.p
		next.Status = StatusWithdrawn
		return w.save(ctx, Change{Payment: next})
	}
	return w.did(ctx, "void", charge, err)
}

// did takes over the answer to a capture or void. One that is refused is so for a reason that the
// charge itself tells, or for one that a person has to find.
func (w *walk) did(ctx context.Context, call string, charge payment.Charge, err error) error {
	if errors.Is(err, payment.ErrRejected) {
		was := w.p.Status
		if found := w.lookUp(ctx); found == nil && w.p.Status != was {
			return nil
		}
		w.raise(ctx, FindingRejected, call+": "+err.Error())
	}
	if err != nil {
		return err
	}
	return w.observe(ctx, call, charge)
}

// end does in the engine what follows from a payment that will not pay: an order that it has paid,
// or that waits for its money to go back, is refunded; one that nothing can pay any more is
// refused.
func (w *walk) end(ctx context.Context) error {
	o, err := w.c.order(ctx, w.p.Order, "")
	if err != nil && !errors.Is(err, ErrOrderNotFound) {
		return err
	}
	var command inventory.Command
	if err == nil {
		if command, err = w.ending(ctx, o); err != nil {
			return err
		}
	}
	if command != nil {
		outcome, err := w.do(ctx, command)
		if err != nil {
			return err
		}
		if outcome.Code != inventory.CodeOK && outcome.Code != inventory.CodeOrderStatus &&
			outcome.Code != inventory.CodeOrderNotFound {
			return w.refusedByEngine(ctx, outcome.Code)
		}
	}
	change := Change{Payment: w.p}
	switch w.p.Status {
	case StatusDeclined:
		change.Payment.Status = StatusRefused
	case StatusWithdrawn:
		change.Payment.Status = StatusVoided
		change.Events = []Event{EventVoided}
	case StatusReturned:
		change.Payment.Status = StatusRefunded
		change.Events = []Event{EventRefunded}
	}
	return w.save(ctx, change)
}

// ending is the command that end needs, or nil. An order is refused in the name of the payment that
// began it, by the last of its attempts that ends: each has written that it cannot pay before it
// looks at the others, so that one of them is the last.
func (w *walk) ending(ctx context.Context, o *inventory.OrderView) (inventory.Command, error) {
	mine := o.Payment == w.p.ID
	switch {
	case mine && (o.Status.Sold() || o.Status == inventory.StatusRefundPending):
		// One that was brought back may be found declined, or given back already: nothing is owed.
		if w.p.Status == StatusDeclined && o.Status.Sold() {
			return nil, w.refusedByEngine(ctx, inventory.CodeOrderStatus)
		}
		return &inventory.Refund{OnOrder: w.onOrder(), ReturnToStock: w.p.ReturnToStock}, nil
	case o.Status != inventory.StatusPaying:
		return nil, nil
	}
	all, err := w.c.store.OfOrder(ctx, w.p.Order)
	if err != nil {
		return nil, err
	}
	for _, other := range all {
		if other.ID != w.p.ID && other.Status.MayPay() {
			return nil, nil
		}
		mine = mine || other.ID == o.Payment
	}
	if !mine {
		return nil, nil // a service has begun it for itself
	}
	return &inventory.Refuse{OnOrder: w.onOrder(), Payment: o.Payment}, nil
}

// left is what was captured and has neither gone back nor been asked to.
func (p *Payment) left() int64 { return p.Captured - p.Refunding - p.Refunded }

// refundWhole adds the refund of all that is left to a change.
func (w *walk) refundWhole(change *Change, amount int64) {
	r := Refund{
		ID: newID(), Payment: w.p.ID, Whole: true, Status: RefundRequested,
		Amount:    payment.Money{Amount: amount, Currency: w.p.Amount.Currency},
		CreatedAt: w.c.config.Now(),
	}
	change.Payment.Refunding += amount
	change.Refunds = append(change.Refunds, r)
	w.refund = r.ID
}

// giveBack drives the refund of the whole payment. A surplus waits for every part of it.
func (w *walk) giveBack(ctx context.Context) error {
	refunds, err := w.c.store.Refunds(ctx, w.p.ID)
	if err != nil {
		return err
	}
	for i := range refunds {
		if r := &refunds[i]; w.waitsFor(r) && !r.Status.ended() {
			return w.drive(ctx, r)
		}
	}
	change := Change{Payment: w.p}
	if left := w.p.left(); left > 0 {
		w.refundWhole(&change, left)
	} else {
		change.Payment.Status = StatusReturned
	}
	return w.save(ctx, change)
}

// waitsFor says that the payment does not go on before the refund has ended.
func (w *walk) waitsFor(r *Refund) bool { return r.Whole || w.p.Status == StatusSurplus }

// drive asks the provider for a refund, after having looked whether it has been asked before.
func (w *walk) drive(ctx context.Context, r *Refund) error {
	if w.refund != r.ID {
		charge, err := w.ask(ctx)
		if err != nil {
			return err
		}
		if detail := w.differs(&charge); detail != "" {
			w.raise(ctx, FindingMismatch, detail)
			return fmt.Errorf("%w: %s", ErrMismatch, detail)
		}
		for i := range charge.Refunds {
			if same(r, &charge.Refunds[i]) {
				return w.drove(ctx, r, charge.Refunds[i])
			}
		}
		if r.Status == RefundRequested && w.c.config.Now().Sub(r.CreatedAt) > w.c.keyLife() {
			// The provider does not know it however often it was asked: see key.
			return w.drove(ctx, r, payment.Refund{
				ID: r.ID, Amount: r.Amount, Status: payment.RefundFailed,
			})
		}
		w.refund = r.ID
	}
	var said payment.Refund
	err := w.provider(ctx, func(ctx context.Context, p payment.Provider) (err error) {
		said, err = p.Refund(ctx, payment.RefundRequest{
			Key: r.ID, Refund: r.ID, Reference: w.reference(), Amount: r.Amount, Reason: r.Reason,
		})
		return err
	})
	if errors.Is(err, payment.ErrRejected) {
		w.raise(ctx, FindingRejected, "refund: "+err.Error())
	}
	if err != nil {
		return err
	}
	return w.drove(ctx, r, said)
}

// drove writes what became of the refund, and says errLater if that is not its end.
func (w *walk) drove(ctx context.Context, r *Refund, said payment.Refund) error {
	change := Change{Payment: w.p, Answers: answer("refund", said.Raw)}
	w.match(ctx, &change, []Refund{*r}, []payment.Refund{said})
	ended := len(change.Refunds) > 0 && change.Refunds[0].Status.ended()
	done := ended && change.Refunds[0].Status == RefundDone
	waits := w.waitsFor(r)
	switch {
	case r.Whole && done:
		change.Payment.Status = StatusReturned
	case ended && !done:
		w.raise(ctx, FindingRefund, "refund "+r.ID)
	}
	if waits && !done {
		change.Payment.DueAt = w.c.config.Now().Add(w.c.again(r.CreatedAt))
	}
	if !waits && !ended {
		w.postpone(&change, r)
	}
	if err := w.save(ctx, change); err != nil {
		return err
	}
	if waits && !done {
		return errLater
	}
	return nil
}

// again is how long to wait for a provider that takes its time: longer the older the matter is.
func (c *Checkout) again(since time.Time) time.Duration {
	return min(max(c.config.Now().Sub(since)/4, c.config.Patience), time.Hour)
}
