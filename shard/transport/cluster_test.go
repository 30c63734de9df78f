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

// start runs a raft that knows the configuration, until the end of the test. It loses a leader
// that it has not heard of for 200 ms.
func start(
	t *testing.T, group *transport.Group, id raft.ServerID, configuration raft.Configuration,
) *replica {
	t.Helper()
	return startLosing(t, 200*time.Millisecond, group, id, configuration)
}

// startLosing is start with another time after which a leader is lost.
func startLosing(
	t *testing.T, after time.Duration,
	group *transport.Group, id raft.ServerID, configuration raft.Configuration,
) *replica {
	t.Helper()
	r := &replica{fsm: newCounter(), leading: make(chan bool, 64)}
	config := raft.DefaultConfig()
	config.LocalID = id
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = after, after, after
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

func (r *replica) apply() error { return r.Apply([]byte("one more"), patience).Error() }

// trio is the replicas of one group.
type trio struct {
	replicas [3]*replica
	leader   int
}

// apply applies a command, through whichever replica leads.
func (g *trio) apply(t *testing.T) {
	t.Helper()
	for g.replicas[g.leader].apply() != nil {
		g.awaitLeader(t)
	}
}

func (g *trio) awaitLeader(t *testing.T) {
	t.Helper()
	for leads := false; !leads; {
		select {
		case leads = <-g.replicas[0].leading:
			g.leader = 0
		case leads = <-g.replicas[1].leading:
			g.leader = 1
		case leads = <-g.replicas[2].leading:
			g.leader = 2
		case <-time.After(patience):
			require.FailNow(t, "no leader")
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
	var trios [groups]trio
	for id := range trios {
		for i, node := range nodes {
			group := open(t, node, transport.GroupID(id))
			trios[id].replicas[i] = start(t, group, everyone.Servers[i].ID, everyone)
		}
	}

	for id := range trios {
		trios[id].apply(t)
		for _, r := range trios[id].replicas {
			r.fsm.await(1)
		}
	}

	lost := trios[0].leader
	require.NoError(t, nodes[lost].Close())
	for id := range trios {
		trios[id].apply(t)
		require.NotEqual(t, lost, trios[id].leader)
		for i, r := range trios[id].replicas {
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
		require.NoError(t, r.apply())
		r.fsm.await(1)
		r.stop()
	}
}

func TestSnapshotReachesANewNode(t *testing.T) {
	old, fresh := listen(t, nil), listen(t, nil)
	const election = 2 * time.Second // the leader is to remain it
	leader := startLosing(t, election, open(t, old, 7), "old", raft.Configuration{
		Servers: []raft.Server{{ID: "old", Address: old.Addr()}},
	})
	require.True(t, receive(t, leader.leading))
	require.NoError(t, leader.apply())
	require.NoError(t, leader.Snapshot().Error())

	group := open(t, fresh, 7)
	follower := startLosing(t, election, group, "fresh", raft.Configuration{})
	require.NoError(t, leader.AddVoter("fresh", fresh.Addr(), 0, patience).Error())
	require.NoError(t, leader.apply())
	follower.fsm.await(2)
	require.Zero(t, group.RefusedSnapshots())
}
