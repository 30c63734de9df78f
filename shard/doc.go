// Package shard makes the inventory of products durable and replicated: one raft group per shard,
// all of a node's groups over one write-ahead log.
//
// It owns the path from a command to its outcome: a bounded queue, group commit into one log
// entry, raft, the engine, and the answer. What it promises:
//
//   - a command that is answered with an outcome is in the log, synced, on a majority;
//   - a command refused with any error but ErrOutcomeUnknown was not applied and never will be;
//   - order reads are linearizable; product reads are stale by at most a second and wait for
//     nothing;
//   - a deadline that has come is acted on within a second, with or without traffic.
//
// A Node is opened once per process and owns its Shards. DESIGN.md argues why this holds.
package shard
