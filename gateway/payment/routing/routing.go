// Package routing chooses the provider of a new payment, and bounds what one provider can take.
//
// A method of payment has its providers in order of preference. When the first keeps failing, new
// payments go to the next: its breaker is open. A payment that has a provider keeps it, however ill
// it is, since its money may be there: [Router.Provider] gives it whatever the breaker says.
//
// A provider is well or ill by its answers to Authorise. [payment.ErrUnknown] and
// [payment.ErrUnavailable] are failures; a declined card, or a request that it refuses, is an
// answer. While it is ill, one new payment per rest tries it; if that goes well it is well again.
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

// Errors of a Router.
var (
	// ErrNoRoute is returned when no provider takes a method.
	ErrNoRoute = errors.New("routing: no provider takes this method")

	// ErrRoutes is returned when the routes make no sense.
	ErrRoutes = errors.New("routing: wrong routes")
)

// Config is the same for every provider. Zero members take the default.
type Config struct {
	Calls uint          // to one provider at once; default 64
	Wait  time.Duration // at most, for room among them; default 100 ms

	// A provider is ill when FailureRate of its authorisations within FailurePeriod have failed, of
	// which there were FailureCalls at least. Default: half of 10 within 30 s.
	FailureRate   float64
	FailureCalls  uint
	FailurePeriod time.Duration
	Rest          time.Duration // from one trial of an ill provider to the next; default 15 s
}

// Router knows the providers. Its methods may be called by any goroutine.
type Router struct {
	routes map[payment.Method][]*gate
	gates  map[string]*gate
}

// New makes a router. A provider may stand in several routes; its name is its own. ErrRoutes.
func New(config Config, routes map[payment.Method][]payment.Provider) (*Router, error) {
	config.Calls = cmp.Or(config.Calls, 64)
	config.Wait = cmp.Or(config.Wait, 100*time.Millisecond)
	config.FailureRate = cmp.Or(config.FailureRate, 0.5)
	config.FailureCalls = cmp.Or(config.FailureCalls, 10)
	config.FailurePeriod = cmp.Or(config.FailurePeriod, 30*time.Second)
	config.Rest = cmp.Or(config.Rest, 15*time.Second)
	if config.FailureRate < 0 || config.FailureRate > 1 {
		return nil, fmt.Errorf("%w: a failure rate of %v", ErrRoutes, config.FailureRate)
	}
	r := &Router{routes: make(map[payment.Method][]*gate), gates: make(map[string]*gate)}
	for method, providers := range routes {
		for _, p := range providers {
			g, known := r.gates[p.Name()]
			if known && g.Provider != p {
				return nil, fmt.Errorf("%w: two providers are named %q", ErrRoutes, p.Name())
			}
			if !known {
				g = newGate(p, &config)
				r.gates[p.Name()] = g
			}
			r.routes[method] = append(r.routes[method], g)
		}
	}
	return r, nil
}

// Choose is the provider of a new payment: the first of its method that is well or due for a trial,
// else the first. ErrNoRoute: there is none. The caller stores its name before it asks.
func (r *Router) Choose(m payment.Method) (payment.Provider, error) {
	route := r.routes[m]
	if len(route) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoRoute, m)
	}
	for _, g := range route {
		if g.takesNew(time.Now()) {
			return g, nil
		}
	}
	return route[0], nil
}

// Provider is the one of a payment that has been given to it before.
func (r *Router) Provider(name string) (p payment.Provider, known bool) {
	g, known := r.gates[name]
	return g, known
}

// Ill says whether a provider gets no new payments now, besides trials.
func (r *Router) Ill(name string) bool {
	g, known := r.gates[name]
	return known && !g.breaker.IsClosed()
}

// gate is a provider behind its bounds.
type gate struct {
	payment.Provider
	room      bulkhead.Bulkhead[any]
	wait      time.Duration
	breaker   circuitbreaker.CircuitBreaker[any]
	rest      time.Duration
	nextTrial atomic.Int64 // Unix nanoseconds
}

func newGate(p payment.Provider, config *Config) *gate {
	return &gate{
		Provider: p, wait: config.Wait, rest: config.Rest,
		room: bulkhead.New[any](config.Calls),
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureRateThreshold(config.FailureRate, config.FailureCalls, config.FailurePeriod).
			WithSuccessThreshold(1).WithDelay(config.Rest).Build(),
	}
}

// takesNew gives one trial per rest to a provider that is ill. The breaker's own permits do not
// serve: a payment that is chosen may be asked for much later, or never.
func (g *gate) takesNew(now time.Time) bool {
	switch {
	case g.breaker.IsClosed():
		return true
	case g.breaker.RemainingDelay() > 0:
		return false
	}
	due := g.nextTrial.Load()
	return now.UnixNano() >= due && g.nextTrial.CompareAndSwap(due, now.Add(g.rest).UnixNano())
}

// Authorise asks whatever the breaker says, which learns from the answer where it wants to.
func (g *gate) Authorise(ctx context.Context, a payment.Authorisation) (payment.Charge, error) {
	counts := g.breaker.TryAcquirePermit()
	charge, err := bounded(ctx, g, func() (payment.Charge, error) {
		return g.Provider.Authorise(ctx, a)
	})
	switch {
	case !counts:
	case errors.Is(err, payment.ErrUnknown), errors.Is(err, payment.ErrUnavailable):
		g.breaker.RecordFailure()
	default:
		g.breaker.RecordSuccess()
	}
	return charge, err
}

func (g *gate) Capture(ctx context.Context, c payment.Capture) (payment.Charge, error) {
	return bounded(ctx, g, func() (payment.Charge, error) { return g.Provider.Capture(ctx, c) })
}

func (g *gate) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	return bounded(ctx, g, func() (payment.Charge, error) { return g.Provider.Void(ctx, v) })
}

func (g *gate) Refund(ctx context.Context, r payment.RefundRequest) (payment.Refund, error) {
	return bounded(ctx, g, func() (payment.Refund, error) { return g.Provider.Refund(ctx, r) })
}

func (g *gate) LookUp(ctx context.Context, r payment.Reference) (payment.Charge, error) {
	return bounded(ctx, g, func() (payment.Charge, error) { return g.Provider.LookUp(ctx, r) })
}

// bounded makes a call when there is room for it.
func bounded[T any](ctx context.Context, g *gate, call func() (T, error)) (T, error) {
	if err := g.room.AcquirePermitWithMaxWait(ctx, g.wait); err != nil {
		var nothing T
		return nothing, fmt.Errorf("%w: no room at %s: %w", payment.ErrUnavailable, g.Name(), err)
	}
	defer g.room.ReleasePermit()
	return call()
}
