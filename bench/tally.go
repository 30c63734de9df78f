package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// mostLatency is the longest that is told apart; what is longer counts as that.
const mostLatency = time.Minute

// tally counts answers. Any goroutine may add to it.
type tally struct {
	mu      sync.Mutex
	latency *hdrhistogram.Histogram // microseconds from the intended start to the answer
	late    *hdrhistogram.Histogram // microseconds from the intended to the real start
	codes   map[string]int64
	classes [garbled + 1]int64
	replays int64
}

func newTally() *tally {
	most := mostLatency.Microseconds()
	return &tally{
		latency: hdrhistogram.New(1, most, 3), late: hdrhistogram.New(1, most, 3),
		codes: make(map[string]int64),
	}
}

func (t *tally) add(a *answer, latency, late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	recordLatency(t.latency, latency)
	recordLatency(t.late, late)
	t.codes[a.code]++
	t.classes[a.verdict]++
	if a.replay {
		t.replays++
	}
}

func recordLatency(into *hdrhistogram.Histogram, d time.Duration) {
	// It fails only for values out of range.
	_ = into.RecordValue(min(max(d, 0), mostLatency).Microseconds())
}

// merge adds what another tally has counted.
func (t *tally) merge(from *tally) {
	from.mu.Lock()
	defer from.mu.Unlock()
	t.latency.Merge(from.latency)
	t.late.Merge(from.late)
	for code, n := range from.codes {
		t.codes[code] += n
	}
	for class, n := range from.classes {
		t.classes[class] += n
	}
	t.replays += from.replays
}

// answers is how many there are.
func (t *tally) answers() (n int64) {
	for _, m := range t.classes {
		n += m
	}
	return n
}
