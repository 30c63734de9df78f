package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

func TestNumbersAreRangesOrRoaring(t *testing.T) {
	g := open(t, nil)
	numbers := roaring.BitmapOf(17, 40, 41, 42, 65535, 65536, 4294967294, 4294967295)
	taken, err := numbers.ToBytes()
	require.NoError(t, err)
	g.shards.set(func() { g.shards.taken = taken })
	get := asking{subject: "products.numbers", params: map[string]string{
		"product": "rifa-1", "from": "3", "limit": "10",
	}}
	r := g.both(get)
	require.JSONEq(t, `{"version":7,"from":3,"to":12,
	  "taken":[[17,17],[40,42],[65535,65536],[4294967294,4294967295]]}`, string(r.body))
	require.Equal(t, "Accept", r.header["Vary"])

	get.header = map[string]string{"Accept": "application/json;q=0.1, application/vnd.roaring"}
	r = g.overHTTP(get)
	require.Equal(t, typeRoaring, r.header["Content-Type"])
	got := roaring.New()
	require.NoError(t, got.UnmarshalBinary(r.body))
	require.True(t, numbers.Equals(got))

	get.header["Accept"] = "application/vnd.roaring;q=0"
	require.Equal(t, typeJSON, g.overHTTP(get).header["Content-Type"])
}

func TestOrdersAreListedInPages(t *testing.T) {
	g := open(t, nil)
	list := asking{subject: "products.orders", params: aProduct, token: adminToken}
	page := &wire.OrdersPage{AtUnixMilli: testTime, Orders: []*inventory.OrderView{testOrder()}, Next: 9}
	g.shards.set(func() { g.shards.pages = []*wire.OrdersPage{page, page} })
	r := g.both(list)
	members := r.json(t)
	require.Len(t, members["orders"], 1)
	next, _ := members["next"].(string)
	after, ok := parseCursor(next)
	require.True(t, ok)
	require.Equal(t, uint64(9), after)
	list.params = map[string]string{"product": "rifa-1", "after": next, "limit": "1000"}
	require.Nil(t, g.both(list).json(t)["next"])
}

// csv asks for a table and returns what came, and whether it came whole.
func (g *gate) csv() (body string, whole bool) {
	g.t.Helper()
	r, err := http.NewRequest("GET", g.http+"/v1/admin/products/rifa-1/orders", nil)
	require.NoError(g.t, err)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Accept", "text/csv")
	response, err := g.client.Do(r)
	require.NoError(g.t, err)
	defer response.Body.Close()
	require.Equal(g.t, 200, response.StatusCode)
	require.Equal(g.t, typeCSV, response.Header.Get("Content-Type"))
	out, err := io.ReadAll(response.Body)
	return string(out), err == nil
}

func TestTablesAreWholeOrBrokenOff(t *testing.T) {
	g := open(t, nil)
	odd := testOrder()
	odd.Buyer = `=1+"2",3`
	odd.Items = append(odd.Items, inventory.ItemView{Product: "rifa-2", Numbers: []uint32{5}})
	many := &wire.OrdersPage{Next: 1}
	for range 1000 {
		many.Orders = append(many.Orders, testOrder())
	}
	last := &wire.OrdersPage{Orders: []*inventory.OrderView{odd}}
	g.shards.set(func() { g.shards.pages = []*wire.OrdersPage{many, many, last} })
	body, whole := g.csv()
	require.True(t, whole)
	lines := strings.Split(body, "\r\n")
	require.Len(t, lines, 1+2001+1+1)
	require.Equal(t, strings.TrimSpace(tableHeader), lines[0])
	id := testOrder().ID.String()
	times := "," + written(testTime) + "," + written(testTime+1_800_000)
	require.Equal(t, id+",reserved,b-123,rifa-1,9 17 4271,1990,5970,BRL"+times, lines[1])
	require.Equal(t, id+`,reserved,"'=1+""2"",3",rifa-1,9 17 4271,1990,5970,BRL`+times, lines[2001])
	require.Equal(t, []string{"#complete,2001", ""}, lines[2002:])

	g.shards.set(func() { g.shards.pages = []*wire.OrdersPage{many, many, nil} })
	body, whole = g.csv()
	require.False(t, whole, "a table that broke off looks whole")
	require.NotContains(t, body, "#complete")

	g.shards.set(func() { g.shards.pages = []*wire.OrdersPage{nil} })
	g.allowed.Store("a request failed", true)
	r := g.overHTTP(asking{
		subject: "products.orders", params: aProduct, token: adminToken,
		header: map[string]string{"Accept": "text/csv"},
	})
	require.Equal(t, 500, r.status, "the first page fails before the answer begins")
}
