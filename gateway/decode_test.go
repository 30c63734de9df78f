package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// malformed requests: each is refused by both transports, touches no shard and logs no error.
var refusedRequests = []struct {
	name    string
	subject string
	params  map[string]string
	body    string
	status  int
	code    string
	pointer string
}{
	{"empty", "orders.create", nil, "", 400, "malformed", "/items"},
	{"blank", "orders.create", nil, " \n", 400, "malformed", "/items"},
	{"not JSON", "orders.create", nil, `items=1`, 400, "malformed", ""},
	{"cut", "orders.create", nil, `{"items":[{"product":"a"`, 400, "malformed", "/items/0"},
	{"cut name", "orders.create", nil, `{"ite`, 400, "malformed", ""},
	{"trailing value", "orders.create", nil, reserving(`"quantity":1`) + `{}`, 400, "malformed", ""},
	{"trailing junk", "orders.create", nil, reserving(`"quantity":1`) + `x`, 400, "malformed", ""},
	{"trailing comma", "orders.create", nil, `{"items":[],}`, 400, "malformed", ""},
	{"array", "orders.create", nil, `[]`, 400, "malformed", ""},
	{"null", "orders.create", nil, `null`, 400, "malformed", ""},
	{"text", "orders.create", nil, `"items"`, 400, "malformed", ""},
	{
		"duplicate", "orders.create", nil, `{"items":[],"partial":true,"partial":true}`,
		400, "malformed", "/partial",
	},
	{
		"duplicate, escaped", "orders.create", nil, `{"items":[],"partial":true,"p\u0061rtial":true}`,
		400, "malformed", "/partial",
	},
	{
		"duplicate inside", "orders.create", nil, reserving(`"quantity":1,"quantity":1`),
		400, "malformed", "/items/0/quantity",
	},
	{"not UTF-8", "orders.create", nil, "{\"items\":[],\"buyer\":\"\xff\"}", 400, "malformed", "/buyer"},
	{"lone surrogate", "orders.create", nil, `{"items":[],"buyer":"\ud800"}`, 400, "malformed", "/buyer"},
	{"byte order mark", "orders.create", nil, "\xef\xbb\xbf{}", 400, "malformed", ""},
	{"comment", "orders.create", nil, `{/**/}`, 400, "malformed", ""},
	{"missing", "orders.create", nil, `{"partial":true}`, 400, "malformed", "/items"},
	{"null required", "orders.create", nil, `{"items":null}`, 400, "malformed", "/items"},
	{"missing inside", "orders.create", nil, `{"items":[{"quantity":1}]}`, 400, "malformed", "/items/0/product"},
	{"unknown", "orders.create", nil, `{"items":[],"coupon":1}`, 400, "unknown_member", "/coupon"},
	{"wrong case", "orders.create", nil, `{"Items":[]}`, 400, "unknown_member", "/Items"},
	{"unknown inside", "orders.create", nil, reserving(`"qty":1`), 400, "unknown_member", "/items/0/qty"},
	{"slash in name", "orders.create", nil, `{"a/b":1}`, 400, "unknown_member", "/a~1b"},
	{"number as text", "orders.create", nil, reserving(`"numbers":["17"]`), 400, "malformed", "/items/0/numbers/0"},
	{"number as true", "orders.create", nil, reserving(`"numbers":[true]`), 400, "malformed", "/items/0/numbers/0"},
	{"number as null", "orders.create", nil, reserving(`"numbers":[null]`), 400, "malformed", "/items/0/numbers/0"},
	{"number as object", "orders.create", nil, reserving(`"numbers":[{}]`), 400, "malformed", "/items/0/numbers/0"},
	{"fraction", "orders.create", nil, reserving(`"numbers":[1,1.5]`), 400, "malformed", "/items/0/numbers/1"},
	{"exponent", "orders.create", nil, reserving(`"quantity":1e400`), 400, "malformed", "/items/0/quantity"},
	{"leading zero", "orders.create", nil, reserving(`"quantity":01`), 400, "malformed", "/items/0"},
	{"numbers as number", "orders.create", nil, reserving(`"numbers":17`), 400, "malformed", "/items/0/numbers"},
	{"boolean as text", "orders.create", nil, `{"items":[],"partial":"true"}`, 400, "malformed", "/partial"},
	{"text as number", "orders.create", nil, `{"items":[],"buyer":7}`, 400, "malformed", "/buyer"},
	{"item as number", "orders.create", nil, `{"items":[7]}`, 400, "malformed", "/items/0"},
	{
		"deep", "orders.create", nil, `{"items":` + strings.Repeat("[", 60_000),
		400, "malformed", "/items/0",
	},
	{
		"deep objects", "orders.create", nil, strings.Repeat(`{"items":`, 7000),
		400, "malformed", "/items",
	},
	{
		"a form error after a wrong value", "orders.create", nil,
		`{"items":[{"product":"rifa-1","numbers":[-1]}],"partial":7}`, 400, "malformed", "/partial",
	},
	{"negative number", "orders.create", nil, reserving(`"numbers":[-1]`), 422, "numbers_out_of_range", "/items/0/numbers/0"},
	{"number beyond 32 bits", "orders.create", nil, reserving(`"numbers":[1,4294967296]`), 422, "numbers_out_of_range", "/items/0/numbers/1"},
	{
		"number beyond everything", "orders.create", nil,
		reserving(`"numbers":[` + strings.Repeat("9", 400) + `]`), 422, "numbers_out_of_range", "/items/0/numbers/0",
	},
	{
		"number that wraps around 64 bits to 5", "orders.create", nil,
		reserving(`"numbers":[18446744073709551621]`),
		422, "numbers_out_of_range", "/items/0/numbers/0",
	},
	{"negative quantity", "orders.create", nil, reserving(`"quantity":-3`), 422, "quantity_invalid", "/items/0/quantity"},
	{"no quantity", "orders.create", nil, reserving(`"quantity":0`), 422, "quantity_invalid", "/items/0/quantity"},
	{"huge quantity", "orders.create", nil, reserving(`"quantity":99999999999999999999`), 422, "quantity_invalid", "/items/0/quantity"},
	{"no numbers", "orders.create", nil, reserving(`"numbers":[]`), 422, "quantity_invalid", "/items/0/numbers"},
	{"neither", "orders.create", nil, reserving(`"pick":"random"`), 422, "quantity_invalid", "/items/0"},
	{"both", "orders.create", nil, reserving(`"numbers":[1],"quantity":1`), 422, "quantity_invalid", "/items/0"},
	{"no items", "orders.create", nil, `{"items":[]}`, 422, "quantity_invalid", "/items"},
	{"unknown pick", "orders.create", nil, reserving(`"quantity":1,"pick":"best"`), 422, "value_invalid", "/items/0/pick"},
	{"repeated", "orders.create", nil, reserving(`"numbers":[5,6,5]`), 422, "numbers_repeated", "/items/0/numbers/2"},
	{"too many", "orders.create", nil, reserving(`"quantity":1001`), 422, "order_limit", "/items"},
	{
		"not together", "orders.create", nil,
		`{"items":[{"product":"a","quantity":1},{"product":"b","quantity":1}]}`,
		422, "basket_not_together", "/items/1/product",
	},
	{"no such product", "orders.create", nil, `{"items":[{"product":"Ä","quantity":1}]}`, 404, "product_not_found", "/items/0/product"},

	{"order id", "orders.get", map[string]string{"order": "7"}, "", 404, "order_not_found", "/order"},
	{"order id, upper case", "orders.release", map[string]string{"order": strings.Repeat("A", 32)}, "", 404, "order_not_found", "/order"},
	{"body where none is", "orders.extend", anOrder, `{"minutes":5}`, 400, "unknown_member", "/minutes"},
	{"no payment", "orders.confirm", anOrder, `{}`, 400, "malformed", "/payment"},
	{"payment with spaces", "orders.confirm", anOrder, `{"payment":"p 1"}`, 422, "value_invalid", "/payment"},
	{"long payment", "orders.begin-payment", anOrder, `{"payment":"` + strings.Repeat("p", 65) + `"}`, 422, "value_invalid", "/payment"},
	{"long reason", "orders.refund", anOrder, `{"reason":"` + strings.Repeat("r", 501) + `"}`, 422, "value_invalid", "/reason"},

	{"limit", "products.numbers", map[string]string{"product": "rifa-1", "limit": "1000001"}, "", 422, "value_invalid", "/limit"},
	{"no limit", "products.numbers", map[string]string{"product": "rifa-1", "limit": "0"}, "", 422, "value_invalid", "/limit"},
	{"from", "products.numbers", map[string]string{"product": "rifa-1", "from": "-1"}, "", 422, "numbers_out_of_range", "/from"},
	{"huge from", "products.numbers", map[string]string{"product": "rifa-1", "from": "4294967296"}, "", 422, "numbers_out_of_range", "/from"},
	{"fraction from", "products.numbers", map[string]string{"product": "rifa-1", "from": "1.5"}, "", 400, "malformed", "/from"},
	{"product", "products.get", map[string]string{"product": "Rifa_1"}, "", 404, "product_not_found", ""},
	{"orders limit", "products.orders", map[string]string{"product": "rifa-1", "limit": "1001"}, "", 422, "value_invalid", "/limit"},
	{"cursor", "products.orders", map[string]string{"product": "rifa-1", "after": "x"}, "", 422, "value_invalid", "/after"},

	{"no settings", "products.put", aProduct, `{}`, 400, "malformed", "/name"},
	{"no currency", "products.put", aProduct, `{"name":"x","price":{"amount":1},"count":1}`, 400, "malformed", "/price/currency"},
	{"price as number", "products.put", aProduct, `{"name":"x","price":1,"count":1}`, 400, "malformed", "/price"},
	{"state is apart", "products.put", aProduct, putting(`"state":"open"`), 400, "unknown_member", "/state"},
	{"negative price", "products.put", aProduct, `{"name":"x","price":{"amount":-1,"currency":"BRL"},"count":1}`, 422, "product_invalid", "/price/amount"},
	{"no count", "products.put", aProduct, `{"name":"x","price":{"amount":1,"currency":"BRL"},"count":0}`, 422, "product_invalid", "/count"},
	{"huge count", "products.put", aProduct, `{"name":"x","price":{"amount":1,"currency":"BRL"},"count":5000000000}`, 422, "product_invalid", "/count"},
	{"no time", "products.put", aProduct, putting(`"opens_at":"tomorrow"`), 422, "product_invalid", "/opens_at"},
	{"time as number", "products.put", aProduct, putting(`"opens_at":1795000000`), 400, "malformed", "/opens_at"},
	{"before 1970", "products.put", aProduct, putting(`"opens_at":"1969-01-01T00:00:00Z"`), 422, "product_invalid", "/opens_at"},
	{"closes first", "products.put", aProduct, putting(`"opens_at":"2027-01-02T00:00:00Z","closes_at":"2027-01-01T00:00:00Z"`), 422, "product_invalid", "/closes_at"},
	{"no seconds", "products.put", aProduct, putting(`"hold_seconds":0`), 422, "product_invalid", "/hold_seconds"},
	{"no limit means null", "products.put", aProduct, putting(`"max_per_buyer":0`), 422, "product_invalid", "/max_per_buyer"},
	{"min above max", "products.put", aProduct, putting(`"min_per_order":5,"max_per_order":4`), 422, "product_invalid", "/min_per_order"},
	{"product id", "products.put", map[string]string{"product": "UP"}, putting(`"campaign":""`), 422, "product_invalid", ""},
	{"restock nothing", "products.restock", aProduct, `{"count":0}`, 422, "product_invalid", "/count"},
	{"block nothing", "products.block", aProduct, `{"numbers":[]}`, 422, "quantity_invalid", "/numbers"},
	{"unblock twice", "products.unblock", aProduct, `{"numbers":[1,1]}`, 422, "numbers_repeated", "/numbers/1"},
	{"no such state", "products.state", aProduct, `{"state":"shut"}`, 422, "value_invalid", "/state"},
	{"null state", "products.state", aProduct, `{"state":null}`, 400, "malformed", "/state"},
}

