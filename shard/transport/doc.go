// Package transport carries the RPCs of a node's raft groups between nodes. DESIGN.md
// argues why it is shaped as it is, and says what the owner of a group has to do.
//
// It owns the node's one listener, the connections, and the goroutines on them.
//
// # Invariants
//
//   - A connection belongs to one group of one cluster, and leads to the node whose
//     advertised address was dialled. Both sides know before raft says a word.
//   - Every RPC reaches raft through Consumer, one at a time; there is no heartbeat
//     fast path.
//   - raft is never given a snapshot that ends at or below what it has committed or
//     applied.
//   - A stranger holds a descriptor for HandshakeTimeout at most, and never keeps a
//     peer out.
//   - Close returns after the goroutines have ended.
//
// # Refused
//
// Plain TCP beyond loopback unless AllowPlain; TLS that does not verify peers; an
// address that nobody can dial; a connection of another version, cluster or node, for
// a group that is not open, or one too many. The reason is logged, and told to a peer.
//
// # Use
//
//	node, err := transport.Listen(transport.Config{Listen: ":7000", …})
//	defer node.Close()
//
//	group, err := node.Open(3) // shard 3
//	r, err := raft.NewRaft(config, fsm, logs, stable, snapshots, group)
//	group.SetProgress(func() (commit, applied uint64) {
//		return r.CommitIndex(), r.AppliedIndex()
//	})
//	defer func() { _ = r.Shutdown().Error() }() // closes the group
package transport
