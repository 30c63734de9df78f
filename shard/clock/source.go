package clock

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Source is where a Clock reads time. Its methods are called from any goroutine,
// with the clock's lock held.
type Source interface {
	// Wall returns what the machine believes the time is, in milliseconds since
	// the Unix epoch. It may jump either way.
	Wall() (unixMilli int64)

	// Monotonic returns the time since some fixed instant. It never goes back.
	Monotonic() time.Duration

	// AfterFunc calls f from another goroutine, or at least not from within the
	// call, once Monotonic has grown by d > 0, unless stop is called before. stop
	// may be called again and does not wait for an f that is already running.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// System is the Source of the machine's own clocks: on Linux CLOCK_REALTIME and
// CLOCK_MONOTONIC, which NTP disciplines alike and suspend tears apart.
type System struct{ started time.Time }

// NewSystem returns the machine's clocks.
func NewSystem() System { return System{started: time.Now()} }

// Wall implements Source.
func (System) Wall() int64 { return time.Now().UnixMilli() }

// Monotonic implements Source: it counts from NewSystem.
func (s System) Monotonic() time.Duration { return time.Since(s.started) }

// AfterFunc implements Source.
func (System) AfterFunc(d time.Duration, f func()) func() {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}

// Manual is a Source for tests, of this package and others: it moves when it is
// told to. It may be used from any goroutine.
type Manual struct {
	mu    sync.Mutex
	wall  time.Duration // since the Unix epoch
	mono  time.Duration
	calls []*call
}

// call is an AfterFunc that has not been made.
type call struct {
	at time.Duration // the monotonic reading
	f  func()
}

// NewManual returns a source whose wall clock stands at wallUnixMilli.
func NewManual(wallUnixMilli int64) *Manual { return &Manual{wall: sinceEpoch(wallUnixMilli)} }

// Advance lets d ≥ 0 pass on both clocks. Timers that become due have fired when it
// returns, earliest first.
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: the monotonic clock does not go back")
	}
	for _, c := range m.advance(d) {
		c.f()
	}
}

func (m *Manual) advance(d time.Duration) (due []*call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall += d
	m.mono += d
	m.calls = slices.DeleteFunc(m.calls, func(c *call) bool {
		if c.at > m.mono {
			return false
		}
		due = append(due, c)
		return true
	})
	slices.SortStableFunc(due, func(a, b *call) int { return cmp.Compare(a.at, b.at) })
	return due
}

// JumpWall moves the wall clock alone: a step of either sign, or, with what a
// suspended machine slept, a resume.
func (m *Manual) JumpWall(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall += d
}

// Set moves the wall clock alone, to wallUnixMilli.
func (m *Manual) Set(wallUnixMilli int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = sinceEpoch(wallUnixMilli)
}

// Wall implements Source.
func (m *Manual) Wall() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(m.wall / time.Millisecond)
}

// Monotonic implements Source.
func (m *Manual) Monotonic() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mono
}

// AfterFunc implements Source. f is called by Advance, in its goroutine.
func (m *Manual) AfterFunc(d time.Duration, f func()) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &call{at: m.mono + d, f: f}
	m.calls = append(m.calls, c)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls = slices.DeleteFunc(m.calls, func(other *call) bool { return other == c })
	}
}
