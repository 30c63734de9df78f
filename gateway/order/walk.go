package order

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// walk is one worker moving one payment. It belongs to one goroutine.
type walk struct {
	c *Checkout
	p Payment // as its row was last read or written, but for the statuses of soft steps

	// untouched is when the provider had certainly not been asked for this payment's money: this walk
	// has made the row then, or has asked the provider and it knew of nothing. Zero: not known.
	untouched time.Time
	secret    *Secret // nil: to be read

	// alone says that the order had no other payment under way when this walk made its own. Others
	// that came later find out by themselves that it is paid.
	alone bool

	// kept is the change to authorised that is not written yet: see keep.
	kept *Change

	refund string // the id of a refund that this walk has made: it has never been asked for either
}

// The pauses of a walk that somebody waits for.
const (
	firstPause = 20 * time.Millisecond
	longPause  = time.Second
)

// errLater stops a walk whose payment rests until its DueAt, though its status does not say so.
var errLater = errors.New("order: later")

// run moves the payment until it rests, is due later, needs a person, or ctx ends.
func (w *walk) run(ctx context.Context) {
	wait := firstPause
	for !w.p.Status.Rests() {
		err := w.step(ctx)
		if err == nil {
			wait = firstPause
			continue
		}
		if errors.Is(err, errLater) || !Temporary(err) || !pause(ctx, wait) {
			w.report(ctx, err)
			return
		}
		wait = min(2*wait, longPause)
		for w.load(ctx, w.p.ID) != nil {
			if !pause(ctx, wait) {
				return
			}
		}
	}
}

// finish moves the payment until it rests or a step fails.
func (w *walk) finish(ctx context.Context) error {
	conflicts := 0
	for !w.p.Status.Rests() {
		err := w.step(ctx)
		switch {
		case errors.Is(err, errLater):
			return nil
		case errors.Is(err, ErrConflict) && conflicts < 3:
			// Another worker was faster, or a commit was not heard of.
			conflicts++
			if err := w.load(ctx, w.p.ID); err != nil {
				return err
			}
		case err != nil:
			w.alarm(ctx)
			return err
		}
	}
	return nil
}

// alarm raises that the order of a payment is held beyond its deadline, because nobody can say yet
// what became of the money.
func (w *walk) alarm(ctx context.Context) {
	if w.p.Status.MayPay() && w.c.config.Now().After(w.p.ExpiresAt) {
		w.raise(ctx, FindingOverdue, "waits for what became of it")
	}
}

// load reads the row, whatever this walk believed of it.
func (w *walk) load(ctx context.Context, id inventory.PaymentID) error {
	p, err := w.c.store.Payment(ctx, id)
	if err != nil {
		return err
	}
	w.p, w.untouched, w.alone, w.kept, w.refund = p, time.Time{}, false, nil, ""
	return nil
}

// report leaves a trace of a walk that nobody will hear of otherwise.
func (w *walk) report(ctx context.Context, err error) {
	if errors.Is(err, errLater) || ctx.Err() != nil {
		return
	}
	w.c.config.Logger.WarnContext(ctx, "payment stands still", "payment", w.p.ID,
		"status", w.p.Status, "error", err)
}

// step does what the payment's status says: one call, and what came of it is written. After an
// error the row has to be read again.
func (w *walk) step(ctx context.Context) error {
	switch w.p.Status {
	case StatusCreated, StatusBegun, StatusCleared:
		if !w.fresh() && w.p.Provider != "" {
			return w.find(ctx)
		}
		return w.askFor(ctx)
	case StatusPending:
		return w.wait(ctx)
	case StatusAuthorised, StatusSettled:
		return w.confirm(ctx)
	case StatusCapturing:
		return w.capture(ctx)
	case StatusVoiding:
		return w.void(ctx)
	case StatusSurplus, StatusRefunding:
		return w.giveBack(ctx)
	case StatusDeclined, StatusWithdrawn, StatusReturned:
		return w.end(ctx)
	}
	return errLater
}

// save writes a change, whose payment is a copy of w.p with what has become of it.
func (w *walk) save(ctx context.Context, change Change) error {
	w.complete(&change)
	if kept := w.kept; kept != nil && change.Payment.Status == StatusCaptured {
		change.Answers = append(kept.Answers, change.Answers...)
		change.Events = append(kept.Events, change.Events...)
	} else if kept != nil {
		saved, err := w.c.store.Save(ctx, *kept)
		if err != nil {
			return err
		}
		change.Payment.Version = saved.Version
	}
	saved, err := w.c.store.Save(ctx, change)
	if err != nil {
		return err
	}
	if w.kept != nil {
		w.c.metrics.moved("", w.kept.Payment.Status)
	}
	w.c.metrics.moved(w.p.Status, saved.Status)
	w.p, w.kept = saved, nil
	return nil
}

