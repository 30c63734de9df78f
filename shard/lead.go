package shard

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"numera/engine/inventory"
)

// barrierTimeout is how long a new leader may take to apply the log that it inherits.
const barrierTimeout = 5 * time.Minute

// lead is the goroutine that follows raft's leadership: after the barrier the shard serves, and
// when leadership is lost it stops at once. Raft fences; this only spares the askers a detour. It
// alone writes leads and starts and stops the server.
func (s *Shard) lead(notify <-chan bool) {
	defer s.running.Done()
	for {
		select {
		case <-s.ctx.Done():
			s.retire()
			return
		case leader := <-notify:
			if leader {
				s.takeOver()
			} else {
				s.retire()
				s.logger.Info("no longer the leader")
			}
		}
	}
}

func (s *Shard) retire() {
	s.leads.Store(0)
	s.server.stop()
}

// takeOver begins to serve when everything that earlier leaders have committed is applied. What
// raft has told may be old by now: leads holds the term that the barrier was committed in, and a
// reader compares it with raft's.
func (s *Shard) takeOver() {
	term := s.raft.CurrentTerm()
	if err := s.await(s.raft.Barrier(barrierTimeout)); err != nil || s.raft.CurrentTerm() != term {
		s.logger.Warn("lost leadership before serving", "error", err)
		return
	}
	if err := s.server.start(); err != nil {
		s.config.OnFault(err)
		return
	}
	s.leads.Store(term)
	s.logger.Debug("serving")
	s.rouse()
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

// linearize calls done, from any goroutine, when the engine can be read: what was acknowledged
// before linearize was called is in it. done must not block.
func (s *Shard) linearize(done func(error)) {
	switch {
	case s.ctx.Err() != nil:
		done(ErrUnavailable)
		return
	case s.leads.Load() == 0:
		done(ErrNotLeader)
		return
	}
	s.enqueueRead(read{done})
}

// enqueueRead has r wait for the next proof of leadership, or refuses it.
func (s *Shard) enqueueRead(r read) {
	select {
	case s.reads <- r:
		if s.ctx.Err() != nil {
			s.refuseWaiting()
		}
	default:
		r.done(ErrOverloaded)
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
		case <-s.ctx.Done():
			return
		case r := <-s.reads:
			waiting = append(waiting, r)
		}
		for more := true; more; {
			select {
			case r := <-s.reads:
				waiting = append(waiting, r)
			default:
				more = false
			}
		}
		err := s.prove()
		for _, r := range waiting {
			r.done(err)
		}
	}
}

// prove returns nil if this replica led, at some moment since the call, in the term whose barrier
// it has applied. A term that raft has reached since would show: terms only rise.
func (s *Shard) prove() error {
	term := s.leads.Load()
	if term == 0 || s.await(s.raft.VerifyLeader()) != nil || s.raft.CurrentTerm() != term {
		return ErrNotLeader
	}
	return nil
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

// Product reads a product linearizably, nil if there is none; done as in linearize.
func (s *Shard) Product(id inventory.ProductID, done func(*inventory.ProductView, error)) {
	s.linearize(func(err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(s.engine.FreshProduct(id), nil)
	})
}

// Digest is that of this replica's state.
func (s *Shard) Digest() uint64 { return s.engine.Digest() }

// keepLogShort is the goroutine that takes a snapshot when enough log has gathered.
func (s *Shard) keepLogShort() {
	defer s.running.Done()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.fsm.grown:
		}
		if !s.fsm.large() { // the token is from before the last snapshot
			continue
		}
		if err := s.Snapshot(); err != nil {
			s.logger.Error("snapshot failed; the log is kept and grows", "error", err)
		}
	}
}

// Snapshot takes a snapshot now and cuts the log.
func (s *Shard) Snapshot() error {
	err := s.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shard %d: snapshot: %w", s.id, err)
	}
	if err := s.snapshots.cut(s.logs); err != nil {
		return fmt.Errorf("shard %d: cut the log: %w", s.id, err)
	}
	return nil
}
