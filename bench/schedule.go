package bench

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Arrivals is how requests arrive at a rate.
type Arrivals string

// The arrivals. Poisson is a crowd that knows nothing of each other.
const (
	ArrivalsPoisson  Arrivals = "poisson"
	ArrivalsConstant Arrivals = "constant"
)

// schedule says when the next request is intended to start, counted from the beginning of the
// load. Any goroutine may ask. It ends with its count or its time, whichever comes first.
type schedule struct {
	mu       sync.Mutex
	random   *rand.Rand
	arrivals Arrivals
	mean     time.Duration // between two arrivals; 0: a closed loop, each starts when it can
	at       time.Duration
	left     int
	end      time.Duration
}

// newSchedule makes one of at most count arrivals at rate per second, 0 for a closed loop, all
// before end.
func newSchedule(arrivals Arrivals, rate float64, count int, end time.Duration, seed uint64) *schedule {
	s := &schedule{
		random: rand.New(rand.NewPCG(seed, 0)), arrivals: arrivals, left: count, end: end,
	}
	if rate > 0 {
		s.mean = time.Duration(float64(time.Second) / rate)
	}
	return s
}

// next is the intended start of the next request, which may be past; now is the time that it has.
func (s *schedule) next(now time.Duration) (at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = now
	if s.mean > 0 {
		at = s.at
	}
	if s.left == 0 || at >= s.end {
		return 0, false
	}
	s.left--
	switch s.arrivals {
	case ArrivalsPoisson:
		s.at += time.Duration(s.random.ExpFloat64() * float64(s.mean))
	default:
		s.at += s.mean
	}
	return at, true
}
