package order_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/payment"
)

// TestRecover empties PostgreSQL: the payments of sold and of held orders come back from the engine
// and the provider, and nobody is charged again.
func TestRecover(t *testing.T) {
	m := open(t)
	paid, pending := m.reserve(2), m.reserve(1)
	m.pay(request(paid, "k", payment.MethodCard))
	m.pay(request(pending, "k", payment.MethodPix))
	elsewhere := m.reserve(1)
	m.do(&inventory.Confirm{OnOrder: inventory.OnOrder{Order: elsewhere}, Payment: "by-a-service"})
	held := m.reserve(1)
	m.do(&inventory.BeginPayment{OnOrder: inventory.OnOrder{Order: held}, Payment: "0198f3c2d4e5f6a7b8c9d0e1fg"})
	unpaid := m.reserve(1)

	_, err := m.pool.Exec(t.Context(), "TRUNCATE orders, payments, refunds, shard_offsets CASCADE")
	require.NoError(t, err)
	rows := postgres.NewOrders(m.pool)
	for _, id := range []inventory.OrderID{paid, pending, elsewhere, held, unpaid} {
		require.NoError(t, rows.Upsert(t.Context(), m.order(id)))
	}
	lost, err := rows.LostPayments(t.Context(), 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []inventory.OrderID{paid, pending, held}, lost)

	checkout := m.newCheckout()
	for range 2 { // the second time there is nothing to do
		require.NoError(t, checkout.Recover(t.Context(), tenant, paid))
		require.NoError(t, checkout.Recover(t.Context(), tenant, pending))
		require.ErrorIs(t, checkout.Recover(t.Context(), tenant, held), order.ErrPaymentNotFound)
		require.ErrorIs(t, checkout.Recover(t.Context(), tenant, unpaid), order.ErrOrderStatus)
	}
	require.EqualValues(t, 2*price, m.audit(paid))
	p := m.payment(m.order(pending).Payment)
	require.Equal(t, order.StatusPending, p.Status)
	require.NotEmpty(t, p.Action.PixCode, "it can still be paid")
	require.Equal(t, 2, m.count("SELECT count(*) FROM payments"))
	require.Empty(t, m.psp.Payment("0198f3c2d4e5f6a7b8c9d0e1fg"), "nobody was asked for money")
}
