// Package wal owns what one node must not forget: the Raft logs of its shards and the few
// stable values (term, vote) beside each log. It knows nothing of commands or products.
//
// One [Store] per node holds one Pebble database. Each shard's group is a [Group], which
// implements raft.LogStore, raft.StableStore and raft.MonotonicLogStore. All groups write to
// the one write-ahead log, so groups that commit at the same time share an fsync.
//
// # Invariants
//
//   - A call that returned nil is on disk: synced before it returned, in the order of the calls.
//   - The log of a group is gapless from its first to its last index. A batch that would leave
//     a hole is refused, or, when it starts beyond the end (as it does after a snapshot was
//     installed), begins the log anew in the same atomic write.
//   - A record that does not verify is [ErrCorrupt]: never "not found", never a shorter log.
//     [Open] walks every live record before it lets anything be written, and a refused start
//     leaves the files as they were.
//   - After the first storage error nothing is written or read any more; [Config].OnFault is told
//     once and is expected to end the process.
//
// # Refused
//
// Index 0, batches with holes, deleting the middle of a log, a directory that belongs to another
// node, a directory that was never initialised unless [Config].Create says that this is the
// first boot, and one that was, if it does.
//
// # Use
//
//	store, err := wal.Open(wal.Config{Dir: dir, Owner: "shop/node-1", OnFault: exit})
//	group, err := store.Group(3)
//	logs, err := raft.NewLogCache(512, group)
//	r, err := raft.NewRaft(conf, fsm, logs, group, snapshots, transport)
//
// DESIGN.md beside this file argues why this is safe, and says what is not promised.
package wal
