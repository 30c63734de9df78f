package gateway

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// throttle limits how often one buyer, or one address without a token, may call. It holds two
// generations of buckets like tokenCache, so that its memory is bounded; whoever comes back after
// both have passed begins with a full bucket.
type throttle struct {
	limit rate.Limit
	burst int
	now   func() time.Time

	mu         sync.Mutex
	young, old map[string]*rate.Limiter
}

// throttleGeneration is how many buckets one generation holds: about 20 MB both.
const throttleGeneration = 64 << 10

func newThrottle(config *Config) *throttle {
	if config.RatePerSecond == 0 {
		return nil
	}
	return &throttle{
		limit: rate.Limit(config.RatePerSecond), burst: config.Burst, now: config.Now,
	}
}

// wait takes a call from the caller's bucket and returns 0, or says how long the caller should
// wait before the next, and takes nothing.
func (t *throttle) wait(c *call) time.Duration {
	if t == nil || c.who.role >= roleService {
		return 0
	}
	name := "address " + c.address
	if c.who.role == roleBuyer && c.op.role != rolePublic {
		name = "buyer " + string(c.who.buyer)
	}
	now := t.now()
	reservation := t.bucket(name).ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func (t *throttle) bucket(name string) *rate.Limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	bucket := t.young[name]
	if bucket != nil {
		return bucket
	}
	if bucket = t.old[name]; bucket == nil {
		bucket = rate.NewLimiter(t.limit, t.burst)
	}
	if t.young == nil || len(t.young) >= throttleGeneration {
		t.old, t.young = t.young, make(map[string]*rate.Limiter)
	}
	t.young[name] = bucket
	return bucket
}
