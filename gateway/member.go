package gateway

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
)

// input is what the members of a request say. Its slices are used again for the next request.
type input struct {
	order         inventory.OrderID
	product       inventory.ProductID
	from          int64
	limit         int64 // 0: the default
	after         string
	buyer         inventory.BuyerID
	lines         []inventory.Line
	partial       bool
	payment       inventory.PaymentID
	pay           order.PayRequest // method and secret
	amount        inventory.Money
	approve       bool
	status        order.Status
	queue         order.Queue
	letter        int64
	returnToStock bool
	reason        string
	settings      inventory.Settings
	count         uint32
	numbers       []uint32
	state         inventory.SaleState
}

func (in *input) reset() {
	*in = input{
		lines: in.lines[:0], numbers: in.numbers[:0], settings: inventory.DefaultSettings(),
	}
}

// line is the order line that is being read.
func (in *input) line() *inventory.Line { return &in.lines[len(in.lines)-1] }

// addLine starts another line, with the memory of an earlier request's.
func (in *input) addLine() {
	if len(in.lines) < cap(in.lines) {
		in.lines = in.lines[:len(in.lines)+1]
		*in.line() = inventory.Line{Numbers: in.line().Numbers[:0]}
		return
	}
	in.lines = append(in.lines, inventory.Line{})
}

// place is where HTTP carries a member. NATS carries all of them in its payload.
type place string

const (
	inBody  place = ""
	inPath  place = "path"
	inQuery place = "query"
)

// member is one member of a request: how it is read into the input, and what the document says
// about it. read takes one value that is not null.
type member struct {
	name     string
	place    place
	required bool
	schema   schema
	read     func(d *decoder, in *input)
}

func required(m member) member {
	m.required = true
	return m
}

// The members, each in one place for all operations that have it.
var (
	orderMember = member{
		"order", inPath, true, text("The order's id"),
		func(d *decoder, in *input) {
			var ok bool
			if in.order, ok = inventory.ParseOrderID(d.string()); !ok {
				d.refuse(inventory.CodeOrderNotFound, "no order has an id of this form")
			}
		},
	}
	productMember = member{
		"product", inPath, true, text("The product's id: one or two labels of [a-z0-9-]"),
		func(d *decoder, in *input) { in.product = inventory.ProductID(d.string()) },
	}
	fromMember = member{
		"from", inQuery, false,
		integer("The first number to look at; by default the product's first", 0, math.MaxUint32),
		func(d *decoder, in *input) {
			in.from = d.integer(0, math.MaxUint32, inventory.CodeNumbersOutOfRange)
		},
	}
	numbersLimitMember = limitMember("How many numbers to look at", numbersLimit, numbersLimit)
	ordersLimitMember  = limitMember("How many orders to answer with", ordersDefault, ordersLimit)
	afterMember        = member{
		"after", inQuery, false, text("The next of the page before"),
		func(d *decoder, in *input) { in.after = d.string() },
	}
	paymentMember = member{
		"payment", inBody, true, text("The payment's id: 1 to 64 visible ASCII characters"),
		func(d *decoder, in *input) { in.payment = inventory.PaymentID(d.string()) },
	}
	paymentInPath = member{
		"payment", inPath, true, text("The payment's id"),
		func(d *decoder, in *input) { in.payment = inventory.PaymentID(d.string()) },
	}
	paymentStatusMember = member{
		"status", inQuery, false, choice("Where they stand; review by default", paymentStatuses),
		func(d *decoder, in *input) {
			in.status = order.Status(paymentStatuses[d.choice(paymentStatuses)])
		},
	}
	queueInQuery = member{"queue", inQuery, false, choice("Whose jobs", queues), readQueue}
	queueMember  = member{"queue", inBody, false, choice("Whose jobs; all by default", queues), readQueue}
	letterMember = member{
		"letter", inPath, true, text("The dead letter's id"),
		func(d *decoder, in *input) {
			in.letter, _ = strconv.ParseInt(d.string(), 10, 64) // what is no number is no letter's id
		},
	}
	deskLimitMember = limitMember("How many to answer with", deskLimit, ordersLimit)
	decisionMember  = member{
		"decision", inBody, true, choice("What is to become of it", decisions),
		func(d *decoder, in *input) { in.approve = decisions[d.choice(decisions)] == "approve" },
	}
	amountMember = member{
		"amount", inBody, true, objectOf("How much, in the order's currency", amountMembers),
		func(d *decoder, in *input) { d.object(amountMembers, 0, 0, in) },
	}
	reasonMember = member{
		"reason", inBody, false, text("Why, in at most 500 bytes"),
		func(d *decoder, in *input) { in.reason = d.string() },
	}
	returnMember = member{
		"return_to_stock", inBody, false,
		boolean("Whether the numbers go back on sale; if not they are blocked"),
		func(d *decoder, in *input) { in.returnToStock = d.boolean() },
	}
	countMember = member{
		"count", inBody, true, integer("How many more numbers", 1, inventory.MaxCount),
		func(d *decoder, in *input) { in.count = d.uint32(inventory.CodeProductInvalid) },
	}
	numbersMember = member{
		"numbers", inBody, true, numbersSchema("1 to 10,000 different numbers of the product"),
		func(d *decoder, in *input) { in.numbers = d.numbers(in.numbers) },
	}
	stateMember = member{
		"state", inBody, true, choice("The admin's switch, apart from the sale window", saleStates),
		func(d *decoder, in *input) { in.state = inventory.SaleState(d.choice(saleStates)) },
	}
)

