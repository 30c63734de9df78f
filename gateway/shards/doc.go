// Package shards is how a gateway reaches the shards: it routes commands and queries to the shard
// that they belong to, sends those that arrive together in one message, and asks again where that
// is safe.
//
// A [Client] owns its subscription, one goroutine that sends for each shard, and one that keeps
// time. It holds no truth. What it promises, and what not, is argued in DESIGN.md:
//
//   - An [inventory.Outcome] is what a shard decided about this request.
//   - [ErrOverloaded], [ErrUnavailable], [ErrClosed], [ErrRejected] and [ErrInvalid] mean that
//     nothing was done.
//   - [ErrOutcomeUnknown] means that the command may have acted, or may still within the rest of
//     its deadline. Nothing but an outcome ends this doubt: not a later refusal to serve.
//   - Every call ends by its deadline, at most Config.Timeout after it began.
//   - Queues are bounded; at a full one a call ends at once.
//
// The connection belongs to whoever made it. Set nats.ReconnectBufSize(-1), so that commands are
// not kept while it is down and sent when nobody waits for them any more, and
// nats.MaxReconnects(-1), so that it never gives up.
package shards
