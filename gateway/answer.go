package gateway

import (
	"bytes"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"numera/engine/inventory"
)

// The answers are appended by hand: their members are fixed, and the answer to an order is written
// while everybody is waiting. Tests hold them against encoding/json.

// appendOrderAnswer writes an order with the log time that it was read at.
func appendOrderAnswer(buf []byte, o *inventory.OrderView, atUnixMilli int64) []byte {
	buf = appendOrder(append(buf, `{"order":`...), o)
	buf = appendTime(append(buf, `,"server_time":`...), atUnixMilli)
	return append(buf, '}')
}

// appendCreatedAnswer writes a new order, and what a partial one did not get.
func appendCreatedAnswer(buf []byte, o *inventory.Outcome) []byte {
	buf = appendOrder(append(buf, `{"order":`...), o.Order)
	buf = appendSelections(append(buf, `,"missing":`...), o.Missing)
	buf = appendTime(append(buf, `,"server_time":`...), o.AtUnixMilli)
	return append(buf, '}')
}

func appendOrder(buf []byte, o *inventory.OrderView) []byte {
	buf = appendText(append(buf, `{"id":`...), o.ID.String())
	buf = appendText(append(buf, `,"status":`...), o.Status.String())
	buf = strconv.AppendBool(append(buf, `,"overdue":`...), o.Overdue)
	buf = appendText(append(buf, `,"buyer":`...), string(o.Buyer))
	buf = append(buf, `,"items":[`...)
	for i := range o.Items {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = appendItem(buf, &o.Items[i])
	}
	buf = appendMoney(append(buf, `],"total":`...), o.Total())
	buf = appendTime(append(buf, `,"created_at":`...), o.CreatedUnixMilli)
	buf = appendTime(append(buf, `,"expires_at":`...), o.ExpiresUnixMilli)
	return append(buf, '}')
}

func appendItem(buf []byte, item *inventory.ItemView) []byte {
	buf = appendText(append(buf, `{"product":`...), string(item.Product))
	buf = appendNumbers(append(buf, `,"numbers":`...), item.Numbers)
	buf = appendMoney(append(buf, `,"unit_price":`...), item.UnitPrice)
	buf = appendMoney(append(buf, `,"total":`...), itemTotal(item))
	return append(buf, '}')
}

func itemTotal(item *inventory.ItemView) inventory.Money {
	order := inventory.OrderView{Items: []inventory.ItemView{*item}}
	return order.Total()
}

func appendProduct(buf []byte, p *inventory.ProductView) []byte {
	s := &p.Settings
	buf = appendText(append(buf, `{"id":`...), string(p.ID))
	buf = appendText(append(buf, `,"name":`...), s.Name)
	buf = appendMoney(append(buf, `,"price":`...), s.Price)
	buf = appendCount(append(buf, `,"first_number":`...), s.FirstNumber)
	buf = appendCount(append(buf, `,"count":`...), s.Count)
	buf = appendTimeOrNull(append(buf, `,"opens_at":`...), s.OpensAtUnixMilli)
	buf = appendTimeOrNull(append(buf, `,"closes_at":`...), s.ClosesAtUnixMilli)
	buf = strconv.AppendInt(append(buf, `,"hold_seconds":`...), s.HoldSeconds, 10)
	buf = strconv.AppendInt(append(buf, `,"hold_max_seconds":`...), s.HoldMaxSeconds, 10)
	buf = strconv.AppendInt(append(buf, `,"payment_grace_seconds":`...), s.PaymentGraceSeconds, 10)
	buf = append(buf, `,"overdue_release_seconds":`...)
	buf = appendOrNull(buf, s.OverdueReleaseSeconds)
	buf = appendCount(append(buf, `,"min_per_order":`...), s.MinPerOrder)
	buf = appendCount(append(buf, `,"max_per_order":`...), s.MaxPerOrder)
	buf = appendOrNull(append(buf, `,"max_per_buyer":`...), int64(s.MaxPerBuyer))
	buf = appendText(append(buf, `,"campaign":`...), s.Campaign)
	buf = appendText(append(buf, `,"capture":`...), captures[index(s.CaptureAtShipping)])
	buf = appendText(append(buf, `,"late_payment":`...), latePayments[index(s.RefundLate)])
	buf = appendText(append(buf, `,"state":`...), saleStates[p.State])
	buf = appendCount(append(buf, `,"counters":{"count":`...), p.Counters.Count)
	buf = appendCount(append(buf, `,"available":`...), p.Counters.Available)
	buf = appendCount(append(buf, `,"reserved":`...), p.Counters.Reserved)
	buf = appendCount(append(buf, `,"sold":`...), p.Counters.Sold)
	buf = appendCount(append(buf, `,"blocked":`...), p.Counters.Blocked)
	buf = strconv.AppendUint(append(buf, `},"version":`...), p.Version, 10)
	return append(buf, '}')
}

