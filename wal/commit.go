package wal

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// recordOverheadBytes is more than what a batch adds to a record beside its frame: the key, a tag,
// and two lengths.
const recordOverheadBytes = recordKeyBytes + 12

// writer commits the batches of one group, one at a time, on a goroutine of its own. A commit
// that failed or hangs never returns from Pebble (see Fatalf); the caller must not hang with it.
type writer struct {
	store     *Store
	group     uint16
	submitted chan submission // closed by Group.close
	done      chan struct{}   // one for each submission that is durable

	// sinceAwakeNanos is when, by the store's awake clock, the submission in flight was made; 0
	// when there is none.
	sinceAwakeNanos atomic.Int64
	slot            [receiptBytes]byte
}

type submission struct {
	batch  *pebble.Batch
	commit uint64
}

func newWriter(s *Store, group uint16) *writer {
	w := &writer{
		store:     s,
		group:     group,
		submitted: make(chan submission),
		done:      make(chan struct{}, 1),
	}
	s.writers.Add(1)
	go w.run()
	return w
}

// commit makes the batch durable, signs its receipt and takes the batch. The error is the fault.
// One call at a time.
func (w *writer) commit(batch *pebble.Batch, commit uint64) error {
	start := time.Now()
	w.sinceAwakeNanos.Store(w.store.awakeNanos.Load())
	w.submitted <- submission{batch, commit}
	select {
	case <-w.done:
	case <-w.store.fault.raised:
		return w.store.fault.err()
	}
	w.sinceAwakeNanos.Store(0)
	w.store.counters.committed(time.Since(start))
	return nil
}

func (w *writer) run() {
	defer w.store.writers.Done()
	defer w.store.fault.raiseOnPanic()
	for s := range w.submitted {
		if err := w.write(s); err != nil {
			w.store.fault.raise(fmt.Errorf("group %d, commit %d: %w", w.group, s.commit, err))
			return
		}
		w.done <- struct{}{}
	}
}

func (w *writer) write(s submission) error {
	if err := s.batch.Commit(pebble.Sync); err != nil {
		return err
	}
	if err := s.batch.Close(); err != nil {
		return err
	}
	return w.store.receipts.sign(&w.slot, w.group, s.commit)
}
