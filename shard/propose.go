package shard

import (
	"context"
	"math/rand/v2"
	"time"

	"numera/engine/inventory"
)

// Proposal is a command on its way into the log.
type Proposal struct {
	// Entry is sealed and encoded by Propose, which owns it from then on.
	Entry inventory.Entry

	// Deadline is when the asker stops waiting; what has not been proposed by then is not. Zero
	// means never.
	Deadline time.Time

	// Done is called once, with an outcome or one of the package's errors, maybe before Propose
	// returns. It must not block, nor read the engine: the shard waits for it, and so may the entry
	// that is being applied. The outcome, with all that it points to but strings, is its only until
	// it returns: the memory is used again.
	Done func(*inventory.Outcome, error)

	encoded []byte
	queued  time.Time
}

// Propose puts a command on the queue and returns at once. A command whose form is wrong is
// refused without it. Any goroutine may call it.
func (s *Shard) Propose(p *Proposal) {
	if refusal := p.Entry.Command.Check(); refusal != nil {
		refusal.AtUnixMilli = s.config.Clock.NowUnixMilli()
		p.Done(refusal, nil)
		return
	}
	if err := s.admits(); err != nil {
		s.refuse(p, err)
		return
	}
	if len(s.queue) == cap(s.queue) { // what will be refused is not worth hashing
		s.refuse(p, ErrOverloaded)
		return
	}
	inventory.SealKey(p.Entry.Command, s.secret)
	p.encoded = inventory.AppendEntry(p.encoded[:0], p.Entry)
	p.queued = time.Now()
	s.enqueue(p)
}

// enqueue puts p on the queue, or refuses it.
func (s *Shard) enqueue(p *Proposal) {
	select {
	case s.queue <- p:
		s.stats.admitted.Inc()
		if s.ctx.Err() != nil {
			s.refuseWaiting()
		}
	default:
		s.refuse(p, ErrOverloaded)
	}
}

// refuse answers a proposal that was not, or may not have been, acted on.
func (s *Shard) refuse(p *Proposal, err error) {
	s.stats.refused(err)
	p.Done(nil, err)
}

// Do proposes a command and waits for its outcome, or for ctx: then the outcome is unknown.
func (s *Shard) Do(ctx context.Context, e inventory.Entry) (*inventory.Outcome, error) {
	type answer struct {
		outcome *inventory.Outcome
		err     error
	}
	done := make(chan answer, 1)
	deadline, _ := ctx.Deadline()
	s.Propose(&Proposal{
		Entry: e, Deadline: deadline,
		Done: func(o *inventory.Outcome, err error) { done <- answer{o.Clone(), err} },
	})
	select {
	case a := <-done:
		return a.outcome, a.err
	case <-ctx.Done():
		return nil, ErrOutcomeUnknown
	}
}

// enqueueTimeout is how long raft may take to accept an entry. It takes one when it has synced
// those before; a disk that hangs longer is the write-ahead log's to notice.
const enqueueTimeout = 2 * time.Second

// propose is the goroutine that turns the queue into log entries: whatever waits goes into one
// entry. While Config.InFlight entries are under way, the next one gathers in the queue. When the
// earliest deadline of an order has come and nothing is under way, it proposes an empty entry.
func (s *Shard) propose() {
	defer s.running.Done()
	defer close(s.proposed)
	for {
		select {
		case <-s.ctx.Done():
			return
		case s.slots <- struct{}{}:
		}
		proposals, tick, ok := s.gather()
		if !ok {
			return
		}
		if tick = tick && s.admits() == nil; !tick {
			proposals = s.dropLate(proposals)
		}
		if len(proposals) == 0 && !tick {
			<-s.slots
			continue
		}
		s.proposed <- s.send(proposals)
	}
}

// gather waits for the first command and takes what else there is. tick says that orders are due;
// neither, that the world has changed and gather is to be called again. ok is false when the shard
// stops.
func (s *Shard) gather() (proposals []*Proposal, tick, ok bool) {
	var due <-chan struct{}
	deadline := s.engine.NextDeadline()
	if s.underWay.Load() == 0 && deadline != 0 && s.admits() == nil {
		timer := s.config.Clock.TimerAt(deadline)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-s.ctx.Done():
		return nil, false, false
	case <-due:
		return nil, true, true
	case <-s.wake:
		return nil, false, true
	case p := <-s.queue:
		proposals = append(make([]*Proposal, 0, 256), p)
	}
	bytes := len(proposals[0].encoded)
	for len(proposals) < s.config.BatchCommands && bytes < s.config.BatchBytes {
		select {
		case p := <-s.queue:
			proposals = append(proposals, p)
			bytes += len(p.encoded)
		default:
			return proposals, false, true
		}
	}
	return proposals, false, true
}

// dropLate answers the proposals that have waited too long, and those of a shard that may not
// propose any more.
func (s *Shard) dropLate(proposals []*Proposal) []*Proposal {
	now := time.Now()
	unfit := s.admits()
	live := proposals[:0]
	for _, p := range proposals {
		switch {
		case unfit != nil:
			s.refuse(p, unfit)
		case !p.Deadline.IsZero() && now.After(p.Deadline):
			s.refuse(p, ErrExpired)
		case now.Sub(p.queued) > s.config.QueueWait:
			s.refuse(p, ErrOverloaded)
		default:
			live = append(live, p)
		}
	}
	if len(live) > 0 { // the first has waited longest
		s.stats.queueAge.Observe(now.Sub(live[0].queued).Seconds())
	}
	return live
}

// send proposes one entry, and decodes it while the log takes it: that spares the apply goroutine, on
// which everybody waits.
func (s *Shard) send(proposals []*Proposal) *flight {
	size := 64
	for _, p := range proposals {
		size += len(p.encoded)
	}
	f := &flight{
		seed: rand.Uint64(), proposals: proposals, proposed: time.Now(),
		batch: s.batches.Get().(*inventory.Batch), decoded: make(chan error, 1),
	}
	entry := inventory.AppendBatchHeader(make([]byte, 0, size),
		s.config.Clock.NowUnixMilli(), f.seed)
	for _, p := range proposals {
		entry = append(entry, p.encoded...)
	}
	inventory.SealBatch(entry)
	s.stats.batchSize.Observe(float64(len(proposals)))
	s.underWay.Add(1)
	s.flights.add(f)
	f.future = s.raft.Apply(entry, enqueueTimeout)
	f.decoded <- f.batch.Decode(entry)
	return f
}

// rouse makes gather look anew at the earliest deadline.
func (s *Shard) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