var (
	anOrder  = map[string]string{"order": testOrder().ID.String()}
	aProduct = map[string]string{"product": "rifa-1"}
)

func reserving(line string) string {
	return `{"items":[{"product":"rifa-1",` + line + `}],"buyer":"b-1"}`
}

func putting(setting string) string {
	return `{"name":"x","price":{"amount":1,"currency":"BRL"},"count":10,` + setting + `}`
}

func TestWhatIsNotWellFormedTouchesNoShard(t *testing.T) {
	g := open(t, nil)
	for _, c := range refusedRequests {
		t.Run(c.name, func(t *testing.T) {
			body := c.body
			if c.subject == "orders.create" { // a service has to name the buyer
				body = strings.Replace(body, `{"items":[]}`, `{"items":[],"buyer":"b-1"}`, 1)
				body = strings.Replace(body, `}]}`, `}],"buyer":"b-1"}`, 1)
			}
			before := g.shards.count()
			r := g.both(asking{
				subject: c.subject, params: c.params, body: body, token: adminToken, key: "k",
			})
			require.Equal(t, c.status, r.status, "%s", r.body)
			require.Equal(t, c.code, r.code(t), "%s", r.body)
			require.Equal(t, typeProblem, r.header["Content-Type"])
			require.NotEmpty(t, r.header[headerServerTime])
			require.NotEmpty(t, r.header[headerRequestID])
			pointer, _ := r.json(t)["pointer"].(string)
			require.Equal(t, c.pointer, pointer, "%s", r.body)
			require.Equal(t, before, g.shards.count(), "a shard was asked")
		})
	}
}

