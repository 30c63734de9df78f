package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"numera/engine/inventory"
)

// Run carries out one load and has the oracle check it. It returns ErrConfig, ErrIncomplete or, with
// the report, ErrViolated.
func Run(ctx context.Context, config Config) (_ *Report, err error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	p, err := newPlan(&config)
	if err != nil {
		return nil, err
	}
	if p.quantity > p.numbers {
		return nil, fmt.Errorf("%w: %d numbers an order, of %d", ErrConfig, p.quantity, p.numbers)
	}
	v, err := openVenue(ctx, &config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	if err := v.setUp(ctx, p); err != nil {
		return nil, err
	}
	l := newLoad(p, v.peer, newSchedule(config.Arrivals, config.Rate, config.Requests,
		config.Duration, config.Seed), config.shape(), config.Seed)
	r := newReport(&config, p)
	if err := v.measure(ctx, l, r, config.Progress); err != nil {
		return r, err
	}
	if err := v.examine(ctx, l, &r.Oracle); err != nil {
		return r, err
	}
	return r, r.Oracle.err()
}

func newReport(c *Config, p *plan) *Report {
	r := &Report{
		Machine: thisMachine(), Path: c.Path, Workload: c.Workload, Rate: c.Rate,
		InFlight: c.InFlight, Products: p.products, Numbers: p.numbers, Quantity: p.quantity,
		Seed: c.Seed, Shards: c.Shards,
	}
	if c.Rate > 0 {
		r.Arrivals = c.Arrivals
	}
	return r
}

// venue is where a load takes place: a system of our own, or a server that runs already.
type venue struct {
	peer   peer
	source source
	// put puts a product on sale.
	put func(context.Context, *inventory.PutProduct) error
	// gather reads the metrics.
	gather func(context.Context) (families, error)
	logs   func() (syncs, bytes uint64) // of the write-ahead log; nil: not known

	consumed func() int64 // nil: it is not ours
	consumer string       // who it is
	closers  []func() error
}

func (v *venue) onClose(f func() error) { v.closers = append(v.closers, f) }

func (v *venue) close() error {
	var errs []error
	for i := len(v.closers) - 1; i >= 0; i-- {
		errs = append(errs, v.closers[i]())
	}
	return errors.Join(errs...)
}

func openVenue(ctx context.Context, c *Config) (v *venue, err error) {
	v = &venue{consumer: "none"}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	if c.Target != "" {
		return v, v.visit(c)
	}
	s, err := openSystem(ctx, c.Dir, c.Shards, c.outbox)
	if err != nil {
		return v, err
	}
	v.onClose(s.close)
	v.host(s)
	switch c.Path {
	case PathNATS:
		v.peer = natsPeer{s.client}
	case PathHTTP:
		if err := v.serve(s, c); err != nil {
			return v, err
		}
	default:
		v.peer = shardPeer{s.node}
	}
	if c.NoConsumer {
		return v, nil
	}
	var from outbox = busOutbox{s.client}
	v.consumer = "in this process, through NATS"
	if c.Path == PathShard {
		from, v.consumer = nodeOutbox{s.node}, "in this process"
	}
	consumer, err := startConsumer(ctx, from, s.node.Shards())
	if err != nil {
		return v, err
	}
	v.consumed = consumer.events.Load
	v.onClose(consumer.stop)
	return v, nil
}

// host makes the venue one of a system in this process.
func (v *venue) host(s *system) {
	v.source = clientSource{s.client}
	v.put = func(ctx context.Context, c *inventory.PutProduct) error {
		o, err := s.client.Do(ctx, inventory.Entry{Command: c})
		if err == nil && o.Code != inventory.CodeOK {
			err = fmt.Errorf("put %s: %v", c.Product, o.Code)
		}
		return err
	}
	v.gather = func(context.Context) (families, error) { return s.gather() }
	v.logs = func() (syncs, bytes uint64) {
		stats := s.node.Stats()
		return stats.Syncs, stats.RecordBytes
	}
}

// setUp puts the products on sale.
func (v *venue) setUp(ctx context.Context, p *plan) error {
	err := each(ctx, 256, len(p.ids), func(ctx context.Context, i int) error {
		return v.put(ctx, p.put(p.ids[i]))
	})
	if err != nil {
		return fmt.Errorf("%w: put products on sale: %w", ErrIncomplete, err)
	}
	return nil
}

// measure runs the load between two looks at the system's metrics.
func (v *venue) measure(ctx context.Context, l *load, r *Report, progress io.Writer) error {
	before, err := v.gather(ctx)
	if err != nil {
		return err
	}
	var syncs, bytes uint64
	if v.logs != nil {
		syncs, bytes = v.logs()
	}
	cpu, memory := cpuTime(), allocated()
	stop := l.show(progress)
	elapsed, err := l.run(ctx)
	stop()
	cpu, memory = cpuTime()-cpu, allocated()-memory
	if err != nil {
		return err
	}
	after, err := v.gather(ctx)
	if err != nil {
		return err
	}
	total := l.total()
	r.count(total, elapsed)
	r.Batch = distribution(before, after, "numera_shard_batch_commands")
	r.Commit = distribution(before, after, "numera_shard_commit_seconds")
	r.Backlog = int64(after.sum("numera_outbox_length"))
	r.Consumer = v.consumer
	if v.consumed != nil {
		r.Events = v.consumed()
	}
	if n := float64(r.Requests); v.logs != nil && n > 0 {
		r.CPUPerOp, r.AllocPerOp = float64(cpu.Microseconds())/n, float64(memory)/n
		syncsNow, bytesNow := v.logs()
		r.LogPerOp = float64(bytesNow-bytes) / n
		r.SyncsPerSec = float64(syncsNow-syncs) / elapsed.Seconds()
	}
	return nil
}

// count takes what the lanes have counted.
func (r *Report) count(t *tally, elapsed time.Duration) {
	r.Seconds, r.Requests = elapsed.Seconds(), t.answers()
	r.PerSecond = float64(r.Requests) / elapsed.Seconds()
	r.Accepted, r.Refused = t.classes[acknowledged], t.classes[refused]
	r.TurnedAway, r.Unanswered = t.classes[turnedAway], t.classes[unanswered]
	r.Errors, r.Replays, r.Codes = t.classes[garbled], t.replays, t.codes
	r.Latency, r.StartedLate = latencyOf(t.latency), latencyOf(t.late)
}

// examine lets the oracle look at everything.
func (v *venue) examine(ctx context.Context, l *load, o *Oracle) (err error) {
	if o.Resolved, err = l.resolve(ctx); err != nil {
		return err
	}
	if l.plan.drains {
		if err := drain(ctx, l.plan, v.source); err != nil {
			return err
		}
	}
	a, err := inspect(ctx, l, v.source)
	if err != nil {
		return err
	}
	o.Orders, o.Products, o.Violated = a.orders, len(l.plan.ids), l.violated
	o.Statuses = make(map[string]int)
	for status, n := range a.statuses {
		o.Statuses[status.String()] = n
	}
	o.Violations = []string{}
	for _, violation := range l.violations {
		o.Violations = append(o.Violations, violation.Error())
	}
	return nil
}

// show writes a line of progress a second until the function that it returns is called.
func (l *load) show(to io.Writer) (stop func()) {
	if to == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last := int64(0)
		for second := 1; ; second++ {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			t := l.total()
			n := t.answers()
			fmt.Fprintf(to, "%3d s  %8d/s  %d accepted, %d refused, %d unanswered  p99 %.2f ms\n",
				second, n-last, t.classes[acknowledged], t.classes[refused]+t.classes[turnedAway],
				t.classes[unanswered], latencyOf(t.latency).P99)
			last = n
		}
	})
	return func() {
		close(ended)
		showing.Wait()
	}
}
