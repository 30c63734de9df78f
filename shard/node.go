package shard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"github.com/nats-io/nats.go"

	"numera/engine/inventory"
	"numera/shard/transport"
	"numera/shard/wire"
	"numera/wal"
)

// Node is this process's part of a cluster: the write-ahead log, the transport, and a replica of
// every shard. There is one in a process; everything exported may be called by any goroutine.
type Node struct {
	config   Config
	identity identity
	store    *wal.Store
	peers    *transport.Node
	shards   []*Shard
	info     *nats.Subscription
	writable atomic.Bool

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Open starts the node; it makes the cluster if Config.Dir is empty. The shards serve when they
// have elected a leader: see Ready.
func Open(config Config) (*Node, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	id, err := loadIdentity(config.Dir, config.Shards)
	if err != nil {
		return nil, err
	}
	n := &Node{config: config, identity: id}
	n.writable.Store(true)
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) open() (err error) {
	c := &n.config
	n.store, err = wal.Open(wal.Config{
		Dir: filepath.Join(c.Dir, "wal"), Owner: n.identity.Cluster + "/" + n.identity.Node,
		Create: !n.identity.Made, FS: c.FS, MemTableBytes: c.MemTableBytes, Logger: c.Logger,
		OnFault: c.OnFault,
	})
	if err != nil {
		return err
	}
	n.peers, err = transport.Listen(transport.Config{
		Listen: c.Listen, Cluster: n.identity.cluster(), Logger: raftLogger(c.Logger),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.running.Add(1)
	go n.watchDisk(ctx)
	for i := range n.identity.Shards {
		s, err := n.openShard(inventory.ShardID(i))
		if err != nil {
			return err
		}
		n.shards = append(n.shards, s)
	}
	if !n.identity.Made {
		n.identity.Made = true
		if err := n.identity.save(c.Dir); err != nil {
			return err
		}
	}
	n.info, err = c.Conn.Subscribe(wire.InfoSubject, func(m *nats.Msg) {
		info := wire.Info{Cluster: n.identity.Cluster, Shards: uint16(n.identity.Shards)}
		m.Respond(wire.AppendInfo(nil, info)) // lost answers are asked for again
	})
	if err != nil {
		return fmt.Errorf("shard: subscribe: %w", err)
	}
	return c.Conn.Flush()
}

func (n *Node) openShard(id inventory.ShardID) (*Shard, error) {
	logs, err := n.store.Group(uint16(id))
	if err != nil {
		return nil, err
	}
	peers, err := n.peers.Open(transport.GroupID(id))
	if err != nil {
		return nil, err
	}
	return openShard(&n.config, group{
		id: id, node: raft.ServerID(n.identity.Node), logs: logs, peers: peers,
		address: n.peers.Addr(), create: !n.identity.Made, secret: n.identity.secret(),
		writable: &n.writable,
	})
}

// Shard gives a shard by its id, which must be below Shards.
func (n *Node) Shard(id inventory.ShardID) *Shard { return n.shards[id] }

// Shards is how many shards the cluster has.
func (n *Node) Shards() int { return len(n.shards) }

// Secret is the cluster's secret: 32 bytes.
func (n *Node) Secret() []byte { return n.identity.secret() }

// Stats are those of the write-ahead log.
func (n *Node) Stats() wal.Stats { return n.store.Stats() }

// Ready waits until this node leads every shard. It is for a node alone.
func (n *Node) Ready(ctx context.Context) error {
	for _, s := range n.shards {
		for !s.Leads() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("shard %d has no leader: %w", s.id, ctx.Err())
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	return nil
}

// Close stops the shards, which first finish what they have proposed, and closes the store.
func (n *Node) Close() error {
	var errs []error
	if n.info != nil {
		n.info.Unsubscribe() // fails only if the connection is gone
	}
	var closing sync.WaitGroup
	closed := make([]error, len(n.shards))
	for i, s := range n.shards {
		closing.Go(func() { closed[i] = s.close() })
	}
	closing.Wait()
	errs = append(errs, closed...)
	if n.cancel != nil {
		n.cancel()
		n.running.Wait()
	}
	if n.peers != nil {
		errs = append(errs, n.peers.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// watchDisk is the goroutine that stops proposals while the disk is nearly full: a log that cannot
// grow ends the process, and an operator can still make room before.
func (n *Node) watchDisk(ctx context.Context) {
	defer n.running.Done()
	for {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(n.config.Dir, &fs); err != nil {
			n.config.OnFault(fmt.Errorf("shard: free space of %s: %w", n.config.Dir, err))
			return
		}
		enough := fs.Bavail*uint64(fs.Bsize) >= n.config.MinFreeBytes
		if n.writable.Swap(enough) != enough {
			n.config.Logger.Error("disk space", "enough", enough, "minimum", n.config.MinFreeBytes)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}
