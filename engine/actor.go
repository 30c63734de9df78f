package engine

import (
	"sync"
	"sync/atomic"

	"numera/engine/inventory"
)

// actor is the goroutine that owns some of the products: while a run is under way, nobody else
// touches them. It works on its steps in the order in which they were given to it, portion by
// portion, while the apply goroutine prepares those that follow and finishes those before.
type actor struct {
	filling *portion // given, and not yet sent; the apply goroutine's. Nil: nothing
	inbox   chan *portion
	ended   chan struct{}
	warmed  uint32 // so that the compiler keeps the loads of WarmNumber
}

// portion is some steps of one actor.
type portion struct {
	steps  []*inventory.Step
	work   sync.WaitGroup // is done when all of them are
	worked atomic.Bool    // says so without waiting
}

// portionLen is how many steps are sent at once: enough to make waking the actor cheap.
const portionLen = 64

func startActor() *actor {
	a := &actor{inbox: make(chan *portion, 16), ended: make(chan struct{})}
	go a.run()
	return a
}

// send lets the actor have what it was given.
func (a *actor) send() {
	if a.filling != nil {
		a.inbox <- a.filling
		a.filling = nil
	}
}

func (a *actor) run() {
	defer close(a.ended)
	for p := range a.inbox {
		for _, st := range p.steps {
			a.warmed += st.WarmNumber()
		}
		for _, st := range p.steps {
			st.Work()
		}
		p.worked.Store(true)
		p.work.Done()
	}
}

func (a *actor) stop() {
	close(a.inbox)
	<-a.ended
}
