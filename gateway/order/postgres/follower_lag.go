package postgres

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"numera/shard/wire"
)

// lag is how far the rows are behind one shard.
type lag struct {
	offset          atomic.Uint64 // the rows contain everything up to it
	events          atomic.Int64
	oldestUnixMilli atomic.Int64 // log time of the first event after offset; 0: not known
	stuck           atomic.Bool  // the last attempt to follow the shard failed

	mu    sync.Mutex
	moved chan struct{} // closed when offset moves; nil: nobody waits for it
}

// move is closed when offset has moved since it was asked for.
func (l *lag) move() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.moved == nil {
		l.moved = make(chan struct{})
	}
	return l.moved
}

// pulled notes what follows the offset.
func (l *lag) pulled(next *wire.Events) {
	l.events.Store(max(0, int64(next.Last)-int64(l.offset.Load())))
	if len(next.Events) > 0 {
		l.oldestUnixMilli.Store(next.Events[0].AtUnixMilli)
	} else if next.Last <= l.offset.Load() {
		l.oldestUnixMilli.Store(0)
	}
}

// written notes that the rows contain all that was pulled.
func (l *lag) written(sequence, last uint64) {
	l.offset.Store(sequence)
	l.mu.Lock()
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
	l.mu.Unlock()
	l.events.Store(max(0, int64(last)-int64(sequence)))
	if last <= sequence {
		l.oldestUnixMilli.Store(0)
	}
}

type followerMetrics struct {
	delay prometheus.Histogram
	rows  prometheus.Counter
	scans prometheus.Counter
}

func newFollowerMetrics(f *Follower, registerer prometheus.Registerer) *followerMetrics {
	m := &followerMetrics{
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "numera_orders_delay_seconds",
			Help: "From the log time of the oldest event of a batch to its commit in PostgreSQL.",
			Buckets: []float64{
				.01, .025, .05, .1, .15, .2, .3, .5, .75, 1, 2, 5, 10, 30, 60, 300,
			},
		}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "numera_orders_events_total",
			Help: "Events whose orders are in PostgreSQL.",
		}),
		scans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "numera_orders_scans_total",
			Help: "Shards whose orders had to be scanned, because the rows had a gap.",
		}),
	}
	if registerer == nil {
		return m
	}
	registerer.MustRegister(m.delay, m.rows, m.scans,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "numera_orders_lag_events",
			Help: "Events that the rows of orders in PostgreSQL do not contain yet.",
		}, func() float64 { events, _ := f.Lag(); return float64(events) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "numera_orders_lag_seconds",
			Help: "How long ago the oldest of these events happened.",
		}, func() float64 { _, seconds := f.Lag(); return seconds }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "numera_orders_trouble",
			Help: "1 while rows of orders cannot be written.",
		}, func() float64 {
			if f.Trouble() != nil {
				return 1
			}
			return 0
		}))
	return m
}
