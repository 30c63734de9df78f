package order_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

// TestRecover empties PostgreSQL: the payments of sold and of held orders come back from the engine
// and the provider, and nobody is charged again.
func TestRecover(t *testing.T) {
	m := open(t)
	paid, pending := m.reserve(2), m.reserve(1)
	m.pay(request(paid, "k", payment.MethodCard))
	m.pay(request(pending, "k", payment.MethodPix))
	back, _ := m.tooLate(payment.MethodPix)
	elsewhere := m.reserve(1)
	m.do(&inventory.Confirm{OnOrder: inventory.OnOrder{Order: elsewhere}, Payment: "by-a-service"})
	held := m.reserve(1)
	m.do(&inventory.BeginPayment{OnOrder: inventory.OnOrder{Order: held}, Payment: "0198f3c2d4e5f6a7b8c9d0e1fh"})
	unpaid := m.reserve(1)

	m.lose(paid, pending, back, elsewhere, held, unpaid)
	lost, err := postgres.NewOrders(m.pool).LostPayments(t.Context(), 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []inventory.OrderID{paid, pending, back, held}, lost)

	checkout := m.newCheckout()
	for range 2 { // the second time there is nothing to do
		require.NoError(t, checkout.Recover(t.Context(), paid))
		require.NoError(t, checkout.Recover(t.Context(), pending))
		require.ErrorIs(t, checkout.Recover(t.Context(), held), order.ErrPaymentNotFound)
		require.ErrorIs(t, checkout.Recover(t.Context(), unpaid), order.ErrOrderStatus)
	}
	require.EqualValues(t, 2*price, m.audit(paid))
	p := m.payment(m.order(pending).Payment)
	require.Equal(t, order.StatusPending, p.Status)
	require.NotEmpty(t, p.Action.PixCode, "it can still be paid")
	require.Equal(t, 2, m.count("SELECT count(*) FROM payments"))
	require.Empty(t, m.psp.Payment("0198f3c2d4e5f6a7b8c9d0e1fh"), "nobody was asked for money")
}

// TestRecoverAllTenants brings each payment back to the tenant whose account has its money.
func TestRecoverAllTenants(t *testing.T) {
	t.Parallel()
	m := open(t)
	var other payment.Provider
	m.second, other = m.startProvider("second")
	m.config.Accounts["outra"] = []order.Account{{Provider: other, ID: accountID}}
	m.checkout = m.newCheckout()
	ids := map[string]inventory.OrderID{tenant: m.reserve(1), "outra": m.reserve(1)}
	for name, id := range ids {
		r := request(id, "k", payment.MethodCard)
		r.Tenant = name
		require.Equal(t, order.StatusCaptured, m.pay(r).Status)
	}
	m.lose(ids[tenant], ids["outra"])
	down := simulator.Fault{Kind: simulator.ErrorBefore, On: simulator.OnLookUp, Times: 1}
	require.NoError(t, m.second.Script(down))
	require.ErrorIs(t, m.checkout.Recover(t.Context(), ids["outra"]), payment.ErrUnknown)
	for name, id := range ids {
		require.NoError(t, m.checkout.Recover(t.Context(), id))
		require.Equal(t, name, m.payment(m.order(id).Payment).Tenant)
		require.EqualValues(t, price, m.audit(id))
	}
}

