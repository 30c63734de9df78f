package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
)

// Group is the log and the stable values of one Raft group. Writes are made one after the other,
// each synced before it returns; reads go on meanwhile. Any method may be called from any
// goroutine.
type Group struct {
	id     uint16
	store  *Store
	writer *writer

	mu     sync.Mutex // held over a write
	state  state      // what the last acknowledged commit wrote
	closed bool

	// first and last bound what readers may see. Pebble shows a batch before it is durable, so
	// they shrink before a commit and grow after it.
	first atomic.Uint64
	last  atomic.Uint64
	// shown changes whenever they do.
	shown atomic.Uint64
	// stable is what readers may see of the stable values: state.stable.
	stable atomic.Pointer[[]stableValue]
}

var (
	_ raft.LogStore          = (*Group)(nil)
	_ raft.StableStore       = (*Group)(nil)
	_ raft.MonotonicLogStore = (*Group)(nil)
)

// pointDeletesMax is up to how many records are deleted one by one. Range tombstones cost every
// read in their range something until they are compacted away.
const pointDeletesMax = 64

func (s *Store) newGroup(id uint16, st state) *Group {
	g := &Group{id: id, store: s, writer: newWriter(s, id), state: st}
	g.show(&st)
	return g
}

func (g *Group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	close(g.writer.submitted)
}

func (g *Group) show(st *state) {
	g.first.Store(st.first)
	g.last.Store(st.last)
	g.stable.Store(&st.stable)
	g.shown.Add(1)
}

func (g *Group) visible(index uint64) bool {
	first, last := g.first.Load(), g.last.Load()
	return last != 0 && first <= index && index <= last
}

// writable is called with mu held.
func (g *Group) writable() error {
	if g.closed {
		return ErrClosed
	}
	return g.store.fault.err()
}

// IsMonotonic returns false. It would make raft delete the whole log after it installed a
// snapshot, also records beyond the snapshot that this node has acknowledged. A store that is
// not monotonic is allowed gaps instead, and StoreLogs never leaves one.
func (g *Group) IsMonotonic() bool { return false }

// FirstIndex returns the index of the first record, 0 when there is none.
func (g *Group) FirstIndex() (uint64, error) { return g.first.Load(), g.store.fault.err() }

// LastIndex returns the index of the last record, 0 when there is none.
func (g *Group) LastIndex() (uint64, error) { return g.last.Load(), g.store.fault.err() }

// GetLog reads a record into entry, which is the caller's to keep. It returns
// raft.ErrLogNotFound itself, since raft compares it, for an index outside the log; and an error
// that wraps ErrCorrupt, which is also the store's fault, when a record of the log is missing or
// doesn't verify.
func (g *Group) GetLog(index uint64, entry *raft.Log) error {
	s := g.store
	s.lifetime.RLock()
	defer s.lifetime.RUnlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.fault.err(); err != nil {
		return err
	}
	for {
		shown := g.shown.Load()
		if !g.visible(index) {
			return raft.ErrLogNotFound
		}
		frame, err := g.read(index)
		if err == nil {
			err = getRecord(frame, g.id, index, entry)
		}
		if err == nil {
			return nil
		}
		if g.shown.Load() != shown {
			continue // deleted, and perhaps stored anew, between the look and the read
		}
		s.fault.raise(err)
		return err
	}
}