func TestOffsetPointsAtTheFault(t *testing.T) {
	g := open(t, nil)
	for body, offset := range map[string]float64{
		`{"items":[{"product":7}]}`:     21,
		`{"items": 7}`:                  10,
		`{"items":[],"x":1}`:            12,
		`{"items":[]} x`:                13,
		`{"items":[{"quantity": 1.5}]}`: 23,
		`{"items":null}`:                9,
		`{"items":[`:                    10,
	} {
		r := g.overHTTP(asking{subject: "orders.create", body: body, token: adminToken, key: "k"})
		require.Equal(t, 400, r.status, body)
		require.Equal(t, offset, r.json(t)["offset"], "%s: %s", body, r.body)
	}
}

func TestParametersOfTheURLAreStrict(t *testing.T) {
	g := open(t, nil)
	for path, code := range map[string]string{
		"/v1/products/rifa-1/numbers?from=1&from=2": "malformed",
		"/v1/products/rifa-1/numbers?form=1":        "unknown_member",
		"/v1/products/rifa-1/numbers?product=a":     "malformed",
		"/v1/products/rifa-1/numbers?limit=":        "malformed",
		"/v1/products/rifa-1/numbers?limit=ten":     "malformed",
	} {
		r := g.request("GET", path, asking{})
		require.Equal(t, 400, r.status, path)
		require.Equal(t, code, r.code(t), path)
	}
	// What belongs into the URL does not count in a body.
	r := g.request("DELETE", "/v1/orders/"+testOrder().ID.String(),
		asking{token: adminToken, body: `{"order":"` + testOrder().ID.String() + `"}`})
	require.Equal(t, "unknown_member", r.code(t))
	require.Zero(t, g.shards.count())

	r = g.request("GET", "/v1/products/rifa%2D1", asking{})
	require.Equal(t, 200, r.status, "an escaped id is the id")
}

