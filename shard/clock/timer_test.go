package clock_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/shard/clock"
)

func TestTimerFiresAtItsDeadlineAndNotBefore(t *testing.T) {
	c, source := newClock()
	timer := c.TimerAt(startUnixMilli + 1000)
	source.Advance(999 * time.Millisecond)
	require.False(t, isClosed(timer.C))
	source.Advance(time.Millisecond)
	require.True(t, isClosed(timer.C))
	timer.Stop()
}

func TestTimerOfThePastIsDueAtOnce(t *testing.T) {
	c, _ := newClock()
	require.True(t, isClosed(c.TimerAt(startUnixMilli).C))
	require.True(t, isClosed(c.TimerAt(-1).C))
}

func TestStoppedTimerNeverFires(t *testing.T) {
	c, source := newClock()
	timer := c.TimerAt(startUnixMilli + 1000)
	timer.Stop()
	timer.Stop()
	source.Advance(time.Hour)
	source.JumpWall(time.Hour)
	c.Accept()
	require.False(t, isClosed(timer.C))
}

func TestTimerIgnoresAJumpUntilItIsAccepted(t *testing.T) {
	c, source := newClock()
	timer := c.TimerAt(startUnixMilli + 600_000)
	source.JumpWall(time.Hour)
	source.Advance(time.Minute)
	require.False(t, isClosed(timer.C))
	c.Accept()
	require.True(t, isClosed(timer.C))
}

func TestTimerWaitsLongerAfterTimeWasSetBack(t *testing.T) {
	c, source := newClock()
	timer := c.TimerAt(startUnixMilli + 1000)
	source.JumpWall(-time.Hour)
	c.Accept()
	source.Advance(time.Hour)
	require.False(t, isClosed(timer.C))
	source.Advance(time.Second)
	require.True(t, isClosed(timer.C))
}

func TestTimerFollowsASlew(t *testing.T) {
	for name, step := range map[string]time.Duration{
		"ahead": 20 * time.Millisecond,
		"back":  -20 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			c, source := newClock()
			timer := c.TimerAt(startUnixMilli + 100_000)
			source.JumpWall(step)
			for range 99 {
				source.Advance(time.Second)
				require.False(t, isClosed(timer.C))
				c.NowUnixMilli()
			}
			left := c.Until(startUnixMilli + 100_000)
			require.InDelta(t, time.Second-step, left, float64(time.Millisecond))
			source.Advance(left - time.Microsecond)
			require.False(t, isClosed(timer.C))
			source.Advance(time.Millisecond) // the last correction, too
			require.True(t, isClosed(timer.C))
		})
	}
}

func TestTimerThatFindsTimeSlewedBackWaitsOn(t *testing.T) {
	c, source := newClock()
	timer := c.TimerAt(startUnixMilli + 5000)
	source.JumpWall(-50 * time.Millisecond)
	source.Advance(5 * time.Second) // nobody looked meanwhile: 2.5 ms are made up now
	require.False(t, isClosed(timer.C))
	source.Advance(2500 * time.Microsecond)
	require.True(t, isClosed(timer.C))
	require.EqualValues(t, startUnixMilli+5000, c.NowUnixMilli())
}

func TestSystemTimer(t *testing.T) {
	c := clock.New(clock.NewSystem(), slog.New(slog.DiscardHandler))
	deadline := c.NowUnixMilli() + 20
	timer := c.TimerAt(deadline)
	<-timer.C
	require.GreaterOrEqual(t, c.NowUnixMilli(), deadline)

	far := c.TimerAt(deadline + time.Hour.Milliseconds())
	far.Stop()
	require.InDelta(t, time.Now().UnixMilli(), c.NowUnixMilli(), 100)
}
