package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

func settings(count uint32) inventory.Settings {
	s := inventory.DefaultSettings()
	s.Name, s.Count, s.Price = "x", count, inventory.Money{Amount: 100, Currency: "BRL"}
	return s
}

func apply(e *Engine, at int64, commands ...inventory.Command) []*inventory.Outcome {
	b := inventory.Batch{TimeUnixMilli: at, Seed: uint64(at)}
	for _, c := range commands {
		if r := c.Check(); r != nil {
			panic(fmt.Sprint(r.Code, r.Refusal))
		}
		inventory.SealKey(c, []byte("secret"))
		b.Entries = append(b.Entries, inventory.Entry{Correlation: "c", Command: c})
	}
	var decoded inventory.Batch
	if err := decoded.Decode(b.Append(nil)); err != nil {
		panic(err)
	}
	return e.Apply(&decoded)
}

// TestSmoke sells a product out at random, with expiries and payments, and restores it at every
// step from a snapshot to the same digest.
func TestSmoke(t *testing.T) {
	e := New(Config{})
	defer e.Close()
	at := int64(1_700_000_000_000)
	o := apply(e, at, &inventory.Attach{Consumer: "test"},
		&inventory.PutProduct{Product: "a.b", Settings: settings(5000)},
		&inventory.PutProduct{Product: "a.c", Settings: settings(5000)})
	require.True(t, o[1].Created)
	rnd := rand.New(rand.NewPCG(1, 2))
	var ids []inventory.OrderID
	for step := range 400 {
		at += rnd.Int64N(20000)
		var commands []inventory.Command
		for k := range rnd.IntN(40) {
			switch rnd.IntN(3) {
			case 0:
				lines := []inventory.Line{{Product: "a.b", Quantity: 1 + rnd.Uint32N(3), Pick: inventory.Pick(rnd.IntN(3))}}
				if rnd.IntN(4) == 0 {
					lines = append(lines, inventory.Line{Product: "a.c", Numbers: []uint32{1 + rnd.Uint32N(5000)}})
				}
				commands = append(commands, &inventory.Reserve{
					Key: fmt.Sprint(step, k), Buyer: inventory.BuyerID(fmt.Sprint("b", rnd.IntN(50))),
					Lines: lines, Partial: rnd.IntN(2) == 0,
				})
			default:
				if len(ids) == 0 {
					continue
				}
				on := inventory.OnOrder{Order: ids[rnd.IntN(len(ids))]}
				switch rnd.IntN(8) {
				case 0:
					commands = append(commands, &inventory.Extend{OnOrder: on})
				case 1:
					commands = append(commands, &inventory.Release{OnOrder: on})
				case 2, 3:
					commands = append(commands, &inventory.BeginPayment{OnOrder: on, Payment: "p"})
				case 4, 5:
					commands = append(commands, &inventory.Confirm{OnOrder: on, Payment: "p"})
				case 6:
					commands = append(commands, &inventory.Refuse{OnOrder: on, Payment: "p"})
				case 7:
					commands = append(commands, &inventory.Refund{OnOrder: on, ReturnToStock: rnd.IntN(2) == 0})
				}
			}
		}
		for _, o := range apply(e, at, commands...) {
			if o.Code == inventory.CodeOK && o.Order != nil && o.Order.Status == inventory.StatusReserved {
				ids = append(ids, o.Order.ID)
			}
		}
		if step%20 == 0 {
			var buf bytes.Buffer
			_, err := e.Freeze().WriteTo(&buf)
			require.NoError(t, err)
			f := New(Config{Actors: 1})
			require.NoError(t, f.Restore(&buf))
			require.Equal(t, e.Digest(), f.Digest())
			f.Close()
		}
	}
	require.Empty(t, e.state.Halted())
	t.Log(e.Product("a.b").Counters, e.Product("a.c").Counters, e.state.Sequence())
}

func BenchmarkReserve(b *testing.B) {
	e := New(Config{})
	defer e.Close()
	at := int64(1_700_000_000_000)
	s := settings(100_000_000)
	apply(e, at, &inventory.PutProduct{Product: "a", Settings: s})
	batch := inventory.Batch{TimeUnixMilli: at}
	const n = 512
	cs := make([]inventory.Reserve, n)
	rnd := rand.New(rand.NewPCG(1, 2))
	b.ResetTimer()
	for i := 0; i < b.N; i += n {
		batch.Entries = batch.Entries[:0]
		for k := range cs {
			c := &cs[k]
			*c = inventory.Reserve{Buyer: "b-123", Lines: []inventory.Line{{Product: "a", Quantity: 1}}}
			for j := range c.KeyHash {
				c.KeyHash[j] = byte(rnd.Uint32())
			}
			batch.Entries = append(batch.Entries, inventory.Entry{Command: c})
		}
		batch.Seed = rnd.Uint64()
		e.Apply(&batch)
	}
}