// Bounds of the listings.
const (
	numbersLimit  = 1_000_000
	ordersLimit   = 1000
	ordersDefault = 100
)

func limitMember(description string, otherwise, most int64) member {
	s := integer(description, 1, most)
	s["default"] = otherwise
	return member{"limit", inQuery, false, s, func(d *decoder, in *input) {
		in.limit = d.integer(1, most, inventory.CodeValueInvalid)
	}}
}

// orderMembers are what an order is made of.
var orderMembers = []member{
	{
		"items", inBody, true,
		arrayOf("1 to 100 lines, all of products whose ids share the first label",
			objectOf("Chosen numbers, or a quantity, of a product", lineMembers)),
		func(d *decoder, in *input) {
			d.array(func() { d.line(in) })
		},
	},
	{
		"buyer", inBody, false, text("Who orders: needed from a service, a buyer's own by default"),
		func(d *decoder, in *input) { in.buyer = inventory.BuyerID(d.string()) },
	},
	{
		"partial", inBody, false, boolean("Whether to take what can be had, down to min_per_order"),
		func(d *decoder, in *input) { in.partial = d.boolean() },
	},
}

var lineMembers = []member{
	{
		"product", inBody, true, text("The product's id"),
		func(d *decoder, in *input) { in.line().Product = inventory.ProductID(d.string()) },
	},
	{
		"numbers", inBody, false, numbersSchema("The chosen numbers"),
		func(d *decoder, in *input) {
			line := in.line()
			if line.Numbers = d.numbers(line.Numbers); len(line.Numbers) == 0 {
				d.refuse(inventory.CodeQuantityInvalid, "at least one number has to be chosen")
			}
		},
	},
	{
		"quantity", inBody, false, integer("How many of any", 1, inventory.MaxNumbersInOrder),
		func(d *decoder, in *input) {
			in.line().Quantity = uint32(
				d.integer(1, math.MaxUint32, inventory.CodeQuantityInvalid))
		},
	},
	{
		"pick", inBody, false, choice("How a quantity is chosen; random by default", picks),
		func(d *decoder, in *input) { in.line().Pick = inventory.Pick(d.choice(picks)) },
	},
}

// line reads one line of an order.
func (d *decoder) line(in *input) {
	in.addLine()
	d.object(lineMembers, 0, 0, in)
}

