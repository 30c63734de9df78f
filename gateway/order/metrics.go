package order

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"numera/gateway/payment"
)

// metrics count what becomes of payments. Their labels are statuses, and names of providers, calls
// and results: few, and nothing that belongs to anybody.
type metrics struct {
	reached  *prometheus.CounterVec
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	webhooks *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		reached: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "numera_payments_total",
			Help: "Payments that have come to a status, by status.",
		}, []string{"status"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "numera_payments_calls_total",
			Help: "Calls to providers, by provider, call and result.",
		}, []string{"provider", "call", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "numera_payments_call_duration_seconds",
			Help:    "Of calls to providers, with the wait for room, by provider and call.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15), // to 16 s
		}, []string{"provider", "call"}),
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "numera_payments_webhooks_total",
			Help: "Notices of providers, by provider and what was done with them.",
		}, []string{"provider", "result"}),
	}
	for status := range rules {
		m.reached.WithLabelValues(string(status))
	}
	if registerer != nil {
		registerer.MustRegister(m.reached, m.calls, m.took, m.webhooks)
	}
	return m
}

// moved counts a payment that was written, if it is in another status than before.
func (m *metrics) moved(was, is Status) {
	if was != is {
		m.reached.WithLabelValues(string(is)).Inc()
	}
}

// countedProvider counts what is asked of a provider, and what it sends.
type countedProvider struct {
	payment.Provider
	m *metrics
}

func counted[T any](p countedProvider, call string, do func() (T, error)) (T, error) {
	began := time.Now()
	answer, err := do()
	p.m.took.WithLabelValues(p.Name(), call).Observe(time.Since(began).Seconds())
	p.m.calls.WithLabelValues(p.Name(), call, callResult(answer, err)).Inc()
	return answer, err
}

// callResult is what a call has come to, in one word.
func callResult(answer any, err error) string {
	charge, isCharge := answer.(payment.Charge)
	switch {
	case err == nil && isCharge && charge.Status == payment.StatusDeclined:
		return "declined"
	case err == nil:
		return "ok"
	case errors.Is(err, payment.ErrNotFound):
		return "not_found"
	case errors.Is(err, payment.ErrRejected):
		return "rejected"
	case errors.Is(err, payment.ErrUnavailable):
		return "unavailable"
	}
	return "unknown"
}

func (p countedProvider) Authorise(
	ctx context.Context, a payment.Authorisation,
) (payment.Charge, error) {
	return counted(p, "authorise", func() (payment.Charge, error) {
		return p.Provider.Authorise(ctx, a)
	})
}

func (p countedProvider) Capture(ctx context.Context, c payment.Capture) (payment.Charge, error) {
	return counted(p, "capture", func() (payment.Charge, error) { return p.Provider.Capture(ctx, c) })
}

func (p countedProvider) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	return counted(p, "void", func() (payment.Charge, error) { return p.Provider.Void(ctx, v) })
}

func (p countedProvider) Refund(
	ctx context.Context, r payment.RefundRequest,
) (payment.Refund, error) {
	return counted(p, "refund", func() (payment.Refund, error) { return p.Provider.Refund(ctx, r) })
}

func (p countedProvider) LookUp(
	ctx context.Context, r payment.Reference,
) (payment.Charge, error) {
	return counted(p, "look_up", func() (payment.Charge, error) { return p.Provider.LookUp(ctx, r) })
}

// ParseWebhook counts what does not come as far as the store.
func (p countedProvider) ParseWebhook(
	header func(name string) string, body []byte, now time.Time,
) (payment.Notice, error) {
	notice, err := p.Provider.ParseWebhook(header, body, now)
	switch {
	case err == nil:
	case errors.Is(err, payment.ErrSignature):
		p.m.webhooks.WithLabelValues(p.Name(), "forged").Inc()
	case errors.Is(err, payment.ErrIgnored):
		p.m.webhooks.WithLabelValues(p.Name(), "ignored").Inc()
	default:
		p.m.webhooks.WithLabelValues(p.Name(), "unreadable").Inc()
	}
	return notice, err
}

// countedStore counts the webhooks that come to it.
type countedStore struct {
	Store
	m *metrics
}

func (s countedStore) Receive(ctx context.Context, w Webhook) (fresh bool, err error) {
	fresh, err = s.Store.Receive(ctx, w)
	result := "repeated"
	switch {
	case err != nil:
		result = "not_stored"
	case fresh:
		result = "stored"
	}
	s.m.webhooks.WithLabelValues(w.Provider, result).Inc()
	return fresh, err
}
