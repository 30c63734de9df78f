package shard

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// cluster is three nodes in one process, over the real transport.
type cluster struct {
	t       *testing.T
	configs []Config

	mu    sync.Mutex
	nodes []*Node
}

// openCluster opens the nodes; electionTimeouts are theirs.
func openCluster(t *testing.T, electionTimeouts ...time.Duration) *cluster {
	c := &cluster{t: t, nodes: make([]*Node, 3)}
	shared := identity{Cluster: randomHex(16), Secret: randomHex(32), Shards: 1}
	var conn *nats.Conn
	var voters []raft.Server
	for i := range c.nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := listener.Addr().String()
		require.NoError(t, listener.Close())

		config := testConfig(t, t.TempDir())
		if conn == nil {
			conn = config.Conn
		}
		id := shared
		id.Node = fmt.Sprint("node-", i)
		config.Conn, config.Listen, config.identity = conn, address, &id
		config.ElectionTimeout, config.SnapshotEntries = electionTimeouts[i], 100
		c.configs = append(c.configs, config)
		voters = append(voters, raft.Server{
			ID: raft.ServerID(id.Node), Address: raft.ServerAddress(address),
		})
	}
	for i := range c.configs {
		c.configs[i].voters = voters
		c.open(i)
	}
	return c
}

func (c *cluster) open(i int) {
	n, err := Open(c.configs[i])
	require.NoError(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i] = n
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		_ = n.Close() // a transport may be closed already
	}
}

func (c *cluster) shards() (all []*Shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		all = append(all, n.Shard(0))
	}
	return all
}

// leader waits until a node other than the given one leads.
func (c *cluster) leader(but int) (leader int) {
	eventually(c.t, func() bool {
		for i, s := range c.shards() {
			if i != but && s.Leads() {
				leader = i
				return true
			}
		}
		return false
	}, "a leader")
	return leader
}

// do asks whoever leads, other than the given node, until there is an outcome: on a busy machine a
// leader may lose its followers for a moment.
func (c *cluster) do(but int, command func() inventory.Command) *inventory.Outcome {
	for {
		s := c.shards()[c.leader(but)]
		o, err := s.Do(context.Background(), inventory.Entry{Command: command()})
		if err == nil {
			return o
		}
	}
}

// requireEqualDigests waits until all have applied everything, which raft counts before it is done:
// replicas that differ never get there.
func (c *cluster) requireEqualDigests() {
	shards := c.shards()
	eventually(c.t, func() bool {
		last := shards[c.leader(-1)].raft.LastIndex()
		for _, s := range shards {
			if s.raft.AppliedIndex() != last || s.Digest() != shards[0].Digest() {
				return false
			}
		}
		return true
	}, "everything is applied everywhere, to the same end")
	for _, s := range shards {
		require.Empty(c.t, s.engine.Stats().Halted)
	}
}

// TestThreeReplicas cuts leaders off, one after the other, and brings them back: what was
// acknowledged stays, reads are linearizable, and in the end all replicas are the same.
func TestThreeReplicas(t *testing.T) {
	const electionTimeout = time.Second
	c := openCluster(t, electionTimeout, electionTimeout, electionTimeout)
	defer c.close()
	lead := c.leader(-1)
	stop := make(chan struct{})
	history := trade(2, func(command func() inventory.Command) *inventory.Outcome {
		return c.do(-1, command)
	}, c.shards, stop)

	acknowledged := make(map[inventory.OrderID][]inventory.ItemView)
	for round := range 2 {
		// Cut off, it believes for a while that it leads.
		require.NoError(t, c.nodes[lead].peers.Close())
		next := c.leader(lead)
		for i := range 50 {
			o := c.do(lead, func() inventory.Command {
				return reserve(fmt.Sprint("kept", round, "-", i), "b")
			})
			require.Equal(t, inventory.CodeOK, o.Code)
			acknowledged[o.Order.ID] = o.Order.Items
		}
		require.NoError(t, c.shards()[next].Snapshot())
		_ = c.nodes[lead].Close() // its transport is gone already
		c.open(lead)
		lead = c.leader(-1)
	}
	close(stop)
	all := history()
	c.requireEqualDigests()
	for _, s := range c.shards() {
		for id, items := range acknowledged {
			require.Equal(t, items, s.engine.Order(inventory.OnOrder{Order: id}).Order.Items)
		}
	}
	t.Logf("%d operations", len(all))
	requireLinearizable(t, all)
}

// TestDeposedLeader cuts a leader off that will believe for eight seconds that it leads, and reads
// from it what another has changed.
func TestDeposedLeader(t *testing.T) {
	t.Parallel()
	c := openCluster(t, 16*time.Second, 500*time.Millisecond, 500*time.Millisecond)
	defer c.close()
	old := c.shards()[0]
	c.do(-1, func() inventory.Command { return product("a", 10) })
	order := c.do(-1, func() inventory.Command { return reserve("k", "b") }).Order
	for !old.Leads() { // a transfer may take too long, and be given up
		transfer := c.shards()[c.leader(-1)].raft.LeadershipTransferToServer(
			raft.ServerID(c.nodes[0].identity.Node), c.nodes[0].peers.Addr())
		if transfer.Error() == nil {
			c.leader(-1)
		}
	}
	require.NoError(t, c.nodes[0].peers.Close())
	paid := c.do(0, func() inventory.Command {
		return &inventory.Confirm{OnOrder: inventory.OnOrder{Order: order.ID}, Payment: "p"}
	})
	require.Equal(t, inventory.StatusPaid, paid.Order.Status)
	require.True(t, old.Leads(), "it still believes that it leads")
	_, err := readOrder(old, order.ID)
	require.ErrorIs(t, err, ErrNotLeader)
	_ = c.nodes[0].Close() // its transport is gone already
	c.open(0)
	c.requireEqualDigests()
}