// settingsMembers are what an admin says about a product. Their bounds are checked by
// inventory.Settings; here is only what cannot even be said to it.
var settingsMembers = []member{
	{
		"name", inBody, true, text("What it is called: 1 to 200 bytes"),
		func(d *decoder, in *input) { in.settings.Name = d.string() },
	},
	{
		"price", inBody, true, objectOf("The price of one number", priceMembers),
		func(d *decoder, in *input) { d.object(priceMembers, 0, 0, in) },
	},
	uint32Setting("first_number", "The first number; 1 by default",
		func(s *inventory.Settings) *uint32 { return &s.FirstNumber }),
	required(uint32Setting("count", "How many numbers: 1 to 100 million",
		func(s *inventory.Settings) *uint32 { return &s.Count })),
	timeSetting("opens_at", "When the sale opens; null: it is open",
		func(s *inventory.Settings) *int64 { return &s.OpensAtUnixMilli }),
	timeSetting("closes_at", "When the sale closes; null: never",
		func(s *inventory.Settings) *int64 { return &s.ClosesAtUnixMilli }),
	secondsSetting("hold_seconds", "How long a reservation holds; 1800 by default",
		func(s *inventory.Settings) *int64 { return &s.HoldSeconds }),
	secondsSetting("hold_max_seconds", "How long extends can make it; 7200 by default",
		func(s *inventory.Settings) *int64 { return &s.HoldMaxSeconds }),
	secondsSetting("payment_grace_seconds", "What begin-payment adds; 300 by default",
		func(s *inventory.Settings) *int64 { return &s.PaymentGraceSeconds }),
	secondsSetting("overdue_release_seconds", "When an overdue order is given up; null: never",
		func(s *inventory.Settings) *int64 { return &s.OverdueReleaseSeconds }),
	uint32Setting("min_per_order", "The smallest order; 1 by default",
		func(s *inventory.Settings) *uint32 { return &s.MinPerOrder }),
	uint32Setting("max_per_order", "The largest order, at most 1000; 100 by default",
		func(s *inventory.Settings) *uint32 { return &s.MaxPerOrder }),
	{
		"max_per_buyer", inBody, false,
		orNull(integer("How many a buyer holds at most; null: any", 1, math.MaxUint32)),
		func(d *decoder, in *input) {
			in.settings.MaxPerBuyer = uint32(
				d.integer(1, math.MaxUint32, inventory.CodeProductInvalid))
		},
	},
	{
		"campaign", inBody, false, text("The opening it belongs to; at most 64 bytes"),
		func(d *decoder, in *input) { in.settings.Campaign = d.string() },
	},
	{
		"capture", inBody, false,
		choice("When authorised money is taken; at confirmation by default", captures),
		func(d *decoder, in *input) { in.settings.CaptureAtShipping = d.choice(captures) == 1 },
	},
	{
		"late_payment", inBody, false,
		choice("What becomes of money for an order that has ended; reclaim, by default, takes the "+
			"same numbers if all are still free", latePayments),
		func(d *decoder, in *input) { in.settings.RefundLate = d.choice(latePayments) == 1 },
	},
}

var priceMembers = []member{
	{
		"amount", inBody, true, integer("Minor units", 0, math.MaxInt64),
		func(d *decoder, in *input) {
			in.settings.Price.Amount = d.integer(0, math.MaxInt64, inventory.CodeProductInvalid)
		},
	},
	{
		"currency", inBody, true, text("ISO 4217"),
		func(d *decoder, in *input) { in.settings.Price.Currency = d.string() },
	},
}

func uint32Setting(
	name, description string, field func(*inventory.Settings) *uint32,
) member {
	return member{
		name, inBody, false, integer(description, 0, math.MaxUint32),
		func(d *decoder, in *input) {
			*field(&in.settings) = d.uint32(inventory.CodeProductInvalid)
		},
	}
}

func secondsSetting(name, description string, field func(*inventory.Settings) *int64) member {
	return member{
		name, inBody, false, orNull(integer(description, 1, math.MaxInt64)),
		func(d *decoder, in *input) {
			*field(&in.settings) = d.integer(1, math.MaxInt64, inventory.CodeProductInvalid)
		},
	}
}

