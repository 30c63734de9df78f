package order

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// Webhook takes a provider's notice: header and the raw body, at most 64 KiB. A nil error means that
// it is stored, now or before, or is of no concern; what follows from it is done later.
//
// ErrProvider: the tenant has no such provider. payment.ErrSignature: it is forged, and nothing is
// stored. Any other: the provider should send it again.
func (c *Checkout) Webhook(
	ctx context.Context, tenant, provider string, header func(name string) string, body []byte,
) error {
	a, err := c.account(tenant, provider, "")
	if err != nil {
		return err
	}
	now := c.config.Now()
	notice, err := a.Provider.ParseWebhook(header, body, now)
	if errors.Is(err, payment.ErrIgnored) {
		return nil
	}
	if err != nil {
		return err
	}
	hook := Webhook{
		WebhookID: WebhookID{tenant, provider, notice.Event}, Type: notice.Type,
		Payment: notice.Payment, Reference: notice.Reference.Provider, Account: notice.Account,
		Body: bytes.Clone(body), At: notice.At, Received: now,
	}
	if notice.Charge != nil {
		hook.Status, hook.Refunded = notice.Charge.Status, notice.Charge.Refunded.Amount
	}
	fresh, err := c.store.Receive(ctx, hook)
	if err != nil || !fresh {
		return err
	}
	select {
	case c.nudges <- hook.WebhookID:
	default: // the sweeper finds it
	}
	return nil
}

// Run acts on webhooks as they come, until ctx ends; then it waits for those under way. Without it
// they are acted on by the webhook queue, later.
func (c *Checkout) Run(ctx context.Context) {
	var actors sync.WaitGroup
	for range c.config.Actors {
		actors.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case id := <-c.nudges:
					if err := c.Act(ctx, id); err != nil && ctx.Err() == nil &&
						!errors.Is(err, ErrInProgress) {
						c.config.Logger.WarnContext(ctx, "webhook stands still", "provider",
							id.Provider, "event", id.Event, "error", err)
					}
				}
			}
		})
	}
	actors.Wait()
}

// Act does what follows from a stored webhook. It is a hint and not the truth: the provider is asked
// what the charge is now, so that old and repeated events, and those in the wrong order, change
// nothing. ErrInProgress: somebody moves the payment just now, and will find out without it; act
// again later to be sure.
func (c *Checkout) Act(ctx context.Context, id WebhookID) error {
	hook, err := c.store.Webhook(ctx, id)
	if err != nil || !hook.Acted.IsZero() {
		return err
	}
	p, err := c.concerned(ctx, &hook)
	switch {
	case errors.Is(err, ErrPaymentNotFound):
		c.raise(ctx, Finding{
			Kind: FindingUnmatched, Subject: id.Provider + " " + id.Event,
			Detail: "no payment " + hook.Payment,
		})
		return c.store.Acted(ctx, id)
	case err != nil:
		return err
	case p.Tenant != id.Tenant || p.Provider != id.Provider,
		p.Account != "" && hook.Account != "" && hook.Account != p.Account:
		c.raise(ctx, Finding{
			Kind: FindingMismatch, Subject: string(p.ID), Detail: "webhook of another account",
		})
		return c.store.Acted(ctx, id)
	case p.knows(&hook):
		return c.store.Acted(ctx, id)
	case !p.Status.Rests() && c.config.Now().Sub(p.UpdatedAt) < c.config.Patience:
		return fmt.Errorf("%w: %s", ErrInProgress, p.Status)
	}
	if err := c.Refresh(ctx, p.ID); err != nil {
		return err
	}
	return c.store.Acted(ctx, id)
}

// concerned is the payment that a webhook is about.
func (c *Checkout) concerned(ctx context.Context, hook *Webhook) (Payment, error) {
	if hook.Payment != "" {
		p, err := c.store.Payment(ctx, inventory.PaymentID(hook.Payment))
		if !errors.Is(err, ErrPaymentNotFound) {
			return p, err
		}
	}
	return c.store.ByReference(ctx, hook.Provider, hook.Reference)
}

// knows says that a webhook tells nothing that the row does not say already.
func (p *Payment) knows(hook *Webhook) bool {
	if p.Reference == "" || hook.Reference != p.Reference {
		return false
	}
	switch hook.Status {
	case payment.StatusPending:
		return true
	case payment.StatusAuthorised:
		return p.Captured > 0 || p.Status == StatusConfirmed
	case payment.StatusCaptured:
		return p.Status == StatusCaptured && p.Refunded == hook.Refunded
	}
	return false
}
