package inventory_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine"
	. "numera/engine/inventory"
)

// measured is how many bytes of heap more are in use after work than before.
func measured(work func()) float64 {
	live := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := live()
	work()
	return live() - before
}

// crowd reserves one number of x for each of n orders, for a few buyers, and gives their ids.
func crowd(t *testing.T, s *shard, n int) (ids []OrderID) {
	const perBatch = 1000
	ids = make([]OrderID, 0, n)
	batch := &Batch{TimeUnixMilli: s.now}
	for from := 0; from < n; from += perBatch {
		batch.Entries = batch.Entries[:0]
		batch.TimeUnixMilli += 20
		batch.Seed++
		for k := range perBatch {
			batch.Entries = append(batch.Entries, Entry{Command: &Reserve{
				KeyHash: hashOf(from + k), Buyer: BuyerID(fmt.Sprint("b-", k%7)),
				Lines: []Line{anyOf("x", 1, PickRandom)},
			}})
		}
		for _, o := range s.e.Apply(batch) {
			require.Equal(t, CodeOK, o.Code)
			ids = append(ids, o.Order.ID)
		}
	}
	s.now = batch.TimeUnixMilli
	return ids
}

// each sends a command on each of the orders.
func each(t *testing.T, s *shard, ids []OrderID, command func(OnOrder) Command) {
	const perBatch = 1000
	batch := &Batch{TimeUnixMilli: s.now}
	for from := 0; from < len(ids); from += perBatch {
		batch.Entries = batch.Entries[:0]
		for _, id := range ids[from : from+perBatch] {
			batch.Entries = append(batch.Entries, Entry{Command: command(OnOrder{Order: id})})
		}
		for _, o := range s.e.Apply(batch) {
			require.Equal(t, CodeOK, o.Code)
		}
	}
}

// TestMemoryOfOrders measures orders of one number in every stage, besides the ids of their buyers.
func TestMemoryOfOrders(t *testing.T) {
	if raceDetector {
		return
	}
	const n = 480_000 // just after the index has grown: its worst
	const buyer = 16  // bytes of a short id
	for _, payment := range []string{"", "-of-twenty-six", "-of-thirty-six-bytes-000", "-of-forty-eight-bytes---------------"} {
		s := openShard(t, DefaultLimits())
		s.put("x", n)
		ids := make([]OrderID, 0, n)
		live := measured(func() { ids = append(ids, crowd(t, s, n)...) })/n - buyer
		require.LessOrEqual(t, live, 128.0)
		id := func(on OnOrder) PaymentID { return PaymentID(fmt.Sprintf("%x%s", on.Order[4:10], payment)) }
		sold := live + measured(func() {
			each(t, s, ids, func(on OnOrder) Command { return &Confirm{on, id(on)} })
		})/n
		t.Logf("live: %.1f bytes; sold, with a payment of %d bytes: %.1f bytes", live, 12+len(payment), sold)
		require.LessOrEqual(t, sold, 128.0)
		runtime.KeepAlive(ids)
		runtime.KeepAlive(s)
	}
}

// TestMemoryOfEnded measures ended orders alone, as a restored shard has them.
func TestMemoryOfEnded(t *testing.T) {
	if raceDetector {
		return
	}
	const n = 480_000 // just after the index has grown: its worst
	s := openShard(t, DefaultLimits())
	s.put("x", uint32(n))
	each(t, s, crowd(t, s, n), func(on OnOrder) Command { return &Release{on} })
	encoded := snapshot(t, s.e)
	var replica *shard
	ended := measured(func() { replica = s.fresh(encoded) }) / float64(n)
	t.Logf("ended: %.1f bytes", ended)
	require.LessOrEqual(t, ended, 48.0)
	require.Equal(t, n, replica.e.Stats().Ended)
	runtime.KeepAlive(encoded)
}

// TestMemoryOfNumbers measures the sets of a product of a million numbers: those that are taken and
// blocked with half of them blocked at random, and those that are sold with half of them sold.
func TestMemoryOfNumbers(t *testing.T) {
	if raceDetector {
		return
	}
	const n, products = 1_000_000, 8 // several, as what the engine itself works with comes and goes
	s := openShard(t, DefaultLimits())
	for i := range products {
		s.put(ProductID(fmt.Sprint("x", i)), n)
	}
	numbers := rand.New(rand.NewPCG(1, 2)).Perm(n)
	block := func(id ProductID, from int) {
		c := &Block{Product: id}
		for _, n := range numbers[from : from+10_000] {
			c.Numbers = append(c.Numbers, uint32(n)+1)
		}
		s.ok(c)
	}
	blocked := measured(func() {
		for i := range products {
			for from := 0; from < n/2; from += 10_000 {
				block(ProductID(fmt.Sprint("x", i)), from)
			}
		}
	}) / products
	s.put("y", n, func(p *Settings) { p.MaxPerOrder = 1000 })
	for range n / 2 / 1000 {
		s.pay(s.reserve("b-1", anyOf("y", 1000, PickRandom)))
	}
	sold := stateOf(s.e).Product("y").SoldBytes()
	t.Logf("taken and blocked %.0f kB, sold %d kB", blocked/1e3, sold/1000)
	require.LessOrEqual(t, blocked+float64(sold), 400e3)
	runtime.KeepAlive(numbers)
}

// TestMemoryOfProducts measures many large products that nobody buys.
func TestMemoryOfProducts(t *testing.T) {
	if raceDetector {
		return
	}
	const n = 100_000
	s := openShard(t, DefaultLimits())
	idle := measured(func() {
		batch := &Batch{TimeUnixMilli: s.now}
		for i := range n {
			batch.Entries = append(batch.Entries, Entry{Command: &PutProduct{
				Product: ProductID(fmt.Sprint("campaign.p", i)), Settings: settings(1_000_000),
			}})
			if len(batch.Entries) == 1000 {
				s.e.Apply(batch)
				batch.Entries = batch.Entries[:0]
			}
		}
	})
	t.Logf("%d idle products: %.1f MB", n, idle/1e6)
	require.LessOrEqual(t, idle, 200e6)
	runtime.KeepAlive(s)
}

// fresh is an engine of a snapshot.
func (s *shard) fresh(snapshot []byte) *shard {
	e := engine.New(engine.Config{})
	s.t.Cleanup(e.Close)
	require.NoError(s.t, e.Restore(bytes.NewReader(snapshot)))
	return &shard{t: s.t, e: e, now: s.now}
}
