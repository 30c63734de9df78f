package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// opening is when the tests begin: Friday, 2026-05-01, 12:00 UTC.
const opening = int64(1_777_636_800_000)

func settings(count uint32) inventory.Settings {
	s := inventory.DefaultSettings()
	s.Name, s.Count, s.Price = "Rifa", count, inventory.Money{Amount: 1990, Currency: "BRL"}
	return s
}

// hashOf is as uniform as the hash of a key is.
func hashOf(n int) inventory.KeyHash {
	hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return inventory.KeyHash(hash[:])
}

// applySerially is what Apply has to equal: one command after the other.
func applySerially(s *inventory.State, batch *inventory.Batch, expirePerBatch int) []*inventory.Outcome {
	var st, before inventory.Step
	alone := func(st *inventory.Step) {
		s.Prepare(st)
		if !st.Decided() {
			st.Work()
		}
		s.Finish(st)
	}
	s.Advance(batch.TimeUnixMilli)
	for n := 0; n < expirePerBatch && s.NextDue(&st); n++ {
		alone(&st)
	}
	var outcomes []*inventory.Outcome
	for i := range batch.Entries {
		st.Take(batch, i)
		for s.PastDue(&st, &before) {
			alone(&before)
		}
		alone(&st)
		outcomes = append(outcomes, st.Outcome)
	}
	s.TakeChanged(func(uint32, *inventory.Standing) {})
	return outcomes
}

func cloneAll(outcomes []*inventory.Outcome) (clones []*inventory.Outcome) {
	for _, o := range outcomes {
		clones = append(clones, o.Clone())
	}
	return clones
}

// script is a sequence of commands that meet in few products and few orders: keys and orders are
// used again and again, also within a batch.
type script struct {
	rnd  *rand.Rand
	keys []inventory.Reserve
	now  int64
}

var scriptProducts = []inventory.ProductID{"a.1", "a.2", "a.3", "a.4", "a.5", "b", "c", "d"}

func newScript(seed uint64) *script {
	return &script{rnd: rand.New(rand.NewPCG(seed, 1)), now: opening}
}

func (s *script) opening() *inventory.Batch {
	b := &inventory.Batch{TimeUnixMilli: s.now}
	for i, id := range scriptProducts {
		b.Entries = append(b.Entries, inventory.Entry{Command: &inventory.PutProduct{
			Product: id, Settings: settings(uint32(50 + 100*i)),
		}})
	}
	return b
}

func (s *script) command() inventory.Command {
	rnd := s.rnd
	if len(s.keys) == 0 || rnd.IntN(3) == 0 {
		return s.reserve()
	}
	c := s.keys[max(rnd.IntN(len(s.keys)), rnd.IntN(len(s.keys)))]
	on := inventory.OnOrder{Order: inventory.MakeOrderID(0, s.now, c.KeyHash)}
	payment := inventory.PaymentID(text("p", rnd.IntN(2)))
	switch rnd.IntN(13) {
	case 0:
		return &c
	case 1:
		return &inventory.Release{OnOrder: on}
	case 2, 3:
		return &inventory.BeginPayment{OnOrder: on, Payment: payment}
	case 4, 5:
		return &inventory.Confirm{OnOrder: on, Payment: payment}
	case 6:
		return &inventory.Refuse{OnOrder: on, Payment: payment}
	case 7:
		return &inventory.Refund{OnOrder: on, ReturnToStock: rnd.IntN(2) == 0}
	case 8:
		return &inventory.Extend{OnOrder: on}
	case 9:
		return s.admin()
	case 10:
		return &inventory.Acknowledge{Consumer: fmt.Sprint("c-", rnd.IntN(3)), Sequence: rnd.Uint64N(1 << 13)}
	case 11:
		return &inventory.Ship{OnOrder: on}
	}
	return s.reserve()
}

// text is one of some ids of different lengths.
func text(letter string, n int) string { return strings.Repeat(letter, 1+7*n%64) }

func (s *script) reserve() inventory.Command {
	rnd := s.rnd
	c := inventory.Reserve{
		KeyHash: hashOf(rnd.IntN(1 << 30)), Buyer: inventory.BuyerID(text("b", rnd.IntN(9))),
		Partial: rnd.IntN(3) == 0,
	}
	products := []inventory.ProductID{scriptProducts[rnd.IntN(len(scriptProducts))]}
	if rnd.IntN(6) == 0 {
		products = append(scriptProducts[:2:2], scriptProducts[2+rnd.IntN(3)])
	}
	for _, id := range products {
		line := inventory.Line{Product: id, Quantity: 1 + rnd.Uint32N(3), Pick: inventory.Pick(rnd.IntN(3))}
		if rnd.IntN(3) == 0 {
			line = inventory.Line{Product: id, Numbers: []uint32{1 + rnd.Uint32N(60)}}
		}
		c.Lines = append(c.Lines, line)
	}
	s.keys = append(s.keys, c)
	return &c
}

