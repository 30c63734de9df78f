// Package routing keeps a provider that fails or hangs from taking new payments, goroutines and
// connections.
//
// A [Gate] stands before one provider. Whoever has several asks each gate in order of preference
// whether it takes a new payment ([Gate.TakesNew]), and stores its name before it asks for money. A
// payment that has a provider keeps it, however ill it is, since its money may be there: a gate lets
// every call through.
//
// A provider is well or ill by its answers to Authorise, and ill also by look-ups that fail.
// [payment.ErrUnknown] and [payment.ErrUnavailable] are failures; a declined card, or a request that
// it refuses, is an answer; a caller who gave up says nothing. While it is ill, one new payment per
// rest tries it; if that goes well it is well again.
//
// Calls to one provider at once are bounded, and so is waiting for room: a provider that takes 30 s
// for each holds that many goroutines and connections and no more. No room is ErrUnavailable.
package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"numera/gateway/payment"
)

// Config bounds one provider. Zero members take the default.
type Config struct {
	Calls uint          // at once; default 64
	Wait  time.Duration // at most, for room among them; default 100 ms

	// The provider is ill when FailureRate of what counts within FailurePeriod were failures, and
	// FailureCalls counted at least. Default: half of 10 within 30 s.
	FailureRate   float64
	FailureCalls  uint
	FailurePeriod time.Duration
	Rest          time.Duration // from one trial while it is ill to the next; default 15 s
}

// Gate is a provider behind its bounds. Its methods may be called by any goroutine.
type Gate struct {
	payment.Provider
	room      bulkhead.Bulkhead[any]
	wait      time.Duration
	breaker   circuitbreaker.CircuitBreaker[any]
	rest      time.Duration
	nextTrial atomic.Int64 // Unix nanoseconds
}

// NewGate puts a gate before a provider, all of whose calls have to go through it.
func NewGate(p payment.Provider, config Config) *Gate {
	rest := cmp.Or(config.Rest, 15*time.Second)
	return &Gate{
		Provider: p, rest: rest,
		wait: cmp.Or(config.Wait, 100*time.Millisecond),
		room: bulkhead.New[any](cmp.Or(config.Calls, 64)),
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureRateThreshold(cmp.Or(config.FailureRate, 0.5),
				cmp.Or(config.FailureCalls, 10), cmp.Or(config.FailurePeriod, 30*time.Second)).
			WithSuccessThreshold(1).WithDelay(rest).Build(),
	}
}

// Ill says whether new payments should go elsewhere, besides trials.
func (g *Gate) Ill() bool { return !g.breaker.IsClosed() }

// TakesNew says whether a new payment may be given to the provider now. Of one that is ill, it says
// so once per rest: whoever hears it makes the trial. The breaker's own permits would not do, since
// a payment that is chosen may be asked for much later, or never.
func (g *Gate) TakesNew() bool {
	switch {
	case g.breaker.IsClosed():
		return true
	case g.breaker.RemainingDelay() > 0:
		return false
	}
	now, due := time.Now(), g.nextTrial.Load()
	return now.UnixNano() >= due && g.nextTrial.CompareAndSwap(due, now.Add(g.rest).UnixNano())
}

// Authorise asks whatever the breaker says, which learns from the answer where it wants to.
func (g *Gate) Authorise(ctx context.Context, a payment.Authorisation) (payment.Charge, error) {
	counts := g.breaker.TryAcquirePermit()
	charge, err := bounded(ctx, g, func() (payment.Charge, error) {
		return g.Provider.Authorise(ctx, a)
	})
	switch {
	case !counts:
	case errors.Is(err, context.Canceled) && g.breaker.IsClosed():
		// The caller has left, which says nothing; but a trial has to end, or there is no other.
	case failed(err):
		g.breaker.RecordFailure()
	default:
		g.breaker.RecordSuccess()
	}
	return charge, err
}

func failed(err error) bool {
	return errors.Is(err, payment.ErrUnknown) || errors.Is(err, payment.ErrUnavailable)
}

// Capture of the provider, when there is room.
func (g *Gate) Capture(ctx context.Context, c payment.Capture) (payment.Charge, error) {
	return bounded(ctx, g, func() (payment.Charge, error) { return g.Provider.Capture(ctx, c) })
}

// Void of the provider, when there is room.
func (g *Gate) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	return bounded(ctx, g, func() (payment.Charge, error) { return g.Provider.Void(ctx, v) })
}

// Refund of the provider, when there is room.
func (g *Gate) Refund(ctx context.Context, r payment.RefundRequest) (payment.Refund, error) {
	return bounded(ctx, g, func() (payment.Refund, error) { return g.Provider.Refund(ctx, r) })
}

// LookUp of the provider, when there is room. One that fails counts: of a provider that is down,
// that is what its payments see after their first call.
func (g *Gate) LookUp(ctx context.Context, r payment.Reference) (payment.Charge, error) {
	charge, err := bounded(ctx, g, func() (payment.Charge, error) {
		return g.Provider.LookUp(ctx, r)
	})
	if failed(err) && !errors.Is(err, context.Canceled) && g.breaker.IsClosed() {
		g.breaker.RecordFailure()
	}
	return charge, err
}

// bounded makes a call when there is room for it.
func bounded[T any](ctx context.Context, g *Gate, call func() (T, error)) (T, error) {
	if err := g.room.AcquirePermitWithMaxWait(ctx, g.wait); err != nil {
		var nothing T
		return nothing, fmt.Errorf("%w: no room at %s: %w", payment.ErrUnavailable, g.Name(), err)
	}
	defer g.room.ReleasePermit()
	return call()
}
