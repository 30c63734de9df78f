package order_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
)

// story is something that happens to one order. act is done by a checkout whose surroundings break;
// what it cannot do is what the process had not come to. again is what a person does afterwards,
// with the same keys, on a healthy system; kept says what the provider then has, of the order's
// price.
type story struct {
	change func(*inventory.Settings, *order.Config)
	before func(m *market, id inventory.OrderID)
	act    func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID)
	again  func(m *market, id inventory.OrderID)
	status inventory.Status
	kept   int64
}

const pair = 2 * price // every story's order has two numbers

func shipping(_ *inventory.Settings, c *order.Config) {
	c.Policy = func(context.Context, inventory.ProductID) (order.Policy, error) {
		return order.Policy{CaptureAt: order.CaptureAtShipping}, nil
	}
}

// allowing is anti-fraud that allows.
type allowing struct{}

func (allowing) Judge(context.Context, order.FraudCase) (order.Verdict, error) {
	return order.FraudAllow, nil
}

func payBy(method payment.Method) func(context.Context, *market, *order.Checkout, inventory.OrderID) {
	return func(ctx context.Context, _ *market, c *order.Checkout, id inventory.OrderID) {
		_, _, _ = c.Pay(ctx, request(id, "k", method))
	}
}

// buyersPay pays every Pix that waits, and lets the system look.
func (m *market) buyersPay() {
	m.t.Helper()
	for _, c := range m.psp.Charges() {
		if c.Status == payment.StatusPending {
			_, err := m.psp.Pay(c.ID)
			require.NoError(m.t, err)
		}
	}
	m.allDue()
}

func (m *market) allDue() {
	m.t.Helper()
	_, err := m.pool.Exec(m.t.Context(), `UPDATE payments SET due_at = now() WHERE status = 'pending'`)
	require.NoError(m.t, err)
}

// advancePending has a checkout look after what waits for the buyer, as an expiry job does.
func (m *market) advancePending(ctx context.Context, c *order.Checkout, id inventory.OrderID) {
	for _, p := range m.column(`SELECT id FROM payments WHERE order_id = $1 AND status = 'pending'`,
		[16]byte(id)) {
		_ = c.Advance(ctx, inventory.PaymentID(p))
	}
}

// repeatPay is the buyer, who has seen no answer, and sends the request again.
func repeatPay(method payment.Method) func(m *market, id inventory.OrderID) {
	return func(m *market, id inventory.OrderID) {
		_, _, err := m.checkout.Pay(m.t.Context(), request(id, "k", method))
		require.NoError(m.t, err)
		m.buyersPay()
		m.settle()
	}
}

