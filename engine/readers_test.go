package engine

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// TestReaders lets every kind of reader hammer an engine while batches are applied and it is
// restored from a snapshot of itself: what one of them reads is of one version.
func TestReaders(t *testing.T) {
	e := New(Config{Actors: 3})
	defer e.Close()
	script := newScript(5)
	e.Apply(script.opening())
	e.Apply(&inventory.Batch{Entries: []inventory.Entry{{Command: &inventory.Attach{Consumer: "c-0"}}}})
	var done atomic.Bool
	var orders sync.Map // what has been made so far: inventory.OrderID → struct{}
	var readers sync.WaitGroup
	for _, read := range []func(){
		func() { readProducts(t, e) },
		func() { readNumbers(t, e) },
		func() {
			orders.Range(func(id, _ any) bool {
				o := e.Order(inventory.OnOrder{Order: id.(inventory.OrderID)})
				return o.Code == inventory.CodeOK && !done.Load()
			})
		},
		func() {
			after := uint64(0)
			for tail, last, _ := e.Tail(after, 100); tail.Len() > 0 && after < last; tail, _, _ = e.Tail(after, 100) {
				for event := range tail.All() {
					event = event.Open()
					after = event.Sequence
				}
			}
		},
		func() {
			var c inventory.ScanCursor
			for more := true; more && !done.Load(); {
				_, c, more, _ = e.Scan(c, 50)
			}
		},
		func() {
			placed, ok := e.Placed("a.1", 0)
			if ok {
				e.Orders(placed)
			}
		},
		func() { e.Digest(); e.Clock(); e.NextDeadline(); e.Stats() },
		func() {
			var buf bytes.Buffer
			if _, err := e.Freeze().WriteTo(&buf); err != nil {
				t.Error(err)
			}
		},
	} {
		readers.Go(func() {
			for !done.Load() {
				read()
			}
		})
	}
	for i := range 150 {
		script.now += script.rnd.Int64N(60_000)
		for _, o := range e.Apply(script.batch(64)) {
			if o.Order != nil {
				orders.Store(o.Order.ID, struct{}{})
			}
		}
		if i%50 == 49 {
			var buf bytes.Buffer
			_, err := e.Freeze().WriteTo(&buf)
			require.NoError(t, err)
			require.NoError(t, e.Restore(&buf))
		}
	}
	done.Store(true)
	readers.Wait()
}

func readProducts(t *testing.T, e *Engine) {
	e.EachProduct(func(p *inventory.ProductView) {
		c := p.Counters
		if c.Available+c.Reserved+c.Sold+c.Blocked != c.Count {
			t.Errorf("%s: counters of two versions: %+v", p.ID, c)
		}
	})
	e.Product("a.1")
}

func readNumbers(t *testing.T, e *Engine) {
	view, taken := e.Numbers("a.1")
	if view != nil && taken.Taken() != view.Counters.Count-view.Counters.Available {
		t.Errorf("numbers and counters of two versions: %d taken, %+v", taken.Taken(), view.Counters)
	}
	n := uint32(0)
	for _, run := range taken.AppendRanges(nil, 0, taken.Count()) {
		n += run[1] - run[0] + 1
	}
	if n != taken.Taken() {
		t.Errorf("%d numbers in ranges, %d taken", n, taken.Taken())
	}
}

// TestReadsOfNothing asks for what there is not.
func TestReadsOfNothing(t *testing.T) {
	e := New(Config{})
	defer e.Close()
	view, taken := e.Numbers("none")
	require.Nil(t, view)
	require.Zero(t, taken.Count())
	require.Nil(t, e.Product("none"))
	_, ok := e.Placed("none", 0)
	require.False(t, ok)
	require.Zero(t, e.NextDeadline())
}
