// Package inventory is the deterministic state machine of one shard: products, their numbers,
// and the orders that hold them.
//
// It is pure. State and Command determine Outcome: there is no clock, randomness, goroutine,
// channel, visible map order, floating point or I/O in it. The proposer stamps each batch with
// its time and a seed; applying the same batches gives the same State on every replica and
// after every restart, which [State.Digest] lets them compare.
//
// Who owns what. A [State] belongs to the shard's apply goroutine: clock, orders, key look-up,
// deadlines, outbox. A [Product] belongs to its actor: numbers, counters, limits. A command is
// applied in parts so that actors can work side by side and the result still equals one after the
// other:
//
//	State.PastDue   in the apply goroutine: look up its order, and expire that first if it is due
//	State.Prepare   in the apply goroutine: refuse early, or name the products it needs
//	Step.Work       in the actor of the product: arbitrate, take or give back numbers
//	State.Finish    in the apply goroutine, in log order: record the order, number the events
//
// Invariants, asserted after every command: available + reserved + sold + blocked = count of
// every product; a number has at most one live owner; a refusal changes nothing; a sold number
// leaves sold only by a refund. A broken one halts the product, see [Product].
package inventory
