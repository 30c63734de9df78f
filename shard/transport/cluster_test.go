package transport_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"numera/shard/transport"
)

// replica is a real raft on a Group.
type replica struct {
	*raft.Raft
	fsm     *counter
	leading chan bool
}

// start runs a raft that knows the configuration, until the end of the test.
func start(
	t *testing.T, group *transport.Group, id raft.ServerID, configuration raft.Configuration,
) *replica {
	t.Helper()
	r := &replica{fsm: newCounter(), leading: make(chan bool, 64)}
	config := raft.DefaultConfig()
	config.LocalID = id
	config.HeartbeatTimeout = 200 * time.Millisecond
	config.ElectionTimeout = 200 * time.Millisecond
	config.LeaderLeaseTimeout = 200 * time.Millisecond
	config.CommitTimeout = 20 * time.Millisecond
	config.TrailingLogs = 0
	config.NotifyCh = r.leading
	config.Logger = hclog.NewNullLogger()
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(t.TempDir(), 2, config.Logger)
	require.NoError(t, err)
	store := raft.NewInmemStore()
	if len(configuration.Servers) > 0 {
		require.NoError(t,
			raft.BootstrapCluster(config, store, store, snapshots, group, configuration))
	}
	r.Raft, err = raft.NewRaft(config, r.fsm, store, store, snapshots, group)
	require.NoError(t, err)
	group.SetProgress(func() (commit, applied uint64) { return r.CommitIndex(), r.AppliedIndex() })
	t.Cleanup(r.stop)
	return r
}

func (r *replica) stop() { _ = r.Shutdown().Error() }

func (r *replica) apply(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Apply([]byte("one more"), patience).Error())
}

// awaitLeader returns the replica of the three that becomes leader.
func awaitLeader(t *testing.T, of [3]*replica) int {
	t.Helper()
	expired := time.After(patience)
	for {
		leader, leads := 0, false
		select {
		case leads = <-of[0].leading:
		case leads = <-of[1].leading:
			leader = 1
		case leads = <-of[2].leading:
			leader = 2
		case <-expired:
			require.FailNow(t, "no leader")
		}
		if leads {
			return leader
		}
	}
}

// counter is a state machine that counts the commands it has applied.
type counter struct {
	mu      sync.Mutex
	count   byte
	changed *sync.Cond
}

func newCounter() *counter {
	c := new(counter)
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *counter) await(n byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count < n {
		c.changed.Wait()
	}
}

func (c *counter) set(count func(byte) byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = count(c.count)
	c.changed.Broadcast()
}

func (c *counter) Apply(*raft.Log) any {
	c.set(func(n byte) byte { return n + 1 })
	return nil
}

func (c *counter) Snapshot() (raft.FSMSnapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return counted(c.count), nil
}

func (c *counter) Restore(from io.ReadCloser) error {
	defer from.Close()
	var count [1]byte
	if _, err := io.ReadFull(from, count[:]); err != nil {
		return err
	}
	c.set(func(byte) byte { return count[0] })
	return nil
}

type counted byte

func (c counted) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write([]byte{byte(c)}); err != nil {
		return err
	}
	return sink.Close()
}

func (counted) Release() {}

func TestThreeNodesCarryFourGroups(t *testing.T) {
	authority := newAuthority(t)
	for name, config := range map[string]*tls.Config{
		"plain": nil, "TLS": authority.issue(t, "127.0.0.1"),
	} {
		t.Run(name, func(t *testing.T) { testThreeNodesCarryFourGroups(t, config) })
	}
}

func testThreeNodesCarryFourGroups(t *testing.T, config *tls.Config) {
	const groups = 4
	var nodes [3]*transport.Node
	var everyone raft.Configuration
	for i := range nodes {
		nodes[i] = listen(t, withTLS(config))
		everyone.Servers = append(everyone.Servers, raft.Server{
			ID: raft.ServerID(fmt.Sprint("node-", i)), Address: nodes[i].Addr(),
		})
	}
	var replicas [groups][3]*replica
	for id := range replicas {
		for i, node := range nodes {
			group := open(t, node, transport.GroupID(id))
			replicas[id][i] = start(t, group, everyone.Servers[i].ID, everyone)
		}
	}

	var leaders [groups]int
	for id, group := range replicas {
		leaders[id] = awaitLeader(t, group)
		group[leaders[id]].apply(t)
		for _, r := range group {
			r.fsm.await(1)
		}
	}

	lost := leaders[0]
	require.NoError(t, nodes[lost].Close())
	for id, group := range replicas {
		for leaders[id] == lost {
			leaders[id] = awaitLeader(t, group)
		}
		group[leaders[id]].apply(t)
		for i, r := range group {
			if i != lost {
				r.fsm.await(2)
			}
		}
	}
}

func TestSingleVoterNeedsNoPeer(t *testing.T) {
	node := listen(t, nil)
	alone := raft.Configuration{Servers: []raft.Server{{ID: "alone", Address: node.Addr()}}}
	for range 2 { // raft's shutdown closes the group, which can be opened again
		r := start(t, open(t, node, 7), "alone", alone)
		require.True(t, receive(t, r.leading))
		r.apply(t)
		r.fsm.await(1)
		r.stop()
	}
}

func TestSnapshotReachesANewNode(t *testing.T) {
	old, fresh := listen(t, nil), listen(t, nil)
	leader := start(t, open(t, old, 7), "old", raft.Configuration{
		Servers: []raft.Server{{ID: "old", Address: old.Addr()}},
	})
	require.True(t, receive(t, leader.leading))
	leader.apply(t)
	require.NoError(t, leader.Snapshot().Error())

	group := open(t, fresh, 7)
	follower := start(t, group, "fresh", raft.Configuration{})
	require.NoError(t, leader.AddVoter("fresh", fresh.Addr(), 0, patience).Error())
	leader.apply(t)
	follower.fsm.await(2)
	require.Zero(t, group.RefusedSnapshots())
}
