package gateway

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what the gateway does. Their labels are operations and codes only: few, and
// nothing that belongs to anybody.
type metrics struct {
	admitted  map[*operation]prometheus.Counter
	refused   *prometheus.CounterVec
	durations map[*operation]prometheus.Observer
	unrouted  *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	admitted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "numera_gateway_admitted_total",
		Help: "Requests that were done, by operation.",
	}, []string{"operation"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "numera_gateway_request_duration_seconds",
		Help:    "From the request's arrival to its answer, by operation.",
		Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15), // to 4 s
	}, []string{"operation"})
	m := &metrics{
		admitted: make(map[*operation]prometheus.Counter, len(operations)),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "numera_gateway_refused_total",
			Help: "Requests that were refused, by operation and code.",
		}, []string{"operation", "code"}),
		durations: make(map[*operation]prometheus.Observer, len(operations)),
		unrouted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "numera_gateway_unrouted_total",
			Help: "HTTP requests that reached no operation, by code.",
		}, []string{"code"}),
	}
	for _, c := range []prometheus.Collector{admitted, durations, m.refused, m.unrouted} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	for i := range operations {
		op := &operations[i]
		m.admitted[op] = admitted.WithLabelValues(op.subject)
		m.durations[op] = durations.WithLabelValues(op.subject)
	}
	return m, nil
}

// observe counts one call; an empty code is an acceptance.
func (m *metrics) observe(op *operation, c code, took time.Duration) {
	m.durations[op].Observe(took.Seconds())
	if c == "" {
		m.admitted[op].Inc()
		return
	}
	m.refused.WithLabelValues(op.subject, string(c)).Inc()
}
