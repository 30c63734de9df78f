package order

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"numera/gateway/payment"
)

// Account is one account of a tenant at a provider.
type Account struct {
	Provider payment.Provider
	ID       string           // what its charges name as their account; "" is not compared
	Methods  []payment.Method // it takes; nil: all
}

// account is an Account with what is known of its health.
type account struct {
	Account
	timeout time.Duration
	breaker circuitbreaker.CircuitBreaker[any]
	room    chan struct{} // one value for each call that waits
}

// The breaker of an account decides where new payments go, and nothing else: a payment that has an
// account keeps it, however ill it is, since the money may be there.
const (
	accountFailureRate   = 0.5
	accountFailureCalls  = 10 // fewer say nothing
	accountFailurePeriod = 30 * time.Second
	accountRest          = 15 * time.Second
)

func newAccount(a Account, config Config) *account {
	return &account{
		Account: a, timeout: config.CallTimeout, room: make(chan struct{}, config.Calls),
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureRateThreshold(
				accountFailureRate, accountFailureCalls, accountFailurePeriod).
			WithDelay(accountRest).Build(),
	}
}

// ill says that new payments should go elsewhere.
func (a *account) ill() bool { return a.breaker.IsOpen() && a.breaker.RemainingDelay() > 0 }

func (a *account) takes(m payment.Method) bool {
	return a.Methods == nil || slices.Contains(a.Methods, m)
}

// call makes one call within the account's bounds.
func (a *account) call(ctx context.Context, f func(context.Context, payment.Provider) error) error {
	select {
	case a.room <- struct{}{}:
		defer func() { <-a.room }()
	default:
		return fmt.Errorf("%w: %d calls wait already", payment.ErrUnavailable, cap(a.room))
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	a.breaker.TryAcquirePermit() // lets it try again after its rest; what it says is not asked
	err := f(ctx, a.Provider)
	if errors.Is(err, payment.ErrUnknown) || errors.Is(err, payment.ErrUnavailable) {
		a.breaker.RecordFailure()
	} else {
		a.breaker.RecordSuccess()
	}
	return err
}

// of are the accounts of a tenant.
func (c *Checkout) of(tenant string) []*account {
	if accounts, ok := c.accounts[tenant]; ok {
		return accounts
	}
	return c.accounts[""]
}

// route chooses the account of a new payment: the first that is well, or the first of all.
func (c *Checkout) route(tenant string, m payment.Method) (*account, error) {
	var first *account
	for _, a := range c.of(tenant) {
		if !a.takes(m) {
			continue
		}
		if !a.ill() {
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