var stories = map[string]story{
	"card": {
		change: func(_ *inventory.Settings, c *order.Config) { c.Fraud = allowing{} },
		act:    payBy(payment.MethodCard), again: repeatPay(payment.MethodCard),
		status: inventory.StatusPaid, kept: pair,
	},
	"declined card": {
		act: func(ctx context.Context, _ *market, c *order.Checkout, id inventory.OrderID) {
			r := request(id, "k", payment.MethodCard)
			r.CardToken = "sim:decline"
			_, _, _ = c.Pay(ctx, r)
		},
		again: func(m *market, id inventory.OrderID) {
			r := request(id, "k", payment.MethodCard)
			r.CardToken = "sim:decline"
			_, _, err := m.checkout.Pay(m.t.Context(), r)
			require.NoError(m.t, err)
		},
		status: inventory.StatusRefused,
	},
	"pix": {
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			_, _, _ = c.Pay(ctx, request(id, "k", payment.MethodPix))
			m.buyersPay()
			m.advancePending(ctx, c, id)
		},
		again:  repeatPay(payment.MethodPix),
		status: inventory.StatusPaid, kept: pair,
	},
	"pix by webhook": {
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			p, _, _ := c.Pay(ctx, request(id, "k", payment.MethodPix))
			if p.Status == order.StatusPending {
				m.buyersPay()
				_ = m.send(ctx, c, &p)
			}
		},
		again: func(m *market, id inventory.OrderID) {
			repeatPay(payment.MethodPix)(m, id)
			p, err := m.store.ByKey(m.t.Context(), id, "k")
			require.NoError(m.t, err)
			for range 2 { // as a provider does that has heard nothing, or not the answer
				require.NoError(m.t, m.send(m.t.Context(), m.checkout, &p))
			}
		},
		status: inventory.StatusPaid, kept: pair,
	},
	"shipped": {
		change: shipping,
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			_, _, _ = c.Pay(ctx, request(id, "k", payment.MethodCard))
			_, _ = c.Ship(ctx, id)
		},
		again: func(m *market, id inventory.OrderID) {
			repeatPay(payment.MethodCard)(m, id)
			_, err := m.checkout.Ship(m.t.Context(), id)
			require.NoError(m.t, err)
		},
		status: inventory.StatusShipped, kept: pair,
	},
	"refunded": {
		before: func(m *market, id inventory.OrderID) { m.pay(request(id, "k", payment.MethodCard)) },
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			_, _, _ = c.Refund(ctx, order.RefundRequest{Order: id, Key: "r", ReturnToStock: true})
		},
		again: func(m *market, id inventory.OrderID) {
			r := order.RefundRequest{Order: id, Key: "r", ReturnToStock: true}
			_, _, err := m.checkout.Refund(m.t.Context(), r)
			require.NoError(m.t, err)
		},
		status: inventory.StatusRefunded,
	},
	"refunded in part": {
		before: func(m *market, id inventory.OrderID) { m.pay(request(id, "k", payment.MethodCard)) },
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			_, _, _ = c.Refund(ctx, partial(id))
		},
		again: func(m *market, id inventory.OrderID) {
			_, _, err := m.checkout.Refund(m.t.Context(), partial(id))
			require.NoError(m.t, err)
		},
		status: inventory.StatusPaid, kept: pair - 500,
	},
	"voided before shipping": {
		change: shipping,
		before: func(m *market, id inventory.OrderID) { m.pay(request(id, "k", payment.MethodCard)) },
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			_, _, _ = c.Refund(ctx, order.RefundRequest{Order: id, Key: "r"})
		},
		again: func(m *market, id inventory.OrderID) {
			_, _, err := m.checkout.Refund(m.t.Context(), order.RefundRequest{Order: id, Key: "r"})
			require.NoError(m.t, err)
		},
		status: inventory.StatusRefunded,
	},
	"paid twice": {
		before: func(m *market, id inventory.OrderID) {
			m.pay(request(id, "pix", payment.MethodPix))
			m.pay(request(id, "k", payment.MethodCard))
			m.buyersPay()
		},
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			m.advancePending(ctx, c, id)
		},
		again:  repeatPay(payment.MethodCard),
		status: inventory.StatusPaid, kept: pair,
	},
	"paid too late": {
		before: func(m *market, id inventory.OrderID) {
			p := m.pay(request(id, "pix", payment.MethodPix))
			numbers := m.order(id).Items[0].Numbers
			m.do(&inventory.Refuse{OnOrder: inventory.OnOrder{Order: id}, Payment: p.ID})
			m.do(&inventory.Reserve{
				Tenant: tenant, Key: "late" + id.String(), Buyer: "b-2",
				Lines: []inventory.Line{{Product: m.product, Numbers: numbers}},
			})
			m.buyersPay()
		},
		act: func(ctx context.Context, m *market, c *order.Checkout, id inventory.OrderID) {
			m.advancePending(ctx, c, id)
		},
		again:  func(*market, inventory.OrderID) {},
		status: inventory.StatusRefunded,
	},
}

// send is the provider's webhook about a Pix that was paid, received and acted on.
func (m *market) send(ctx context.Context, c *order.Checkout, p *order.Payment) error {
	m.t.Helper()
	content := captured(p, accountID)
	content["id"] = "evt_" + string(p.ID)
	header, body := hook(m.t, secret, content)
	if err := c.Webhook(ctx, tenant, "simulator", header, body); err != nil {
		return err
	}
	return c.Act(ctx, order.WebhookID{
		Tenant: tenant, Provider: "simulator", Event: "evt_" + string(p.ID),
	})
}

func partial(id inventory.OrderID) order.RefundRequest {
	return order.RefundRequest{
		Order: id, Key: "r", Amount: &payment.Money{Amount: 500, Currency: "BRL"},
	}
}

// TestEveryCallBreaks lets every single call of every story go wrong in every way, and each time
// the order ends paid, refunded or released, once, by itself.
func TestEveryCallBreaks(t *testing.T) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := open(t, func(settings *inventory.Settings, c *order.Config) {
				settings.Count = 10_000
				if s.change != nil {
					s.change(settings, c)
				}
			})
			for how := range modes {
				for at := 1; s.breaks(m, at, how); at++ {
				}
			}
		})
	}
}

// breaks tells the story with its at-th call broken, and says whether there was one.
func (s *story) breaks(m *market, at int, how mode) bool {
	id := m.reserve(2)
	if s.before != nil {
		s.before(m, id)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	b := &breakage{at: at, mode: how, cancel: cancel}
	c, err := order.New(b.apply(m.config))
	require.NoError(m.t, err)
	s.act(ctx, m, c, id)
	if b.count() < at {
		require.Greater(m.t, at, 3, "calls that were broken")
		return false
	}
	defer func() {
		if m.t.Failed() {
			m.t.Logf("%v: call %d, %s", how, at, b.broken())
		}
	}()
	m.settle()
	m.buyersPay()
	m.settle()
	m.audit(id)
	s.again(m, id)
	kept := m.audit(id)
	require.Equal(m.t, s.status, m.order(id).Status)
	require.Equal(m.t, s.kept, kept)
	return true
}
