package shard

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"numera/engine/inventory"
)

// barrierTimeout is how long a new leader may take to apply the log that it inherits.
const barrierTimeout = 5 * time.Minute

// lead is the goroutine that follows raft's leadership: after the barrier the shard serves, and
// when leadership is lost it stops at once. Raft fences; this only spares the askers a detour.
func (s *Shard) lead(notify <-chan bool) {
	defer s.running.Done()
	term := uint64(0)
	for {
		select {
		case <-s.stopped:
			return
		case leader := <-notify:
			if !leader {
				s.leads.Store(0)
				s.server.stop()
				s.logger.Info("no longer the leader")
				continue
			}
			if err := s.raft.Barrier(barrierTimeout).Error(); err != nil {
				s.logger.Warn("lost leadership before serving", "error", err)
				continue
			}
			term++
			s.leads.Store(term)
			if err := s.server.start(); err != nil {
				s.config.OnFault(err)
				return
			}
			s.logger.Debug("serving")
			s.rouse()
		}
	}
}

// Leads says whether this replica serves the shard.
func (s *Shard) Leads() bool { return s.leads.Load() != 0 }

// admits says why nothing may be proposed now, or nil.
func (s *Shard) admits() error {
	switch {
	case s.ctx.Err() != nil || !s.writable.Load():
		return ErrUnavailable
	case s.leads.Load() == 0:
		return ErrNotLeader
	}
	return nil
}

// read waits for the proof that this replica still leads.
type read struct{ done func(error) }

// linearize calls done, from a goroutine of the shard's, when the engine can be read: what was
// acknowledged before linearize was called is in it. done must not block.
func (s *Shard) linearize(done func(error)) {
	if s.leads.Load() == 0 {
		done(ErrNotLeader)
		return
	}
	select {
	case s.reads <- read{done}:
	default:
		done(ErrOverloaded)
	}
}

// verify is the goroutine that proves leadership to the readers that have gathered, all at once.
// DESIGN.md argues why that suffices.
func (s *Shard) verify() {
	defer s.running.Done()
	var waiting []read
	for {
		waiting = waiting[:0]
		select {
		case <-s.stopped:
			return
		case r := <-s.reads:
			waiting = append(waiting, r)
		}
		for len(s.reads) > 0 {
			waiting = append(waiting, <-s.reads)
		}
		term := s.leads.Load()
		err := error(nil)
		if term == 0 || s.raft.VerifyLeader().Error() != nil || s.leads.Load() != term {
			err = ErrNotLeader
		}
		for _, r := range waiting {
			r.done(err)
		}
	}
}

// Order reads an order linearizably; done as in linearize.
func (s *Shard) Order(c inventory.OnOrder, done func(*inventory.Outcome, error)) {
	s.linearize(func(err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(s.engine.Order(c), nil)
	})
}

// Digest is that of this replica's state.
func (s *Shard) Digest() uint64 { return s.engine.Digest() }

// keepLogShort is the goroutine that takes a snapshot when enough log has gathered. The log is
// then cut so that the snapshot before the newest can still be continued, should the newest be
// unreadable.
func (s *Shard) keepLogShort() {
	defer s.running.Done()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.fsm.grown:
		}
		if err := s.Snapshot(); err != nil {
			s.logger.Error("snapshot failed; the log is kept and grows", "error", err)
		}
	}
}

// Snapshot takes a snapshot now and cuts the log.
func (s *Shard) Snapshot() error {
	keep := s.raft.ReloadableConfig()
	keep.TrailingLogs = 2*uint64(s.fsm.entries.Load()) + 1024
	if err := s.raft.ReloadConfig(keep); err != nil {
		return err
	}
	err := s.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}
