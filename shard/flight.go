package shard

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"numera/engine/inventory"
)

// flight is a log entry that has been proposed, and whom to tell. Whoever claims it answers it, and
// nobody else: the apply goroutine when it comes to the entry, or watch when raft gives it up.
type flight struct {
	seed      uint64      // of the entry's batch: random, so that no other entry has it
	proposals []*Proposal // who waits, in the order of the entry; settle's once it is claimed
	proposed  time.Time
	future    raft.ApplyFuture
	batch     *inventory.Batch // what the entry says, from when decoded has got nil until it is applied
	decoded   chan error       // capacity 1
}

// flights are those that nobody has claimed.
type flights struct {
	mu     sync.Mutex
	bySeed map[uint64]*flight
}

func (fs *flights) add(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.bySeed[f.seed] = f
}

// claim returns the flight to the first who asks, and nil to all others.
func (fs *flights) claim(seed uint64) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.bySeed[seed]
	delete(fs.bySeed, seed)
	return f
}

// claim is that of flights. The next entry may be proposed: this one has reached the engine, or is
// given up.
func (s *Shard) claim(seed uint64) *flight {
	f := s.flights.claim(seed)
	if f != nil {
		<-s.slots
	}
	return f
}

// answers are outcomes on their way from the apply goroutine to those of the flight who wait next.
// Without outcomes they say that the entry is applied.
type answers struct {
	flight   *flight
	outcomes []*inventory.Outcome
}

// settle is the goroutine that tells outcomes, in the order of the log. Those of the first commands
// of an entry are told while the last ones are being applied.
func (s *Shard) settle() {
	defer s.running.Done()
	for a := range s.answers {
		f := a.flight
		if len(a.outcomes) == 0 {
			s.stats.commit.Observe(time.Since(f.proposed).Seconds())
			s.end()
			continue
		}
		s.stats.told(a.outcomes)
		for i, o := range a.outcomes {
			f.proposals[i].Done(o, nil)
		}
		f.proposals = f.proposals[len(a.outcomes):]
		s.engine.Recycle(a.outcomes)
	}
}

// watch is the goroutine that hears what raft says of the entries, and answers those that it gave
// up before they were applied.
func (s *Shard) watch() {
	defer s.running.Done()
	defer close(s.heard)
	for f := range s.proposed {
		if err := s.fate(f.future); err != nil {
			s.giveUp(f.seed, err)
		}
	}
}

// giveUp answers those who wait for an entry with err, unless it has reached the engine.
func (s *Shard) giveUp(seed uint64, err error) {
	f := s.claim(seed)
	if f == nil {
		return
	}
	s.end()
	for _, p := range f.proposals {
		s.refuse(p, err)
	}
}

// end notes that a flight is over.
func (s *Shard) end() {
	s.underWay.Add(-1)
	s.rouse()
}

// fate waits until an entry is applied, or says why it may never be.
func (s *Shard) fate(future raft.ApplyFuture) error {
	err := s.await(future)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrOverloaded
	}
	return ErrOutcomeUnknown
}
