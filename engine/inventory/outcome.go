package inventory

import "slices"

// Outcome is what a command or a read answers: an acceptance with the order or product as it is
// now, or a refusal that says what would help. Members that do not apply are zero.
type Outcome struct {
	Code        Code
	AtUnixMilli int64 // the log time that decided it
	Created     bool  // the product did not exist before
	Replay      bool  // a repeat of an accepted key

	Order    *OrderView
	Product  *ProductView
	Missing  []Selection // what a partial order did not get
	Sequence uint64      // with Attach: the consumer's events start after it

	Refusal *Refusal // with every code but CodeOK

	room *answerRoom // that it is part of, if its memory can be used again
}

// Clone copies an outcome with everything that State.Recycle would take from it.
func (o *Outcome) Clone() *Outcome {
	if o == nil || o.room == nil {
		return o
	}
	room := new(answerRoom)
	room.outcome = *o
	room.outcome.room = nil
	if o.Order != nil {
		room.order = *o.Order
		room.order.Items = slices.Clone(o.Order.Items)
		for i := range room.order.Items {
			item := &room.order.Items[i]
			item.Numbers = slices.Clone(item.Numbers)
		}
		room.outcome.Order = &room.order
	}
	return &room.outcome
}

// Refusal says why not, and what would help. Members that do not apply are zero.
type Refusal struct {
	Pointer             string // a JSON Pointer into the body of the request
	Detail              string
	Taken               []Selection // chosen numbers that are not free
	Alternatives        []Selection // near ones, free a moment ago
	NextExpiryUnixMilli int64       // when the earliest reservation may end; 0: none will
	Available           uint32
	LongestRun          uint32
	OpensAtUnixMilli    int64
	ClosesAtUnixMilli   int64
	Status              Status
	Minimum             uint32
	Limit               uint32
	Held                uint32
}

// Selection is some of a product: given numbers, or a quantity of any.
type Selection struct {
	Product  ProductID
	Numbers  []uint32
	Quantity uint32
}

// Code names an outcome. String gives the stable name that the API carries.
type Code uint8

// The codes. Their numbers travel between gateway and shard.
const (
	CodeOK Code = iota
	CodeProductNotFound
	CodeOrderNotFound
	CodeNumbersTaken
	CodeInsufficientStock
	CodeNoAdjacentRun
	CodeSaleNotOpen
	CodeSaleClosed
	CodeSalePaused
	CodeProductHalted
	CodeProductFixed
	CodeOrderStatus
	CodeExtensionLimit
	CodePaidByAnother
	CodeKeyReused
	CodeNumbersOutOfRange
	CodeNumbersRepeated
	CodeQuantityInvalid
	CodeBasketNotTogether
	CodeCurrencyMixed
	CodeProductInvalid
	CodeOrderLimit
	CodeBuyerLimit
	CodeOverloaded
	CodeNumbersNotBlocked
	CodeConsumerUnknown
	CodeValueInvalid
	codeCount
)

var codeNames = [codeCount]string{
	CodeOK:                "ok",
	CodeProductNotFound:   "product_not_found",
	CodeOrderNotFound:     "order_not_found",
	CodeNumbersTaken:      "numbers_taken",
	CodeInsufficientStock: "insufficient_stock",
	CodeNoAdjacentRun:     "no_adjacent_run",
	CodeSaleNotOpen:       "sale_not_open",
	CodeSaleClosed:        "sale_closed",
	CodeSalePaused:        "sale_paused",
	CodeProductHalted:     "product_halted",
	CodeProductFixed:      "product_fixed",
	CodeOrderStatus:       "order_status",
	CodeExtensionLimit:    "extension_limit",
	CodePaidByAnother:     "paid_by_another",
	CodeKeyReused:         "idempotency_key_reused",
	CodeNumbersOutOfRange: "numbers_out_of_range",
	CodeNumbersRepeated:   "numbers_repeated",
	CodeQuantityInvalid:   "quantity_invalid",
	CodeBasketNotTogether: "basket_not_together",
	CodeCurrencyMixed:     "currency_mixed",
	CodeProductInvalid:    "product_invalid",
	CodeOrderLimit:        "order_limit",
	CodeBuyerLimit:        "buyer_limit",
	CodeOverloaded:        "overloaded",
	CodeNumbersNotBlocked: "numbers_not_blocked",
	CodeConsumerUnknown:   "consumer_unknown",
	CodeValueInvalid:      "value_invalid",
}

