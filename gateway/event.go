package gateway

import (
	"strconv"

	"numera/engine/inventory"
)

// AppendEvent writes an event as consumers of the stream numera-events read it: what happened, and
// the order or product right after it. Readers must ignore members that they do not know.
func AppendEvent(buf []byte, shard inventory.ShardID, e *inventory.Event) []byte {
	buf = appendText(append(buf, `{"kind":`...), e.Kind.String())
	buf = strconv.AppendUint(append(buf, `,"shard":`...), uint64(shard), 10)
	buf = strconv.AppendUint(append(buf, `,"sequence":`...), e.Sequence, 10)
	buf = appendTime(append(buf, `,"at":`...), e.AtUnixMilli)
	buf = appendText(append(buf, `,"correlation":`...), e.Correlation)
	if e.Kind.AboutProduct() {
		buf = appendProduct(append(buf, `,"product":`...), e.Product)
	} else {
		buf = appendOrder(append(buf, `,"order":`...), e.Order)
	}
	return append(buf, '}')
}

// PaymentEvent is one change of a payment. Amounts are in minor units of the currency.
type PaymentEvent struct {
	ID          int64
	Kind        string // an order.Event
	Payment     inventory.PaymentID
	Order       inventory.OrderID
	Currency    string
	Amount      int64 // of the payment
	Captured    int64
	Refunded    int64
	AtUnixMilli int64
}

// AppendPaymentEvent writes one as consumers of the stream numera-events read it: what happened, and
// where the payment's money stands after it.
func AppendPaymentEvent(buf []byte, e *PaymentEvent) []byte {
	money := func(amount int64) inventory.Money {
		return inventory.Money{Amount: amount, Currency: e.Currency}
	}
	buf = appendText(append(buf, `{"kind":`...), e.Kind)
	buf = strconv.AppendInt(append(buf, `,"id":`...), e.ID, 10)
	buf = appendTime(append(buf, `,"at":`...), e.AtUnixMilli)
	buf = appendText(append(buf, `,"payment":`...), string(e.Payment))
	buf = appendText(append(buf, `,"order":`...), e.Order.String())
	buf = appendMoney(append(buf, `,"amount":`...), money(e.Amount))
	buf = appendMoney(append(buf, `,"captured":`...), money(e.Captured))
	buf = appendMoney(append(buf, `,"refunded":`...), money(e.Refunded))
	return append(buf, '}')
}
