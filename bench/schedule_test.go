package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

func arrivalsOf(s *schedule) (all []time.Duration) {
	for {
		at, ok := s.next(0)
		if !ok {
			return all
		}
		all = append(all, at)
	}
}

func TestScheduleDoesNotWaitForAnswers(t *testing.T) {
	const rate, count = 1000, 20_000
	for _, arrivals := range []Arrivals{ArrivalsPoisson, ArrivalsConstant} {
		t.Run(string(arrivals), func(t *testing.T) {
			all := arrivalsOf(newSchedule(arrivals, rate, count, time.Hour, 7))
			require.Len(t, all, count)
			require.IsNonDecreasing(t, all)
			seconds := all[count-1].Seconds()
			require.InEpsilon(t, count/rate, seconds, 0.05, "the rate is kept")
			require.Equal(t, all, arrivalsOf(newSchedule(arrivals, rate, count, time.Hour, 7)),
				"the same seed is the same schedule")
		})
	}
}

func TestPoissonArrivalsVaryAsMuchAsTheirMean(t *testing.T) {
	all := arrivalsOf(newSchedule(ArrivalsPoisson, 1000, 20_000, time.Hour, 7))
	sum, squares, n := 0.0, 0.0, float64(len(all)-1)
	for i := range all[1:] {
		gap := (all[i+1] - all[i]).Seconds()
		sum += gap
		squares += gap * gap
	}
	mean := sum / n
	require.InEpsilon(t, mean*mean, squares/n-mean*mean, 0.1)
}

func TestScheduleEndsWithItsTime(t *testing.T) {
	all := arrivalsOf(newSchedule(ArrivalsConstant, 1000, 1_000_000, time.Second, 1))
	require.Len(t, all, 1000)

	closed := newSchedule(ArrivalsPoisson, 0, 3, time.Second, 1)
	at, ok := closed.next(500 * time.Millisecond)
	require.True(t, ok)
	require.Equal(t, 500*time.Millisecond, at, "a closed loop starts now")
	_, ok = closed.next(time.Second)
	require.False(t, ok)
}

// slowPeer answers late, one request after the other.
type slowPeer struct{ delay time.Duration }

func (p slowPeer) start(c *call) {
	time.Sleep(p.delay)
	c.finish(answer{code: "ok"})
}

// TestLatencyCountsFromTheIntendedStart holds up every request for longer than the next is due in:
// a loop that waits for answers would call each of them as slow as its own delay.
func TestLatencyCountsFromTheIntendedStart(t *testing.T) {
	const delay, count = 10 * time.Millisecond, 40
	p := &plan{quantity: 1, numbers: 1000, ids: []inventory.ProductID{"a"}}
	p.any()
	l := newLoad(p, slowPeer{delay}, newSchedule(ArrivalsConstant, 1000, count, time.Minute, 1),
		shape{lanes: 1, window: 1}, 1)
	l.blind = true
	elapsed, err := l.run(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, elapsed, count*delay)
	total := l.total()
	require.EqualValues(t, count, total.answers())
	// The last was meant to start at 39 ms and was answered after 400.
	require.Greater(t, latencyOf(total.latency).Max, 350.0)
	require.Greater(t, latencyOf(total.late).Max, 340.0)
}
