package clock_test

import (
	"bytes"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"numera/shard/clock"
)

const startUnixMilli = 1_764_435_600_000

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClock() (*clock.Clock, *clock.Manual) {
	source := clock.NewManual(startUnixMilli)
	return clock.New(source, slog.New(slog.DiscardHandler)), source
}

func TestClockAdvancesWithTheMonotonicClock(t *testing.T) {
	c, source := newClock()
	require.EqualValues(t, startUnixMilli, c.NowUnixMilli())
	source.Advance(1500 * time.Millisecond)
	require.EqualValues(t, startUnixMilli+1500, c.NowUnixMilli())
	require.Zero(t, c.Offset())
	require.Zero(t, c.Jumps())
}

func TestAJumpChangesNothing(t *testing.T) {
	for name, jump := range map[string]time.Duration{
		"an hour ahead":    time.Hour,
		"an hour back":     -time.Hour,
		"just over 100 ms": 101 * time.Millisecond,
		"a leap second":    -time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			source := clock.NewManual(startUnixMilli)
			var logged bytes.Buffer
			c := clock.New(source, slog.New(slog.NewTextHandler(&logged, nil)))

			source.JumpWall(jump)
			for second := int64(1); second <= 600; second++ {
				source.Advance(time.Second)
				require.Equal(t, startUnixMilli+1000*second, c.NowUnixMilli())
			}
			require.True(t, c.Held())
			require.Equal(t, jump, c.Offset())
			require.EqualValues(t, 1, c.Jumps(), "one jump is told once")
			require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("level=ERROR")))

			source.JumpWall(jump)
			source.Advance(time.Second)
			require.EqualValues(t, 2, c.Jumps(), "a second jump is another one")

			source.JumpWall(-2 * jump)
			source.Advance(time.Second)
			require.False(t, c.Held(), "the wall clock came back")
			require.EqualValues(t, startUnixMilli+602_000, c.NowUnixMilli())
		})
	}
}

func TestASmallStepIsSlewed(t *testing.T) {
	for name, step := range map[string]time.Duration{
		"ahead": 100 * time.Millisecond,
		"back":  -100 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			c, source := newClock()
			source.JumpWall(step)
			before := c.NowUnixMilli()
			for range 220 { // 100 ms at 500 ppm last 200 s
				source.Advance(time.Second)
				now := c.NowUnixMilli()
				require.InDelta(t, 1000, now-before, 1)
				before = now
			}
			require.InDelta(t, source.Wall(), c.NowUnixMilli(), 1)
			require.InDelta(t, 0, c.Offset(), float64(time.Millisecond))
			require.Zero(t, c.Jumps())
		})
	}
}

func TestSlowDriftIsFollowed(t *testing.T) {
	for name, drift := range map[string]time.Duration{ // a second
		"fast": 200 * time.Microsecond,
		"slow": -200 * time.Microsecond,
	} {
		t.Run(name, func(t *testing.T) {
			c, source := newClock()
			for range 6 * 3600 {
				source.JumpWall(drift)
				source.Advance(time.Second)
				require.InDelta(t, source.Wall(), c.NowUnixMilli(), 3)
			}
			require.Zero(t, c.Jumps())
		})
	}
}

func TestAcceptTakesTheWallClock(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			c, source := newClock()
			source.JumpWall(jump)
			source.Advance(time.Second)
			require.True(t, c.Held())

			require.Equal(t, jump, c.Accept())
			require.Equal(t, source.Wall(), c.NowUnixMilli())
			require.False(t, c.Held())
			require.Zero(t, c.Offset())
			source.Advance(time.Minute)
			require.Equal(t, source.Wall(), c.NowUnixMilli())
		})
	}
}

// stalling is a Source that can lose its CPU between its two clocks.
type stalling struct {
	*clock.Manual
	pause time.Duration
}

func (s *stalling) Wall() int64 {
	s.Advance(s.pause)
	return s.Manual.Wall()
}

func TestAPauseWithinALookIsNoJump(t *testing.T) {
	source := &stalling{Manual: clock.NewManual(startUnixMilli)}
	c := clock.New(source, slog.New(slog.DiscardHandler))
	source.Advance(time.Second)
	source.pause = time.Second
	require.Zero(t, c.Offset())
	require.Zero(t, c.Jumps())

	source.pause = 0
	source.JumpWall(time.Hour)
	require.EqualValues(t, 1, c.Jumps(), "the next look counts")
}

