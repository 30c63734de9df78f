package gateway

import (
	"context"
	"net/http"

	"numera/engine/inventory"
)

// operation is one row of the contract.
type operation struct {
	subject string // on NATS, after subjectPrefix
	method  string // on HTTP
	path    string
	summary string // for the document
	role    role   // who may call it, at least
	keyed   bool   // needs an Idempotency-Key
	members []member
	status  int    // of an acceptance
	answers schema // what an acceptance is, as JSON

	// Exactly one of the two is set. command makes the command that the shard decides; wrong is
	// set where a value of it has been found wrong already. ask does anything else.
	command func(c *call) inventory.Command
	ask     func(ctx context.Context, g *Gateway, c *call)

	// accept answers with what was decided. With command.
	accept func(c *call, o *inventory.Outcome)

	// check finds what is wrong with the values together, or with who asks; nil: nothing can be.
	check func(c *call) *problem

	// paid does it in place of command where orders are paid here; done is false if no payment is
	// concerned, and then command does it after all.
	paid func(ctx context.Context, g *Gateway, c *call) (done bool)
}

// subjectPrefix is what the subjects of all operations begin with.
const subjectPrefix = "numera.v1."

// takesBody says that HTTP carries members of the operation in a body.
func (op *operation) takesBody() bool {
	for i := range op.members {
		if op.members[i].place == inBody {
			return true
		}
	}
	return false
}

const (
	orderPath   = "/v1/orders/{order}"
	productPath = "/v1/products/{product}"
	adminOrder  = "/v1/admin/orders/{order}"
	adminPath   = "/v1/admin/products/{product}"

	adminPayment = "/v1/admin/payments/{payment}"
	lettersPath  = "/v1/admin/dead-letters"
)

