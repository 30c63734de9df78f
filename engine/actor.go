package engine

import (
	"sync"

	"numera/engine/inventory"
)

// actor is the goroutine that owns some of the products: while a run is being worked on, nobody
// else touches them. It works on its steps in the order in which they were given to it.
type actor struct {
	steps []*inventory.Step // filled by the apply goroutine while the actor is idle
	start chan struct{}
	ended chan struct{}
	idle  *sync.WaitGroup
}

func startActor(idle *sync.WaitGroup) *actor {
	a := &actor{start: make(chan struct{}), ended: make(chan struct{}), idle: idle}
	go a.run()
	return a
}

func (a *actor) give(st *inventory.Step) { a.steps = append(a.steps, st) }

// work sets the actor to work on what it was given; idle waits for it.
func (a *actor) work() {
	if len(a.steps) > 0 {
		a.idle.Add(1)
		a.start <- struct{}{}
	}
}

func (a *actor) run() {
	defer close(a.ended)
	for range a.start {
		for _, st := range a.steps {
			st.Work()
		}
		a.steps = a.steps[:0]
		a.idle.Done()
	}
}

func (a *actor) stop() {
	close(a.start)
	<-a.ended
}
