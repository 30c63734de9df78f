// Package clock tells a node its log time: the time that a shard's leader stamps on
// a batch, and that decides when a sale opens and a reservation expires.
//
// # The rule
//
// Log time starts at the wall clock and then advances with the monotonic clock. The
// wall clock is looked at once a second of use:
//
//   - within 100 ms of log time it is followed, by a slew of at most 500 ppm;
//   - further away it has jumped: log time keeps to the monotonic clock, the jump is
//     logged as an error and counted (Jumps, Held and Offset are for metrics and
//     alarms), until the wall clock comes back by itself or an operator takes it
//     for true, by Accept or by restarting the process.
//
// # Invariants
//
//   - NowUnixMilli never goes back, whoever asks, except across Accept.
//   - Between two calls d apart by the monotonic clock, log time advances by d, give
//     or take 500 ppm of d + 1 s and the rounding to milliseconds.
//   - A Timer's C is closed only when NowUnixMilli has reached its deadline, and then
//     as soon as the machine schedules it: no polling, no goroutine of its own.
//
// # What it does not do
//
// It cannot tell a node that booted with a wrong wall clock: nodes compare their
// clocks for that. They should compare NowUnixMilli, not the wall clocks, since after
// a jump the two differ and it is log time that enters the log.
//
// A drift that nobody looks at adds up: after more than 100 ms of it, which is 200 s
// at 500 ppm, the next look takes it for a jump. On Linux both clocks are disciplined
// together and do not drift apart; scraping Offset for metrics looks, too.
//
// A machine that sleeps, or a virtual machine that is paused, stops the monotonic
// clock (CLOCK_MONOTONIC on Linux) and not the time. After the resume the wall clock
// is ahead by the pause, and so it is held as a jump: nothing expires early, holds
// last longer by the pause, and the node is behind the others by it until Accept or a
// restart. A leap second that is stepped instead of smeared is a jump of 1 s on every
// node at once: log time is 1 s off until Accept.
//
// # Use
//
//	c := clock.New(clock.NewSystem(), logger) // one for the process
//	batch.TimeUnixMilli = c.NowUnixMilli()
//
//	t := c.TimerAt(earliestDeadlineUnixMilli)
//	defer t.Stop()
//	select {
//	case <-t.C: // propose the expiry
//	case <-queue:
//	}
//
// Tests give it a Manual, whose Advance has fired the due timers when it returns.
package clock
