// Package bench loads the system, checks every sale afterwards, and reports.
//
// [Run] is one load on one path: the shard directly in this process, NATS as an internal caller,
// or HTTP. Arrivals follow a schedule, so that a slow answer does not delay the requests behind
// it: latency counts from the intended start. Without a rate the loop is closed instead, with
// Config.InFlight requests under way at any time.
//
// [RunFloor] compares a path with the least that must be done on it anyway: the shard with the
// same Raft and Pebble loop around an empty state machine, HTTP with a handler that answers a
// constant. [RunCost] compares a reservation among many numbers, orders or products with one
// among few. Both alternate between the two sides in one run and report medians of ratios.
//
// After every load an oracle reads everything back and holds it against what was answered. It
// finds a number with two live owners, an order that was acknowledged and is missing, has other
// numbers or has moved to where nobody sent it, a key that acted twice, and counters or taken
// numbers that are not the sum of the orders. Any of these is [ErrViolated]. It does not find what
// only a restart shows: crash tests do that.
//
// Every run is bounded in requests and in time, ends by itself, and speaks to loopback only.
package bench
