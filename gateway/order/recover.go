package order

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// Recover brings back the row of an order's payment that PostgreSQL has lost, and moves it until it
// rests: the engine knows which payment it was, and its provider what became of it. Nobody is asked
// for money: a payment that no account knows of stays lost, ErrPaymentNotFound. Where an account
// does not answer, nothing is concluded: payment.ErrUnknown or payment.ErrUnavailable. Money that
// the order waits to see refunded goes back, unless the provider says that it has.
//
// The payment's tenant is the one of Config.Accounts whose account knows of it, "" for all that
// have none of their own. The payer, the key and body of the request, and who asked for a refund
// are lost for good.
func (c *Checkout) Recover(ctx context.Context, id inventory.OrderID) error {
	o, err := c.order(ctx, id, "")
	if err != nil {
		return err
	}
	waits := o.Status == inventory.StatusPaying || o.Status == inventory.StatusRefundPending
	if o.Payment == "" || !o.Status.Sold() && !waits {
		return &StatusError{o.Status}
	}
	_, err = c.store.Payment(ctx, o.Payment)
	if !errors.Is(err, ErrPaymentNotFound) {
		return err
	}
	tenant, a, charge, err := c.whoseCharge(ctx, o.Payment)
	if err != nil {
		return err
	}
	key := "recovered-" + string(o.Payment)
	p, err := c.intent(ctx, PayRequest{Tenant: tenant, Order: id, Key: key, Method: charge.Method}, o)
	if err != nil {
		return err
	}
	p.ID, p.Provider, p.Account = o.Payment, a.Provider.Name(), a.ID
	p.Fingerprint = fingerprint(key)
	if _, err := c.create(ctx, p, Secret{}, o); err != nil {
		return err
	}
	return c.Advance(ctx, p.ID) // which looks the charge up, since it has not made the row itself
}

// whoseCharge asks all accounts of all tenants for a payment's charge.
func (c *Checkout) whoseCharge(
	ctx context.Context, id inventory.PaymentID,
) (tenant string, a *account, charge payment.Charge, err error) {
	silent := error(nil)
	for _, tenant := range slices.Sorted(maps.Keys(c.accounts)) {
		for _, a := range c.accounts[tenant] {
			err := a.call(ctx, func(ctx context.Context, p payment.Provider) (err error) {
				charge, err = p.LookUp(ctx, payment.Reference{Payment: string(id)})
				return err
			})
			if err == nil {
				return tenant, a, charge, nil
			}
			if !errors.Is(err, payment.ErrNotFound) {
				silent = err
			}
		}
	}
	if silent != nil {
		return "", nil, payment.Charge{}, fmt.Errorf("order: recover: %w", silent)
	}
	return "", nil, payment.Charge{}, ErrPaymentNotFound
}
