package order_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

// BenchmarkPay is reserved → paid by card, as one of 64 at once: engine, PostgreSQL (which does not
// sync here) and the provider share the processors.
func BenchmarkPay(b *testing.B) {
	m := open(b, func(s *inventory.Settings, _ *order.Config) { s.Count = 10_000_000 })
	silent := simulator.Fault{Kind: simulator.WebhookNone, On: simulator.OnWebhook, Times: -1}
	require.NoError(b, m.psp.Script(silent))
	var orders atomic.Int64
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			outcome, err := engine.client.Do(b.Context(), inventory.Entry{Command: &inventory.Reserve{
				Tenant: tenant, Key: "bench" + strconv.FormatInt(orders.Add(1), 10), Buyer: "b-1",
				Lines: []inventory.Line{{Product: m.product, Quantity: 1}},
			}})
			require.NoError(b, err)
			p, _, err := m.checkout.Pay(b.Context(), request(outcome.Order.ID, "k", payment.MethodCard))
			require.NoError(b, err)
			require.Equal(b, order.StatusCaptured, p.Status)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "payments/s")
}