func (c Code) String() string {
	if c < codeCount {
		return codeNames[c]
	}
	return "unknown"
}

// Codes lists every code, for tables that must cover them all.
func Codes() []Code {
	all := make([]Code, codeCount)
	for i := range all {
		all[i] = Code(i)
	}
	return all
}

// Status of an order.
type Status uint8

// The statuses. Reserved and paying are live; paid and shipped are sold; the rest have ended.
const (
	StatusNone Status = iota
	StatusReserved
	StatusPaying
	StatusPaid
	StatusShipped
	StatusExpired
	StatusReleased
	StatusRefused
	StatusRefundPending
	StatusRefunded
	statusCount
)

var statusNames = [statusCount]string{
	StatusNone: "none", StatusReserved: "reserved", StatusPaying: "paying", StatusPaid: "paid",
	StatusShipped: "shipped", StatusExpired: "expired", StatusReleased: "released",
	StatusRefused: "refused", StatusRefundPending: "refund_pending", StatusRefunded: "refunded",
}

func (s Status) String() string {
	if s < statusCount {
		return statusNames[s]
	}
	return "unknown"
}

// Live says that the order has numbers in reserved and a deadline.
func (s Status) Live() bool { return s == StatusReserved || s == StatusPaying }

// Sold says that the order has numbers in sold.
func (s Status) Sold() bool { return s == StatusPaid || s == StatusShipped }

// OrderView is an order as it stood at one point of the log.
type OrderView struct {
	ID               OrderID
	Status           Status
	Overdue          bool // paying, past its deadline, and still held
	Buyer            BuyerID
	Payment          PaymentID // the last one begun or confirmed; "" before
	Items            []ItemView
	CreatedUnixMilli int64
	ExpiresUnixMilli int64
	Changed          uint64 // the sequence of the last event about it
}

// ItemView is what an order holds of one product: numbers ascending, unit price captured.
type ItemView struct {
	Product   ProductID
	Numbers   []uint32
	UnitPrice Money
}

// Total is the price of all items. It cannot overflow: see maxAmount.
func (o *OrderView) Total() Money {
	var total Money
	for _, item := range o.Items {
		total.Currency = item.UnitPrice.Currency
		total.Amount += item.UnitPrice.Amount * int64(len(item.Numbers))
	}
	return total
}

// ProductView is a product as it stood at one point of the log.
type ProductView struct {
	ID       ProductID
	Settings Settings
	State    SaleState
	Halted   string // the broken invariant, or ""
	Counters Counters
	Version  uint64 // rises with every change
}

// Standing is a ProductView that is made fast and kept small, since most batches make one for each
// product: it shares the settings. It never changes, and any goroutine may read it.
type Standing struct {
	id       ProductID
	settings *Settings
	halted   string
	counters Counters
	state    SaleState
	version  uint64
}

// ID is the product's id.
func (s *Standing) ID() ProductID { return s.id }

// Version is that of the view.
func (s *Standing) Version() uint64 { return s.version }

// View is the product as it stood.
func (s *Standing) View() *ProductView {
	return &ProductView{
		ID: s.id, Settings: *s.settings, State: s.state, Halted: s.halted,
		Counters: s.counters, Version: s.version,
	}
}

// Counters of a product: Available + Reserved + Sold + Blocked = Count.
type Counters struct {
	Count, Available, Reserved, Sold, Blocked uint32
}
