package shard

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
)

// metrics are a shard's figures, in the words of the design. They name no buyer and no order.
type metrics struct {
	registerer prometheus.Registerer
	labels     prometheus.Labels

	admitted  prometheus.Counter
	malformed prometheus.Counter
	outcomes  [256]prometheus.Counter // by inventory.Code
	failures  map[error]prometheus.Counter
	batchSize prometheus.Histogram
	queueAge  prometheus.Histogram
	commit    prometheus.Histogram
	apply     prometheus.Histogram
	freeze    prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer, shard inventory.ShardID) *metrics {
	m := &metrics{
		registerer: registerer, labels: prometheus.Labels{"shard": strconv.Itoa(int(shard))},
		failures: make(map[error]prometheus.Counter),
	}
	m.admitted = m.counter("numera_shard_admitted_total", "Commands that were put on the queue.", nil)
	m.malformed = m.counter("numera_shard_malformed_total", "Messages that did not decode.", nil)
	for _, code := range inventory.Codes() {
		m.outcomes[code] = m.counter("numera_shard_outcomes_total",
			"Commands decided by the log, by code.", prometheus.Labels{"code": code.String()})
	}
	for err, reason := range map[error]string{
		ErrNotLeader: "not_leader", ErrOverloaded: "overloaded", ErrExpired: "expired",
		ErrUnavailable: "unavailable", ErrOutcomeUnknown: "outcome_unknown",
	} {
		m.failures[err] = m.counter("numera_shard_refused_total",
			"Commands that got no outcome, by reason.", prometheus.Labels{"reason": reason})
	}
	seconds := prometheus.ExponentialBuckets(0.00025, 2, 16)
	m.batchSize = m.histogram("numera_shard_batch_commands", "Commands in a log entry.",
		prometheus.ExponentialBuckets(1, 2, 11))
	m.queueAge = m.histogram("numera_shard_queue_age_seconds",
		"How long the oldest command of a log entry had waited to be proposed.", seconds)
	m.commit = m.histogram("numera_shard_commit_seconds",
		"From proposing an entry to its outcomes.", seconds)
	m.apply = m.histogram("numera_shard_apply_seconds",
		"Applying an entry to the engine, and waiting for what is left of decoding it.", seconds)
	m.freeze = m.histogram("numera_shard_snapshot_stall_seconds",
		"How long a snapshot held up the shard.", seconds)
	return m
}

func (m *metrics) with(labels prometheus.Labels) prometheus.Labels {
	all := prometheus.Labels{}
	for _, from := range []prometheus.Labels{m.labels, labels} {
		for name, value := range from {
			all[name] = value
		}
	}
	return all
}

func (m *metrics) register(c prometheus.Collector) {
	if m.registerer != nil {
		m.registerer.MustRegister(c)
	}
}

func (m *metrics) counter(name, help string, labels prometheus.Labels) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: m.with(labels),
	})
	m.register(c)
	return c
}

func (m *metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, ConstLabels: m.labels,
	})
	m.register(h)
	return h
}

// told counts outcomes. Most often many in a row have the same code.
func (m *metrics) told(outcomes []*inventory.Outcome) {
	for len(outcomes) > 0 {
		code, n := outcomes[0].Code, 1
		for n < len(outcomes) && outcomes[n].Code == code {
			n++
		}
		m.outcomes[code].Add(float64(n))
		outcomes = outcomes[n:]
	}
}

// refused counts one of the package's errors.
func (m *metrics) refused(err error) { m.failures[err].Inc() }

// observe shows what the shard knows at the moment it is asked.
func (m *metrics) observe(s *Shard) {
	m.register(&gauges{shard: s, labels: m.labels})
}

// gauges collects the state of a shard.
type gauges struct {
	shard  *Shard
	labels prometheus.Labels
}

// Describe implements prometheus.Collector: unchecked, since products come and go.
func (*gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64, labels ...string) {
		names := []string{}
		values := []string{}
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		desc := prometheus.NewDesc(name, help, names, g.labels)
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, values...)
	}
	s := g.shard
	leads := 0.0
	if s.Leads() {
		leads = 1
	}
	gauge("numera_shard_leads", "1 where this replica serves the shard.", leads)
	gauge("numera_shard_queue_length", "Commands that wait to be proposed.", float64(len(s.queue)))
	gauge("numera_shard_entries_in_flight", "Log entries proposed and not yet applied.",
		float64(s.underWay.Load()))
	stats := s.engine.Stats()
	gauge("numera_orders_live", "Orders that are reserved or paying.", float64(stats.Live))
	gauge("numera_orders_sold", "Orders that are paid or shipped.", float64(stats.Sold))
	gauge("numera_orders_ended", "Ended orders that are still kept.", float64(stats.Ended))
	gauge("numera_oldest_deadline_seconds", "Until the earliest deadline; negative: overdue.",
		stats.UntilDeadline(s.config.Clock.NowUnixMilli()))
	gauge("numera_outbox_length", "Events that a consumer has not acknowledged.",
		float64(stats.Backlog))
	gauge("numera_products_halted", "Products stopped by a broken invariant. Alarm above 0.",
		float64(stats.Halted))
	s.engine.EachProduct(func(p *inventory.ProductView) {
		labels := []string{"campaign", p.Settings.Campaign, "product", string(p.ID), "counter", ""}
		for _, c := range []struct {
			name  string
			value uint32
		}{
			{"available", p.Counters.Available},
			{"reserved", p.Counters.Reserved},
			{"sold", p.Counters.Sold},
			{"blocked", p.Counters.Blocked},
		} {
			labels[5] = c.name
			gauge("numera_product_numbers", "Numbers of a product, by where they are.",
				float64(c.value), labels...)
		}
	})
}