// saleStates and picks are the names on the outside, by value.
var (
	saleStates = []string{
		inventory.SaleOpen: "open", inventory.SalePaused: "paused", inventory.SaleClosed: "closed",
	}
	picks = []string{
		inventory.PickRandom: "random", inventory.PickLowest: "lowest",
		inventory.PickAdjacent: "adjacent",
	}

	// What a product says of its payments: the default, and the other.
	captures     = []string{"confirmation", "shipping"}
	latePayments = []string{"reclaim", "refund"}
)

func index(other bool) int {
	if other {
		return 1
	}
	return 0
}

// appendSelections writes what was selected of each product, given numbers before a quantity.
func appendSelections(buf []byte, selections []inventory.Selection) []byte {
	buf = append(buf, '[')
	start := len(buf)
	open := func(product inventory.ProductID) {
		if len(buf) > start {
			buf = append(buf, ',')
		}
		buf = appendText(append(buf, `{"product":`...), string(product))
	}
	for i := range selections {
		s := &selections[i]
		if len(s.Numbers) > 0 {
			open(s.Product)
			buf = append(appendNumbers(append(buf, `,"numbers":`...), s.Numbers), '}')
		}
		if s.Quantity > 0 {
			open(s.Product)
			buf = append(appendCount(append(buf, `,"quantity":`...), s.Quantity), '}')
		}
	}
	return append(buf, ']')
}

func appendNumbers(buf []byte, numbers []uint32) []byte {
	buf = append(buf, '[')
	for i, number := range numbers {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = appendCount(buf, number)
	}
	return append(buf, ']')
}

func appendTexts(buf []byte, texts []string) []byte {
	buf = append(buf, '[')
	for i, text := range texts {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = appendText(buf, text)
	}
	return append(buf, ']')
}

func appendMoney(buf []byte, m inventory.Money) []byte {
	buf = strconv.AppendInt(append(buf, `{"amount":`...), m.Amount, 10)
	return append(appendText(append(buf, `,"currency":`...), m.Currency), '}')
}

func appendCount(buf []byte, n uint32) []byte { return strconv.AppendUint(buf, uint64(n), 10) }

func appendOrNull(buf []byte, n int64) []byte {
	if n == 0 {
		return append(buf, "null"...)
	}
	return strconv.AppendInt(buf, n, 10)
}

// appendTime writes an instant as RFC 3339 in UTC with milliseconds.
func appendTime(buf []byte, unixMilli int64) []byte {
	buf = append(buf, '"')
	return append(appendInstant(buf, unixMilli), '"')
}

// appendInstant writes whole seconds in the layout that package time is quick with, and the
// thousandths itself.
func appendInstant(buf []byte, unixMilli int64) []byte {
	at := time.UnixMilli(unixMilli).UTC()
	buf = bytes.TrimSuffix(at.AppendFormat(buf, time.RFC3339), []byte("Z"))
	milli := at.Nanosecond() / 1e6
	return append(buf, '.', digit(milli/100), digit(milli/10%10), digit(milli%10), 'Z')
}

func digit(n int) byte { return '0' + byte(n) }

func appendTimeOrNull(buf []byte, unixMilli int64) []byte {
	if unixMilli == 0 {
		return append(buf, "null"...)
	}
	return appendTime(buf, unixMilli)
}

// appendText writes a JSON string. What is not UTF-8 in text is replaced, as an answer must never
// be unreadable.
func appendText(buf []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			buf, _ = jsontext.AppendQuote(buf, text)
			return buf
		}
	}
	return append(append(append(buf, '"'), text...), '"')
}