func TestSlewingBackNeverGoesBack(t *testing.T) {
	c, source := newClock()
	source.JumpWall(-50 * time.Millisecond)
	source.Advance(1000*time.Millisecond + 600*time.Microsecond)
	require.EqualValues(t, startUnixMilli+1000, c.NowUnixMilli())
	source.Advance(999*time.Millisecond + 950*time.Microsecond)
	require.EqualValues(t, startUnixMilli+2000, c.NowUnixMilli())
	source.Advance(50 * time.Microsecond) // a look takes 500 µs away
	require.EqualValues(t, startUnixMilli+2000, c.NowUnixMilli())
}

func TestNeverBackwardsUnderConcurrency(t *testing.T) {
	c, source := newClock()
	var readers sync.WaitGroup
	done := make(chan struct{})
	// Readers hand the highest time on: each must be told no less than any other
	// was told before it asked.
	var mu sync.Mutex
	var highest int64
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				floor := highest
				mu.Unlock()
				now := c.NowUnixMilli()
				if now < floor {
					t.Errorf("told %d after %d", now, floor)
					return
				}
				mu.Lock()
				highest = max(highest, now)
				mu.Unlock()
			}
		})
	}
	for i := range 20_000 {
		step := time.Duration(i%7-3) * 20 * time.Millisecond
		source.JumpWall(step)
		source.Advance(time.Duration(i%5) * 300 * time.Microsecond)
		if i%100 == 0 {
			source.Advance(time.Second)
		}
	}
	close(done)
	readers.Wait()
}

// TestRuleHoldsForAnyHistory moves a clock about at random and checks what the
// package promises after every step.
func TestRuleHoldsForAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, source := newClock()
		var timers []*clock.Timer
		var deadlines []int64
		before, passed := c.NowUnixMilli(), time.Duration(0)

		spans := rapid.Int64Range(0, int64(3*time.Second))
		jumps := rapid.OneOf(
			rapid.Int64Range(int64(-5*time.Millisecond), int64(5*time.Millisecond)),
			rapid.Int64Range(int64(-time.Hour), int64(time.Hour)))
		t.Repeat(map[string]func(*rapid.T){
			"advance": func(t *rapid.T) {
				d := time.Duration(spans.Draw(t, "span"))
				source.Advance(d)
				passed += d
			},
			"jump": func(t *rapid.T) {
				source.JumpWall(time.Duration(jumps.Draw(t, "jump")))
			},
			"timer": func(t *rapid.T) {
				deadline := before + rapid.Int64Range(-100, 5000).Draw(t, "in")
				timers = append(timers, c.TimerAt(deadline))
				deadlines = append(deadlines, deadline)
			},
			"": func(t *rapid.T) {
				now := c.NowUnixMilli()
				if now < before {
					t.Fatalf("went back from %d to %d", before, now)
				}
				strayed := time.Duration(now-before)*time.Millisecond - passed
				allowed := (passed+time.Second)/2000 + 2*time.Millisecond
				if strayed.Abs() > allowed {
					t.Fatalf("strayed by %v in %v", strayed, passed)
				}
				before, passed = now, 0
				for i, timer := range timers {
					if isClosed(timer.C) != (now >= deadlines[i]) {
						t.Fatalf("timer for %d wrong at %d", deadlines[i], now)
					}
				}
			},
		})
	})
}

func TestUntil(t *testing.T) {
	c, source := newClock()
	require.Equal(t, 2*time.Second, c.Until(startUnixMilli+2000))
	source.Advance(1500 * time.Millisecond)
	require.Equal(t, 500*time.Millisecond, c.Until(startUnixMilli+2000))
	source.Advance(time.Second)
	require.Zero(t, c.Until(startUnixMilli+2000))
	require.Zero(t, c.Until(math.MinInt64))
	require.Positive(t, c.Until(math.MaxInt64))
}

func isClosed(due <-chan struct{}) bool {
	select {
	case <-due:
		return true
	default:
		return false
	}
}

func BenchmarkNowUnixMilli(b *testing.B) {
	c := clock.New(clock.NewSystem(), slog.New(slog.DiscardHandler))
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.NowUnixMilli()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.NowUnixMilli()
			}
		})
	})
}
