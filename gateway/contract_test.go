package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

func upper(s string) string { return strings.ToUpper(s) }

func everySecond(n uint32) *appendable {
	numbers := roaring.New()
	for i := range n {
		numbers.Add(2 * i)
	}
	return &appendable{numbers}
}

type appendable struct{ *roaring.Bitmap }

func (a *appendable) AppendTo(buf []byte) ([]byte, error) {
	encoded, err := a.ToBytes()
	return append(buf, encoded...), err
}

// contract is the document as served, read by somebody else's reader.
type contract struct {
	t        *testing.T
	document *openapi3.T
}

func (g *gate) contract() *contract {
	g.t.Helper()
	served := g.request("GET", "/openapi.json", asking{})
	require.Equal(g.t, 200, served.status)
	document, err := openapi3.NewLoader().LoadFromData(served.body)
	require.NoError(g.t, err)
	require.NoError(g.t, document.Validate(context.Background()))
	return &contract{g.t, document}
}

// keeps makes sure that an answer is what the document says.
func (c *contract) keeps(op *operation, r reply) {
	c.t.Helper()
	about := c.document.Paths.Value(op.path).GetOperation(op.method)
	require.NotNil(c.t, about, op.subject)
	response := about.Responses.Status(r.status)
	if response == nil {
		require.GreaterOrEqual(c.t, r.status, 400, "%s: the document has no such answer", op.subject)
		response = about.Responses.Default()
	}
	for name := range response.Value.Headers {
		require.NotEmpty(c.t, r.header[name], name)
	}
	content := response.Value.Content.Get(r.header["Content-Type"])
	require.NotNil(c.t, content, r.header["Content-Type"])
	var value any
	require.NoError(c.t, json.Unmarshal(r.body, &value))
	require.NoError(c.t, c.document.ValidateSchemaJSON(content.Schema.Value, value,
		openapi3.EnableJSONSchema2020()), "%s: %s", op.subject, r.body)
}

func TestEveryAnswerIsAsTheDocumentSays(t *testing.T) {
	g := open(t, nil)
	g.allowed.Store("a request failed", true)
	c := g.contract()
	for i := range operations {
		op := &operations[i]
		a := minimal(op)
		a.token = adminToken
		g.shards.set(func() {
			g.shards.pages = []*wire.OrdersPage{
				{AtUnixMilli: testTime, Orders: []*inventory.OrderView{testOrder()}, Next: 3},
				{AtUnixMilli: testTime, Orders: []*inventory.OrderView{testOrder()}, Next: 3},
			}
		})
		r := g.overHTTP(a)
		require.Less(t, r.status, 300, "%s: %s", op.subject, r.body)
		c.keeps(op, r)
		c.keeps(op, g.overNATS(a))
		a.token = "bad"
		c.keeps(op, g.overHTTP(a))
	}
	for _, refused := range refusedRequests {
		op := operationOf(t, refused.subject)
		c.keeps(op, g.overHTTP(asking{
			subject: refused.subject, params: refused.params, body: refused.body,
			token: adminToken, key: "k",
		}))
	}
	create := operationOf(t, "orders.create")
	selections := []inventory.Selection{{Product: "a", Numbers: []uint32{1}, Quantity: 2}}
	for _, code := range inventory.Codes() {
		outcome := &inventory.Outcome{
			Code: code, AtUnixMilli: testTime, Order: testOrder(), Missing: selections,
		}
		if code != inventory.CodeOK {
			outcome.Refusal = &inventory.Refusal{
				Taken: selections, Status: inventory.StatusPaid, NextExpiryUnixMilli: testTime,
				Pointer: "/items/0", OpensAtUnixMilli: testTime, Limit: 1, Held: 1, Minimum: 1,
			}
		}
		g.shards.set(func() { g.shards.outcome = outcome })
		a := minimal(create)
		a.token = adminToken
		c.keeps(create, g.overHTTP(a))
	}
}

// TestRequestsAreAsTheDocumentSays holds the decoder against the schema of the document: what is
// read without complaint is valid, and what is not well-formed, but JSON, is not.
func TestRequestsAreAsTheDocumentSays(t *testing.T) {
	g := open(t, nil)
	c := g.contract()
	valid := func(op *operation, body string) error {
		var value any
		if err := json.Unmarshal([]byte(body), &value); err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		schema := c.document.Paths.Value(op.path).GetOperation(op.method).
			RequestBody.Value.Content.Get(typeJSON).Schema.Value
		return c.document.ValidateSchemaJSON(schema, value, openapi3.EnableJSONSchema2020())
	}
	for i := range operations {
		if op := &operations[i]; op.takesBody() && minimal(op).body != "" {
			require.NoError(t, valid(op, minimal(op).body), op.subject)
		}
	}
	put := operationOf(t, "products.put")
	require.NoError(t, valid(put, putting(`"opens_at":null,"max_per_buyer":null`)))
	// JSON Schema comes too late for these: the reader of the test is not strict.
	beyond := map[string]bool{
		"duplicate": true, "duplicate, escaped": true, "duplicate inside": true,
		"not UTF-8": true, "lone surrogate": true,
	}
	for _, refused := range refusedRequests {
		op := operationOf(t, refused.subject)
		if refused.status == 400 && op.takesBody() && !beyond[refused.name] {
			require.Error(t, valid(op, refused.body), refused.name)
		}
	}
}

// routes are those of the contract, written down a second time: the table must not drift.
const routes = `
POST /v1/sessions: public
GET /v1/products/{product}: public
GET /v1/products/{product}/numbers: public
POST /v1/orders: buyer, keyed
GET /v1/orders/{order}: buyer
DELETE /v1/orders/{order}: buyer
POST /v1/orders/{order}/extend: buyer
POST /v1/orders/{order}/begin-payment: service
POST /v1/orders/{order}/confirm: service
POST /v1/orders/{order}/refuse: service
POST /v1/admin/orders/{order}/ship: admin
POST /v1/admin/orders/{order}/refund: admin
POST /v1/orders/{order}/payments: buyer, keyed
GET /v1/orders/{order}/payments: buyer
POST /v1/admin/payments/{payment}/review: admin
GET /v1/admin/payments/{payment}/refunds: admin
POST /v1/admin/orders/{order}/refunds: admin, keyed
GET /v1/admin/payments: admin
GET /v1/admin/findings: admin
GET /v1/admin/dead-letters: admin
POST /v1/admin/dead-letters/{letter}/replay: admin
POST /v1/admin/dead-letters/replay: admin
PUT /v1/admin/products/{product}: admin
GET /v1/admin/products/{product}: admin
POST /v1/admin/products/{product}/restock: admin, keyed
POST /v1/admin/products/{product}/block: admin
POST /v1/admin/products/{product}/unblock: admin
PUT /v1/admin/products/{product}/state: admin
GET /v1/admin/products/{product}/orders: admin
`

func TestTheTableHasTheRoutesOfTheContract(t *testing.T) {
	var table strings.Builder
	for i := range operations {
		op := &operations[i]
		fmt.Fprintf(&table, "\n%s %s: %s", op.method, op.path, op.role)
		if op.keyed {
			table.WriteString(", keyed")
		}
	}
	require.Equal(t, routes, table.String()+"\n")
}
