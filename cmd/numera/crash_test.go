package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attempt is a request to reserve, and what was heard of it.
type attempt struct {
	key, buyer, item string
	answer           *reply // nil: nothing
}

// TestCrashKeepsWhatWasAnswered kills the system under load, again and again. What was answered
// with 201 is there afterwards, with the same numbers. What was not answered has acted once or not
// at all, and asking again with the same key tells which: one order comes of it in the end.
func TestCrashKeepsWhatWasAnswered(t *testing.T) {
	cycles, err := strconv.Atoi(os.Getenv("NUMERA_CRASH_CYCLES"))
	if err != nil {
		cycles = 4
	}
	dir := t.TempDir()
	s := startSystem(t, dir, "--snapshot-entries", "500")
	s.product("a", 1_000_000, `,"max_per_order":10`)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	var all []*attempt
	for cycle := range cycles {
		made := crash(s, cycle, time.Duration(100+random.IntN(400))*time.Millisecond)
		all = append(all, made...)
		s = startSystem(t, dir, "--snapshot-entries", "500")
		check(t, s, made)
	}
	check(t, s, all)
	counts := 0
	for _, a := range all {
		counts += len(a.answer.numbers())
	}
	require.Equal(t, counts, s.counters("a").Reserved, "no order but those that were asked for")
	t.Logf("%d kills, %d orders", cycles, len(all))
	s.stop()
}

// crash sends requests from 16 connections, kills the system after a time, and returns what was
// asked.
func crash(s *system, cycle int, after time.Duration) []*attempt {
	var mu sync.Mutex
	var made []*attempt
	var crowd sync.WaitGroup
	dead := make(chan struct{})
	for b := range 16 {
		crowd.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-dead:
					return
				default:
				}
				a := &attempt{
					key: fmt.Sprint(cycle, "-", k), buyer: fmt.Sprint("b", b),
					item: `{"product":"a","quantity":2}`,
				}
				mu.Lock()
				made = append(made, a)
				mu.Unlock()
				a.answer, _ = s.try("POST", "/v1/orders", serviceToken, a.key,
					fmt.Sprintf(`{"buyer":%q,"items":[%s]}`, a.buyer, a.item))
			}
		})
	}
	time.Sleep(after)
	s.kill()
	close(dead)
	crowd.Wait()
	return made
}

// check asks for every attempt again and compares with what was answered; no number may have two
// owners.
func check(t *testing.T, s *system, made []*attempt) {
	t.Helper()
	owner := map[int]string{}
	for _, a := range made {
		again := s.reserve(a.key, a.buyer, a.item)
		require.Equal(t, 201, again.status, again.text)
		if a.answer != nil && a.answer.status == 201 {
			require.Equal(t, "true", again.header.Get("Idempotent-Replay"), "an answered order is lost")
			require.Equal(t, a.answer.order(), again.order())
		}
		a.answer = again
		for _, n := range again.numbers() {
			require.Empty(t, owner[n], "number %d has two owners", n)
			owner[n] = a.buyer + a.key
		}
	}
}
