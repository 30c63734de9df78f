package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// TestPlaced lists a product's orders by age, of all statuses, each once, and on from any of them.
func TestPlaced(t *testing.T) {
	s := openShard(t, DefaultLimits())
	s.put("a.x", 10, func(p *Settings) { p.HoldSeconds = 60 })
	s.put("a.y", 10)
	var want []OrderID
	for range 4 {
		want = append(want, s.reserve("b-1", anyOf("a.y", 1, PickRandom), anyOf("a.x", 1, PickRandom)).ID)
		s.reserve("b-1", anyOf("a.y", 1, PickRandom))
	}
	at := func(i int) OnOrder { return OnOrder{Order: want[i]} }
	s.ok(&Release{at(0)})
	s.ok(&Confirm{at(0), "late"}) // its old record stays behind
	s.ok(&Confirm{at(1), "p-1"})
	s.ok(&Refund{OnOrder: at(1)})
	s.wait(61 * second)

	all, ok := s.e.Placed("a.x", 0)
	require.True(t, ok)
	var got []OrderID
	for i, placed := range all {
		got = append(got, placed.Order)
		rest, _ := s.e.Placed("a.x", placed.Sequence)
		require.Equal(t, all[i+1:], rest)
	}
	require.Equal(t, want, got)
	for i, status := range []Status{StatusPaid, StatusRefunded, StatusExpired, StatusExpired} {
		require.Equal(t, status, s.e.Orders(all)[i].Status)
	}
	require.Empty(t, s.e.Orders([]Placed{{}}), "what is not kept is left out")
}
