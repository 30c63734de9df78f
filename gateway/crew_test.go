package gateway

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCrew: what is given is run at once, however much of it there is; goroutines that are done take
// what comes next; after stop nobody stays, and what runs is waited for.
func TestCrew(t *testing.T) {
	stop := make(chan struct{})
	c := newCrew(stop)
	var running sync.WaitGroup
	var ran atomic.Int64
	release := make(chan struct{})
	for range 100 {
		running.Add(1)
		c.do(func() {
			running.Done()
			<-release
			ran.Add(1)
		})
	}
	running.Wait() // all at once
	close(release)
	for range 100 {
		done := make(chan struct{})
		c.do(func() {
			ran.Add(1)
			close(done)
		})
		<-done
	}
	last := make(chan struct{})
	c.do(func() {
		<-last
		ran.Add(1)
	})
	close(stop)
	close(last)
	c.wait()
	require.EqualValues(t, 201, ran.Load())
}
