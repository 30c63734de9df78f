// Package engine runs the state machine of one shard: it hands every product its commands through
// the one goroutine that owns it, its actor, and gives readers what they may see meanwhile.
//
// Apply, Freeze and Restore are called by one goroutine, the shard's apply goroutine. Everything
// else may be called by any. The outcome of a batch does not depend on the number of actors: it is
// that of its commands one after the other. See DESIGN.md for why.
package engine

import (
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"numera/engine/inventory"
)

// Config says how an engine is built.
type Config struct {
	Shard  inventory.ShardID
	Limits inventory.Limits // zero: DefaultLimits

	// Actors is how many goroutines the products are spread over; default 2. It may differ from
	// replica to replica.
	Actors int
}

// Engine is a shard's state with its actors. Close it to end their goroutines.
type Engine struct {
	config Config

	mu     sync.RWMutex // held for writing while state changes
	state  *inventory.State
	actors []*actor

	steps   []inventory.Step
	before  inventory.Step
	run     []pending // prepared, in log order
	next    int       // of run: the first that is not finished
	touched keySet    // the orders of run
	answers answers   // to the batch under way
	tight   bool      // commands are applied one by one: see State.Tight

	portions struct{ used, idle []*portion } // used: in run

	recycling sync.Mutex
	recycled  []*inventory.Outcome // to be used again by Apply

	nextDeadline atomic.Int64                 // Unix milliseconds; 0: none
	products     sync.Map                     // inventory.ProductID → *published
	bySlot       []*[publishedPiece]published // the same, for the apply goroutine
	warmed       int                          // so that the compiler keeps the loads of warm and publishChanged
}

// pending is a step of the run. Without a portion there is no work to wait for.
type pending struct {
	step *inventory.Step
	in   *portion
}

// answers are the outcomes of a batch, as far as its steps are finished.
type answers struct {
	outcomes    []*inventory.Outcome // one for each entry of the batch
	given, told int                  // how many of them
	tell        func([]*inventory.Outcome)
}

// give keeps the outcome of the next step, and tells those of a portion together.
func (a *answers) give(o *inventory.Outcome) {
	a.outcomes[a.given] = o
	if a.given++; a.given-a.told == portionLen {
		a.tellGiven()
	}
}

func (a *answers) tellGiven() {
	if a.tell != nil && a.told < a.given {
		a.tell(a.outcomes[a.told:a.given])
	}
	a.told = a.given
}

// New starts an empty shard.
func New(config Config) *Engine {
	if config.Actors < 1 {
		config.Actors = 2
	}
	if config.Limits == (inventory.Limits{}) {
		config.Limits = inventory.DefaultLimits()
	}
	e := &Engine{config: config, state: inventory.New(config.Shard, config.Limits)}
	e.state.NameScans(rand.Uint64())
	for range config.Actors {
		e.actors = append(e.actors, startActor())
	}
	return e
}

// Close ends the actors. No batch may be under way.
func (e *Engine) Close() {
	for _, a := range e.actors {
		a.stop()
	}
}

// Recycle takes outcomes of Apply back, for their memory: nobody may look at them any more, nor at
// what they point to but strings. To call it is optional.
func (e *Engine) Recycle(outcomes []*inventory.Outcome) {
	e.recycling.Lock()
	defer e.recycling.Unlock()
	if len(e.recycled) < mostRecycled {
		e.recycled = append(e.recycled, outcomes...)
	}
}

// mostRecycled bounds the memory that waits to be used again: about 2 MB.
const mostRecycled = 8192

// reuse hands the state what has been given back.
func (e *Engine) reuse() {
	e.recycling.Lock()
	defer e.recycling.Unlock()
	e.state.Recycle(e.recycled)
	clear(e.recycled)
	e.recycled = e.recycled[:0]
}

// Apply applies a batch and returns the outcome of each of its entries. What is due by the batch's
// time expires first, at most Limits.ExpirePerBatch orders of it.
func (e *Engine) Apply(batch *inventory.Batch) []*inventory.Outcome {
	return e.ApplyTelling(batch, nil)
}

// ApplyTelling is Apply, and calls tell with the outcomes some at a time, in order, as soon as they
// are known. They may be passed on at once, and recycled: until it returns, Product and Numbers may
// show less than what was told, but for what had to be alone, while all other readers wait: tell must
// not wait for one.
func (e *Engine) ApplyTelling(
	batch *inventory.Batch, tell func([]*inventory.Outcome),
) []*inventory.Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reuse()
	e.state.Advance(batch.TimeUnixMilli)
	e.expire()
	if n := len(batch.Entries); n > len(e.steps) {
		e.steps = make([]inventory.Step, n)
	}
	e.answers = answers{outcomes: make([]*inventory.Outcome, len(batch.Entries)), tell: tell}
	e.tight = e.state.Tight(len(batch.Entries))
	e.state.WarmProducts(batch.Entries)
	for i := range batch.Entries {
		if i%portionLen == 0 {
			e.finishWorked()
			e.state.WarmKeys(batch, i, min(i+portionLen, len(batch.Entries)))
		}
		e.steps[i].Take(batch, i)
		e.step(&e.steps[i])
		if e.tight {
			e.finishRun()
		}
	}
	e.finishRun()
	e.publishChanged()
	deadline, _ := e.state.NextDeadline()
	e.nextDeadline.Store(deadline)
	e.answers.tellGiven()
	outcomes := e.answers.outcomes
	e.answers = answers{}
	return outcomes
}