func (s *script) admin() inventory.Command {
	id := scriptProducts[s.rnd.IntN(len(scriptProducts))]
	switch s.rnd.IntN(5) {
	case 0:
		return &inventory.Block{Product: id, Numbers: []uint32{1 + s.rnd.Uint32N(50)}}
	case 1:
		return &inventory.Unblock{Product: id, Numbers: []uint32{1 + s.rnd.Uint32N(50)}}
	case 2:
		return &inventory.SetSaleState{Product: id, State: inventory.SaleState(s.rnd.IntN(2))}
	case 3:
		return &inventory.Attach{Consumer: fmt.Sprint("c-", s.rnd.IntN(3))}
	}
	c := &inventory.PutProduct{Product: id, Settings: settings(50)}
	for i := range scriptProducts {
		if scriptProducts[i] == id {
			c.Settings.Count += uint32(100 * i)
		}
	}
	c.Settings.Price.Amount += s.rnd.Int64N(5)
	c.Settings.HoldSeconds = 30 + s.rnd.Int64N(1000)
	if s.rnd.IntN(3) == 0 {
		c.Settings.MaxPerBuyer = c.Settings.MaxPerOrder + s.rnd.Uint32N(20)
	}
	return c
}

func (s *script) batch(n int) *inventory.Batch {
	b := &inventory.Batch{TimeUnixMilli: s.now, Seed: s.rnd.Uint64()}
	for range n {
		b.Entries = append(b.Entries, inventory.Entry{Correlation: "c", Command: s.command()})
	}
	return b
}

// TestEqualsSerial applies one script by engines with 1, 2, 3 and 8 actors and serially: after every
// batch outcomes, events and digests are equal. The limits are wide, or so tight that the batch's
// commands meet them.
func TestEqualsSerial(t *testing.T) {
	wide := inventory.DefaultLimits()
	tight := inventory.Limits{EndedOrders: 700, OutboxEvents: 1500, ExpirePerBatch: 7}
	for seed := range uint64(4) {
		limits := []inventory.Limits{wide, tight}[seed%2]
		script := newScript(seed)
		state := inventory.New(0, limits)
		var engines []*Engine
		for _, actors := range []int{1, 2, 3, 8} {
			e := New(Config{Actors: actors, Limits: limits})
			t.Cleanup(e.Close)
			engines = append(engines, e)
		}
		var before, cloned []*inventory.Outcome // of the batch before: recycled, and used again
		var decoded inventory.Batch
		events := uint64(0)
		for i := range 40 {
			b := script.opening()
			if i > 0 {
				script.now += script.rnd.Int64N(60_000)
				b = script.batch(script.rnd.IntN(200))
			}
			want := cloneAll(applySerially(state, b, limits.ExpirePerBatch))
			tail, _ := state.Tail(events, 1<<20)
			told := slices.Collect(tail.All())
			encoded := b.Append(nil)
			for _, e := range engines {
				require.NoError(t, decoded.Decode(encoded)) // whose fingerprints and memory it uses
				var early []*inventory.Outcome
				outcomes := e.ApplyTelling(&decoded, func(some []*inventory.Outcome) {
					early = append(early, cloneAll(some)...)
				})
				require.Equal(t, before, cloned, "seed %d: a clone changed with its recycled original", seed)
				got := cloneAll(outcomes)
				require.Equal(t, got, early, "what is told is what is returned")
				e.Recycle(outcomes)
				for k := range want {
					require.Equal(t, want[k], got[k], "seed %d batch %d: %+v", seed, i, b.Entries[k].Command)
				}
				require.Equal(t, state.Digest(), e.Digest(), "seed %d batch %d", seed, i)
				gotTail, _, _ := e.Tail(events, 1<<20)
				require.Equal(t, told, slices.Collect(gotTail.All()))
				before, cloned = want, got
			}
			if events = state.Sequence(); i%5 == 0 {
				acknowledge := &inventory.Batch{TimeUnixMilli: script.now}
				for c := range 3 {
					acknowledge.Entries = append(acknowledge.Entries, inventory.Entry{
						Command: &inventory.Acknowledge{Consumer: fmt.Sprint("c-", c), Sequence: events},
					})
				}
				applySerially(state, acknowledge, limits.ExpirePerBatch)
				for _, e := range engines {
					e.Apply(acknowledge)
				}
				events = state.Sequence()
			}
		}
	}
}

// TestBatchCuts cuts one sequence of commands into batches in different ways. Without random picks
// and with one time, outcomes and digests are the same.
func TestBatchCuts(t *testing.T) {
	script := newScript(99)
	first := script.opening()
	var entries []inventory.Entry
	for len(entries) < 2000 {
		e := inventory.Entry{Command: script.command()}
		if c, ok := e.Command.(*inventory.Reserve); ok {
			for i := range c.Lines {
				if c.Lines[i].Pick == inventory.PickRandom {
					c.Lines[i].Pick = inventory.PickLowest
				}
			}
		}
		entries = append(entries, e)
	}
	var digest uint64
	var outcomes []*inventory.Outcome
	for _, most := range []int{2000, 1, 2, 7, 64, 500} {
		e := New(Config{Actors: 1 + most%3})
		e.Apply(first)
		var got []*inventory.Outcome
		for rest := entries; len(rest) > 0; {
			n := min(len(rest), 1+script.rnd.IntN(most))
			got = append(got, e.Apply(&inventory.Batch{TimeUnixMilli: script.now, Entries: rest[:n]})...)
			rest = rest[n:]
		}
		if outcomes == nil {
			outcomes, digest = got, e.Digest()
		}
		require.Equal(t, outcomes, got, "at most %d in a batch", most)
		require.Equal(t, digest, e.Digest(), "at most %d in a batch", most)
		e.Close()
	}
}
