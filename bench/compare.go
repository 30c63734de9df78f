package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// Comparison is what two sides did in turns, within one run.
type Comparison struct {
	Name     string  `json:"name"`
	Subject  string  `json:"subject"`
	Baseline string  `json:"baseline"`
	Target   string  `json:"target"` // of the ratio
	Rounds   []Round `json:"rounds"`

	// Medians over the rounds. Ratio is that of the rounds' ratios, not the ratio of the medians:
	// the two sides of a round share what else the machine did meanwhile.
	SubjectPerSecond  float64 `json:"subject_per_second"`
	BaselinePerSecond float64 `json:"baseline_per_second"`
	SubjectCPU        float64 `json:"subject_cpu_microseconds"` // per request, with the client
	BaselineCPU       float64 `json:"baseline_cpu_microseconds"`
	RateRatio         float64 `json:"rate_ratio"`
	CPURatio          float64 `json:"cpu_ratio"`
}

// Round is one turn of both sides, one right after the other.
type Round struct {
	Subject  Turn `json:"subject"`
	Baseline Turn `json:"baseline"`
}

// refusals tells of a round in which not all that was asked for was done.
func (r *Round) refusals() string {
	if r.Subject.Others+r.Baseline.Others == 0 {
		return ""
	}
	return fmt.Sprintf("\t%d and %d not accepted, which count as nothing", r.Subject.Others,
		r.Baseline.Others)
}

// Turn is what one side did.
type Turn struct {
	Accepted  int64         `json:"accepted"`
	Others    int64         `json:"others"` // refused, or not answered: they say nothing of speed
	Elapsed   time.Duration `json:"elapsed_ns"`
	CPU       time.Duration `json:"cpu_ns"`
	PerSecond float64       `json:"per_second"`
	CPUMicro  float64       `json:"cpu_microseconds"` // per request that was accepted
}

// side takes turns: each is a load of its own over the same ledger.
type side struct {
	load *load
	next func() *schedule
	// rest, where set, waits after a turn until nothing is left to do for it.
	rest func(context.Context)
}

// take lets the side have a turn.
func (s *side) take(ctx context.Context) (t Turn, err error) {
	runtime.GC() // so that nobody sweeps what the other side left
	s.load.schedule = s.next()
	before := s.load.total()
	cpu := cpuTime()
	if t.Elapsed, err = s.load.run(ctx); err != nil {
		return t, err
	}
	if s.rest != nil {
		s.rest(ctx)
	}
	quiet(ctx)
	t.CPU = cpuTime() - cpu
	after := s.load.total()
	t.Accepted = after.classes[acknowledged] - before.classes[acknowledged]
	t.Others = after.answers() - before.answers() - t.Accepted
	if t.Accepted == 0 || ctx.Err() != nil {
		return t, fmt.Errorf("%w: a turn in which nothing was done", ErrIncomplete)
	}
	t.PerSecond = float64(t.Accepted) / t.Elapsed.Seconds()
	t.CPUMicro = float64(t.CPU.Nanoseconds()) / 1000 / float64(t.Accepted)
	return t, nil
}

// quiet waits until the process has come to rest, for a few seconds at most. So neither side works in the
// other's turn, by flushes, compactions and snapshots, and each pays for its own: they count as its CPU.
func quiet(ctx context.Context) {
	const interval, idle, most = 50 * time.Millisecond, 2 * time.Millisecond, 100
	for range most {
		before := cpuTime()
		pause(ctx, interval)
		if cpuTime()-before < idle || ctx.Err() != nil {
			return
		}
	}
}

// compare lets the two sides take turns, after one each that does not count. Who begins a round
// changes from one to the next.
func (c *Comparison) compare(
	ctx context.Context, subject, baseline *side, rounds int, progress io.Writer,
) error {
	for i := range rounds + 1 {
		var round Round
		turns := []struct {
			side *side
			into *Turn
		}{{subject, &round.Subject}, {baseline, &round.Baseline}}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			var err error
			if *turn.into, err = turn.side.take(ctx); err != nil {
				return err
			}
		}
		if progress != nil {
			fmt.Fprintf(progress, "%s, round %d of %d: %.0f/s and %.0f/s\n", c.Name, i, rounds,
				round.Subject.PerSecond, round.Baseline.PerSecond)
		}
		if i > 0 {
			c.Rounds = append(c.Rounds, round)
		}
	}
	c.summarise()
	return nil
}

func (c *Comparison) summarise() {
	of := func(value func(*Round) float64) float64 {
		values := make([]float64, len(c.Rounds))
		for i := range c.Rounds {
			values[i] = value(&c.Rounds[i])
		}
		return median(values)
	}
	c.SubjectPerSecond = of(func(r *Round) float64 { return r.Subject.PerSecond })
	c.BaselinePerSecond = of(func(r *Round) float64 { return r.Baseline.PerSecond })
	c.SubjectCPU = of(func(r *Round) float64 { return r.Subject.CPUMicro })
	c.BaselineCPU = of(func(r *Round) float64 { return r.Baseline.CPUMicro })
	c.RateRatio = of(func(r *Round) float64 { return r.Subject.PerSecond / r.Baseline.PerSecond })
	c.CPURatio = of(func(r *Round) float64 { return r.Subject.CPUMicro / r.Baseline.CPUMicro })
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// ComparisonReport is what RunFloor and RunCost showed.
type ComparisonReport struct {
	Machine     Machine      `json:"machine"`
	Comparisons []Comparison `json:"comparisons"`
	Oracles     []Oracle     `json:"oracles"`
	Notes       []string     `json:"notes"`
}

func (r *ComparisonReport) err() error {
	for i := range r.Oracles {
		if err := r.Oracles[i].err(); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable writes the report for people.
func (r *ComparisonReport) WriteTable(w io.Writer) error {
	t := newTable(w)
	t.row("machine\t%s", r.Machine)
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		t.row("")
		t.row("%s", c.Name)
		t.row("  \tper second\tCPU µs each")
		t.row("  %s\t%.0f\t%.2f", c.Subject, c.SubjectPerSecond, c.SubjectCPU)
		t.row("  %s\t%.0f\t%.2f", c.Baseline, c.BaselinePerSecond, c.BaselineCPU)
		t.row("  ratio\t%.2f\t%.2f\t(medians of %d rounds; target: %s)",
			c.RateRatio, c.CPURatio, len(c.Rounds), c.Target)
		for k := range c.Rounds {
			x := &c.Rounds[k]
			t.row("    round %d\t%.2f\t%.2f%s", k+1, x.Subject.PerSecond/x.Baseline.PerSecond,
				x.Subject.CPUMicro/x.Baseline.CPUMicro, x.refusals())
		}
	}
	t.row("")
	for _, note := range r.Notes {
		t.row("note\t%s", note)
	}
	for i := range r.Oracles {
		t.row("oracle\t%s", &r.Oracles[i])
	}
	return t.flush()
}
