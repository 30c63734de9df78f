package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/payment/pix"
	"numera/gateway/shards"
	"numera/shard/wire"
)

// Payments is where orders are paid: an order.Checkout, whose contract the methods have.
type Payments interface {
	Pay(ctx context.Context, r order.PayRequest) (p order.Payment, replay bool, err error)
	Payments(
		ctx context.Context, id inventory.OrderID, by inventory.BuyerID,
	) ([]order.Payment, error)
	Refund(
		ctx context.Context, r order.RefundRequest,
	) (refund order.Refund, replay bool, err error)
	Refunds(ctx context.Context, id inventory.PaymentID) ([]order.Refund, error)
	Ship(ctx context.Context, id inventory.OrderID) (*inventory.OrderView, error)
	Review(
		ctx context.Context, id inventory.PaymentID, approve bool, by string,
	) (order.Payment, error)
	Webhook(
		ctx context.Context, tenant, provider string, header func(name string) string, body []byte,
	) error
}

// payPatience is how long a buyer's request waits for its payment. One that takes longer goes on
// without it, for payTime; what is not done by then is handed on by Payments itself. To cut it off
// when the buyer is answered would throw away work, and connections with it, just when there is too
// much to do.
const (
	payPatience = 3 * time.Second
	payTime     = 12 * time.Second
)

// asPayments makes the ask of an operation that needs Payments and the Desk: without them it is
// refused, and an error of theirs is answered.
func asPayments(
	do func(ctx context.Context, g *Gateway, c *call) error,
) func(ctx context.Context, g *Gateway, c *call) {
	return func(ctx context.Context, g *Gateway, c *call) {
		if g.config.Payments == nil {
			p := retryLater(codeUnavailable, 0)
			p.detail = "this system takes no payments"
			c.refuse(p, g.now())
			return
		}
		if err := do(ctx, g, c); err != nil {
			c.refuse(g.unpaid(c, err), g.now())
		}
	}
}

// checkMethod refuses a card without what stands for it.
func checkMethod(c *call) *problem {
	switch method := c.in.pay.Method; {
	case method == payment.MethodCard && c.in.pay.CardToken == "":
		return wrongValue("/card", "a payment by card needs the token that stands for the card")
	case method != payment.MethodCard && c.in.pay.CardToken != "":
		return wrongValue("/card", "a payment by "+string(method)+" takes no card")
	}
	return nil
}

func wrongValue(pointer, detail string) *problem {
	return refusedBy(&inventory.Outcome{
		Code:    inventory.CodeValueInvalid,
		Refusal: &inventory.Refusal{Pointer: pointer, Detail: detail},
	})
}

func createPayment(ctx context.Context, g *Gateway, c *call) error {
	select {
	case g.paying <- struct{}{}:
	default:
		c.refuse(retryLater(codeOf(inventory.CodeOverloaded), 0), g.now())
		return nil
	}
	r := c.in.pay
	r.Tenant, r.Order, r.By, r.Key = c.tenant, c.in.order, c.who.buyer, c.key
	done := make(chan paid, 1)
	requestID := c.requestID
	g.payments.do(func() {
		defer func() { <-g.paying }()
		defer func() {
			if reason := recover(); reason != nil {
				g.logPanic(requestID, reason)
				done <- paid{err: errBroken}
			}
		}()
		within, cancel := context.WithTimeout(g.base, payTime)
		defer cancel()
		p, replay, err := g.config.Payments.Pay(within, r)
		done <- paid{p, replay, err}
	})
	select {
	case a := <-done:
		return g.answerPaid(c, a)
	case <-time.After(payPatience):
		return g.answerPaid(c, g.paidSoFar(ctx, &r))
	}
}

// paid is what Payments.Pay returns.
type paid struct {
	payment order.Payment
	replay  bool
	err     error
}

// paidSoFar is the payment as it stands, for a buyer who has waited long enough.
func (g *Gateway) paidSoFar(ctx context.Context, r *order.PayRequest) paid {
	all, err := g.config.Payments.Payments(ctx, r.Order, r.By)
	for i := range all {
		if all[i].Key == r.Key {
			return paid{payment: all[i]}
		}
	}
	return paid{err: cmp.Or(err, errNotYet)}
}