func TestCommandsAreReadWhole(t *testing.T) {
	order := testOrder().ID
	on := inventory.OnOrder{Order: order}
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count = "x", 10
	settings.Price = inventory.Money{Amount: 1, Currency: "BRL"}
	full := inventory.Settings{
		Name: "é\"", Price: inventory.Money{Amount: 0, Currency: "USD"}, FirstNumber: 0, Count: 10,
		OpensAtUnixMilli: 1_800_000_000_124, ClosesAtUnixMilli: 1_800_000_000_130,
		HoldSeconds: 1, HoldMaxSeconds: 2, PaymentGraceSeconds: 3, OverdueReleaseSeconds: 4,
		CaptureAtShipping: true, RefundLate: true,
		MinPerOrder: 2, MaxPerOrder: 1000, MaxPerBuyer: 7, Campaign: "natal",
	}
	cases := []struct {
		subject string
		params  map[string]string
		body    string
		want    inventory.Command
	}{
		{
			"orders.create", nil,
			`{"items":[{"product":"rifa-1","numbers":[17,4271]},
			  {"product":"rifa-1.b","quantity":3,"pick":"adjacent"},
			  {"quantity":1,"product":"rifa-1","pick":null,"numbers":null}],
			  "buyer":"b-123","partial":true}`,
			&inventory.Reserve{
				Tenant: "t", Key: "k", Buyer: "b-123", Partial: true,
				Lines: []inventory.Line{
					{Product: "rifa-1", Numbers: []uint32{17, 4271}},
					{Product: "rifa-1.b", Quantity: 3, Pick: inventory.PickAdjacent},
					{Product: "rifa-1", Quantity: 1},
				},
			},
		},
		{
			"orders.create", nil, `{"\u0069tems":[{"product":"rifa-1","quantity":1,"pick":"lowest"}],
			  "buyer":"\u0062","partial":null}`,
			&inventory.Reserve{
				Tenant: "t", Key: "k", Buyer: "b", Lines: []inventory.Line{
					{Product: "rifa-1", Quantity: 1, Pick: inventory.PickLowest},
				},
			},
		},
		{"orders.release", anOrder, "", &inventory.Release{OnOrder: on}},
		{"orders.extend", anOrder, "{}", &inventory.Extend{OnOrder: on}},
		{"orders.begin-payment", anOrder, `{"payment":"p-1"}`, &inventory.BeginPayment{OnOrder: on, Payment: "p-1"}},
		{"orders.confirm", anOrder, `{"payment":"p-1"}`, &inventory.Confirm{OnOrder: on, Payment: "p-1"}},
		{"orders.refuse", anOrder, `{"payment":"p-1"}`, &inventory.Refuse{OnOrder: on, Payment: "p-1"}},
		{"orders.ship", anOrder, "", &inventory.Ship{OnOrder: on}},
		{"orders.refund", anOrder, "", &inventory.Refund{OnOrder: on}},
		{
			"orders.refund", anOrder, `{"return_to_stock":true,"reason":"é"}`,
			&inventory.Refund{OnOrder: on, ReturnToStock: true, Reason: "é"},
		},
		{"products.put", aProduct, putting(`"opens_at":null`), &inventory.PutProduct{Product: "rifa-1", Settings: settings}},
		{
			"products.put",
			map[string]string{"product": "natal-2026.rifa-1"},
			`{"name":"é\"","price":{"currency":"USD","amount":0},"first_number":0,"count":10,
			  "opens_at":"2027-01-15T05:00:00.1231-03:00","closes_at":"2027-01-15T08:00:00.13Z",
			  "hold_seconds":1,"hold_max_seconds":2,"payment_grace_seconds":3,
			  "overdue_release_seconds":4,"min_per_order":2,"max_per_order":1000,
			  "max_per_buyer":7,"campaign":"natal","capture":"shipping","late_payment":"refund"}`,
			&inventory.PutProduct{Product: "natal-2026.rifa-1", Settings: full},
		},
		{
			"products.restock", aProduct, `{"count":50}`,
			&inventory.Restock{Product: "rifa-1", Count: 50, Tenant: "t", Key: "k"},
		},
		{
			"products.block", aProduct, `{"numbers":[3,1],"reason":"r"}`,
			&inventory.Block{Product: "rifa-1", Numbers: []uint32{3, 1}, Reason: "r"},
		},
		{"products.unblock", aProduct, `{"numbers":[1]}`, &inventory.Unblock{Product: "rifa-1", Numbers: []uint32{1}}},
		{
			"products.state", aProduct, `{"state":"closed"}`,
			&inventory.SetSaleState{Product: "rifa-1", State: inventory.SaleClosed},
		},
	}
	g := open(t, func(c *Config) { c.Tenant, c.Payments, c.Desk = "t", nil, nil })
	seen := map[string]bool{}
	for _, c := range cases {
		seen[c.subject] = true
		for i, ask := range []func(asking) reply{g.overHTTP, g.overNATS} {
			r := ask(asking{
				subject: c.subject, params: c.params, body: c.body, token: adminToken, key: "k",
			})
			require.Less(t, r.status, 300, "%s %d: %s", c.subject, i, r.body)
			require.Equal(t, encoding(c.want), encoding(g.shards.last), "%s %d: %s", c.subject, i, c.body)
		}
	}
	for i := range operations {
		require.Equal(t, operations[i].command != nil, seen[operations[i].subject], operations[i].subject)
	}
}

