package gateway

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// The same answers as structs, to hold the appended ones against.
type (
	moneyJSON struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	itemJSON struct {
		Product   string    `json:"product"`
		Numbers   []uint32  `json:"numbers"`
		UnitPrice moneyJSON `json:"unit_price"`
		Total     moneyJSON `json:"total"`
	}
	orderJSON struct {
		ID        string     `json:"id"`
		Status    string     `json:"status"`
		Overdue   bool       `json:"overdue"`
		Buyer     string     `json:"buyer"`
		Items     []itemJSON `json:"items"`
		Total     moneyJSON  `json:"total"`
		CreatedAt string     `json:"created_at"`
		ExpiresAt string     `json:"expires_at"`
	}
	selectionJSON struct {
		Product  string   `json:"product"`
		Numbers  []uint32 `json:"numbers,omitempty"`
		Quantity uint32   `json:"quantity,omitempty"`
	}
	createdJSON struct {
		Order      orderJSON       `json:"order"`
		Missing    []selectionJSON `json:"missing"`
		ServerTime string          `json:"server_time"`
	}
	productJSON struct {
		ID                    string    `json:"id"`
		Name                  string    `json:"name"`
		Price                 moneyJSON `json:"price"`
		FirstNumber           uint32    `json:"first_number"`
		Count                 uint32    `json:"count"`
		OpensAt               *string   `json:"opens_at"`
		ClosesAt              *string   `json:"closes_at"`
		HoldSeconds           int64     `json:"hold_seconds"`
		HoldMaxSeconds        int64     `json:"hold_max_seconds"`
		PaymentGraceSeconds   int64     `json:"payment_grace_seconds"`
		OverdueReleaseSeconds *int64    `json:"overdue_release_seconds"`
		MinPerOrder           uint32    `json:"min_per_order"`
		MaxPerOrder           uint32    `json:"max_per_order"`
		MaxPerBuyer           *uint32   `json:"max_per_buyer"`
		Campaign              string    `json:"campaign"`
		Capture               string    `json:"capture"`
		LatePayment           string    `json:"late_payment"`
		State                 string    `json:"state"`
		Counters              struct {
			Count     uint32 `json:"count"`
			Available uint32 `json:"available"`
			Reserved  uint32 `json:"reserved"`
			Sold      uint32 `json:"sold"`
			Blocked   uint32 `json:"blocked"`
		} `json:"counters"`
		Version uint64 `json:"version"`
	}
)

func written(unixMilli int64) string {
	return time.UnixMilli(unixMilli).UTC().Format("2006-01-02T15:04:05.000Z")
}

func asOrderJSON(o *inventory.OrderView) orderJSON {
	out := orderJSON{
		ID: o.ID.String(), Status: o.Status.String(), Overdue: o.Overdue, Buyer: string(o.Buyer),
		Items: []itemJSON{}, CreatedAt: written(o.CreatedUnixMilli), ExpiresAt: written(o.ExpiresUnixMilli),
	}
	for _, item := range o.Items {
		price := moneyJSON(item.UnitPrice)
		total := moneyJSON{price.Amount * int64(len(item.Numbers)), price.Currency}
		out.Items = append(out.Items, itemJSON{string(item.Product), item.Numbers, price, total})
		out.Total.Amount += total.Amount
		out.Total.Currency = total.Currency
	}
	return out
}

func requireJSON(t *testing.T, want any, got []byte) {
	t.Helper()
	encoded, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(encoded), string(got))
	// JSONEq does not look at the order, which people read.
	var compact json.RawMessage
	require.NoError(t, json.Unmarshal(got, &compact))
	require.Len(t, got, len(encoded))
}

