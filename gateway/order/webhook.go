package order

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// Webhook takes a provider's notice: header and the raw body, at most 64 KiB. A nil error means
// that it is stored, now or before, or is of no concern; what follows from it is done later.
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
	c.nudge(hook.WebhookID)
	return nil
}

// How webhooks are acted on as they come. Most tell what the walk that made them happen is about to
// write: they are gathered first, so that one statement is enough for all of these.
const (
	gatherTime = 200 * time.Millisecond
	gatherMost = 512
	actAgain   = time.Second // after a payment was found moving
)

// Run acts on webhooks as they come, until ctx ends; then it waits for those under way. Without it
// they are acted on by the webhook queue, later.
func (c *Checkout) Run(ctx context.Context) {
	room := make(chan struct{}, c.config.Actors)
	var actors sync.WaitGroup
	defer actors.Wait()
	for {
		gathered := c.gather(ctx)
		if len(gathered) == 0 {
			return
		}
		since := c.config.Now().Add(-c.config.Patience)
		moving, news, err := c.store.Sift(ctx, gathered, since)
		if err != nil {
			c.config.Logger.WarnContext(ctx, "webhooks stand still", "error", err)
			continue // the sweeper finds them
		}
		c.nudgeAgain(moving...)
		for _, id := range news {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			actors.Go(func() {
				defer func() { <-room }()
				c.act(ctx, id)
			})
		}
	}
}

// gather waits for webhooks, and a little longer for more. None: ctx has ended.
func (c *Checkout) gather(ctx context.Context) (gathered []WebhookID) {
	var enough <-chan time.Time
	for len(gathered) < gatherMost {
		select {
		case id := <-c.nudges:
			if enough == nil {
				enough = time.After(gatherTime)
			}
			gathered = append(gathered, id)
		case <-enough:
			return gathered
		case <-ctx.Done():
			return nil
		}
	}
	return gathered
}

// act is Act, again a little later if the payment is moving.
func (c *Checkout) act(ctx context.Context, id WebhookID) {
	err := c.Act(ctx, id)
	switch {
	case errors.Is(err, ErrInProgress):
		c.nudgeAgain(id)
	case err != nil && ctx.Err() == nil:
		c.config.Logger.WarnContext(ctx, "webhook stands still", "provider", id.Provider,
			"event", id.Event, "error", err)
	}
}

// nudge has Run act on a stored webhook. If it is behind, the sweeper finds it.
func (c *Checkout) nudge(id WebhookID) {
	select {
	case c.nudges <- id:
	default:
	}
}

// nudgeAgain nudges a little later, when the payment may have come to rest.
func (c *Checkout) nudgeAgain(ids ...WebhookID) {
	if len(ids) == 0 {
		return
	}
	time.AfterFunc(actAgain, func() {
		for _, id := range ids {
			c.nudge(id)
		}
	})
}

// Act does what follows from a stored webhook. It is a hint and not the truth: the provider is
// asked what the charge is now, so that old and repeated events, and those in the wrong order,
// change nothing. ErrInProgress: somebody moves the payment just now, and will find out without it;
// act again later to be sure.
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
