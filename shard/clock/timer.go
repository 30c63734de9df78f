package clock

import "time"

// Timer tells when log time has reached a deadline. It holds no goroutine. Its
// methods may be called from any goroutine.
type Timer struct {
	// C is closed when NowUnixMilli is at least the deadline, never before. Nobody
	// may close it but the clock.
	C <-chan struct{}

	clock    *Clock
	due      chan struct{} // C
	deadline time.Duration // log time since the Unix epoch
	disarm   func()
}

// TimerAt returns a timer for the log time deadlineUnixMilli. Stop it when it is no
// longer wanted. It follows slews and Accept.
func (c *Clock) TimerAt(deadlineUnixMilli int64) *Timer {
	due := make(chan struct{})
	t := &Timer{
		C: due, clock: c, due: due, deadline: sinceEpoch(deadlineUnixMilli), disarm: func() {},
	}
	c.read(func() { c.arm(t) })
	return t
}

// Stop releases the timer. After it has returned C is not closed any more, if it
// was not already. It may be called again.
func (t *Timer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.disarm()
	delete(t.clock.timers, t)
}

// arm closes C when the deadline is past by told, else asks the source to come back
// when it is expected to be. The caller holds the lock.
func (c *Clock) arm(t *Timer) {
	t.disarm()
	wait := t.deadline - c.told
	if wait <= 0 {
		delete(c.timers, t)
		close(t.due)
		return
	}
	c.timers[t] = struct{}{}
	t.disarm = c.source.AfterFunc(wait, func() { c.ring(t) })
}

// rearm is called when log time has moved apart from the monotonic clock.
func (c *Clock) rearm() {
	for t := range c.timers {
		c.arm(t)
	}
}

// ring is called by the source. The timer may have been stopped meanwhile, and log
// time may have been slewed back: then it is armed for what is left.
func (c *Clock) ring(t *Timer) {
	c.read(func() {
		if _, armed := c.timers[t]; armed {
			c.arm(t)
		}
	})
}
