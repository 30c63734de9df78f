package order_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

// TestRefundsNeverExceedWhatWasCaptured asks for more parts at once than there is money, while the
// product's price rises.
func TestRefundsNeverExceedWhatWasCaptured(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodCard))
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count = "dearer", 100
	settings.Price = inventory.Money{Amount: 10 * price, Currency: "BRL"}
	m.do(&inventory.PutProduct{Product: m.product, Settings: settings})
	var done atomic.Int64
	together(10, func(i int) {
		r := partial(id)
		r.Key = fmt.Sprint("r", i)
		for {
			_, _, err := m.checkout.Refund(t.Context(), r)
			if errors.Is(err, order.ErrInProgress) {
				continue // too many wrote at once
			}
			if err == nil {
				done.Add(1)
			} else {
				require.ErrorIs(t, err, order.ErrAmount)
			}
			return
		}
	})
	m.settle()
	require.Equal(t, int64(price/500), done.Load())
	require.Equal(t, int64(price%500), m.audit(id))
	// The whole is what is left of the captured price.
	whole, _, err := m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "all"})
	require.NoError(t, err)
	require.Equal(t, order.RefundDone, whole.Status)
	require.Equal(t, int64(price%500), whole.Amount.Amount)
	require.Zero(t, m.audit(id))
	require.Equal(t, inventory.StatusRefunded, m.order(id).Status)
	require.Equal(t, order.StatusRefunded, m.payment(p.ID).Status)
	_, _, err = m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "again"})
	require.ErrorIs(t, err, order.ErrOrderStatus)
}

func TestRefundKey(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	_, _, err := m.checkout.Refund(t.Context(), partial(id))
	require.ErrorIs(t, err, order.ErrPaymentNotFound)
	m.pay(request(id, "k", payment.MethodCard))
	first, replay, err := m.checkout.Refund(t.Context(), partial(id))
	require.NoError(t, err)
	require.False(t, replay)
	second, replay, err := m.checkout.Refund(t.Context(), partial(id))
	require.NoError(t, err)
	require.True(t, replay)
	require.Equal(t, first.ID, second.ID)
	other := partial(id)
	other.Amount.Amount++
	_, _, err = m.checkout.Refund(t.Context(), other)
	require.ErrorIs(t, err, order.ErrKeyReused)
	m.audit(id)
}

// TestRefundReturnsNumbers, or blocks them.
func TestRefundReturnsNumbers(t *testing.T) {
	t.Parallel()
	m := open(t)
	for _, toStock := range []bool{true, false} {
		id := m.reserve(1)
		m.pay(request(id, "k", payment.MethodCard))
		numbers := m.order(id).Items[0].Numbers
		_, _, err := m.checkout.Refund(t.Context(), order.RefundRequest{
			Order: id, Key: "r", ReturnToStock: toStock,
		})
		require.NoError(t, err)
		outcome, err := engine.client.Do(t.Context(), inventory.Entry{Command: &inventory.Reserve{
			Tenant: tenant, Key: "again" + id.String(), Buyer: "b-2",
			Lines: []inventory.Line{{Product: m.product, Numbers: numbers}},
		}})
		require.NoError(t, err)
		require.Equal(t, toStock, outcome.Code == inventory.CodeOK)
	}
}

// TestRefundTakesItsTime at the provider, and is then known by its id.
func TestRefundTakesItsTime(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodCard))
	require.NoError(t, m.psp.Script(simulator.Fault{Kind: simulator.RefundPending}))
	whole := order.RefundRequest{Order: id, Key: "r", ReturnToStock: true}
	refund, _, err := m.checkout.Refund(t.Context(), whole)
	require.NoError(t, err)
	require.Equal(t, order.RefundPending, refund.Status)
	require.Equal(t, inventory.StatusPaid, m.order(id).Status, "until the money has gone back")
	require.NoError(t, m.checkout.Advance(t.Context(), p.ID))
	require.Equal(t, order.StatusRefunding, m.payment(p.ID).Status)
	_, err = m.psp.FinishRefund(string(p.ID), refund.ID, payment.RefundDone)
	require.NoError(t, err)
	require.NoError(t, m.checkout.Advance(t.Context(), p.ID))
	require.Zero(t, m.audit(id))
	require.Equal(t, inventory.StatusRefunded, m.order(id).Status)
	require.Len(t, m.psp.Payment(string(p.ID))[0].Refunds, 1)
}