// TestRecoverWhatGoesBack empties PostgreSQL while the engine waits for money to go back that came
// when another had the numbers already. It goes back once, whatever had been asked for.
func TestRecoverWhatGoesBack(t *testing.T) {
	t.Parallel()
	settle := func(m *market, c payment.Charge) {
		_, err := m.psp.Pay(c.Payment)
		require.NoError(m.t, err)
	}
	finish := func(status payment.RefundStatus) func(*market, payment.Charge) {
		return func(m *market, c payment.Charge) {
			require.Equal(m.t, order.StatusSurplus, m.payment(inventory.PaymentID(c.Payment)).Status)
			_, err := m.psp.FinishRefund(c.Payment, "lost", status)
			require.NoError(m.t, err)
			m.settle()
		}
	}
	underWay := func(m *market, c payment.Charge) {
		settle(m, c)
		require.NoError(m.t, m.psp.Script(simulator.Fault{Kind: simulator.RefundPending}))
		m.giveBack(c)
	}
	for name, c := range map[string]struct {
		method  payment.Method
		before  func(m *market, c payment.Charge) // what was done before the loss
		then    func(m *market, c payment.Charge) // and what happens after the recovery
		refunds int                               // that the provider has done
	}{
		"not asked for":      {payment.MethodPix, settle, nil, 1},
		"under way":          {payment.MethodPix, underWay, finish(payment.RefundDone), 1},
		"under way, in vain": {payment.MethodPix, underWay, finish(payment.RefundFailed), 1},
		"done": {payment.MethodPix, func(m *market, c payment.Charge) {
			settle(m, c)
			m.giveBack(c)
		}, nil, 1},
		"authorised": {payment.MethodCard, func(*market, payment.Charge) {}, nil, 0},
		"voided": {payment.MethodCard, func(m *market, c payment.Charge) {
			_, err := m.provider.Void(m.t.Context(), payment.Void{Key: "v", Reference: c.Reference})
			require.NoError(m.t, err)
		}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			id, charge := m.tooLate(c.method)
			c.before(m, charge)
			m.lose(id)
			require.NoError(t, m.checkout.Recover(t.Context(), id))
			again := m.checkout.Recover(t.Context(), id)
			require.True(t, again == nil || errors.Is(again, order.ErrOrderStatus), "%v", again)
			if c.then != nil {
				c.then(m, charge)
			}
			require.Zero(t, m.audit(id))
			require.Equal(t, inventory.StatusRefunded, m.order(id).Status)
			done := 0
			for _, r := range m.psp.Payment(charge.Payment)[0].Refunds {
				if r.Status == payment.RefundDone {
					done++
				}
			}
			require.Equal(t, c.refunds, done)
		})
	}
}

// tooLate is an order whose payment was confirmed when another had its numbers already.
func (m *market) tooLate(method payment.Method) (inventory.OrderID, payment.Charge) {
	m.t.Helper()
	id := m.reserve(2)
	const lost = "0198f3c2d4e5f6a7b8c9d0e1fg"
	charge, err := m.provider.Authorise(m.t.Context(), payment.Authorisation{
		Key: lost, Payment: lost, Order: id.String(), Method: method, CardToken: "tok_1",
		Amount: payment.Money{Amount: pair, Currency: "BRL"}, ExpiresAt: time.Now().Add(time.Hour),
	})
	require.NoError(m.t, err)
	numbers := m.order(id).Items[0].Numbers
	on := inventory.OnOrder{Order: id}
	m.do(&inventory.Release{OnOrder: on})
	m.do(&inventory.Reserve{
		Tenant: tenant, Key: "late" + id.String(), Buyer: "b-2",
		Lines: []inventory.Line{{Product: m.product, Numbers: numbers}},
	})
	outcome, err := engine.client.Do(m.t.Context(), inventory.Entry{
		Command: &inventory.Confirm{OnOrder: on, Payment: lost},
	})
	require.NoError(m.t, err)
	require.Equal(m.t, inventory.CodeNumbersTaken, outcome.Code)
	return id, charge
}

// giveBack refunds all of a charge, by a refund that will be lost.
func (m *market) giveBack(c payment.Charge) {
	m.t.Helper()
	_, err := m.provider.Refund(m.t.Context(), payment.RefundRequest{
		Key: "lost", Refund: "lost", Amount: c.Amount, Reference: c.Reference,
	})
	require.NoError(m.t, err)
}

// lose empties PostgreSQL, and has the rows of these orders come back from the engine.
func (m *market) lose(ids ...inventory.OrderID) {
	m.t.Helper()
	_, err := m.pool.Exec(m.t.Context(),
		"TRUNCATE orders, payments, payers, refunds, shard_offsets CASCADE")
	require.NoError(m.t, err)
	rows := postgres.NewOrders(m.pool)
	for _, id := range ids {
		require.NoError(m.t, rows.Upsert(m.t.Context(), m.order(id)))
	}
}