func timeSetting(name, description string, field func(*inventory.Settings) *int64) member {
	return member{
		name, inBody, false, orNull(instant(description)),
		func(d *decoder, in *input) { *field(&in.settings) = d.instant() },
	}
}

func (d *decoder) uint32(c inventory.Code) uint32 { return uint32(d.integer(0, math.MaxUint32, c)) }

// numbers reads an array of numbers into numbers[:0].
func (d *decoder) numbers(numbers []uint32) []uint32 {
	numbers = numbers[:0]
	d.array(func() {
		numbers = append(numbers, d.uint32(inventory.CodeNumbersOutOfRange))
	})
	return numbers
}

// choice reads one of names and returns its index.
func (d *decoder) choice(names []string) int {
	name := d.string()
	i := slices.Index(names, name)
	if i < 0 && d.malformed == nil {
		d.refuse(inventory.CodeValueInvalid, "must be one of "+strings.Join(names, ", "))
	}
	return max(i, 0)
}

// instant reads an RFC 3339 time as Unix milliseconds. What is finer is rounded up, so that a sale
// never opens before the instant that was said.
func (d *decoder) instant() int64 {
	written := d.string()
	if d.malformed != nil {
		return 0
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(written)); err != nil {
		d.refuse(inventory.CodeProductInvalid, "must be a time like 2026-11-29T12:00:00.000Z")
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

var (
	decisions       = []string{"approve", "deny"}
	methods         = []string{string(payment.MethodCard), string(payment.MethodPix)}
	paymentStatuses = texts(order.Statuses())
	queues          = texts(order.Queues())
)

func texts[T ~string](values []T) []string {
	written := make([]string, len(values))
	for i, value := range values {
		written[i] = string(value)
	}
	return written
}

func readQueue(d *decoder, in *input) { in.queue = order.Queue(queues[d.choice(queues)]) }

// payMembers are what a payment is asked for with.
var payMembers = []member{
	orderMember,
	{
		"method", inBody, true, choice("How", methods),
		func(d *decoder, in *input) { in.pay.Method = payment.Method(methods[d.choice(methods)]) },
	},
	{
		"card", inBody, false, objectOf("With method card. Never a card's number", cardMembers),
		func(d *decoder, in *input) { d.object(cardMembers, 0, 0, in) },
	},
	{
		"payer", inBody, false,
		objectOf("Who pays, as far as the provider wants to know", payerMembers),
		func(d *decoder, in *input) { d.object(payerMembers, 0, 0, in) },
	},
}

var cardMembers = []member{
	shortText("token", "What the provider's page gave the browser for the card", true,
		func(in *input) *string { return &in.pay.CardToken }),
}

var payerMembers = []member{
	shortText("name", "Name", false, func(in *input) *string { return &in.pay.Payer.Name }),
	shortText("email", "E-mail", false, func(in *input) *string { return &in.pay.Payer.Email }),
	shortText("document", "CPF or the like", false,
		func(in *input) *string { return &in.pay.Payer.Document }),
	shortText("phone", "Phone", false, func(in *input) *string { return &in.pay.Payer.Phone }),
}

// maxShortText bounds what a person is called, in bytes.
const maxShortText = 255

// shortText is a text of 1 to 255 bytes that is passed on as it is.
func shortText(
	name, description string, needed bool, field func(*input) *string,
) member {
	s := text(description)
	s["minLength"], s["maxLength"] = 1, maxShortText
	return member{name, inBody, needed, s, func(d *decoder, in *input) {
		given := d.string()
		if len(given) < 1 || len(given) > maxShortText {
			d.refuse(inventory.CodeValueInvalid, "must be 1 to 255 bytes")
			return
		}
		*field(in) = given
	}}
}

var amountMembers = []member{
	{
		"amount", inBody, true, integer("Minor units", 1, math.MaxInt64),
		func(d *decoder, in *input) {
			in.amount.Amount = d.integer(1, math.MaxInt64, inventory.CodeValueInvalid)
		},
	},
	{
		"currency", inBody, true, text("ISO 4217"),
		func(d *decoder, in *input) { in.amount.Currency = d.string() },
	},
}
