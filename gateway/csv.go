package gateway

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// table is a product's orders as CSV (RFC 4180), one row for each order with what it has of the
// product. It reads the next page when the one before has been written, and ends with
// "#complete,N", N being the number of orders: what has no such line is not all. If a page fails
// Read fails, and the transport has to break its connection off.
//
// It belongs to whoever writes the answer.
type table struct {
	g       *Gateway
	query   wire.OrdersQuery
	perPage func() // called before each page but the first, if set
	rows    uint64
	last    bool   // there is no page after the pending one
	pending []byte // rows not yet read
	buf     []byte
}

const tableHeader = "order_id,status,buyer,product,numbers,unit_price_amount,total_amount," +
	"currency,created_at,expires_at\r\n"

func newTable(g *Gateway, q wire.OrdersQuery, first *wire.OrdersPage) *table {
	t := &table{g: g, query: q, buf: []byte(tableHeader)}
	t.add(first)
	return t
}

// Read implements io.Reader.
func (t *table) Read(p []byte) (int, error) {
	if len(t.pending) == 0 {
		if t.last {
			return 0, io.EOF
		}
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.pending)
	t.pending = t.pending[n:]
	return n, nil
}

// Close implements io.Closer.
func (t *table) Close() error {
	t.pending, t.buf, t.last = nil, nil, true
	return nil
}

func (t *table) next() error {
	if t.perPage != nil {
		t.perPage()
	}
	ctx, cancel := t.g.deadline()
	defer cancel()
	page, o, err := t.g.shards.Orders(ctx, t.query)
	switch {
	case err != nil:
		return fmt.Errorf("%w after %d rows: %w", errPage, t.rows, err)
	case o != nil:
		return fmt.Errorf("%w after %d rows: %s", errPage, t.rows, o.Code)
	}
	t.buf = t.buf[:0]
	t.add(page)
	return nil
}

// add appends a page to what is pending, and after the last one the line that says so.
func (t *table) add(page *wire.OrdersPage) {
	for _, o := range page.Orders {
		for i := range o.Items {
			if o.Items[i].Product == t.query.Product {
				t.buf = appendRow(t.buf, o, &o.Items[i])
				t.rows++
			}
		}
	}
	t.query.After, t.last = page.Next, page.Next == 0
	if t.last {
		t.buf = append(strconv.AppendUint(append(t.buf, "#complete,"...), t.rows, 10), "\r\n"...)
	}
	t.pending = t.buf
}

func appendRow(buf []byte, o *inventory.OrderView, item *inventory.ItemView) []byte {
	buf = appendCell(buf, o.ID.String())
	buf = appendCell(append(buf, ','), o.Status.String())
	buf = appendCell(append(buf, ','), string(o.Buyer))
	buf = appendCell(append(buf, ','), string(item.Product))
	for i, number := range item.Numbers {
		buf = appendCount(append(buf, ", "[min(i, 1)]), number)
	}
	if len(item.Numbers) == 0 {
		buf = append(buf, ',')
	}
	buf = strconv.AppendInt(append(buf, ','), item.UnitPrice.Amount, 10)
	buf = strconv.AppendInt(append(buf, ','), itemTotal(item).Amount, 10)
	buf = appendCell(append(buf, ','), item.UnitPrice.Currency)
	buf = appendInstant(append(buf, ','), o.CreatedUnixMilli)
	buf = appendInstant(append(buf, ','), o.ExpiresUnixMilli)
	return append(buf, "\r\n"...)
}

// appendCell writes a text. What a spreadsheet would take for a formula gets a leading apostrophe.
func appendCell(buf []byte, text string) []byte {
	if text != "" && strings.IndexByte("=+-@", text[0]) >= 0 {
		text = "'" + text
	}
	if !strings.ContainsAny(text, "\",\r\n") {
		return append(buf, text...)
	}
	buf = append(buf, '"')
	buf = append(buf, strings.ReplaceAll(text, `"`, `""`)...)
	return append(buf, '"')
}
