package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// What the operations do that are no command.

func createSession(_ context.Context, g *Gateway, c *call) {
	c.atUnixMilli = g.now()
	token, buyer, expiresUnixMilli, err := g.authority.session()
	if err != nil {
		g.logFailure(c, err)
		c.refuse(refused(codeInternal, ""), c.atUnixMilli)
		return
	}
	c.body = appendText(append(c.body, `{"token":`...), token)
	c.body = appendText(append(c.body, `,"buyer":`...), string(buyer))
	c.body = appendTime(append(c.body, `,"expires_at":`...), expiresUnixMilli)
	c.body = append(c.body, '}')
}

func getOrder(ctx context.Context, g *Gateway, c *call) {
	o, err := g.shards.Order(ctx, wire.OrderQuery(c.onOrder()))
	if err != nil {
		c.refuse(g.failed(c, err), g.now())
		return
	}
	if g.accepted(c, o) {
		acceptOrder(c, o)
	}
}

func getProduct(ctx context.Context, g *Gateway, c *call) {
	if !g.readProduct(ctx, c, false) {
		return
	}
	c.cacheable = true
	if matches(c.ifNoneMatch, c.etag) {
		c.status, c.body = http.StatusNotModified, c.body[:0]
	}
}

func getFreshProduct(ctx context.Context, g *Gateway, c *call) {
	if g.readProduct(ctx, c, true) {
		c.etag = ""
	}
}

func (g *Gateway) readProduct(ctx context.Context, c *call, fresh bool) (ok bool) {
	o, err := g.shards.Product(ctx, wire.ProductQuery{Product: c.in.product, Fresh: fresh})
	if err != nil {
		c.refuse(g.failed(c, err), g.now())
		return false
	}
	if !g.accepted(c, o) {
		return false
	}
	acceptProduct(c, o)
	c.etag = `W/"` + strconv.FormatUint(o.Product.Version, 10) + `"`
	return true
}

// matches says that an If-None-Match header names the tag, by the weak comparison of RFC 9110
// section 8.8.3.2. Our tags have no comma in them.
func matches(header, etag string) bool {
	if header == "" {
		return false
	}
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimSpace(part)
		if part == "*" || strings.TrimPrefix(part, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}

func getNumbers(ctx context.Context, g *Gateway, c *call) {
	q := wire.NumbersQuery{
		Product: c.in.product, From: uint32(c.in.from), Limit: uint32(c.in.limit),
	}
	c.varies = true
	whole := accepts(c.accept, typeRoaring)
	if q.Limit == 0 {
		q.Limit = numbersLimit
	}
	if whole {
		q.From, q.Limit = 0, 0
	}
	numbers, o, err := g.shards.Numbers(ctx, q)
	if err != nil {
		c.refuse(g.failed(c, err), g.now())
		return
	}
	if o != nil {
		g.accepted(c, o)
		return
	}
	c.atUnixMilli = numbers.AtUnixMilli
	if whole {
		c.contentType, c.body = typeRoaring, append(c.body, numbers.Taken...)
		return
	}
	if c.body, err = appendTaken(c.body, numbers); err != nil {
		c.refuse(g.failed(c, err), g.now())
	}
}

// appendTaken writes the taken numbers as inclusive ranges.
func appendTaken(buf []byte, numbers *wire.Numbers) ([]byte, error) {
	taken := roaring.New()
	if err := taken.UnmarshalBinary(numbers.Taken); err != nil {
		return buf, err
	}
	buf = strconv.AppendUint(append(buf, `{"version":`...), numbers.Version, 10)
	buf = appendCount(append(buf, `,"from":`...), numbers.From)
	buf = appendCount(append(buf, `,"to":`...), numbers.To)
	buf = append(buf, `,"taken":[`...)
	first := true
	for start, end := range taken.Ranges() { // end is exclusive, and may be 1<<32
		if !first {
			buf = append(buf, ',')
		}
		first = false
		buf = appendCount(append(buf, '['), start)
		buf = strconv.AppendUint(append(buf, ','), uint64(end)-1, 10)
		buf = append(buf, ']')
	}
	return append(buf, `]}`...), nil
}

// accepts says that an Accept header prefers a media type: that it names it, not with q=0.
func accepts(header, mediaType string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), mediaType) {
			continue
		}
		quality := strings.ReplaceAll(parameters, " ", "")
		return !strings.HasPrefix(quality, "q=0") || strings.Trim(quality[3:], ".0") != ""
	}
	return false
}

func listOrders(ctx context.Context, g *Gateway, c *call) {
	q := wire.OrdersQuery{Product: c.in.product, Limit: uint32(c.in.limit)}
	if q.Limit == 0 {
		q.Limit = ordersDefault
	}
	var ok bool
	if q.After, ok = parseCursor(c.in.after); !ok {
		p := refusedBy(&inventory.Outcome{
			Code: inventory.CodeValueInvalid,
			Refusal: &inventory.Refusal{
				Pointer: "/after", Detail: "must be the next of a page before",
			},
		})
		c.refuse(p, g.now())
		return
	}
	c.varies = true
	table := accepts(c.accept, "text/csv")
	if table {
		q.Limit = ordersLimit
	}
	page, o, err := g.shards.Orders(ctx, q)
	if err != nil {
		c.refuse(g.failed(c, err), g.now())
		return
	}
	if o != nil {
		g.accepted(c, o)
		return
	}
	c.atUnixMilli = page.AtUnixMilli
	if table {
		c.contentType, c.stream = typeCSV, newTable(g, q, page)
		return
	}
	c.body = appendPage(c.body, page)
}

func appendPage(buf []byte, page *wire.OrdersPage) []byte {
	buf = append(buf, `{"orders":[`...)
	for i, o := range page.Orders {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = appendOrder(buf, o)
	}
	buf = append(buf, `],"next":`...)
	if page.Next == 0 {
		return append(buf, "null}"...)
	}
	return append(appendText(buf, cursor(page.Next)), '}')
}

// cursor makes the position of a listing opaque: nobody shall count with it.
func cursor(next uint64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, next))
}

func parseCursor(text string) (next uint64, ok bool) {
	if text == "" {
		return 0, true
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw), true
}