func TestOrdersAreWrittenLikeTheirStructs(t *testing.T) {
	o := testOrder()
	o.Overdue, o.Status, o.Buyer = true, inventory.StatusPaying, `b"\`
	o.Items = append(o.Items, inventory.ItemView{
		Product: "rifa-2", Numbers: []uint32{0, math.MaxUint32},
		UnitPrice: inventory.Money{Amount: 0, Currency: "BRL"},
	})
	outcome := &inventory.Outcome{AtUnixMilli: 1_700_000_000_007, Order: o, Missing: []inventory.Selection{
		{Product: "rifa-1", Numbers: []uint32{1, 2}, Quantity: 3}, {Product: "rifa-2", Quantity: 1},
	}}
	requireJSON(t, createdJSON{asOrderJSON(o), []selectionJSON{
		{Product: "rifa-1", Numbers: []uint32{1, 2}},
		{Product: "rifa-1", Quantity: 3},
		{Product: "rifa-2", Quantity: 1},
	}, written(outcome.AtUnixMilli)}, appendCreatedAnswer(nil, outcome))

	outcome.Missing = nil
	requireJSON(t, createdJSON{asOrderJSON(o), []selectionJSON{}, written(outcome.AtUnixMilli)},
		appendCreatedAnswer(nil, outcome))

	requireJSON(t, struct {
		Orders []orderJSON `json:"orders"`
		Next   *string     `json:"next"`
	}{Orders: []orderJSON{asOrderJSON(o)}}, appendPage(nil, &wire.OrdersPage{
		Orders: []*inventory.OrderView{o},
	}))
}

func TestProductsAreWrittenLikeTheirStructs(t *testing.T) {
	p := testProduct()
	p.Settings.Name = "a\u2028é\x01<b>"
	p.Settings.MaxPerBuyer, p.Settings.OverdueReleaseSeconds = 5, 60
	p.State = inventory.SalePaused
	s := &p.Settings
	closes := written(s.ClosesAtUnixMilli)
	want := productJSON{
		ID: "rifa-1", Name: s.Name, Price: moneyJSON(s.Price), FirstNumber: 1, Count: s.Count,
		ClosesAt: &closes, HoldSeconds: 1800, HoldMaxSeconds: 7200, PaymentGraceSeconds: 300,
		Capture: "confirmation", LatePayment: "reclaim",
		OverdueReleaseSeconds: &s.OverdueReleaseSeconds, MinPerOrder: 1, MaxPerOrder: 100,
		MaxPerBuyer: &s.MaxPerBuyer, State: "paused", Version: 7,
	}
	want.Counters.Count, want.Counters.Available, want.Counters.Reserved = 1_000_000, 999_999, 1
	encoded, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(encoded), string(appendProduct(nil, p)))
}

func TestTimesAreWrittenInMilliseconds(t *testing.T) {
	for unixMilli, want := range map[int64]string{
		0: `"1970-01-01T00:00:00.000Z"`, 1: `"1970-01-01T00:00:00.001Z"`,
		253402300799999: `"9999-12-31T23:59:59.999Z"`,
	} {
		require.Equal(t, want, string(appendTime(nil, unixMilli)))
	}
}

func TestEveryCodeHasItsPlace(t *testing.T) {
	for _, c := range inventory.Codes() {
		if c == inventory.CodeOK {
			continue
		}
		means, ok := refusals[codeOf(c)]
		require.True(t, ok, "%s has no place in the table", c)
		require.NotEmpty(t, means.title)
		require.True(t, means.status >= 400 && means.status < 600)
		// With and without anything to say it is readable.
		p := refusedBy(&inventory.Outcome{Code: c})
		require.True(t, json.Valid(p.append(nil, testTime)), "%s", c)
	}
}

func TestRefusalsSayWhatHelps(t *testing.T) {
	taken := []inventory.Selection{{Product: "rifa-1", Numbers: []uint32{17}}}
	selections := []any{map[string]any{"product": "rifa-1", "numbers": []any{17.0}}}
	cases := []struct {
		code    inventory.Code
		refusal inventory.Refusal
		status  int
		says    map[string]any
	}{
		{
			inventory.CodeNumbersTaken,
			inventory.Refusal{Taken: taken, NextExpiryUnixMilli: testTime},
			409,
			map[string]any{
				"taken": selections, "alternatives": []any{}, "next_expiry": written(testTime),
			},
		},
		{
			inventory.CodeNumbersTaken,
			inventory.Refusal{Taken: taken, Status: inventory.StatusRefundPending},
			409,
			map[string]any{"order_status": "refund_pending", "next_expiry": nil},
		},
		{inventory.CodeInsufficientStock, inventory.Refusal{Available: 3}, 409, map[string]any{"available": 3.0, "next_expiry": nil}},
		{inventory.CodeNoAdjacentRun, inventory.Refusal{Available: 3, LongestRun: 2}, 409, map[string]any{"available": 3.0, "longest_run": 2.0}},
		{inventory.CodeSaleNotOpen, inventory.Refusal{OpensAtUnixMilli: testTime}, 409, map[string]any{"opens_at": written(testTime)}},
		{inventory.CodeSaleClosed, inventory.Refusal{ClosesAtUnixMilli: testTime}, 409, map[string]any{"closes_at": written(testTime)}},
		{inventory.CodeOrderStatus, inventory.Refusal{Status: inventory.StatusPaid}, 409, map[string]any{"order_status": "paid"}},
		{inventory.CodeOrderLimit, inventory.Refusal{Minimum: 2, Limit: 5, Pointer: "/items/0"}, 422, map[string]any{"minimum": 2.0, "limit": 5.0, "pointer": "/items/0"}},
		{inventory.CodeBuyerLimit, inventory.Refusal{Limit: 5, Held: 4}, 422, map[string]any{"limit": 5.0, "held": 4.0}},
		{inventory.CodeKeyReused, inventory.Refusal{}, 422, nil},
		{inventory.CodeOverloaded, inventory.Refusal{}, 503, nil},
	}
	g := open(t, nil)
	for _, c := range cases {
		g.shards.set(func() {
			g.shards.outcome = &inventory.Outcome{
				Code: c.code, AtUnixMilli: testTime, Refusal: &c.refusal,
			}
		})
		r := g.both(asking{
			subject: "orders.create", body: reserving(`"quantity":1`), token: adminToken, key: "k",
		})
		require.Equal(t, c.status, r.status, "%s", r.body)
		members := r.json(t)
		require.Equal(t, c.code.String(), members["code"])
		require.Equal(t, float64(c.status), members["status"])
		require.Equal(t, written(testTime), r.header[headerServerTime])
		require.Equal(t, written(testTime), members["server_time"])
		for name, value := range c.says {
			got, present := members[name]
			require.True(t, present, "%s lacks %s", c.code, name)
			require.Equal(t, value, got)
		}
		require.Equal(t, c.status == 503, r.header["Retry-After"] == "1", "Retry-After")
	}
}