// keep goes on with a change to authorised without writing it: what comes next is to confirm and to
// capture, and then one statement tells all. A walk that begins at the row again finds the charge
// at the provider.
func (w *walk) keep(change Change) error {
	w.complete(&change)
	w.p, w.kept = change.Payment, &change
	return nil
}

// complete adds to a change when the payment is due again, and what it resolves.
func (w *walk) complete(change *Change) {
	next := &change.Payment
	if was := w.p.Status; !was.may(next.Status) {
		panic("order: " + string(was) + " becomes " + string(next.Status))
	}
	now := w.c.config.Now()
	switch {
	case next.Status == StatusPending, w.keepsDue(next):
	case next.Status.Rests():
		next.DueAt = time.Time{}
	default:
		next.DueAt = now.Add(w.c.config.Patience)
	}
	if w.p.Status.MayPay() && !next.Status.MayPay() && now.After(w.p.ExpiresAt) {
		change.Resolves = FindingOverdue
	}
}

// keepsDue says that the step has said itself when the payment is due again.
func (w *walk) keepsDue(next *Payment) bool {
	return next.Status == w.p.Status && !next.Status.Rests() && next.DueAt.After(w.p.DueAt)
}

// soften goes on without writing: a walk that begins at the row again does the same calls again.
func (w *walk) soften(next Status) error {
	if !w.p.Status.may(next) {
		panic("order: " + string(w.p.Status) + " becomes " + string(next))
	}
	w.p.Status = next
	return nil
}

// provider makes one call to the payment's provider.
func (w *walk) provider(
	ctx context.Context, call func(context.Context, payment.Provider) error,
) error {
	a, err := w.c.account(w.p.Tenant, w.p.Provider, w.p.Account)
	if err != nil {
		return err
	}
	return a.call(ctx, call)
}

// reference names the charge.
func (w *walk) reference() payment.Reference {
	return payment.Reference{Payment: string(w.p.ID), Provider: w.p.Reference}
}

// raise records what a person has to look at. A finding that cannot be stored must not keep the
// money from moving: it is in the log.
func (w *walk) raise(ctx context.Context, kind, detail string) {
	w.c.raise(ctx, Finding{Kind: kind, Subject: string(w.p.ID), Detail: detail})
}

func (c *Checkout) raise(ctx context.Context, f Finding) {
	c.config.Logger.ErrorContext(ctx, "payment finding", "kind", f.Kind, "subject", f.Subject,
		"detail", f.Detail)
	if err := c.store.Raise(ctx, f); err != nil {
		c.config.Logger.ErrorContext(ctx, "finding not stored", "kind", f.Kind, "error", err)
	}
}

// The kinds of findings about payments.
const (
	FindingOverdue   = "payment_overdue"   // its deadline is over, and the provider has not said
	FindingMismatch  = "payment_mismatch"  // the provider's charge is not what was asked for
	FindingLapsed    = "payment_lapsed"    // the order is paid, and the money is not there
	FindingRejected  = "payment_rejected"  // the provider takes the request itself for wrong
	FindingRefund    = "refund_failed"     // the provider could not give money back
	FindingEngine    = "payment_engine"    // the engine refuses what nothing is wrong with
	FindingUnmatched = "webhook_unmatched" // a webhook is about a payment that is not known
	FindingSurplus   = "payment_surplus"   // money has come twice or too late, and goes back

	FindingRefundByHand = "refund_by_hand" // somebody has refunded at the provider
)

// do has the engine decide a command on the payment's order.
func (w *walk) do(ctx context.Context, command inventory.Command) (*inventory.Outcome, error) {
	outcome, err := w.c.engine.Do(ctx, inventory.Entry{
		Correlation: string(w.p.ID), Command: command,
	})
	if err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	return outcome, nil
}

// onOrder names the payment's order.
func (w *walk) onOrder() inventory.OnOrder { return inventory.OnOrder{Order: w.p.Order} }

// refusedByEngine is for answers that are not about this payment.
func (w *walk) refusedByEngine(ctx context.Context, code inventory.Code) error {
	w.raise(ctx, FindingEngine, code.String())
	return fmt.Errorf("%w: %v", ErrEngine, code)
}

// providerDeadline is until when the buyer may pay at the provider: before the order's deadline, by
// a margin, or the money would come to an order that has ended.
func providerDeadline(now time.Time, o *inventory.OrderView) time.Time {
	deadline := time.UnixMilli(o.ExpiresUnixMilli)
	margin := min(30*time.Second, max(0, deadline.Sub(now)/4))
	// Whole milliseconds, since a repeat is made from the row, which has no nanoseconds, and has to
	// be the same to the byte.
	return deadline.Add(-margin).Truncate(time.Millisecond)
}

// pause waits, or says false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fingerprint hashes texts, with their lengths.
func fingerprint(texts ...string) []byte {
	h := sha256.New()
	var length [8]byte
	for _, text := range texts {
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write([]byte(text))
	}
	return h.Sum(nil)
}