// What clients hear of as an unknown outcome only.
var (
	errNotYet = errors.New("gateway: the payment is not stored yet")
	errBroken = errors.New("gateway: a payment broke")
)

func (g *Gateway) answerPaid(c *call, a paid) error {
	if a.err != nil {
		return a.err
	}
	c.replay = a.replay
	g.answerPayment(c, &a.payment)
	return nil
}

func listPayments(ctx context.Context, g *Gateway, c *call) error {
	all, err := g.config.Payments.Payments(ctx, c.in.order, c.who.buyer)
	if err != nil {
		return err
	}
	answerList(g, c, "payments", all, "", appendPayment)
	return nil
}

func reviewPayment(ctx context.Context, g *Gateway, c *call) error {
	p, err := g.config.Payments.Review(ctx, c.in.payment, c.in.approve, c.who.role.String())
	if err != nil {
		return err
	}
	g.answerPayment(c, &p)
	return nil
}

func (g *Gateway) answerPayment(c *call, p *order.Payment) {
	c.atUnixMilli = g.now()
	c.body = appendPayment(append(c.body, `{"payment":`...), p)
	c.body = appendTime(append(c.body, `,"server_time":`...), c.atUnixMilli)
	c.body = append(c.body, '}')
}

// refundPart gives some of the money back, and leaves the order as it is.
func refundPart(ctx context.Context, g *Gateway, c *call) error {
	amount := payment.Money(c.in.amount)
	refund, replay, err := g.config.Payments.Refund(ctx, order.RefundRequest{
		Order: c.in.order, Key: c.key, Amount: &amount, Reason: c.in.reason,
		By: c.who.role.String(),
	})
	if err != nil {
		return err
	}
	c.replay, c.atUnixMilli = replay, g.now()
	c.body = appendRefund(append(c.body, `{"refund":`...), &refund)
	c.body = appendTime(append(c.body, `,"server_time":`...), c.atUnixMilli)
	c.body = append(c.body, '}')
	return nil
}

func listRefunds(ctx context.Context, g *Gateway, c *call) error {
	all, err := g.config.Payments.Refunds(ctx, c.in.payment)
	if err != nil {
		return err
	}
	answerList(g, c, "refunds", all, "", appendRefund)
	return nil
}

// wholeRefund is the idempotency key of the refund that ends an order: there is one at the most.
const wholeRefund = "whole"

// refundPaid refunds an order that a payment has paid; done is false for any other, which has no
// money to give back here.
func refundPaid(ctx context.Context, g *Gateway, c *call) (done bool) {
	_, _, err := g.config.Payments.Refund(ctx, order.RefundRequest{
		Order: c.in.order, Key: wholeRefund, ReturnToStock: c.in.returnToStock,
		Reason: c.in.reason, By: c.who.role.String(),
	})
	if errors.Is(err, order.ErrPaymentNotFound) {
		return false
	}
	g.answerOrderNow(ctx, c, err)
	return true
}

// shipPaid captures what has to be captured before an order is shipped.
func shipPaid(ctx context.Context, g *Gateway, c *call) (done bool) {
	_, err := g.config.Payments.Ship(ctx, c.in.order)
	g.answerOrderNow(ctx, c, err)
	return true
}

// answerOrderNow answers with the order as it is now, unless err says why it was not changed.
func (g *Gateway) answerOrderNow(ctx context.Context, c *call, err error) {
	if err != nil {
		c.refuse(g.unpaid(c, err), g.now())
		return
	}
	o, err := g.shards.Order(ctx, wire.OrderQuery(c.onOrder()))
	if err != nil {
		c.refuse(g.failed(c, err), g.now())
		return
	}
	if g.accepted(c, o) {
		acceptOrder(c, o)
	}
}