// TestRefundFails for good at the provider: the whole is tried again by another refund; a part is
// raised.
func TestRefundFails(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	m.pay(request(id, "k", payment.MethodCard))
	require.NoError(t, m.psp.Script(simulator.Fault{Kind: simulator.RefundFailed, Times: 2}))
	part, _, err := m.checkout.Refund(t.Context(), partial(id))
	require.NoError(t, err)
	require.Equal(t, order.RefundFailed, part.Status)
	require.Equal(t, int64(price), m.audit(id))
	_, _, err = m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "all"})
	require.NoError(t, err)
	m.settle()
	require.Zero(t, m.audit(id))
	require.Equal(t, 1, m.count(`SELECT count(*) FROM findings WHERE kind = 'refund_failed'`))
	require.Equal(t, 3, m.count(`SELECT count(*) FROM refunds`))
}

// TestRefundByHand at the provider counts, is raised, and is not paid out again.
func TestRefundByHand(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodCard))
	_, err := m.provider.Refund(t.Context(), payment.RefundRequest{
		Key: "hand", Refund: "hand", Amount: payment.Money{Amount: 700, Currency: "BRL"},
		Reference: payment.Reference{Payment: string(p.ID), Provider: p.Reference},
	})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, m.checkout.Refresh(t.Context(), p.ID))
	}
	require.Equal(t, int64(price-700), m.audit(id))
	require.Equal(t, 1, m.count(`SELECT count(*) FROM findings WHERE kind = 'refund_by_hand'`))
	whole, _, err := m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "all"})
	require.NoError(t, err)
	require.Equal(t, int64(price-700), whole.Amount.Amount)
	require.Zero(t, m.audit(id))
}

// TestLapsedIsSeenBeforeShipping: nothing leaves for money that is not there.
func TestLapsedIsSeenBeforeShipping(t *testing.T) {
	t.Parallel()
	m := open(t, shipping)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodCard))
	require.Equal(t, order.StatusConfirmed, p.Status)
	_, err := m.psp.Lapse(string(p.ID))
	require.NoError(t, err)
	for range 2 {
		_, err = m.checkout.Ship(t.Context(), id)
		require.ErrorIs(t, err, order.ErrLapsed)
	}
	require.Equal(t, inventory.StatusPaid, m.order(id).Status)
	require.Equal(t, order.StatusLapsed, m.payment(p.ID).Status)
	require.Equal(t, 1, m.count(`SELECT count(*) FROM findings WHERE kind = 'payment_lapsed'`))
	require.Equal(t, 1, m.count(`SELECT count(*) FROM payment_events WHERE kind = 'payment.lapsed'`))
	// An admin gives the order up.
	_, _, err = m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "r"})
	require.NoError(t, err)
	require.Zero(t, m.audit(id))
	require.Equal(t, inventory.StatusRefunded, m.order(id).Status)
}

// TestBasketIsPaidOnce buys of two products, of which one is captured at shipping: so is all.
func TestBasketIsPaidOnce(t *testing.T) {
	t.Parallel()
	m := open(t)
	second := m.product + ".b"
	m.config.Policy = func(_ context.Context, p inventory.ProductID) (order.Policy, error) {
		if p == second {
			return order.Policy{CaptureAt: order.CaptureAtShipping}, nil
		}
		return order.Policy{}, nil
	}
	m.checkout = m.newCheckout()
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count = "second", 10
	settings.Price = inventory.Money{Amount: 1, Currency: "BRL"}
	m.do(&inventory.PutProduct{Product: second, Settings: settings})
	id := m.do(&inventory.Reserve{
		Tenant: tenant, Key: "basket", Buyer: "b-1", Lines: []inventory.Line{
			{Product: m.product, Quantity: 2}, {Product: second, Quantity: 3},
		},
	}).Order.ID
	p := m.pay(request(id, "k", payment.MethodCard))
	require.Equal(t, order.StatusConfirmed, p.Status)
	require.Equal(t, int64(2*price+3), p.Amount.Amount)
	o, err := m.checkout.Ship(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, inventory.StatusShipped, o.Status)
	require.Equal(t, int64(2*price+3), m.audit(id))
}
