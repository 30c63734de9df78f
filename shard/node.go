package shard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
	id, err := loadIdentity(config.Dir, config.Shards, config.identity)
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

func (n *Node) open() error {
	c := &n.config
	if err := n.checkDisk(); err != nil {
		return err
	}
	if err := n.openStore(); err != nil {
		return err
	}
	peers, err := transport.Listen(transport.Config{
		Listen: c.Listen, Cluster: n.identity.cluster(), Logger: raftLogger(c.Logger),
	})
	if err != nil {
		return err
	}
	n.peers = peers
	if !n.identity.Made {
		if err := n.found(); err != nil {
			return err
		}
	}
	for i := range n.identity.Shards {
		s, err := n.openShard(inventory.ShardID(i))
		if err != nil {
			return err
		}
		n.shards = append(n.shards, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.running.Go(func() { n.watchDisk(ctx) })
	n.info, err = c.Conn.Subscribe(wire.InfoSubject, func(m *nats.Msg) {
		info := wire.Info{Cluster: n.identity.Cluster, Shards: uint16(n.identity.Shards)}
		_ = m.Respond(wire.AppendInfo(nil, info)) // lost answers are asked for again
	})
	if err != nil {
		return fmt.Errorf("shard: subscribe: %w", err)
	}
	if err := c.Conn.FlushTimeout(flushTimeout); err != nil {
		c.Logger.Warn("NATS may not know yet that the node answers", "error", err)
	}
	return nil
}

// openStore opens the write-ahead log; before the cluster is made, it makes it, unless a first boot
// that was interrupted has.
func (n *Node) openStore() error {
	config := wal.Config{
		Dir: filepath.Join(n.config.Dir, "wal"), Owner: n.identity.Cluster + "/" + n.identity.Node,
		Create: !n.identity.Made, FS: n.config.FS, MemTableBytes: n.config.MemTableBytes,
		Logger: n.config.Logger, OnFault: n.config.OnFault,
	}
	store, err := wal.Open(config)
	if errors.Is(err, wal.ErrAlreadyCreated) {
		config.Create = false
		store, err = wal.Open(config)
	}
	if err != nil {
		return err
	}
	n.store = store
	return nil
}

// found makes the raft groups, before any of them runs, and then says so in the identity. It may be
// interrupted anywhere and repeated.
func (n *Node) found() error {
	voters := n.config.voters
	if voters == nil {
		voters = []raft.Server{{ID: raft.ServerID(n.identity.Node), Address: n.peers.Addr()}}
	}
	configuration := raft.Configuration{Servers: voters}
	for i := range n.identity.Shards {
		if err := n.foundGroup(inventory.ShardID(i), configuration); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	for _, dir := range []string{"snapshots", "."} {
		if err := syncDir(filepath.Join(n.config.Dir, dir)); err != nil {
			return err
		}
	}
	n.identity.Made = true
	return n.identity.save(n.config.Dir)
}

func (n *Node) foundGroup(id inventory.ShardID, voters raft.Configuration) error {
	logs, err := n.store.Group(uint16(id))
	if err != nil {
		return err
	}
	files, err := n.snapshots(id)
	if err != nil {
		return err
	}
	if err := syncDir(files.dir); err != nil {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	// Raft writes the term first and takes it for a group that exists. Without a log it has never
	// run, so no vote is forgotten.
	if err := logs.SetUint64([]byte("CurrentTerm"), 0); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	config := n.config.raft(raft.ServerID(n.identity.Node))
	config.Logger = raftLogger(n.config.Logger)
	// The transport is for an old protocol.
	if err := raft.BootstrapCluster(config, logs, logs, files, nil, voters); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

func (n *Node) snapshots(id inventory.ShardID) (*snapshots, error) {
	logger := n.config.Logger.With("shard", int(id))
	return openSnapshots(
		filepath.Join(n.config.Dir, "snapshots", strconv.Itoa(int(id))), logger, raftLogger(logger))
}

func (n *Node) openShard(id inventory.ShardID) (*Shard, error) {
	logs, err := n.store.Group(uint16(id))
	if err != nil {
		return nil, err
	}
	files, err := n.snapshots(id)
	if err != nil {
		return nil, err
	}
	peers, err := n.peers.Open(transport.GroupID(id))
	if err != nil {
		return nil, err
	}
	return openShard(&n.config, group{
		id: id, node: raft.ServerID(n.identity.Node), logs: logs, snapshots: files, peers: peers,
		secret: n.identity.secret(), writable: &n.writable,
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
		_ = n.info.Unsubscribe() // fails only if the connection is gone
	}
	if n.cancel != nil {
		n.cancel()
		n.running.Wait()
	}
	var closing sync.WaitGroup
	closed := make([]error, len(n.shards))
	for i, s := range n.shards {
		closing.Go(func() { closed[i] = s.close() })
	}
	closing.Wait()
	errs = append(errs, closed...)
	if n.peers != nil {
		errs = append(errs, n.peers.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// diskEvery is how often the free space is looked at.
const diskEvery = time.Second

// watchDisk is the goroutine that stops proposals while the disk is nearly full: a log that cannot
// grow ends the process, and an operator can still make room before.
func (n *Node) watchDisk(ctx context.Context) {
	ticker := time.NewTicker(diskEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := n.checkDisk(); err != nil {
			n.config.OnFault(err)
			return
		}
	}
}

// checkDisk looks at the free space once. When there is enough again, what has become due meanwhile
// expires.
func (n *Node) checkDisk() error {
	free, err := n.config.freeBytes(n.config.Dir)
	if err != nil {
		return fmt.Errorf("shard: free space of %s: %w", n.config.Dir, err)
	}
	enough := free >= n.config.MinFreeBytes
	if n.writable.Swap(enough) == enough {
		return nil
	}
	if enough {
		n.config.Logger.Info("enough disk space", "free", free)
	} else {
		n.config.Logger.Error("short of disk space: nothing is proposed", "free", free,
			"minimum", n.config.MinFreeBytes)
	}
	for _, s := range n.shards {
		s.rouse()
	}
	return nil
}

func freeBytes(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	err := syscall.Statfs(dir, &fs)
	return fs.Bavail * uint64(fs.Bsize), err
}