// operations is the contract: every operation of both transports.
var operations = [...]operation{
	{
		subject: "sessions.create", method: http.MethodPost, path: "/v1/sessions",
		summary: "Begin an anonymous session", role: rolePublic, status: 201,
		answers: ref("Session"), ask: createSession,
	},
	{
		subject: "products.get", method: http.MethodGet, path: productPath,
		summary: "A product, at most a second old", role: rolePublic, status: 200,
		members: []member{productMember}, answers: ref("Product"), ask: getProduct,
	},
	{
		subject: "products.numbers", method: http.MethodGet, path: productPath + "/numbers",
		summary: "Which numbers are taken", role: rolePublic, status: 200,
		members: []member{productMember, fromMember, numbersLimitMember},
		answers: ref("Numbers"), ask: getNumbers,
	},
	{
		subject: "orders.create", method: http.MethodPost, path: "/v1/orders",
		summary: "Reserve numbers", role: roleBuyer, keyed: true, status: 201,
		members: orderMembers, answers: ref("CreatedOrder"), check: nameBuyer,
		command: reserve, accept: acceptReserve,
	},
	{
		subject: "orders.get", method: http.MethodGet, path: orderPath,
		summary: "An order as it is now", role: roleBuyer, status: 200,
		members: []member{orderMember}, answers: ref("OrderAnswer"), ask: getOrder,
	},
	{
		subject: "orders.release", method: http.MethodDelete, path: orderPath,
		summary: "Give a reservation back", role: roleBuyer, status: 200,
		members: []member{orderMember}, answers: ref("OrderAnswer"), accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.Release{OnOrder: c.onOrder()}
		},
	},
	{
		subject: "orders.extend", method: http.MethodPost, path: orderPath + "/extend",
		summary: "Make a reservation last longer", role: roleBuyer, status: 200,
		members: []member{orderMember}, answers: ref("OrderAnswer"), accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.Extend{OnOrder: c.onOrder()}
		},
	},
	{
		subject: "orders.begin-payment", method: http.MethodPost,
		path:    orderPath + "/begin-payment",
		summary: "A payment begins: reserved to paying", role: roleService, status: 200,
		members: []member{orderMember, paymentMember}, answers: ref("OrderAnswer"),
		accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.BeginPayment{OnOrder: c.onOrder(), Payment: c.in.payment}
		},
	},
	{
		subject: "orders.confirm", method: http.MethodPost, path: orderPath + "/confirm",
		summary: "It is paid: the numbers are sold", role: roleService, status: 200,
		members: []member{orderMember, paymentMember}, answers: ref("OrderAnswer"),
		accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.Confirm{OnOrder: c.onOrder(), Payment: c.in.payment}
		},
	},
	{
		subject: "orders.refuse", method: http.MethodPost, path: orderPath + "/refuse",
		summary: "The payment failed: the numbers are released", role: roleService, status: 200,
		members: []member{orderMember, paymentMember}, answers: ref("OrderAnswer"),
		accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.Refuse{OnOrder: c.onOrder(), Payment: c.in.payment}
		},
	},
	{
		subject: "orders.ship", method: http.MethodPost, path: adminOrder + "/ship",
		summary: "It is on its way: paid to shipped", role: roleAdmin, status: 200,
		members: []member{orderMember}, answers: ref("OrderAnswer"), accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.Ship{OnOrder: c.onOrder()}
		},
		paid: shipPaid,
	},
	{
		subject: "orders.refund", method: http.MethodPost, path: adminOrder + "/refund",
		summary: "Give the money of the whole order back", role: roleAdmin, status: 200,
		members: []member{orderMember, returnMember, reasonMember}, answers: ref("OrderAnswer"),
		accept: acceptOrder,
		command: func(c *call) inventory.Command {
			return &inventory.Refund{
				OnOrder: c.onOrder(), ReturnToStock: c.in.returnToStock, Reason: c.in.reason,
			}
		},
		paid: refundPaid,
	},
	{
		subject: "payments.create", method: http.MethodPost, path: orderPath + "/payments",
		summary: "Pay an order", role: roleBuyer, keyed: true, status: 201,
		members: payMembers, answers: ref("PaymentAnswer"), check: checkMethod, ask: asPayments(createPayment),
	},
	{
		subject: "payments.list", method: http.MethodGet, path: orderPath + "/payments",
		summary: "The payments of an order, oldest first", role: roleBuyer, status: 200,
		members: []member{orderMember}, answers: ref("PaymentsAnswer"), ask: asPayments(listPayments),
	},
	{
		subject: "payments.review", method: http.MethodPost, path: adminPayment + "/review",
		summary: "Decide a payment that waits for a person", role: roleAdmin, status: 200,
		members: []member{paymentInPath, decisionMember}, answers: ref("PaymentAnswer"),
		ask: asPayments(reviewPayment),
	},
	{
		subject: "payments.refunds", method: http.MethodGet, path: adminPayment + "/refunds",
		summary: "The refunds of a payment, oldest first", role: roleAdmin, status: 200,
		members: []member{paymentInPath}, answers: ref("RefundsAnswer"), ask: asPayments(listRefunds),
	},
	{
		subject: "orders.refund-part", method: http.MethodPost, path: adminOrder + "/refunds",
		summary: "Give some of an order's money back", role: roleAdmin, keyed: true, status: 201,
		members: []member{orderMember, amountMember, reasonMember}, answers: ref("RefundAnswer"),
		ask: asPayments(refundPart),
	},
	{
		subject: "payments.search", method: http.MethodGet, path: "/v1/admin/payments",
		summary: "Payments in a status, oldest first", role: roleAdmin, status: 200,
		members: []member{paymentStatusMember, afterMember, deskLimitMember},
		answers: ref("PaymentsAnswer"), ask: asPayments(searchPayments),
	},
	{
		subject: "findings.list", method: http.MethodGet, path: "/v1/admin/findings",
		summary: "What somebody has to look at, oldest first", role: roleAdmin, status: 200,
		members: []member{deskLimitMember}, answers: ref("FindingsAnswer"), ask: asPayments(listFindings),
	},
	{
		subject: "dead-letters.list", method: http.MethodGet, path: lettersPath,
		summary: "Jobs that have failed for good", role: roleAdmin, status: 200,
		members: []member{queueInQuery, afterMember, deskLimitMember},
		answers: ref("DeadLettersAnswer"), ask: asPayments(listDeadLetters),
	},
	{
		subject: "dead-letters.replay", method: http.MethodPost, path: lettersPath + "/{letter}/replay",
		summary: "Have a dead letter done again", role: roleAdmin, status: 200,
		members: []member{letterMember}, answers: ref("Replayed"), ask: asPayments(replayDeadLetter),
	},
	{
		subject: "dead-letters.replay-all", method: http.MethodPost, path: lettersPath + "/replay",
		summary: "Have all dead letters, or those of a queue, done again", role: roleAdmin, status: 200,
		members: []member{queueMember}, answers: ref("Replayed"), ask: asPayments(replayDeadLetters),
	},
	{
		subject: "products.put", method: http.MethodPut, path: adminPath,
		summary: "Create a product, or replace its settings", role: roleAdmin, status: 200,
		members: append([]member{productMember}, settingsMembers...), answers: ref("Product"),
		accept: acceptProduct,
		command: func(c *call) inventory.Command {
			return &inventory.PutProduct{Product: c.in.product, Settings: c.in.settings}
		},
	},
	{
		subject: "products.get-fresh", method: http.MethodGet, path: adminPath,
		summary: "A product as it is now", role: roleAdmin, status: 200,
		members: []member{productMember}, answers: ref("Product"), ask: getFreshProduct,
	},
	{
		subject: "products.restock", method: http.MethodPost, path: adminPath + "/restock",
		summary: "Add numbers at the end", role: roleAdmin, keyed: true, status: 200,
		members: []member{productMember, countMember}, answers: ref("Product"),
		accept: acceptProduct,
		command: func(c *call) inventory.Command {
			return &inventory.Restock{
				Product: c.in.product, Count: c.in.count, Tenant: c.tenant, Key: c.key,
			}
		},
	},
	{
		subject: "products.block", method: http.MethodPost, path: adminPath + "/block",
		summary: "Take free numbers out of sale", role: roleAdmin, status: 200,
		members: []member{productMember, numbersMember, reasonMember}, answers: ref("Product"),
		accept: acceptProduct,
		command: func(c *call) inventory.Command {
			return &inventory.Block{
				Product: c.in.product, Numbers: c.in.numbers, Reason: c.in.reason,
			}
		},
	},
	{
		subject: "products.unblock", method: http.MethodPost, path: adminPath + "/unblock",
		summary: "Put blocked numbers back on sale", role: roleAdmin, status: 200,
		members: []member{productMember, numbersMember, reasonMember}, answers: ref("Product"),
		accept: acceptProduct,
		command: func(c *call) inventory.Command {
			return &inventory.Unblock{
				Product: c.in.product, Numbers: c.in.numbers, Reason: c.in.reason,
			}
		},
	},
	{
		subject: "products.state", method: http.MethodPut, path: adminPath + "/state",
		summary: "Open, pause or close the sale", role: roleAdmin, status: 200,
		members: []member{productMember, stateMember}, answers: ref("Product"),
		accept: acceptProduct,
		command: func(c *call) inventory.Command {
			return &inventory.SetSaleState{Product: c.in.product, State: c.in.state}
		},
	},
	{
		subject: "products.orders", method: http.MethodGet, path: adminPath + "/orders",
		summary: "The orders of a product, oldest first", role: roleAdmin, status: 200,
		members: []member{productMember, afterMember, ordersLimitMember},
		answers: ref("OrdersPage"), ask: listOrders,
	},
}

// onOrder names the order of the request. A buyer's token reaches the buyer's own orders only.
func (c *call) onOrder() inventory.OnOrder {
	return inventory.OnOrder{Order: c.in.order, By: c.who.buyer}
}

func reserve(c *call) inventory.Command {
	return &inventory.Reserve{
		Tenant: c.tenant, Key: c.key, Buyer: c.in.buyer, Lines: c.in.lines, Partial: c.in.partial,
	}
}

func acceptReserve(c *call, o *inventory.Outcome) {
	c.replay = o.Replay
	c.body = appendCreatedAnswer(c.body, o)
}

func acceptOrder(c *call, o *inventory.Outcome) {
	c.body = appendOrderAnswer(c.body, o.Order, o.AtUnixMilli)
}

func acceptProduct(c *call, o *inventory.Outcome) {
	if o.Created {
		c.status = http.StatusCreated
	}
	c.replay = o.Replay
	c.body = appendProduct(c.body, o.Product)
}
