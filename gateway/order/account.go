package order

import (
	"context"
	"fmt"
	"slices"
	"time"

	"numera/gateway/payment"
	"numera/gateway/payment/routing"
)

// Account is one account of a tenant at a provider.
type Account struct {
	Provider payment.Provider
	ID       string           // what its charges name as their account; "" is not compared
	Methods  []payment.Method // it takes; nil: all
}

// account is an Account behind its gate, which decides where new payments go and nothing else: a
// payment that has an account keeps it, however ill it is, since the money may be there. Its
// Provider is the gate, counted.
type account struct {
	Account
	timeout time.Duration
	gate    *routing.Gate
}

func newAccount(a Account, config Config, m *metrics) *account {
	gate := routing.NewGate(a.Provider, routing.Config{Calls: uint(config.Calls)})
	a.Provider = countedProvider{gate, m}
	return &account{Account: a, timeout: config.CallTimeout, gate: gate}
}

func (a *account) takes(m payment.Method) bool {
	return a.Methods == nil || slices.Contains(a.Methods, m)
}

// call makes one call within the account's bounds.
func (a *account) call(ctx context.Context, f func(context.Context, payment.Provider) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return f(ctx, a.Provider)
}

// of are the accounts of a tenant.
func (c *Checkout) of(tenant string) []*account {
	if accounts, ok := c.accounts[tenant]; ok {
		return accounts
	}
	return c.accounts[""]
}

// route chooses the account of a new payment: the first that is well or due for a trial, or the
// first of all.
func (c *Checkout) route(tenant string, m payment.Method) (*account, error) {
	var first *account
	for _, a := range c.of(tenant) {
		if !a.takes(m) {
			continue
		}
		if a.gate.TakesNew() {
			return a, nil
		}
		if first == nil {
			first = a
		}
	}
	if first == nil {
		return nil, ErrMethod
	}
	return first, nil
}

// account finds the one that a payment was given.
func (c *Checkout) account(tenant, provider, id string) (*account, error) {
	for _, a := range c.of(tenant) {
		if a.Provider.Name() == provider && (id == "" || a.ID == id) {
			return a, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrProvider, provider)
}
