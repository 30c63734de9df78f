package shard

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"numera/engine"
	"numera/engine/inventory"
	"numera/shard/transport"
	"numera/wal"
)

// Shard is one raft group of a node, with the engine that its log drives. It belongs to a Node,
// which opens and closes it; everything exported may be called by any goroutine.
type Shard struct {
	id     inventory.ShardID
	config *Config
	secret []byte
	logger *slog.Logger
	stats  *metrics

	engine *engine.Engine
	raft   *raft.Raft
	fsm    *fsm
	server *server

	leads    atomic.Uint64 // 0 when it does not serve; else which of its leaderships this is
	writable *atomic.Bool  // the node's: false when the disk is nearly full

	queue  chan *Proposal
	slots  chan struct{} // one for each entry under way
	flying chan inFlight // closed by propose
	wake   chan struct{} // capacity 1
	reads  chan read

	ctx     context.Context // done when it stops to take work
	cancel  context.CancelFunc
	settled chan struct{} // closed when nothing is under way any more
	stopped chan struct{} // closed when raft has stopped
	running sync.WaitGroup
}

// group is what a node gives a shard.
type group struct {
	id       inventory.ShardID
	node     raft.ServerID
	logs     *wal.Group
	peers    *transport.Group
	address  raft.ServerAddress
	create   bool
	secret   []byte
	writable *atomic.Bool
}

// openShard starts the group: it restores the newest snapshot that can be read, and replays the
// log from there when it leads or follows.
func openShard(config *Config, g group) (*Shard, error) {
	s := &Shard{
		id: g.id, config: config, secret: g.secret, writable: g.writable,
		logger: config.Logger.With("shard", int(g.id)),
		stats:  newMetrics(config.Registerer, g.id),
		engine: engine.New(engine.Config{
			Shard: g.id, Limits: config.Limits, Actors: config.Actors,
		}),
		queue:   make(chan *Proposal, config.QueueLength),
		slots:   make(chan struct{}, config.InFlight),
		flying:  make(chan inFlight, config.InFlight),
		wake:    make(chan struct{}, 1),
		reads:   make(chan read, config.QueueLength),
		settled: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.fsm = &fsm{engine: s.engine, stats: s.stats, grown: make(chan struct{}, 1)}
	s.fsm.limits.bytes = int64(config.SnapshotBytes)
	s.fsm.limits.entries = int64(config.SnapshotEntries)
	s.server = newServer(s)
	notify := make(chan bool, 16)
	if err := s.startRaft(g, notify); err != nil {
		s.cancel()
		s.engine.Close()
		return nil, fmt.Errorf("shard %d: %w", g.id, err)
	}
	s.stats.observe(s)
	s.running.Add(5)
	go s.lead(notify)
	go s.propose()
	go s.settle()
	go s.verify()
	go s.keepLogShort()
	return s, nil
}

func (s *Shard) startRaft(g group, notify chan<- bool) error {
	logger := raftLogger(s.logger)
	dir := filepath.Join(s.config.Dir, "snapshots", strconv.Itoa(int(s.id)))
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, logger)
	if err != nil {
		return fmt.Errorf("open snapshots: %w", err)
	}
	c := s.raftConfig(g.node)
	c.Logger, c.NotifyCh = logger, notify
	if g.create {
		alone := raft.Configuration{Servers: []raft.Server{{ID: g.node, Address: g.address}}}
		err := raft.BootstrapCluster(c, g.logs, g.logs, snapshots, g.peers, alone)
		if err != nil && err != raft.ErrCantBootstrap { // bootstrapped by an interrupted first boot
			return fmt.Errorf("bootstrap: %w", err)
		}
	}
	logs, err := raft.NewLogCache(256, g.logs)
	if err != nil {
		return fmt.Errorf("log cache: %w", err)
	}
	if s.raft, err = raft.NewRaft(c, s.fsm, logs, g.logs, snapshots, g.peers); err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	g.peers.SetProgress(func() (commit, applied uint64) {
		return s.raft.CommitIndex(), s.raft.AppliedIndex()
	})
	return s.checkGap(g.logs)
}

func (s *Shard) raftConfig(node raft.ServerID) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = node
	c.HeartbeatTimeout = s.config.ElectionTimeout
	c.ElectionTimeout = s.config.ElectionTimeout
	c.LeaderLeaseTimeout = s.config.ElectionTimeout / 2
	c.CommitTimeout = 50 * time.Millisecond
	c.BatchApplyCh = true
	c.MaxAppendEntries = 16 // of up to 512 KiB each
	c.SnapshotInterval = time.Hour
	c.SnapshotThreshold = 1 << 40 // keepLogShort decides
	c.TrailingLogs = uint64(2 * s.config.SnapshotEntries)
	c.NoLegacyTelemetry = true
	return c
}

// checkGap refuses a log that does not continue the snapshot that was restored: an older snapshot
// than the log was cut for, or none at all, would be a shorter history.
func (s *Shard) checkGap(logs *wal.Group) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	snapshot, err := strconv.ParseUint(s.raft.Stats()["last_snapshot_index"], 10, 64)
	if err != nil {
		return fmt.Errorf("read raft's snapshot index: %w", err)
	}
	if first > snapshot+1 {
		return fmt.Errorf("%w: the log starts at %d and the newest readable snapshot ends at %d: "+
			"restore the snapshots folder", ErrCluster, first, snapshot)
	}
	return nil
}

// close stops the shard: it takes no more work, finishes what is under way, and ends raft.
func (s *Shard) close() error {
	s.leads.Store(0)
	s.server.stop()
	s.cancel()
	select {
	case <-s.settled: // what was proposed has its answer
	case <-time.After(2 * time.Second):
	}
	err := s.raft.Shutdown().Error()
	close(s.stopped)
	s.running.Wait()
	for {
		select {
		case p := <-s.queue:
			p.Done(nil, ErrUnavailable)
			continue
		case r := <-s.reads:
			r.done(ErrUnavailable)
			continue
		default:
		}
		break
	}
	s.engine.Close()
	return err
}
