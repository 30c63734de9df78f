package order

import (
	"context"
	"errors"
	"fmt"

	"numera/engine/inventory"
)

// Ship marks a paid order as shipped. Where its money is only authorised, that is captured first,
// so that an authorisation that has run out is seen before anything leaves: ErrLapsed.
//
// ErrInProgress: the capture is not certain yet; do it again. ErrOrderNotFound, ErrOrderStatus.
func (c *Checkout) Ship(ctx context.Context, id inventory.OrderID) (*inventory.OrderView, error) {
	o, err := c.order(ctx, id, "")
	if err != nil {
		return nil, err
	}
	switch o.Status {
	case inventory.StatusShipped:
		return o, nil
	case inventory.StatusPaid:
	default:
		return nil, &StatusError{o.Status}
	}
	p, err := c.store.Payment(ctx, o.Payment)
	if err == nil {
		err = c.secure(ctx, p)
	}
	// An order that a service has confirmed for itself has no payment here.
	if err != nil && !errors.Is(err, ErrPaymentNotFound) {
		return nil, err
	}
	outcome, err := c.engine.Do(ctx, inventory.Entry{
		Correlation: string(o.Payment),
		Command:     &inventory.Ship{OnOrder: inventory.OnOrder{Order: id}},
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("order: %w", err)
	case outcome.Code == inventory.CodeOrderStatus:
		return nil, &StatusError{outcome.Refusal.Status}
	case outcome.Code != inventory.CodeOK:
		return nil, fmt.Errorf("%w: %v", ErrEngine, outcome.Code)
	}
	return outcome.Order, nil
}

// secure sees to it that the order's money is here.
func (c *Checkout) secure(ctx context.Context, p Payment) error {
	w := &walk{c: c, p: p}
	if p.Status == StatusConfirmed {
		next := p
		next.Status = StatusCapturing
		if err := w.save(ctx, Change{Payment: next}); errors.Is(err, ErrConflict) {
			return ErrInProgress
		} else if err != nil {
			return err
		}
	}
	w.run(ctx)
	switch w.p.Status {
	case StatusCaptured:
		return nil
	case StatusLapsed:
		return ErrLapsed
	case StatusRefunded, StatusVoided:
		return &StatusError{inventory.StatusRefunded}
	}
	return ErrInProgress
}
