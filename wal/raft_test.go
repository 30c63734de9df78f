package wal

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// raftNode is one voter on a group, its log cached as shards do.
type raftNode struct {
	raft  *raft.Raft
	fsm   *raft.MockFSM
	store *Store
}

const raftTimeout = 30 * time.Second

func startRaft(t *testing.T, s *Store, snapshots raft.SnapshotStore) raftNode {
	config := raft.DefaultConfig()
	config.LocalID = "node-1"
	config.HeartbeatTimeout = 50 * time.Millisecond
	config.ElectionTimeout = config.HeartbeatTimeout
	config.LeaderLeaseTimeout = config.HeartbeatTimeout
	config.TrailingLogs = 5
	config.Logger = hclog.New(&hclog.LoggerOptions{Output: io.Discard})
	leading := make(chan bool, 8)
	config.NotifyCh = leading

	group := groupOf(t, s, 3)
	logs, err := raft.NewLogCache(64, group)
	require.NoError(t, err)
	address, transport := raft.NewInmemTransport("")
	known, err := raft.HasExistingState(logs, group, snapshots)
	require.NoError(t, err)
	if !known {
		require.NoError(t, raft.BootstrapCluster(config, logs, group, snapshots, transport,
			raft.Configuration{Servers: []raft.Server{{ID: config.LocalID, Address: address}}}))
	}
	node := raftNode{fsm: &raft.MockFSM{}, store: s}
	node.raft, err = raft.NewRaft(config, node.fsm, logs, group, snapshots, transport)
	require.NoError(t, err)
	require.True(t, <-leading)
	require.NoError(t, node.raft.Barrier(raftTimeout).Error())
	return node
}

func (n raftNode) apply(t *testing.T, first, last int) {
	for i := first; i <= last; i++ {
		require.NoError(t, n.raft.Apply(fmt.Appendf(nil, "command %d", i), raftTimeout).Error())
	}
}

func (n raftNode) requireApplied(t *testing.T, last int) {
	t.Helper()
	logs := n.fsm.Logs()
	require.Len(t, logs, last)
	for i, data := range logs {
		require.Equal(t, fmt.Sprintf("command %d", i+1), string(data))
	}
}

func (n raftNode) stop(t *testing.T) {
	require.NoError(t, n.raft.Shutdown().Error())
	require.NoError(t, n.store.Close())
}

// raft itself over the store: elections, appends, compaction after a snapshot, the gap that a
// restored snapshot leaves, and a start after each.
func TestRaftRunsOnAGroup(t *testing.T) {
	config := testConfig(t, vfs.NewMem())
	snapshots := raft.NewInmemSnapshotStore()
	node := startRaft(t, created(t, config), snapshots)
	node.apply(t, 1, 40)
	node.stop(t)

	node = startRaft(t, reopened(t, config), snapshots)
	node.requireApplied(t, 40)
	snapshot := node.raft.Snapshot()
	require.NoError(t, snapshot.Error())
	first, err := groupOf(t, node.store, 3).FirstIndex()
	require.NoError(t, err)
	require.Greater(t, first, uint64(30), "raft deleted what the snapshot holds")
	node.apply(t, 41, 50)
	node.stop(t)

	node = startRaft(t, reopened(t, config), snapshots)
	node.requireApplied(t, 50)
	meta, reader, err := snapshot.Open()
	require.NoError(t, err)
	require.NoError(t, node.raft.Restore(meta, reader, raftTimeout))
	node.requireApplied(t, 40)
	gap := node.raft.LastIndex()
	node.apply(t, 41, 45)
	node.stop(t)

	node = startRaft(t, reopened(t, config), snapshots)
	node.requireApplied(t, 45)
	first, err = groupOf(t, node.store, 3).FirstIndex()
	require.NoError(t, err)
	require.GreaterOrEqual(t, first, gap, "the log began anew after the gap")
	node.stop(t)
}
