package shard

import (
	"context"
	"fmt"
	"log/slog"
	"math"
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

	engine    *engine.Engine
	raft      *raft.Raft
	logs      *wal.Group
	snapshots *snapshots
	fsm       *fsm
	server    *server

	leads    atomic.Uint64 // the term that it serves in; 0 when it does not
	writable *atomic.Bool  // the node's: false when the disk is nearly full

	queue    chan *Proposal
	slots    chan struct{} // one for each entry on its way to the engine, and for the one gathered
	underWay atomic.Int64  // flights that are not over
	flights  flights
	batches  sync.Pool     // of *inventory.Batch, for flights
	proposed chan *flight  // closed by propose
	answers  chan answers  // closed when raft has stopped
	wake     chan struct{} // capacity 1
	reads    chan read

	ctx     context.Context // done when it stops to take work
	cancel  context.CancelFunc
	heard   chan struct{} // closed when raft has said of every entry what became of it
	stopped chan struct{} // closed when raft has stopped
	running sync.WaitGroup
}

// group is what a node gives a shard.
type group struct {
	id        inventory.ShardID
	node      raft.ServerID
	logs      *wal.Group
	snapshots *snapshots
	peers     *transport.Group
	secret    []byte
	writable  *atomic.Bool
}

// openShard starts the group: it restores the newest snapshot that can be read, and raft replays
// the log from there when it leads or follows.
func openShard(config *Config, g group) (*Shard, error) {
	s := &Shard{
		id: g.id, config: config, secret: g.secret, writable: g.writable,
		logs: g.logs, snapshots: g.snapshots,
		logger: config.Logger.With("shard", int(g.id)),
		stats:  newMetrics(config.Registerer, g.id),
		engine: engine.New(engine.Config{
			Shard: g.id, Limits: config.Limits, Actors: config.Actors,
		}),
		queue:    make(chan *Proposal, config.QueueLength),
		slots:    make(chan struct{}, config.InFlight),
		flights:  flights{bySeed: make(map[uint64]*flight)},
		batches:  sync.Pool{New: func() any { return new(inventory.Batch) }},
		proposed: make(chan *flight, config.InFlight),
		answers:  make(chan answers, 64),
		wake:     make(chan struct{}, 1),
		reads:    make(chan read, config.QueueLength),
		heard:    make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.fsm = &fsm{
		engine: s.engine, stats: s.stats, grown: make(chan struct{}, 1),
		claim: s.claim, batches: &s.batches, answers: s.answers, installed: s.checkInstalled,
	}
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
	s.server.work()
	s.running.Add(6)
	go s.lead(notify)
	go s.propose()
	go s.watch()
	go s.settle()
	go s.verify()
	go s.keepLogShort()
	return s, nil
}

// cachedEntries is how many of the newest log entries are kept in memory for followers; up to half
// a megabyte each.
const cachedEntries = 64

func (s *Shard) startRaft(g group, notify chan<- bool) error {
	if err := g.snapshots.restore(g.logs, s.fsm.load); err != nil {
		return err
	}
	c := s.config.raft(g.node)
	c.Logger, c.NotifyCh = raftLogger(s.logger), notify
	logs, err := raft.NewLogCache(cachedEntries, g.logs)
	if err != nil {
		return fmt.Errorf("log cache: %w", err)
	}
	s.raft, err = raft.NewRaft(c, s.fsm, logs, g.logs, g.snapshots, g.peers)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	g.peers.SetProgress(func() (commit, applied uint64) {
		return s.raft.CommitIndex(), s.raft.AppliedIndex()
	})
	return nil
}

// checkInstalled ends the process when the log diverges from a snapshot that was just installed: at
// the next start it is discarded.
func (s *Shard) checkInstalled() error {
	err := s.snapshots.checkInstalled(s.logs)
	if err != nil {
		s.config.OnFault(fmt.Errorf("shard %d: %w", s.id, err))
	}
	return err
}

// raft is how raft is run on a node.
func (c *Config) raft(node raft.ServerID) *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = node
	r.HeartbeatTimeout = c.ElectionTimeout
	r.ElectionTimeout = c.ElectionTimeout
	r.LeaderLeaseTimeout = c.ElectionTimeout / 2
	r.CommitTimeout = 50 * time.Millisecond
	r.BatchApplyCh = true
	r.MaxAppendEntries = 16 // of up to 512 KiB each
	r.SnapshotInterval = time.Hour
	r.SnapshotThreshold = math.MaxUint64 // keepLogShort decides
	r.TrailingLogs = math.MaxUint64      // snapshots.cut decides
	r.NoSnapshotRestoreOnStart = true    // snapshots.restore has done it, with the same one
	r.NoLegacyTelemetry = true
	return r
}

// await waits for raft's answer. Some it never gives once it has been shut down.
func (s *Shard) await(future raft.Future) error {
	answered := make(chan error, 1)
	go func() { answered <- future.Error() }()
	select {
	case err := <-answered:
		return err
	case <-s.stopped:
	}
	select {
	case err := <-answered:
		return err
	case <-time.After(100 * time.Millisecond): // every answer that was given has arrived by now
		return raft.ErrRaftShutdown
	}
}

// finishPatience is how long a stop waits for the answers to what was proposed. A disk that takes
// longer is a fault before, and a leader that is alone no longer leads.
const finishPatience = 10 * time.Second

// close stops the shard: it takes no more work, finishes what is under way, and ends raft.
func (s *Shard) close() error {
	s.cancel()
	select {
	case <-s.heard:
	case <-time.After(finishPatience):
	}
	err := s.raft.Shutdown().Error()
	close(s.stopped)
	close(s.answers) // the apply goroutine was raft's
	s.running.Wait()
	s.refuseWaiting()
	s.server.wait()
	s.engine.Close()
	return err
}

// refuseWaiting answers what waits in a queue after the shard has begun to stop. close calls it
// when nobody takes from the queues any more, and so does whoever has put something there and then
// sees that the shard is stopping: one of the two finds it.
func (s *Shard) refuseWaiting() {
	for {
		select {
		case p := <-s.queue:
			s.refuse(p, ErrUnavailable)
		case r := <-s.reads:
			r.done(ErrUnavailable)
		default:
			return
		}
	}
}
