package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// TestTellsEarly holds Apply up when it has told the first outcomes: a public reader sees the
// product as it was, while one that asks for it fresh waits, and then sees what was told and more.
func TestTellsEarly(t *testing.T) {
	e := New(Config{})
	defer e.Close()
	script := newScript(1)
	e.Apply(script.opening())
	const orders = 5*portionLen + 1
	batch := &inventory.Batch{TimeUnixMilli: script.now, Entries: []inventory.Entry{
		{Command: &inventory.PutProduct{Product: "new", Settings: settings(9)}},
	}}
	for i := range orders - 1 {
		batch.Entries = append(batch.Entries, inventory.Entry{Command: &inventory.Reserve{
			KeyHash: hashOf(i), Buyer: "buyer",
			Lines: []inventory.Line{{Product: "d", Quantity: 1}},
		}})
	}
	fresh := make(chan uint32, 1)
	var told []int
	outcomes := e.ApplyTelling(batch, func(some []*inventory.Outcome) {
		for _, o := range some {
			require.Equal(t, inventory.CodeOK, o.Code)
		}
		if told = append(told, len(some)); len(told) > 1 {
			return
		}
		require.Zero(t, e.Product("d").Counters.Reserved)
		require.NotNil(t, e.Product("new"), "who made it finds it")
		go func() { fresh <- e.FreshProduct("d").Counters.Reserved }()
		select {
		case n := <-fresh:
			require.Fail(t, "did not wait", "and saw %d reserved", n)
		case <-time.After(20 * time.Millisecond):
		}
	})
	require.Len(t, outcomes, orders)
	require.Equal(t, fmt.Sprint([]int{64, 64, 64, 64, 64, 1}), fmt.Sprint(told))
	require.EqualValues(t, orders-1, <-fresh)
	require.EqualValues(t, orders-1, e.Product("d").Counters.Reserved)
}
