package order

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// TestCompareRow goes through every way in which a row can relate to its order.
func TestCompareRow(t *testing.T) {
	actor := &inventory.OrderView{Status: inventory.StatusPaid, Changed: 7}
	row := func(changed uint64, status inventory.Status) Row {
		return Row{Order: &inventory.OrderView{Status: status, Changed: changed}}
	}
	for name, c := range map[string]struct {
		actor    *inventory.OrderView
		row      Row
		followed uint64
		kind     string
	}{
		"equal":                {actor, row(7, inventory.StatusPaid), 6, ""},
		"neither":              {nil, Row{}, 9, ""},
		"unknown":              {nil, row(7, inventory.StatusPaid), 9, FindingUnknown},
		"not written yet":      {actor, Row{}, 6, behind},
		"missing":              {actor, Row{}, 7, FindingRowMissing},
		"older, not yet newer": {actor, row(5, inventory.StatusReserved), 6, behind},
		"older":                {actor, row(5, inventory.StatusReserved), 7, FindingRowOld},
		"newer":                {actor, row(8, inventory.StatusShipped), 9, FindingRowAhead},
		"contradicts":          {actor, row(7, inventory.StatusReserved), 9, FindingRowDiffers},
	} {
		kind, _ := compareRow(c.actor, c.row, c.followed)
		require.Equal(t, c.kind, kind, name)
	}
}

// moving is an order that is shipped between the first look at the engine and that at its row.
type moving struct {
	Actors
	Rows
	looks int
}

func (m *moving) Info() wire.Info { return wire.Info{Shards: 1} }

func (m *moving) Order(context.Context, wire.OrderQuery) (*inventory.Outcome, error) {
	m.looks++
	if m.looks == 1 {
		return &inventory.Outcome{Order: &inventory.OrderView{Status: inventory.StatusPaid, Changed: 7}}, nil
	}
	return &inventory.Outcome{Order: &inventory.OrderView{Status: inventory.StatusShipped, Changed: 8}}, nil
}

func (m *moving) Followed(context.Context, uint16) ([]uint64, error) { return []uint64{8}, nil }

func (m *moving) Read(
	context.Context, []inventory.OrderID,
) (map[inventory.OrderID]Row, error) {
	o := &inventory.OrderView{Status: inventory.StatusShipped, Changed: 8}
	return map[inventory.OrderID]Row{o.ID: {Order: o}}, nil
}

// TestLookAgain looks at an order that moves meanwhile: it is no finding.
func TestLookAgain(t *testing.T) {
	m := new(moving)
	p := pass{actors: m, rows: m}
	_, kind, _, err := p.look(t.Context(), inventory.OrderID{})
	require.NoError(t, err)
	require.Empty(t, kind)
	require.Equal(t, 2, m.looks)
}
