package engine

import (
	"fmt"
	"testing"

	"numera/engine/inventory"
)

const benchBatch = 512

// bench drives an engine with batches of benchBatch commands, which are made while the clock of the
// benchmark stands still. The time reported is that of one command.
type bench struct {
	b     *testing.B
	e     *Engine
	n     int // keys so far
	batch inventory.Batch
}

func newBench(b *testing.B, products int, count uint32) *bench {
	e := New(Config{})
	b.Cleanup(e.Close)
	t := &bench{b: b, e: e, batch: inventory.Batch{TimeUnixMilli: opening}}
	for i := range products {
		t.batch.Entries = append(t.batch.Entries, inventory.Entry{Command: &inventory.PutProduct{
			Product: inventory.ProductID(fmt.Sprint("a.p", i)), Settings: settings(count),
		}})
	}
	e.Apply(&t.batch)
	return t
}

func (t *bench) reserve(line inventory.Line) *inventory.Reserve {
	t.n++
	return &inventory.Reserve{
		KeyHash: hashOf(t.n), Buyer: inventory.BuyerID(fmt.Sprint("b-", t.n%1000)), Lines: []inventory.Line{line},
	}
}

func any1(product int) inventory.Line {
	return inventory.Line{Product: inventory.ProductID(fmt.Sprint("a.p", product)), Quantity: 1}
}

// fill makes a batch of n commands.
func (t *bench) fill(n int, command func(i int) inventory.Command) *inventory.Batch {
	t.batch.Entries = t.batch.Entries[:0]
	t.batch.Seed++
	for i := range n {
		t.batch.Entries = append(t.batch.Entries, inventory.Entry{Command: command(i)})
	}
	return &t.batch
}

// apply sends n commands, off the clock.
func (t *bench) apply(n int, command func(i int) inventory.Command) (outcomes []*inventory.Outcome) {
	for from := 0; from < n; from += benchBatch {
		batch := t.fill(min(benchBatch, n-from), func(i int) inventory.Command { return command(from + i) })
		outcomes = append(outcomes, t.e.Apply(batch)...)
	}
	return outcomes
}

// run measures batches of commands, and off the clock what undo does with each one's outcomes.
func (t *bench) run(command func(i int) inventory.Command, undo func(outcomes []*inventory.Outcome)) {
	t.b.ReportAllocs()
	t.b.ResetTimer()
	for done := 0; done < t.b.N; done += benchBatch {
		t.b.StopTimer()
		batch := t.fill(benchBatch, func(i int) inventory.Command { return command(done + i) })
		t.b.StartTimer()
		outcomes := t.e.Apply(batch)
		if undo != nil {
			t.b.StopTimer()
			undo(outcomes)
			t.b.StartTimer()
		}
	}
}

// releaseAll puts back what was reserved.
func (t *bench) releaseAll(outcomes []*inventory.Outcome) {
	t.apply(len(outcomes), func(i int) inventory.Command {
		return &inventory.Release{OnOrder: inventory.OnOrder{Order: outcomes[i].Order.ID}}
	})
}

// BenchmarkReserve is the path of an opening: one number at random, in shards of every size. A round
// is taken back, so that the product does not sell out.
func BenchmarkReserve(b *testing.B) {
	for _, c := range []struct {
		name           string
		products, live int
		count          uint32
	}{
		{"1e3 numbers", 1, 0, 1000},
		{"1e5 numbers", 1, 0, 100_000},
		{"1e7 numbers", 1, 0, 10_000_000},
		{"1e8 numbers", 1, 0, 100_000_000},
		{"1e7 numbers, 1e6 live orders", 1, 1_000_000, 10_000_000},
		{"1e3 products of 1e3", 1000, 0, 1000},
		{"1e5 products of 1e3", 100_000, 0, 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			t := newBench(b, c.products, c.count)
			t.apply(c.live, func(int) inventory.Command { return t.reserve(any1(0)) })
			step := 7919 // spreads over the products
			t.run(func(i int) inventory.Command {
				return t.reserve(any1(i * step % c.products))
			}, t.releaseAll)
		})
	}
}

// BenchmarkChosen takes numbers that the buyer has chosen.
func BenchmarkChosen(b *testing.B) {
	t := newBench(b, 1, 1_000_000)
	t.run(func(i int) inventory.Command {
		return t.reserve(inventory.Line{Product: "a.p0", Numbers: []uint32{1 + uint32(i)*997%1_000_000}})
	}, t.releaseAll)
}

// BenchmarkSoldOut refuses.
func BenchmarkSoldOut(b *testing.B) {
	t := newBench(b, 1, 1)
	t.apply(1, func(int) inventory.Command { return t.reserve(any1(0)) })
	t.run(func(int) inventory.Command { return t.reserve(any1(0)) }, nil)
}

// BenchmarkConfirm pays orders of one number.
func BenchmarkConfirm(b *testing.B) {
	t := newBench(b, 1, 100_000_000)
	var orders []*inventory.Outcome
	reserve := func([]*inventory.Outcome) {
		orders = t.apply(benchBatch, func(int) inventory.Command { return t.reserve(any1(0)) })
	}
	reserve(nil)
	t.run(func(i int) inventory.Command {
		return &inventory.Confirm{
			OnOrder: inventory.OnOrder{Order: orders[i%benchBatch].Order.ID}, Payment: "p-1",
		}
	}, reserve)
}

// BenchmarkDecode is what the log costs before Apply: a batch of reservations.
func BenchmarkDecode(b *testing.B) {
	t := newBench(b, 1, 1000)
	t.apply(benchBatch, func(int) inventory.Command { return t.reserve(any1(0)) })
	encoded := t.batch.Append(nil)
	b.ReportAllocs()
	var batch inventory.Batch
	for i := 0; i < b.N; i += benchBatch {
		if err := batch.Decode(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
