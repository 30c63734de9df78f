package clock

import (
	"log/slog"
	"math"
	"sync"
	"time"
)

const (
	// lookEvery is how much monotonic time passes between two looks at the wall
	// clock. A jump changes nothing before it is seen, so this is only how late it
	// is reported; and it bounds a correction to lookEvery / slewDivisor = 0.5 ms,
	// less than the unit in which log time is told.
	lookEvery = time.Second

	// lookWithin is the longest a look may take. A goroutine that lost its CPU
	// between the two clocks would take the pause for a jump.
	lookWithin = time.Millisecond

	// followed is the largest disagreement that is slewed away. Clocks disciplined
	// by NTP agree within tens of milliseconds, so more than this is a wrong clock
	// and not drift; and it is well below the 500 ms at which a node must not lead.
	followed = 100 * time.Millisecond

	// resolution is what a wall clock that tells milliseconds cannot show.
	resolution = time.Millisecond

	// slewDivisor makes the slew 1/2000 = 500 ppm, the rate of adjtime(3): a hold
	// of 30 minutes is wrong by less than the second that its expiry promises.
	slewDivisor = 2000
)

// Clock tells log time. Every method may be called from any goroutine.
type Clock struct {
	source Source
	logger *slog.Logger

	mu sync.Mutex
	// anchor is the log time, since the Unix epoch, at the monotonic reading
	// anchored.
	anchor, anchored time.Duration
	// told is the highest log time since the anchor was set: what is told next is
	// not below it.
	told   time.Duration
	looked time.Duration // the monotonic reading of the last look at the wall clock
	offset time.Duration // wall clock − log time at that look
	held   bool          // the wall clock is not believed
	jumps  uint64
	timers map[*Timer]struct{} // those that are armed
}

// New returns a clock that starts at the source's wall time and believes it: a
// node that boots with a wrong clock is found by comparing nodes, not here.
func New(source Source, logger *slog.Logger) *Clock {
	c := &Clock{source: source, logger: logger, timers: make(map[*Timer]struct{})}
	c.setAnchor()
	return c
}

// NowUnixMilli returns the log time in milliseconds since the Unix epoch, UTC. It
// never returns less than it returned before, to any goroutine, except across
// Accept.
func (c *Clock) NowUnixMilli() (now int64) {
	c.read(func() { now = int64(c.told / time.Millisecond) })
	return now
}

// Until returns how long to wait until NowUnixMilli is at least deadlineUnixMilli;
// 0 when it is already. It is an estimate: the wait is wrong by at most 500 ppm,
// and Accept changes it altogether. A Timer has neither fault.
func (c *Clock) Until(deadlineUnixMilli int64) (wait time.Duration) {
	c.read(func() { wait = max(0, sinceEpoch(deadlineUnixMilli)-c.told) })
	return wait
}

// Accept takes the wall clock for true, as a restart of the process would, and
// returns by how much log time moved. It is an operator's decision: forward, what
// is due by the new time is due at once; backward, NowUnixMilli goes back, the
// shard's own clock (a maximum) stands still until time has caught up with it, and
// an admin command in the log can lower that one too.
func (c *Clock) Accept() (moved time.Duration) {
	c.mu.Lock()
	moved = c.setAnchor()
	c.rearm()
	c.mu.Unlock()
	c.logger.Warn("wall clock accepted", "moved", moved)
	return moved
}

// Offset returns wall clock − log time as of the last look, at most a second ago:
// near zero in health, the size of the jump while Held.
func (c *Clock) Offset() (offset time.Duration) {
	c.read(func() { offset = c.offset })
	return offset
}

// Held reports whether the wall clock is not believed and log time follows the
// monotonic clock alone. It ends by itself when the wall clock comes back to within
// 100 ms of log time, or by Accept.
func (c *Clock) Held() (held bool) {
	c.read(func() { held = c.held })
	return held
}

// Jumps returns how often the wall clock has jumped since New.
func (c *Clock) Jumps() (jumps uint64) {
	c.read(func() { jumps = c.jumps })
	return jumps
}

// read runs use with the lock held and told brought up to now. What it saw on the
// way is logged after the lock is released, so that a blocked log stops nobody else.
func (c *Clock) read(use func()) {
	c.mu.Lock()
	seen := c.advance()
	use()
	c.mu.Unlock()

	switch seen.finding {
	case jumped:
		c.logger.Error("wall clock jumped, log time keeps to the monotonic clock",
			"offset", seen.offset)
	case returned:
		c.logger.Info("wall clock agrees again", "offset", seen.offset)
	}
}

// finding is what a look at the wall clock found that an operator should know.
type finding uint8

const (
	nothing finding = iota
	jumped
	returned
)

// sighting is a finding and the offset at which it was made.
type sighting struct {
	finding finding
	offset  time.Duration
}

// advance brings told up to now, looking at the wall clock when that is due.
func (c *Clock) advance() (seen sighting) {
	mono := c.source.Monotonic()
	corrected := false
	if mono-c.looked >= lookEvery {
		seen, corrected = c.look()
	}
	c.told = max(c.told, c.at(mono))
	if corrected {
		c.rearm()
	}
	return seen
}

// look compares the wall clock with log time, and corrects log time by what a slew
// would have done since the last look.
func (c *Clock) look() (seen sighting, corrected bool) {
	mono, wall, ok := c.sample()
	if !ok {
		return sighting{}, false
	}
	before, elapsed := c.offset, mono-c.looked
	c.looked = mono
	c.offset = wall - c.at(mono)

	switch {
	case c.offset.Abs() > followed:
		if c.held && (c.offset-before).Abs() <= followed {
			return sighting{}, false
		}
		c.held = true
		c.jumps++
		return sighting{jumped, c.offset}, false
	case c.held:
		c.held = false
		return sighting{returned, c.offset}, false
	case c.offset.Abs() <= resolution:
		return sighting{}, false
	}
	most := elapsed / slewDivisor
	correction := min(max(c.offset, -most), most)
	c.anchor += correction
	c.offset -= correction
	return sighting{}, true
}

// setAnchor makes the wall clock the log time and returns by how much that moved it.
func (c *Clock) setAnchor() time.Duration {
	const attempts = 8 // beyond, the machine is so slow that the last one must do
	mono, wall, ok := c.sample()
	for i := 1; i < attempts && !ok; i++ {
		mono, wall, ok = c.sample()
	}
	moved := wall - c.at(mono)
	c.anchor, c.anchored, c.told = wall, mono, wall
	c.looked, c.offset, c.held = mono, 0, false
	return moved
}

// sample reads both clocks as one: ok is false when they may be too far apart.
func (c *Clock) sample() (mono, wall time.Duration, ok bool) {
	mono = c.source.Monotonic()
	wall = sinceEpoch(c.source.Wall())
	return mono, wall, c.source.Monotonic()-mono <= lookWithin
}

func (c *Clock) at(mono time.Duration) time.Duration { return c.anchor + mono - c.anchored }

// sinceEpoch keeps to the times that a Duration can hold, 1970 to 2262, so that no
// difference of two of them overflows.
func sinceEpoch(unixMilli int64) time.Duration {
	const latest = math.MaxInt64/int64(time.Millisecond) - 1
	return time.Duration(min(max(unixMilli, 0), latest)) * time.Millisecond
}
