package order_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
)

func TestCardIsCapturedAtConfirmation(t *testing.T) {
	m := open(t)
	id := m.reserve(3)
	p := m.pay(request(id, "k", payment.MethodCard))
	require.Equal(t, order.StatusCaptured, p.Status)
	require.Equal(t, inventory.StatusPaid, m.order(id).Status)
	require.Equal(t, int64(3*price), m.audit(id))
	require.Equal(t, []string{"payment.authorised", "payment.captured"},
		m.column(`SELECT kind FROM payment_events ORDER BY id`))
	require.Equal(t, []string{"authorise", "capture"},
		m.column(`SELECT call FROM provider_answers ORDER BY id`))
}
