package wal

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Store is the durable storage of one node. Its methods may be called from any goroutine.
type Store struct {
	config   Config
	db       *pebble.DB
	lock     *pebble.Lock // nil on the first boot, when Pebble locks by itself
	receipts *receipts
	fault    *fault
	counters counters
	// serving is set when Open is done. Until then a damaged block is Open's error, no fault.
	serving atomic.Bool

	// lifetime is held for reading around every read of db, and for writing while closed is set.
	lifetime sync.RWMutex
	closed   bool

	mu     sync.Mutex // guards groups; never held over I/O
	groups map[uint16]*Group

	writers   sync.WaitGroup
	stopWatch chan struct{} // closed by Close
	watchDone chan struct{} // closed by watch
	// awakeNanos is the time that the process was seen to run: see tick.
	awakeNanos atomic.Int64
}

// Group returns the log and the stable values of a group, empty when nothing was ever stored
// under this id. There is one *Group for an id; raft must be its only user. It returns ErrClosed
// after Close.
func (s *Store) Group(id uint16) (*Group, error) {
	s.lifetime.RLock()
	defer s.lifetime.RUnlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g, found := s.groups[id]
	if !found {
		g = s.newGroup(id, state{})
		s.groups[id] = g
	}
	return g, nil
}

// Fault returns nil, or the storage error that stopped the store, wrapped in ErrFaulted.
func (s *Store) Fault() error { return s.fault.err() }

// Close waits for the writes in flight, then closes the database. Everything acknowledged is on
// disk already; closing only makes the next start shorter. After a fault it returns the fault
// and waits for nothing: what is stuck in a failed write stays there until the process ends. A
// second Close returns ErrClosed.
func (s *Store) Close() error {
	s.lifetime.Lock()
	if s.closed {
		s.lifetime.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.lifetime.Unlock()

	err := s.fault.guard(func() error {
		s.mu.Lock()
		groups := slices.Collect(maps.Values(s.groups))
		s.mu.Unlock()
		for _, g := range groups {
			g.close()
		}
		s.writers.Wait()
		return s.closeFiles()
	})
	if err != nil {
		return err
	}
	close(s.stopWatch)
	<-s.watchDone
	return nil
}

func (s *Store) closeFiles() error {
	err := s.db.Close()
	if errSync := s.receipts.file.Sync(); err == nil {
		err = errSync
	}
	if errClose := s.receipts.file.Close(); err == nil {
		err = errClose
	}
	if s.lock != nil {
		if errLock := s.lock.Close(); err == nil {
			err = errLock
		}
	}
	if err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// watch tells the owner of the process about the fault, and raises one itself when a write
// doesn't come back.
func (s *Store) watch() {
	defer close(s.watchDone)
	interval := s.watchInterval()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stopWatch:
			return
		case <-s.fault.raised:
			err := s.fault.err()
			s.config.Logger.Error("storage fault: the process must end", "error", err)
			s.config.OnFault(err)
			return
		case now := <-ticker.C:
			s.tick(now.Sub(last))
			last = now
		}
	}
}

func (s *Store) watchInterval() time.Duration {
	return min(s.config.StallLimit/10, 250*time.Millisecond)
}

// tick advances the awake clock and looks for a write that is in flight for too long by it. A
// process that was stopped, or starved of the processor, has missed ticks; it counts at most two
// intervals of the time it missed, since the disk can't be blamed for it.
func (s *Store) tick(elapsed time.Duration) {
	awakeNanos := s.awakeNanos.Add(int64(min(elapsed, 2*s.watchInterval())))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		since := g.writer.sinceAwakeNanos.Load()
		if since != 0 && time.Duration(awakeNanos-since) > s.config.StallLimit {
			s.fault.raise(fmt.Errorf("group %d: %w for more than %s",
				g.id, ErrStalled, s.config.StallLimit))
		}
	}
}
