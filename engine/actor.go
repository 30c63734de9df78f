package engine

import (
	"sync"

	"numera/engine/inventory"
)

// actor is the goroutine that owns some of the products: while a run is under way, nobody else
// touches them. It works on its steps in the order in which they were given to it, and begins
// while the apply goroutine prepares those that follow.
type actor struct {
	filling []*inventory.Step // given, and not yet sent; the apply goroutine's
	inbox   chan []*inventory.Step
	ended   chan struct{}
	busy    *sync.WaitGroup // counts what was sent and is not done
}

// portion is how many steps are sent at once: enough to make waking the actor cheap.
const portion = 64

func startActor(busy *sync.WaitGroup) *actor {
	a := &actor{inbox: make(chan []*inventory.Step, 16), ended: make(chan struct{}), busy: busy}
	go a.run()
	return a
}

// give hands a step to the actor, which may begin with it at once or wait for send.
func (a *actor) give(st *inventory.Step) {
	if a.filling = append(a.filling, st); len(a.filling) == portion {
		a.send()
	}
}

// send lets the actor have everything that it was given; busy waits for it.
func (a *actor) send() {
	if len(a.filling) > 0 {
		a.busy.Add(1)
		a.inbox <- a.filling
		a.filling = make([]*inventory.Step, 0, portion)
	}
}

func (a *actor) run() {
	defer close(a.ended)
	for steps := range a.inbox {
		for _, st := range steps {
			st.Work()
		}
		a.busy.Done()
	}
}

func (a *actor) stop() {
	close(a.inbox)
	<-a.ended
}
