package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what one load showed. Its JSON is what --json writes.
type Report struct {
	Machine  Machine  `json:"machine"`
	Path     Path     `json:"path"`
	Workload Workload `json:"workload"`

	Rate     float64  `json:"rate_per_second"` // intended; 0: a closed loop
	Arrivals Arrivals `json:"arrivals,omitempty"`
	InFlight int      `json:"in_flight"`
	Products int      `json:"products"`
	Numbers  int      `json:"numbers_per_product"`
	Quantity int      `json:"numbers_per_order"`
	Shards   int      `json:"shards,omitempty"`
	Seed     uint64   `json:"seed"`

	Seconds     float64          `json:"seconds"`
	Requests    int64            `json:"requests"`
	PerSecond   float64          `json:"requests_per_second"`
	Accepted    int64            `json:"accepted"`
	Refused     int64            `json:"refused"`
	TurnedAway  int64            `json:"turned_away"` // overloaded and the like: nothing was done
	Unanswered  int64            `json:"unanswered"`
	Errors      int64            `json:"errors"` // answers that the contract does not allow
	Replays     int64            `json:"replays"`
	Codes       map[string]int64 `json:"codes"`
	Latency     Latency          `json:"latency"`    // from the intended start
	StartedLate Latency          `json:"start_late"` // of it: before the request was made
	CPUPerOp    float64          `json:"cpu_microseconds_per_request,omitempty"`
	AllocPerOp  float64          `json:"allocated_bytes_per_request,omitempty"`
	LogPerOp    float64          `json:"log_bytes_per_request,omitempty"`
	SyncsPerSec float64          `json:"fsyncs_per_second,omitempty"`
	Batch       Distribution     `json:"batch_commands"`
	Commit      Distribution     `json:"commit_seconds"`
	Consumer    string           `json:"consumer"`
	Events      int64            `json:"events_consumed,omitempty"`
	Backlog     int64            `json:"outbox_backlog_left"`
	Oracle      Oracle           `json:"oracle"`
}

// Latency is in milliseconds.
type Latency struct {
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Latency{at(50), at(90), at(99), at(99.9), float64(h.Max()) / 1000}
}

// Oracle is what was read back, and what it broke.
type Oracle struct {
	Orders     int            `json:"orders"`
	Products   int            `json:"products"`
	Statuses   map[string]int `json:"statuses"`
	Resolved   int            `json:"resolved"`   // requests without an answer that were asked for again
	Violated   int            `json:"violated"`   // promises broken
	Violations []string       `json:"violations"` // the first of them
}

func (o *Oracle) err() error {
	if o.Violated == 0 {
		return nil
	}
	return fmt.Errorf("%w, %d times: %s", ErrViolated, o.Violated, strings.Join(o.Violations, "; "))
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	t := newTable(w)
	t.row("%s path, workload %s", r.Path, r.Workload)
	t.row("machine\t%s", r.Machine)
	t.row("load\t%s", r.load())
	t.row("rate\t%.0f requests/s over %.1f s (%d requests)", r.PerSecond, r.Seconds, r.Requests)
	t.row("latency\t%s", r.Latency)
	if r.Rate > 0 {
		t.row("  of it, started late\t%s", r.StartedLate)
	}
	t.row("accepted\t%d, of them %d replays", r.Accepted, r.Replays)
	t.row("refused\t%d%s", r.Refused+r.TurnedAway, r.codes())
	t.row("unanswered, errors\t%d, %d", r.Unanswered, r.Errors)
	if r.Batch.Count > 0 {
		t.row("log entry\t%.0f commands on average, p50 %.0f, p99 %.0f (%d entries)",
			r.Batch.Mean, r.Batch.P50, r.Batch.P99, r.Batch.Count)
		t.row("commit\t%.2f ms on average, p50 %.2f, p99 %.2f",
			1000*r.Commit.Mean, 1000*r.Commit.P50, 1000*r.Commit.P99)
	}
	if r.CPUPerOp > 0 {
		t.row("a request\t%.1f µs CPU, %.0f B allocated, %.0f B of log (client included); %.0f fsyncs/s",
			r.CPUPerOp, r.AllocPerOp, r.LogPerOp, r.SyncsPerSec)
	}
	t.row("outbox\tconsumer: %s; %d events consumed, %d left", r.Consumer, r.Events, r.Backlog)
	t.row("oracle\t%s", &r.Oracle)
	return t.flush()
}

func (r *Report) load() string {
	sizes := fmt.Sprintf("%d products × %d numbers, %d an order", r.Products, r.Numbers, r.Quantity)
	if r.Rate == 0 {
		return fmt.Sprintf("closed loop, %d in flight; %s", r.InFlight, sizes)
	}
	return fmt.Sprintf("%.0f/s by schedule (%s), at most %d in flight; %s",
		r.Rate, r.Arrivals, r.InFlight, sizes)
}

func (r *Report) codes() string {
	var parts []string
	for _, code := range byCount(r.Codes) {
		if code != "ok" {
			parts = append(parts, fmt.Sprintf("%s %d", code, r.Codes[code]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// byCount lists names, the most frequent first.
func byCount[N cmp.Ordered](counts map[string]N) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores, %s, %s, numera %s, fsync on, %s",
		m.Cores, m.OS, m.Go, m.Version, m.Date.Format(time.RFC3339))
}

func (l Latency) String() string {
	return fmt.Sprintf("p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  max %.2f ms",
		l.P50, l.P90, l.P99, l.P999, l.Max)
}

func (o *Oracle) String() string {
	var parts []string
	for _, status := range byCount(o.Statuses) {
		parts = append(parts, fmt.Sprintf("%d %s", o.Statuses[status], status))
	}
	text := fmt.Sprintf("read back %d orders (%s) of %d products",
		o.Orders, strings.Join(parts, ", "), o.Products)
	if o.Resolved > 0 {
		text += fmt.Sprintf(", asked again for %d", o.Resolved)
	}
	if o.Violated == 0 {
		return text + ": every promise kept"
	}
	return fmt.Sprintf("%s: %d PROMISES BROKEN\n\t  %s", text, o.Violated,
		strings.Join(o.Violations, "\n\t  "))
}

// table writes lines with a column of names.
type table struct {
	w   *tabwriter.Writer
	err error // the first one
}

func newTable(w io.Writer) *table { return &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t *table) row(format string, args ...any) {
	_, err := fmt.Fprintf(t.w, format+"\n", args...)
	t.err = cmp.Or(t.err, err)
}

func (t *table) flush() error { return cmp.Or(t.err, t.w.Flush()) }

// WriteJSON writes any of the package's reports.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
