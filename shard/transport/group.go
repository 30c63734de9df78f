package transport

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// network is raft's own transport, under a name that keeps the embedded field, and
// with it what Group overrides, inside this package.
type network = raft.NetworkTransport

// Group is the raft.Transport of one raft group on this node. It has every method of
// raft.NetworkTransport, and so every optional interface that raft looks for.
type Group struct {
	*network
	node   *Node
	id     GroupID
	stream *stream
	logger hclog.Logger

	rpcs     chan raft.RPC
	progress atomic.Pointer[func() (commit, applied uint64)]
	refused  atomic.Uint64
	running  sync.WaitGroup // pass and what it refuses
	closed   sync.Once
}

var (
	_ raft.Transport   = (*Group)(nil)
	_ raft.WithPreVote = (*Group)(nil)
	_ raft.WithClose   = (*Group)(nil)
)

// Open starts to take part in a group, for one raft instance: give it to
// raft.NewRaft, then call SetProgress. Shutting the raft down closes it, after which
// the group can be opened again.
func (n *Node) Open(id GroupID) (*Group, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closing.Err() != nil:
		return nil, ErrClosed
	case n.groups[id] != nil:
		return nil, fmt.Errorf("%w: %d", ErrGroupOpen, id)
	}
	g := &Group{
		node: n, id: id, stream: newStream(n, id),
		logger: n.config.Logger.With("group", id),
		rpcs:   make(chan raft.RPC),
	}
	g.network = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:          g.stream,
		MaxPool:         2, // heartbeats beside votes or unpipelined appends
		MaxRPCsInFlight: 2,
		Timeout:         n.config.RPCTimeout,
		Logger:          g.logger,
	})
	n.groups[id] = g
	g.running.Go(g.pass)
	return g, nil
}

// SetProgress says how far the group's raft has come: its CommitIndex and its
// AppliedIndex. Until it is called every snapshot from a leader is refused. progress
// is called from the group's goroutine, while raft handles no RPC.
func (g *Group) SetProgress(progress func() (commit, applied uint64)) {
	g.progress.Store(&progress)
}

// RefusedSnapshots returns how many snapshots of leaders have been refused since
// Open. One that keeps rising is a follower that is stuck: see DESIGN.md.
func (g *Group) RefusedSnapshots() uint64 { return g.refused.Load() }

// Consumer implements raft.Transport: every RPC from a peer, heartbeats included,
// except the snapshots that are refused.
func (g *Group) Consumer() <-chan raft.RPC { return g.rpcs }

// SetHeartbeatHandler implements raft.Transport by doing nothing: without a handler
// heartbeats come through Consumer, in turn with the other RPCs. The handler that
// raft v1.8.0 sets changes its state while another goroutine writes it (issue 695).
func (g *Group) SetHeartbeatHandler(func(raft.RPC)) {}

// Close ends the group's connections and goroutines, and returns when they have
// ended. Closing again is harmless.
func (g *Group) Close() error {
	g.closed.Do(func() {
		_ = g.network.Close() // closes the stream; it has no error to return
		g.stream.wait()
		g.running.Wait()
		g.node.mu.Lock()
		delete(g.node.groups, g.id)
		g.node.mu.Unlock()
	})
	return nil
}

// pass hands RPCs to raft one by one. Raft handles one at a time anyway; that the
// answer is awaited here makes sure that no RPC in raft's hands is moving its
// progress while a snapshot is judged by it.
func (g *Group) pass() {
	for {
		select {
		case rpc := <-g.network.Consumer():
			if err := g.judge(rpc); err != nil {
				g.refuse(rpc, err)
			} else if !g.handOver(rpc) {
				return
			}
		case <-g.stream.closing.Done():
			return
		}
	}
}

// judge returns why raft must not see rpc.
func (g *Group) judge(rpc raft.RPC) error {
	install, ok := rpc.Command.(*raft.InstallSnapshotRequest)
	if !ok {
		return nil
	}
	progress := g.progress.Load()
	if progress == nil {
		return ErrProgressUnknown
	}
	if commit, applied := (*progress)(); install.LastLogIndex <= max(commit, applied) {
		return fmt.Errorf("%w: it ends at %d, commit is %d, applied %d",
			ErrStaleSnapshot, install.LastLogIndex, commit, applied)
	}
	return nil
}

// refuse answers err after reading the snapshot to its end, since what is left
// unread would be taken for the next RPC. That waits for the leader, so it is done
// aside; closing the stream ends it.
func (g *Group) refuse(rpc raft.RPC, err error) {
	g.refused.Add(1)
	g.logger.Warn("refused a snapshot", "reason", err)
	g.running.Go(func() {
		_, _ = io.Copy(io.Discard, rpc.Reader) // cut short, there is nobody to answer
		rpc.Respond(nil, err)
	})
}

// handOver gives rpc to raft and passes its answer on; false when closed meanwhile.
func (g *Group) handOver(rpc raft.RPC) bool {
	answered := make(chan raft.RPCResponse, 1)
	caller := rpc.RespChan
	rpc.RespChan = answered
	select {
	case g.rpcs <- rpc:
	case <-g.stream.closing.Done():
		return false
	}
	select {
	case response := <-answered:
		caller <- response // buffered for one, by raft's transport
		return true
	case <-g.stream.closing.Done():
		return false
	}
}