// expire sweeps the orders that are due.
func (e *Engine) expire() {
	for range e.config.Limits.ExpirePerBatch {
		if !e.state.NextDue(&e.before) {
			return
		}
		e.alone(&e.before)
	}
}

// step prepares one command. Commands on one product go to its actor and are finished when the run
// is. A run is finished early when the next command could not be prepared as if those before it
// were done: when it is about the same order, or has to be alone.
func (e *Engine) step(st *inventory.Step) {
	if key, ok := st.Order(); ok {
		if fresh := e.touched.add(key); !fresh {
			e.finishRun()
			e.touched.add(key)
		}
		for range 2 {
			if !e.state.PastDue(st, &e.before) {
				break
			}
			e.finishRun()
			e.alone(&e.before)
			e.touched.add(key)
		}
	}
	e.state.Prepare(st)
	switch {
	case st.Decided():
		e.run = append(e.run, pending{step: st})
	case st.Alone():
		e.finishRun()
		st.Work()
		e.state.Finish(st)
		e.publishChanged() // an admin who has made a product finds it
		e.answers.give(st.Outcome)
		e.tight = e.state.Tight(len(e.steps))
	default:
		e.run = append(e.run, pending{st, e.give(st)})
	}
}

// give hands a step to its actor, which may begin with it at once or wait for send.
func (e *Engine) give(st *inventory.Step) *portion {
	a := e.actors[int(st.Slot())%len(e.actors)]
	if a.filling == nil {
		a.filling = e.portion()
	}
	p := a.filling
	if p.steps = append(p.steps, st); len(p.steps) == portionLen {
		a.send()
	}
	return p
}

// portion gives an empty one, whose work is to be done.
func (e *Engine) portion() *portion {
	var p *portion
	if last := len(e.portions.idle) - 1; last >= 0 {
		p, e.portions.idle = e.portions.idle[last], e.portions.idle[:last]
	} else {
		p = &portion{steps: make([]*inventory.Step, 0, portionLen)}
	}
	p.work.Add(1)
	p.worked.Store(false)
	e.portions.used = append(e.portions.used, p)
	return p
}

// alone does a whole step while no actor is at work.
func (e *Engine) alone(st *inventory.Step) {
	e.state.Prepare(st)
	st.Work()
	e.state.Finish(st)
}

// finish makes a step of the batch part of the state.
func (e *Engine) finish(st *inventory.Step) {
	e.state.Finish(st)
	e.answers.give(st.Outcome)
}

// finishWorked finishes, in log order, the steps that the actors are done with by now.
func (e *Engine) finishWorked() {
	for ; e.next < len(e.run); e.next++ {
		if in := e.run[e.next].in; in != nil && !in.worked.Load() {
			return
		}
		e.warm(e.next)
		e.finish(e.run[e.next].step)
	}
}

// warm brings what finishing needs into the cache, for a portion of the run at once: i is the step
// that is finished next.
func (e *Engine) warm(i int) {
	if i%portionLen != 0 {
		return
	}
	for _, r := range e.run[i:min(i+portionLen, len(e.run))] {
		e.warmed += int(r.step.WarmKey())
	}
}

// finishRun finishes all steps of the run, in log order: each as soon as its actor is done with it,
// while it works on later ones.
func (e *Engine) finishRun() {
	e.touched.clear()
	for _, a := range e.actors {
		a.send()
	}
	for ; e.next < len(e.run); e.next++ {
		r := e.run[e.next]
		if r.in != nil {
			r.in.work.Wait()
		}
		e.warm(e.next)
		e.finish(r.step)
	}
	e.run, e.next = e.run[:0], 0
	for _, p := range e.portions.used {
		p.steps = p.steps[:0]
	}
	e.portions.idle = append(e.portions.idle, e.portions.used...)
	e.portions.used = e.portions.used[:0]
}

// Freeze returns the state as it is now, for a snapshot.
func (e *Engine) Freeze() *inventory.Frozen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.Freeze()
}

// Restore replaces the state by that of a snapshot, or leaves it if that cannot be used.
func (e *Engine) Restore(r io.Reader) error {
	state, err := inventory.Restore(e.config.Shard, e.config.Limits, r)
	if err != nil {
		return err
	}
	state.NameScans(rand.Uint64())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = state
	clear(e.steps) // they refer to the state before
	e.before = inventory.Step{}
	e.products.Clear()
	e.bySlot = nil
	for _, p := range state.Products() {
		e.publish(p.Slot(), p.Standing())
	}
	deadline, _ := state.NextDeadline()
	e.nextDeadline.Store(deadline)
	return nil
}
