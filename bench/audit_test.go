package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// world is what a load was answered and what is read back afterwards: consistent, until a test
// plants a lie.
type world struct {
	load    *load
	lane    *lane
	orders  []*inventory.OrderView
	product inventory.ProductView
	taken   *roaring.Bitmap
}

const worldProduct = "bench-a"

// newWorld has four orders: 0 reserved with the numbers 1 and 2, 1 paid with 3, 2 released, and 3
// expired. The fifth buyer was refused and the sixth got no answer.
func newWorld(t *testing.T) *world {
	t.Helper()
	p := &plan{ids: []inventory.ProductID{worldProduct}}
	w := &world{load: newLoad(p, nil, nil, shape{lanes: 1, window: 1, first: 3}, 1)}
	w.lane = w.load.lanes[0]
	w.sell(inventory.StatusReserved, 1, 2)
	w.sell(inventory.StatusPaid, 3)
	w.sell(inventory.StatusReleased, 4)
	w.sell(inventory.StatusReserved, 5)
	w.orders[3].Status = inventory.StatusExpired
	refusal := w.lane.reserve(worldProduct, nil, 1)
	w.lane.note(&refusal, &answer{verdict: refused, code: "insufficient_stock"})
	doubt := w.lane.reserve(worldProduct, nil, 1)
	w.lane.note(&doubt, &answer{verdict: unanswered})
	w.product = inventory.ProductView{
		ID: worldProduct, Settings: inventory.Settings{FirstNumber: 1, Count: 10},
		Counters: inventory.Counters{Count: 10, Available: 7, Reserved: 2, Sold: 1},
	}
	w.taken = roaring.BitmapOf(1, 2, 3)
	require.Empty(t, w.load.violations)
	return w
}

// sell answers a reservation, and the step that leads to a status.
func (w *world) sell(status inventory.Status, numbers ...uint32) {
	op := w.lane.reserve(worldProduct, numbers, 0)
	order := w.order(op.buyer, inventory.StatusReserved, numbers...)
	w.lane.note(&op, &answer{order: order})
	for kind, leads := range map[inventory.Kind]inventory.Status{
		inventory.KindConfirm: inventory.StatusPaid, inventory.KindRelease: inventory.StatusReleased,
	} {
		if leads == status {
			step := operation{kind: kind, buyer: op.buyer, order: order.ID}
			w.lane.note(&step, &answer{order: w.order(op.buyer, status, numbers...)})
		}
	}
	w.orders = append(w.orders, w.order(op.buyer, status, numbers...))
}

func (w *world) order(b buyer, status inventory.Status, numbers ...uint32) *inventory.OrderView {
	return &inventory.OrderView{
		ID: inventory.OrderID{byte(b.record() + 1)}, Status: status,
		Buyer: inventory.BuyerID(b.text()),
		Items: []inventory.ItemView{{Product: worldProduct, Numbers: numbers}},
	}
}

func (w *world) audit() *audit {
	a := newAudit(w.load)
	for _, o := range w.orders {
		a.order(o)
	}
	a.product(&w.product, w.taken)
	a.finish()
	return a
}

func TestOracleAcceptsWhatIsConsistent(t *testing.T) {
	w := newWorld(t)
	w.orders = append(w.orders, &inventory.OrderView{
		Buyer: "somebody", Status: inventory.StatusExpired,
		Items: []inventory.ItemView{{Product: worldProduct, Numbers: []uint32{4}}},
	})
	a := w.audit()
	require.Empty(t, w.load.violations)
	require.Equal(t, 4, a.orders)
	require.Equal(t, 1, a.foreign)

	doubted := w.order(makeBuyer(3, 5), inventory.StatusReserved, 6)
	w.orders = append(w.orders, doubted)
	w.product.Counters.Available, w.product.Counters.Reserved = 6, 3
	w.taken.Add(6)
	w.audit()
	require.Empty(t, w.load.violations, "a request without an answer may have acted once")
}