// unpaid maps an error of payments. Of what is not known to have done nothing, a request that
// carries a key or that is a transition can be repeated, and acts once.
func (g *Gateway) unpaid(c *call, err error) *problem {
	var status *order.StatusError
	switch {
	case errors.As(err, &status):
		return refusedBy(&inventory.Outcome{
			Code: inventory.CodeOrderStatus, Refusal: &inventory.Refusal{Status: status.Status},
		})
	case errors.Is(err, shards.ErrOverloaded), errors.Is(err, shards.ErrUnavailable):
		return g.failed(c, err)
	}
	for _, known := range paymentRefusals {
		if errors.Is(err, known.err) {
			return refused(known.code, "")
		}
	}
	g.logFailure(c, err)
	if c.op.method == http.MethodGet {
		return retryLater(codeUnavailable, 0)
	}
	return retryLater(codeOutcomeUnknown, 0)
}

var paymentRefusals = [...]struct {
	err  error
	code code
}{
	{order.ErrOrderNotFound, codeOf(inventory.CodeOrderNotFound)},
	{order.ErrPaymentNotFound, codePaymentNotFound},
	{order.ErrKeyReused, codeOf(inventory.CodeKeyReused)},
	{order.ErrInProgress, codeInProgress},
	{order.ErrMethod, codeMethodUnavailable},
	{order.ErrTooManyAttempts, codeTooManyAttempts},
	{order.ErrAmount, codeRefundAmount},
	{order.ErrLapsed, codeLapsed},
	{order.ErrConflict, codePaymentStatus},
	{ErrNoDeadLetter, codeLetterNotFound},
}

func appendPayment(buf []byte, p *order.Payment) []byte {
	money := func(amount int64) inventory.Money {
		return inventory.Money{Amount: amount, Currency: p.Amount.Currency}
	}
	buf = appendText(append(buf, `{"id":`...), string(p.ID))
	buf = appendText(append(buf, `,"order":`...), p.Order.String())
	buf = appendText(append(buf, `,"method":`...), string(p.Method))
	buf = appendText(append(buf, `,"provider":`...), p.Provider)
	buf = appendText(append(buf, `,"status":`...), string(p.Status))
	buf = strconv.AppendBool(append(buf, `,"processing":`...), !p.Status.Rests())
	buf = appendMoney(append(buf, `,"amount":`...), inventory.Money(p.Amount))
	buf = appendMoney(append(buf, `,"captured":`...), money(p.Captured))
	buf = appendMoney(append(buf, `,"refunded":`...), money(p.Refunded))
	buf = appendAction(append(buf, `,"action":`...), &p.Action)
	buf = appendTime(append(buf, `,"created_at":`...), p.CreatedAt.UnixMilli())
	buf = appendTime(append(buf, `,"expires_at":`...), p.ExpiresAt.UnixMilli())
	return append(buf, '}')
}

// appendAction writes what the buyer has to do, or null. A Pix comes with its code drawn, so that a
// page has only to show it.
func appendAction(buf []byte, a *payment.Action) []byte {
	if a.Kind == payment.ActionNone {
		return append(buf, "null"...)
	}
	buf = appendText(append(buf, `{"kind":`...), string(a.Kind))
	switch a.Kind {
	case payment.ActionPix:
		buf = appendText(append(buf, `,"pix_code":`...), a.PixCode)
		if drawn, err := pix.SVG(a.PixCode); err == nil { // else the text has to do
			buf = appendText(append(buf, `,"qr_svg":`...), string(drawn))
		}
	case payment.ActionRedirect:
		buf = appendText(append(buf, `,"url":`...), a.URL)
	case payment.ActionConfirm:
		buf = appendText(append(buf, `,"client_key":`...), a.ClientKey)
	}
	return append(buf, '}')
}

func appendRefund(buf []byte, r *order.Refund) []byte {
	buf = appendText(append(buf, `{"id":`...), r.ID)
	buf = appendText(append(buf, `,"payment":`...), string(r.Payment))
	buf = appendMoney(append(buf, `,"amount":`...), inventory.Money(r.Amount))
	buf = strconv.AppendBool(append(buf, `,"whole":`...), r.Whole)
	buf = appendText(append(buf, `,"status":`...), string(r.Status))
	buf = appendText(append(buf, `,"reason":`...), r.Reason)
	buf = appendTime(append(buf, `,"created_at":`...), r.CreatedAt.UnixMilli())
	return append(buf, '}')
}
