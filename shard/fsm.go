package shard

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"numera/engine"
	"numera/engine/inventory"
)

// fsm is the engine as raft sees it. Raft calls Apply, ApplyBatch, Snapshot and Restore from its
// one FSM goroutine: the shard's apply goroutine.
type fsm struct {
	engine *engine.Engine
	batch  inventory.Batch // of an entry that was proposed elsewhere
	stats  *metrics

	bytes   atomic.Int64 // of log entries applied since the last snapshot
	entries atomic.Int64
	state   atomic.Int64  // bytes of the last snapshot
	grown   chan struct{} // gets a token when a snapshot is worth while; capacity 1
	limits  struct{ bytes, entries int64 }

	claim     func(seed uint64) *flight // the entry of this seed, if somebody here waits for it
	batches   *sync.Pool                // takes those of flights back
	answers   chan<- answers
	installed func() error // is told when a leader's snapshot has replaced the state
}

var _ raft.BatchingFSM = (*fsm)(nil)

// Apply implements raft.FSM.
func (f *fsm) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch implements raft.BatchingFSM. The outcomes of an entry that was proposed here go to
// settle as they come, not to raft. An entry that does not decode ends the process: it was written
// by a newer version, or damaged in memory, and a replica that skips it is no replica.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	for _, log := range logs {
		if log.Type != raft.LogCommand {
			continue
		}
		start := time.Now()
		if err := f.apply(log.Data); err != nil {
			panic(fmt.Sprintf("shard: log entry %d: %v", log.Index, err))
		}
		f.stats.apply.Observe(time.Since(start).Seconds())
		f.bytes.Add(int64(len(log.Data)))
		f.entries.Add(1)
	}
	if f.large() {
		select {
		case f.grown <- struct{}{}:
		default:
		}
	}
	return make([]any, len(logs))
}

// apply applies an entry. One that was proposed here has been decoded from the same bytes while it
// was on its way through the log.
func (f *fsm) apply(entry []byte) error {
	flight := f.claim(inventory.BatchSeed(entry))
	if flight == nil {
		err := f.batch.Decode(entry)
		if err == nil {
			f.engine.Apply(&f.batch)
		}
		return err
	}
	if err := <-flight.decoded; err != nil {
		return err
	}
	f.engine.ApplyTelling(flight.batch, func(outcomes []*inventory.Outcome) {
		f.answers <- answers{flight, outcomes}
	})
	f.batches.Put(flight.batch)
	f.answers <- answers{flight, nil}
	return nil
}

// large says that so much log has gathered since the last snapshot that the next is worth while: the
// limits, or as many times as much as that snapshot was larger than the limit of bytes. So what snapshots
// cost stays in proportion to the log.
func (f *fsm) large() bool {
	times := float64(f.state.Load()) / float64(f.limits.bytes)
	times = min(max(times, 1), mostStretch)
	return float64(f.bytes.Load()) >= times*float64(f.limits.bytes) ||
		float64(f.entries.Load()) >= times*float64(f.limits.entries)
}

// mostStretch bounds what a restart has to read beside the snapshot.
const mostStretch = 8

// Snapshot implements raft.FSM: it freezes the state, and the apply goroutine goes on.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	start := time.Now()
	frozen := f.engine.Freeze()
	f.stats.freeze.Observe(time.Since(start).Seconds())
	f.bytes.Store(0)
	f.entries.Store(0)
	return snapshot{frozen, &f.state}, nil
}

// Restore implements raft.FSM: a leader has installed its snapshot. At a start the shard restores
// by itself.
func (f *fsm) Restore(r io.ReadCloser) error {
	if err := f.load(r); err != nil {
		return err
	}
	f.bytes.Store(0)
	f.entries.Store(0)
	return f.installed()
}

// load replaces the state by that of a snapshot.
func (f *fsm) load(r io.ReadCloser) error {
	defer r.Close()
	c := counter{from: r}
	err := f.engine.Restore(&c)
	f.state.Store(c.bytes)
	return err
}

// counter counts what is read.
type counter struct {
	from  io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	return n, err
}

// snapshot is written by a goroutine of raft's while the state goes on.
type snapshot struct {
	frozen *inventory.Frozen
	bytes  *atomic.Int64 // of what was written
}

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	bytes, err := s.frozen.WriteTo(sink)
	if err != nil {
		sink.Cancel() // the error that matters is the one before
		return fmt.Errorf("shard: write snapshot: %w", err)
	}
	s.bytes.Store(bytes)
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (snapshot) Release() {}