// TestOracleFindsEveryLie plants one lie after the other into what is read back.
func TestOracleFindsEveryLie(t *testing.T) {
	lies := []struct {
		name string
		lie  func(*world)
		text string
	}{
		{"a number has two owners", func(w *world) {
			w.orders[1].Items[0].Numbers = []uint32{2}
		}, "two live owners"},
		{"an order is missing", func(w *world) { w.orders = w.orders[1:] }, "is missing"},
		{"an ended order is missing", func(w *world) { w.orders = w.orders[:2] }, "is missing"},
		{"an order has other numbers", func(w *world) {
			w.orders[0].Items[0].Numbers = []uint32{1, 7}
		}, "has other numbers than it was given"},
		{"an order has fewer numbers", func(w *world) {
			w.orders[0].Items[0].Numbers = []uint32{1}
		}, "has other numbers than it was given"},
		{"an order has another id", func(w *world) {
			w.orders[1].ID = inventory.OrderID{99}
		}, "was given order"},
		{"a request acted twice", func(w *world) {
			w.orders = append(w.orders, w.order(makeBuyer(3, 1), inventory.StatusReserved, 8))
		}, "has acted twice"},
		{"an unanswered request acted twice", func(w *world) {
			for _, number := range []uint32{8, 9} {
				w.orders = append(w.orders,
					w.order(makeBuyer(3, 5), inventory.StatusReserved, number))
			}
		}, "has acted twice"},
		{"a refused request acted", func(w *world) {
			w.orders = append(w.orders, w.order(makeBuyer(3, 4), inventory.StatusReserved, 8))
		}, "was refused and has order"},
		{"a paid order is reserved again", func(w *world) {
			w.orders[1].Status = inventory.StatusReserved
		}, "was paid when it was last answered"},
		{"a paid order has expired", func(w *world) {
			w.orders[1].Status = inventory.StatusExpired
		}, "was paid when it was last answered"},
		{"a released order is sold", func(w *world) {
			w.orders[2].Status = inventory.StatusPaid
		}, "was released when it was last answered"},
		{"reserved is counted too low", func(w *world) {
			w.product.Counters.Reserved--
			w.product.Counters.Available++
			w.taken.Remove(2)
		}, "counts 1 reserved and 1 sold, and its orders hold 2 and 1"},
		{"sold is counted too high", func(w *world) {
			w.product.Counters.Sold++
			w.product.Counters.Available--
			w.taken.Add(9)
		}, "and its orders hold 2 and 1"},
		{"stock out of nothing", func(w *world) { w.product.Counters.Available++ }, "is not its 10"},
		{"a number is taken by nobody", func(w *world) { w.taken.Add(9) }, "4 numbers taken, and counts 3"},
		{"an owned number is not taken", func(w *world) {
			w.taken.Remove(3)
			w.taken.Add(9)
		}, "number 3 of bench-a has a live owner and is not taken"},
		{"the product was halted", func(w *world) { w.product.Halted = "a rule" }, "was halted: a rule"},
	}
	for _, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			w := newWorld(t)
			l.lie(w)
			w.audit()
			require.NotEmpty(t, w.load.violations)
			require.ErrorContains(t, errors.Join(w.load.violations...), l.text)
		})
	}
}

// TestOracleFindsLiesInAnswers plants lies into what a load is answered.
func TestOracleFindsLiesInAnswers(t *testing.T) {
	w := newWorld(t)
	first, text := w.orders[0], w.orders[0].Buyer
	again := operation{
		kind: inventory.KindReserve, buyer: makeBuyer(3, 0), product: worldProduct,
		numbers: []uint32{2, 1}, repeat: true,
	}
	w.lane.note(&again, &answer{order: first, replay: true})
	require.Empty(t, w.load.violations, "the same order again is what a repeat gets")

	other := *first
	other.ID = inventory.OrderID{99}
	fewer := *first
	fewer.Items = []inventory.ItemView{{Product: worldProduct, Numbers: []uint32{1}}}
	foreign := *first
	foreign.Buyer = "bench-zzz"
	for want, lie := range map[string]*answer{
		"one key has two orders":               {order: &other},
		"answered with two sets of numbers":    {order: &fewer},
		"answered with an order of":            {order: &foreign},
		"acknowledged without an order":        {},
		"not an answer of the contract":        {verdict: garbled, err: errAnswer},
		"reserve of " + string(text) + ": one": {order: &other},
	} {
		w.load.violations = nil
		w.lane.note(&again, lie)
		require.ErrorContains(t, errors.Join(w.load.violations...), want)
	}

	w.load.violations = nil
	wanted := w.lane.reserve(worldProduct, []uint32{7}, 0)
	w.lane.note(&wanted, &answer{order: w.order(wanted.buyer, inventory.StatusReserved, 8)})
	require.ErrorContains(t, errors.Join(w.load.violations...), "other numbers than were asked for")
}

func TestViolationsAreCountedAndTheFirstAreTold(t *testing.T) {
	w := newWorld(t)
	for range 3 * mostViolations {
		w.load.violate(errAnswer)
	}
	require.Len(t, w.load.violations, mostViolations)
	require.Equal(t, 3*mostViolations, w.load.violated)
	o := Oracle{Violated: w.load.violated, Violations: []string{"the first", "the second"}}
	err := o.err()
	require.ErrorIs(t, err, ErrViolated)
	require.True(t, strings.Contains(err.Error(), "the second"))
	require.NoError(t, (&Oracle{}).err())
}
