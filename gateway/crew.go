package gateway

import (
	"sync"
	"time"
)

// crew runs functions at once, each in a goroutine of its own. A goroutine that is done stays for the
// next one for a while: what runs here calls deep, and a stack that has grown is dear to grow again.
// Any goroutine may call it.
type crew struct {
	next    chan func()
	stop    <-chan struct{} // nobody stays after that
	members sync.WaitGroup
}

// stay is for how long a goroutine waits for something to do.
const stay = time.Second

func newCrew(stop <-chan struct{}) *crew {
	return &crew{next: make(chan func()), stop: stop}
}

// do runs f. It must not be called after wait.
func (c *crew) do(f func()) {
	select {
	case c.next <- f:
	default:
		c.members.Go(func() { c.work(f) })
	}
}

func (c *crew) work(f func()) {
	timer := time.NewTimer(stay)
	defer timer.Stop()
	for {
		f()
		timer.Reset(stay)
		select {
		case f = <-c.next:
		case <-timer.C:
			return
		case <-c.stop:
			return
		}
	}
}

// wait waits for all that runs, after stop.
func (c *crew) wait() { c.members.Wait() }
