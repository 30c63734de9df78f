package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// find asks the provider what it knows of a payment that an earlier walk may have asked it for.
// Only if it knows of nothing does the payment go on as a fresh one; when its time is over it does
// not, so that a provider that cannot be asked with success does not hold the order for ever. But
// what was asked for just before may still be on its way: only after a while is it declined.
func (w *walk) find(ctx context.Context) error {
	began := w.c.config.Now()
	err := w.lookUp(ctx)
	now := w.c.config.Now()
	switch {
	case !errors.Is(err, payment.ErrNotFound):
		return err
	case !now.After(w.p.ExpiresAt):
		w.untouched = now
		return nil
	case !began.After(w.silentAfter()):
		return fmt.Errorf("%w: it may have been asked a moment ago", payment.ErrUnknown)
	}
	next := w.p
	next.Status, next.DeclinedBy = StatusDeclined, "expired"
	return w.save(ctx, Change{Payment: next})
}

// fresh says that the provider has certainly not been asked for this payment's money. It does not
// stay certain: a walk that is slow may have been overtaken.
func (w *walk) fresh() bool {
	return w.c.config.Now().Sub(w.untouched) < w.c.config.CallTimeout
}

// silentAfter is when a provider that knows nothing of the payment will not come to know of it any
// more. Whoever asks for money has been fresh since the row was made, or released by a review, or
// since a look-up within the payment's time.
func (w *walk) silentAfter() time.Time {
	last := w.p.ExpiresAt
	if w.p.UpdatedAt.After(last) {
		last = w.p.UpdatedAt
	}
	return last.Add(w.c.config.CallTimeout + w.c.config.ActsWithin)
}

// lookUp asks for the charge, and takes from it what is new.
func (w *walk) lookUp(ctx context.Context) error {
	charge, err := w.ask(ctx)
	if err != nil {
		return err
	}
	return w.observe(ctx, "look_up", charge)
}

// ask is the look-up alone.
func (w *walk) ask(ctx context.Context) (charge payment.Charge, err error) {
	err = w.provider(ctx, func(ctx context.Context, p payment.Provider) error {
		charge, err = p.LookUp(ctx, w.reference())
		return err
	})
	return charge, err
}

// askFor takes a fresh payment through the engine and anti-fraud to the provider.
func (w *walk) askFor(ctx context.Context) error {
	switch w.p.Status {
	case StatusCreated:
		return w.begin(ctx)
	case StatusBegun:
		return w.judge(ctx)
	}
	return w.authorise(ctx)
}

// begin holds the order for the payment. One that is held for another attempt will do: whoever
// confirms first has it.
func (w *walk) begin(ctx context.Context) error {
	outcome, err := w.do(ctx, &inventory.BeginPayment{OnOrder: w.onOrder(), Payment: w.p.ID})
	switch {
	case err != nil:
		return err
	case outcome.Code == inventory.CodeOrderStatus &&
		outcome.Refusal.Status == inventory.StatusPaying:
		return w.begun(ctx, time.Time{})
	case outcome.Code == inventory.CodeOrderStatus,
		outcome.Code == inventory.CodeOrderNotFound:
		next := w.p
		next.Status = StatusRejected
		return w.save(ctx, Change{Payment: next})
	case outcome.Code != inventory.CodeOK:
		return w.refusedByEngine(ctx, outcome.Code)
	}
	return w.begun(ctx, providerDeadline(w.c.config.Now(), outcome.Order))
}

// begun goes on. What a Pix is asked for depends on the deadline, and a repeat has to be the same:
// it is stored first.
func (w *walk) begun(ctx context.Context, deadline time.Time) error {
	if w.p.Provider == "" {
		next := w.p
		next.Status = StatusSettled
		return w.save(ctx, Change{Payment: next})
	}
	if w.p.Method == payment.MethodCard || deadline.IsZero() {
		return w.soften(StatusBegun)
	}
	next := w.p
	next.Status, next.ExpiresAt = StatusBegun, deadline
	return w.save(ctx, Change{Payment: next})
}

// judge asks anti-fraud. What it does not answer, a person decides.
func (w *walk) judge(ctx context.Context) error {
	if w.c.config.Fraud == nil {
		return w.soften(StatusCleared)
	}
	if err := w.needSecret(ctx); err != nil {
		return err
	}
	verdict, err := w.c.config.Fraud.Judge(ctx, FraudCase{
		Payment: w.p.ID, Order: w.p.Order, Buyer: w.p.Buyer, Tenant: w.p.Tenant,
		Amount: w.p.Amount, Method: w.p.Method, Payer: w.secret.Payer,
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err == nil && verdict == FraudAllow {
		return w.soften(StatusCleared)
	}
	next := w.p
	if err == nil && verdict == FraudDeny {
		next.Status, next.DeclinedBy = StatusDeclined, "anti-fraud"
		return w.save(ctx, Change{Payment: next})
	}
	next.Status = StatusReview
	return w.save(ctx, Change{Payment: next, Events: []Event{EventReview}})
}

func (w *walk) needSecret(ctx context.Context) error {
	if w.secret != nil {
		return nil
	}
	secret, err := w.c.store.Secret(ctx, w.p.ID)
	if err == nil {
		w.secret = &secret
	}
	return err
}

// authorise asks for the money.
func (w *walk) authorise(ctx context.Context) error {
	if err := w.needSecret(ctx); err != nil {
		return err
	}
	var charge payment.Charge
	err := w.provider(ctx, func(ctx context.Context, p payment.Provider) (err error) {
		charge, err = p.Authorise(ctx, payment.Authorisation{
			Key: string(w.p.ID), Payment: string(w.p.ID), Order: w.p.Order.String(),
			Amount: w.p.Amount, Method: w.p.Method, CardToken: w.secret.CardToken,
			ExpiresAt: w.p.ExpiresAt, Description: "order " + w.p.Order.String(),
			Payer: w.secret.Payer,
		})
		return err
	})
	if errors.Is(err, payment.ErrRejected) {
		// It knew of no charge, and will not make one.
		w.raise(ctx, FindingRejected, "authorise: "+err.Error())
		next := w.p
		next.Status, next.DeclinedBy = StatusDeclined, "rejected"
		return w.save(ctx, Change{Payment: next})
	}
	if err != nil {
		return err
	}
	return w.observe(ctx, "authorise", charge)
}

// wait looks after a payment that the buyer has not paid: the provider may know better by now, and
// when its time is over, or its order needs it no more, it is given back.
func (w *walk) wait(ctx context.Context) error {
	charge, err := w.ask(ctx)
	next := w.p
	switch {
	case errors.Is(err, payment.ErrNotFound):
		next.Status = StatusDeclined
		return w.save(ctx, Change{Payment: next})
	case err != nil:
		w.alarm(ctx)
		return err
	case charge.Status != payment.StatusPending:
		return w.observe(ctx, "look_up", charge)
	}
	o, err := w.c.order(ctx, w.p.Order, "")
	if err != nil && !errors.Is(err, ErrOrderNotFound) {
		return err
	}
	next.Status = StatusVoiding
	if err == nil && o.Status.Live() && w.c.config.Now().Before(w.p.ExpiresAt) {
		next.Status, next.DueAt = StatusPending, w.poll()
	}
	return w.save(ctx, Change{Payment: next})
}

// poll is when a pending payment is looked after: a webhook may get lost, and its time ends.
func (w *walk) poll() time.Time {
	again := max(time.Minute, w.c.again(w.p.CreatedAt))
	if next := w.c.config.Now().Add(again); next.Before(w.p.ExpiresAt) {
		return next
	}
	return w.p.ExpiresAt
}