// read returns a copy of the frame of a record.
func (g *Group) read(index uint64) (frame []byte, err error) {
	err = g.store.fault.guard(func() error {
		value, closer, err := g.store.db.Get(recordKey(g.id, index))
		if err != nil {
			return err
		}
		frame = bytes.Clone(value)
		return closer.Close()
	})
	if errors.Is(err, pebble.ErrNotFound) {
		err = fmt.Errorf("%w: missing", ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("group %d, index %d: %w", g.id, index, asCorrupt(err))
	}
	return frame, nil
}

// StoreLog is StoreLogs of one entry.
func (g *Group) StoreLog(entry *raft.Log) error { return g.StoreLogs([]*raft.Log{entry}) }

// StoreLogs appends entries, which must have consecutive indexes (else ErrNotConsecutive), in
// one atomic write. Afterwards the log ends with them: records at and after the first of them are
// replaced. When the first lies beyond the end of the log, or not after its beginning, the log
// begins anew with them: raft does that only when a snapshot holds what came before. The entries
// are the caller's again when the call returns. Other errors: ErrTooLarge, ErrClosed, and
// ErrFaulted, after which it is unknown whether they are stored.
func (g *Group) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	frameBytes, err := checkEntries(entries)
	if err != nil {
		return fmt.Errorf("group %d: %w", g.id, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.writable(); err != nil {
		return err
	}
	next, previous, err := g.beforeEntry(entries[0].Index)
	if err != nil {
		return err
	}
	batch := g.newBatch(frameBytes + len(entries)*recordOverheadBytes)
	if err := g.deleteRecords(batch, &next); err != nil {
		return err
	}
	for _, entry := range entries {
		op := batch.SetDeferred(recordKeyBytes, recordFrameBytes(entry))
		putRecordKey(op.Key, g.id, entry.Index)
		previous = putRecord(op.Value, g.id, previous, entry)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	if next.empty() {
		next.first = entries[0].Index
	}
	next.last, next.lastChecksum = entries[len(entries)-1].Index, previous
	if err := g.commit(batch, next); err != nil {
		return err
	}
	g.store.counters.records.Add(uint64(len(entries)))
	g.store.counters.recordBytes.Add(uint64(frameBytes))
	return nil
}

func checkEntries(entries []*raft.Log) (frameBytes int, err error) {
	index := entries[0].Index
	for _, entry := range entries {
		if entry.Index != index || index == 0 || index == math.MaxUint64 {
			return 0, fmt.Errorf("%w: %d, want %d", ErrNotConsecutive, entry.Index, index)
		}
		if len(entry.Data)+len(entry.Extensions) > recordMaxBytes {
			return 0, fmt.Errorf("index %d: %w: record above %d bytes",
				index, ErrTooLarge, recordMaxBytes)
		}
		index++
		frameBytes += recordFrameBytes(entry)
	}
	return frameBytes, nil
}

// beforeEntry returns the state with what a record at index follows, and the checksum it is
// chained to.
func (g *Group) beforeEntry(index uint64) (state, uint32, error) {
	next := g.state
	if !next.contains(index - 1) {
		next.first, next.last, next.lastChecksum = 0, 0, 0
		return next, 0, nil
	}
	err := g.endAt(&next, index-1)
	return next, next.lastChecksum, err
}

// endAt makes index, which is in the log, the last of the state.
func (g *Group) endAt(next *state, index uint64) error {
	if index == next.last {
		return nil
	}
	frame, err := g.read(index)
	var links recordLinks
	if err == nil {
		_, links, err = verifyRecord(frame, g.id, index)
	}
	if err != nil {
		g.store.fault.raise(err)
		return err
	}
	next.last, next.lastChecksum = index, links.checksum
	return nil
}

// DeleteRange deletes the records between from and to, both included, in one atomic write. Indexes
// outside the log are ignored. It returns ErrInnerRange when records would remain on both sides,
// ErrClosed, or ErrFaulted.
func (g *Group) DeleteRange(from, to uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.writable(); err != nil {
		return err
	}
	next := g.state
	if next.empty() || from > to || to < next.first || from > next.last {
		return nil
	}
	switch {
	case from <= next.first && to >= next.last:
		next.first, next.last, next.lastChecksum = 0, 0, 0
	case from <= next.first:
		next.first = to + 1
	case to >= next.last:
		if err := g.endAt(&next, from-1); err != nil {
			return err
		}
	default:
		return fmt.Errorf("group %d: %w: %d to %d of %d to %d",
			g.id, ErrInnerRange, from, to, next.first, next.last)
	}
	batch := g.newBatch(0)
	if err := g.deleteRecords(batch, &next); err != nil {
		return err
	}
	return g.commit(batch, next)
}

// DiscardLog deletes all records and keeps the stable values: votes are not forgotten. A shard
// needs it when the log doesn't contain the snapshot that it just installed.
func (g *Group) DiscardLog() error { return g.DeleteRange(0, math.MaxUint64) }

// deleteRecords adds the deletion of the records that the present state has and the next one
// hasn't, at one end, and hides them from readers.
func (g *Group) deleteRecords(batch *pebble.Batch, next *state) error {
	first, last := g.state.first, g.state.last
	switch {
	case g.state.empty() || (next.first == first && next.last == last):
		return nil
	case next.empty():
	case next.first > first:
		last = next.first - 1
	default:
		first = next.last + 1
	}
	g.show(next)
	g.store.counters.deleted.Add(last - first + 1)
	if last-first >= pointDeletesMax {
		return batch.DeleteRange(recordKey(g.id, first), recordKey(g.id, last+1), nil)
	}
	for index := first; index <= last; index++ {
		op := batch.DeleteDeferred(recordKeyBytes)
		putRecordKey(op.Key, g.id, index)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// newBatch returns an empty batch with room for the state and records of so many bytes.
func (g *Group) newBatch(recordBytes int) *pebble.Batch {
	const headerAndState = 256
	return g.store.db.NewBatchWithSize(headerAndState + recordBytes)
}

// commit adds the state to the batch, writes it, and shows it to readers. It takes the batch.
func (g *Group) commit(batch *pebble.Batch, next state) error {
	next.commit = g.state.commit + 1
	op := batch.SetDeferred(stateKeyBytes, next.frameBytes())
	putStateKey(op.Key, g.id)
	next.put(op.Value, g.id)
	if err := op.Finish(); err != nil {
		return err
	}
	if err := g.writer.commit(batch, next.commit); err != nil {
		return err
	}
	g.state = next
	g.show(&next)
	return nil
}
