package order

import (
	"context"
	"fmt"

	"numera/gateway/payment"
)

// becomes is where a payment goes when its provider says that the charge is in this status; it is
// where it was if that is nothing new.
func becomes(p *Payment, c *payment.Charge) Status {
	paid := c.Status == payment.StatusCaptured
	held := c.Status == payment.StatusAuthorised
	gone := !paid && !held && c.Status != payment.StatusPending
	switch p.Status {
	case StatusCreated, StatusBegun, StatusCleared, StatusPending:
		switch {
		case paid:
			return StatusSettled
		case held:
			return StatusAuthorised
		case gone:
			return StatusDeclined
		}
		return StatusPending
	case StatusConfirmed, StatusCapturing:
		switch {
		case paid:
			return StatusCaptured
		case gone:
			return StatusLapsed
		}
	case StatusLapsed:
		if paid {
			return StatusCaptured
		}
	case StatusVoiding:
		switch {
		case paid:
			return StatusSettled
		case gone:
			return StatusWithdrawn
		}
	case StatusRefused, StatusVoided:
		switch {
		case paid && c.Captured.Amount > c.Refunded.Amount:
			return StatusSettled
		case held:
			return StatusVoiding
		}
	}
	return p.Status
}

// observe takes over what the provider says of the charge, if it is the payment's.
func (w *walk) observe(ctx context.Context, call string, charge payment.Charge) error {
	if detail := w.differs(&charge); detail != "" {
		w.raise(ctx, FindingMismatch, detail)
		return fmt.Errorf("%w: %s", ErrMismatch, detail)
	}
	next := w.p
	next.Status = becomes(&w.p, &charge)
	next.Reference = charge.Provider
	change := Change{Answers: answer(call, charge.Raw)}
	switch next.Status {
	case StatusPending:
		next.Action, next.LapsesAt = charge.Action, charge.LapsesAt
		next.DueAt = w.poll()
	case StatusAuthorised:
		next.LapsesAt = charge.LapsesAt
		change.Events = []Event{EventAuthorised}
	case StatusSettled:
		next.Captured = charge.Captured.Amount
	case StatusCaptured:
		next.Captured = charge.Captured.Amount
		if w.p.Status != StatusCaptured {
			change.Events = []Event{EventCaptured}
		}
	case StatusDeclined:
		next.DeclinedBy = charge.DeclinedBy
	case StatusLapsed:
		if w.p.Status != StatusLapsed {
			w.raise(ctx, FindingLapsed, "the authorisation ended before it was captured")
			change.Events = []Event{EventLapsed}
		}
	}
	change.Payment = next
	if len(charge.Refunds) > 0 {
		known, err := w.c.store.Refunds(ctx, w.p.ID)
		if err != nil {
			return err
		}
		w.match(ctx, &change, known, charge.Refunds)
	}
	if next.Status == w.p.Status && len(change.Refunds) == 0 && next.Reference == w.p.Reference &&
		next.Status != StatusPending {
		return w.unmoved(&charge)
	}
	if next.Status == StatusAuthorised && w.alone && w.p.Version == 1 &&
		w.p.Policy.CaptureAt == CaptureAtConfirmation {
		return w.keep(change)
	}
	return w.save(ctx, change)
}

// unmoved says what a charge means that has changed nothing: at rest, that there is nothing new;
// else that the provider has accepted the call without doing it yet.
func (w *walk) unmoved(charge *payment.Charge) error {
	if w.p.Status.Rests() || w.p.Captured > 0 {
		return nil
	}
	return fmt.Errorf("%w: still %s", payment.ErrUnknown, charge.Status)
}

// differs says how a charge is not the payment's, or "".
func (w *walk) differs(c *payment.Charge) string {
	switch {
	case c.Payment != "" && c.Payment != string(w.p.ID):
		return "another payment"
	case w.p.Reference != "" && c.Provider != w.p.Reference:
		return "another charge"
	case w.p.Account != "" && c.Account != "" && c.Account != w.p.Account:
		return "another account"
	case c.Amount != w.p.Amount:
		return fmt.Sprintf("amount %d %s instead of %d %s",
			c.Amount.Amount, c.Amount.Currency, w.p.Amount.Amount, w.p.Amount.Currency)
	case c.Captured.Amount != 0 && c.Captured != w.p.Amount:
		return fmt.Sprintf("captured %d %s of %d %s",
			c.Captured.Amount, c.Captured.Currency, w.p.Amount.Amount, w.p.Amount.Currency)
	}
	return ""
}

func answer(call string, raw []byte) []Answer {
	if len(raw) == 0 {
		return nil
	}
	return []Answer{{Call: call, Body: raw}}
}