// encoding is how commands are compared: it is canonical.
func encoding(c inventory.Command) string {
	return string(inventory.AppendEntry(nil, inventory.Entry{Command: c}))
}

// FuzzReserve holds the decoder against what it accepts: that is an equal order when written down
// and read again, and what is refused is refused for a reason that the contract knows.
func FuzzReserve(f *testing.F) {
	for _, c := range refusedRequests {
		if c.subject == "orders.create" {
			f.Add([]byte(c.body))
		}
	}
	f.Add([]byte(reserving(`"numbers":[1,2,4294967295]`)))
	f.Add([]byte(`{"items":[{"product":"a.b","quantity":2,"pick":"lowest"}],"partial":true}`))
	c := &call{op: &operation{members: orderMembers}}
	again := &call{}
	f.Fuzz(func(t *testing.T, body []byte) {
		c.in.reset()
		malformed, wrong := c.decoder.decode(orderMembers, true, nil, body, &c.in)
		if malformed != nil {
			require.Equal(t, 400, refusals[malformed.code].status)
			require.True(t, malformed.offset >= noOffset && malformed.offset <= int64(len(body)))
			require.True(t, json.Valid(malformed.append(nil, 0)))
			return
		}
		require.True(t, json.Valid(body) || len(strings.TrimSpace(string(body))) == 0)
		if wrong != nil {
			require.True(t, json.Valid(wrong.append(nil, 0)))
			return
		}
		written := writeReserve(reserve(c).(*inventory.Reserve))
		again.in.reset()
		malformed, wrong = again.decoder.decode(orderMembers, true, nil, []byte(written), &again.in)
		require.Nil(t, malformed, written)
		require.Nil(t, wrong, written)
		require.Equal(t, encoding(reserve(c)), encoding(reserve(again)), written)
	})
}

// writeReserve writes an order as a client would.
func writeReserve(r *inventory.Reserve) string {
	type line struct {
		Product  string   `json:"product"`
		Numbers  []uint32 `json:"numbers,omitempty"`
		Quantity uint32   `json:"quantity,omitempty"`
		Pick     string   `json:"pick"`
	}
	body := struct {
		Items   []line `json:"items"`
		Buyer   string `json:"buyer"`
		Partial bool   `json:"partial"`
	}{Items: []line{}, Buyer: string(r.Buyer), Partial: r.Partial}
	for _, l := range r.Lines {
		body.Items = append(body.Items,
			line{string(l.Product), l.Numbers, l.Quantity, picks[l.Pick]})
	}
	out, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprint("a decoded order cannot be written: ", err))
	}
	return string(out)
}
