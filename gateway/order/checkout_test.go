package order_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

func TestCardIsCapturedAtConfirmation(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(3)
	p := m.pay(request(id, "k", payment.MethodCard))
	require.Equal(t, order.StatusCaptured, p.Status)
	require.Equal(t, int64(2), p.Version, "two statements: made, and captured")
	require.Equal(t, inventory.StatusPaid, m.order(id).Status)
	require.Equal(t, int64(3*price), m.audit(id))
	require.Equal(t, []string{"payment.authorised", "payment.captured"},
		m.column(`SELECT kind FROM payment_events ORDER BY id`))
	require.Equal(t, []string{"authorise", "capture"},
		m.column(`SELECT call FROM provider_answers ORDER BY id`))
}

func TestPixIsPaidByTheBuyer(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodPix))
	require.Equal(t, order.StatusPending, p.Status)
	require.Equal(t, payment.ActionPix, p.Action.Kind)
	require.NotEmpty(t, p.Action.PixCode)
	o := m.order(id)
	require.Equal(t, inventory.StatusPaying, o.Status)
	require.Less(t, p.ExpiresAt.UnixMilli(), o.ExpiresUnixMilli, "the provider's time ends first")
	m.buyersPay()
	m.settle()
	require.Equal(t, int64(price), m.audit(id))
}

func TestFreeOrderNeedsNoProvider(t *testing.T) {
	t.Parallel()
	m := open(t, func(s *inventory.Settings, c *order.Config) {
		s.Price.Amount, c.Accounts = 0, nil
	})
	id := m.reserve(1)
	require.Equal(t, order.StatusCaptured, m.pay(request(id, "k", payment.MethodPix)).Status)
	require.Equal(t, inventory.StatusPaid, m.order(id).Status)
	refund, _, err := m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "r"})
	require.NoError(t, err)
	require.Equal(t, order.RefundDone, refund.Status)
	require.Equal(t, inventory.StatusRefunded, m.order(id).Status)
}

// TestTenClicks sends one request ten times at once, and then another body with its key.
func TestTenClicks(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	answered := make([]error, 10)
	together(len(answered), func(i int) {
		_, _, answered[i] = m.checkout.Pay(t.Context(), request(id, "k", payment.MethodCard))
	})
	for _, err := range answered {
		require.True(t, err == nil || errors.Is(err, order.ErrInProgress), "%v", err)
	}
	m.settle()
	require.Equal(t, int64(price), m.audit(id))
	require.Equal(t, 1, m.count(`SELECT count(*) FROM payments`))
	p, replay, err := m.checkout.Pay(t.Context(), request(id, "k", payment.MethodCard))
	require.NoError(t, err)
	require.True(t, replay)
	require.Equal(t, order.StatusCaptured, p.Status)
	other := request(id, "k", payment.MethodCard)
	other.Payer.Name = "Bia"
	_, _, err = m.checkout.Pay(t.Context(), other)
	require.ErrorIs(t, err, order.ErrKeyReused)
	_, _, err = m.checkout.Pay(t.Context(), request(id, "another", payment.MethodCard))
	require.ErrorIs(t, err, order.ErrOrderStatus)
}

// TestInProgress repeats a request while the provider thinks about the first.
func TestInProgress(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	asked := make(chan struct{})
	release := make(chan struct{})
	m.config.Fraud = judge(func(context.Context) (order.Verdict, error) {
		close(asked)
		<-release
		return order.FraudAllow, nil
	})
	slow := m.newCheckout()
	done := make(chan order.Payment)
	go func() {
		p, _, _ := slow.Pay(t.Context(), request(id, "k", payment.MethodCard))
		done <- p
	}()
	<-asked
	_, _, err := m.checkout.Pay(t.Context(), request(id, "k", payment.MethodCard))
	require.ErrorIs(t, err, order.ErrInProgress)
	other := request(id, "k", payment.MethodPix)
	_, _, err = m.checkout.Pay(t.Context(), other)
	require.ErrorIs(t, err, order.ErrKeyReused)
	close(release)
	require.Equal(t, order.StatusCaptured, (<-done).Status)
	m.audit(id)
}

type judge func(context.Context) (order.Verdict, error)

func (j judge) Judge(ctx context.Context, _ order.FraudCase) (order.Verdict, error) { return j(ctx) }

// TestTwoBrowsers pays one order from several at once, by card and by Pix.
func TestTwoBrowsers(t *testing.T) {
	t.Parallel()
	m := open(t)
	for round := range 5 {
		id := m.reserve(2)
		methods := []payment.Method{
			payment.MethodCard, payment.MethodPix, payment.MethodCard, payment.MethodPix,
		}
		together(len(methods), func(i int) {
			key := string(rune('a' + i))
			_, _, err := m.checkout.Pay(t.Context(), request(id, key, methods[i]))
			require.True(t, err == nil || errors.Is(err, order.ErrOrderStatus), "%v", err)
		})
		m.buyersPay()
		m.settle()
		require.Equal(t, int64(2*price), m.audit(id), "round %d", round)
		require.Equal(t, inventory.StatusPaid, m.order(id).Status)
	}
}

// TestTwoPixPaid has two codes of one order, and both are paid.
func TestTwoPixPaid(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	first := m.pay(request(id, "a", payment.MethodPix))
	second := m.pay(request(id, "b", payment.MethodPix))
	m.buyersPay()
	checkouts := []*order.Checkout{m.newCheckout(), m.newCheckout()}
	together(8, func(i int) {
		p := []inventory.PaymentID{first.ID, second.ID}[i%2]
		_ = checkouts[i/4].Advance(t.Context(), p)
	})
	m.settle()
	require.Equal(t, int64(price), m.audit(id))
	winner := m.order(id).Payment
	for _, p := range []inventory.PaymentID{first.ID, second.ID} {
		want, refunds := order.StatusRefunded, 1
		if p == winner {
			want, refunds = order.StatusCaptured, 0
		}
		require.Equal(t, want, m.payment(p).Status)
		require.Len(t, m.psp.Payment(string(p))[0].Refunds, refunds)
	}
	require.Equal(t, 1, m.count(`SELECT count(*) FROM payment_events WHERE kind = 'payment.surplus'`))
	require.Equal(t, 1, m.count(`SELECT count(*) FROM findings WHERE kind = 'payment_surplus'`))
}

// TestUnpaidPixIsVoidedWhenItsOrderIsPaid by another payment.
func TestUnpaidPixIsVoidedWhenItsOrderIsPaid(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	pix := m.pay(request(id, "a", payment.MethodPix))
	m.pay(request(id, "b", payment.MethodCard))
	m.settle()
	require.Equal(t, order.StatusVoided, m.payment(pix.ID).Status)
	m.audit(id)
	// And the buyer pays it all the same.
	_, err := m.psp.Pay(string(pix.ID))
	require.NoError(t, err)
	require.NoError(t, m.checkout.Refresh(t.Context(), pix.ID))
	m.settle()
	require.Equal(t, order.StatusRefunded, m.payment(pix.ID).Status)
	require.Equal(t, int64(price), m.audit(id))
}

// TestManyWorkers has many move the same payment at once, from where a process died.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	for _, method := range []payment.Method{payment.MethodCard, payment.MethodPix} {
		m := open(t)
		id := m.reserve(1)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := order.New((&breakage{at: 3, mode: killAfter, cancel: cancel}).apply(m.config))
		require.NoError(t, err)
		p, _, err := c.Pay(ctx, request(id, "k", method))
		require.NoError(t, err)
		require.NoError(t, m.psp.Script(simulator.Fault{Kind: simulator.Slow, Times: -1, DelayMilli: 20}))
		together(8, func(int) {
			worker := m.newCheckout()
			for range 20 {
				if worker.Advance(t.Context(), p.ID) == nil {
					return
				}
			}
		})
		m.buyersPay()
		m.settle()
		require.Equal(t, int64(price), m.audit(id), method)
		captures := m.count(`SELECT count(*) FROM payment_events WHERE kind = 'payment.captured'`)
		require.Equal(t, 1, captures)
	}
}

// TestTimeoutAfterTheCharge finds the charge by look-up, with the same key.
func TestTimeoutAfterTheCharge(t *testing.T) {
	t.Parallel()
	m := open(t, func(_ *inventory.Settings, c *order.Config) {
		c.CallTimeout = 500 * time.Millisecond
	})
	for _, on := range []simulator.Operation{simulator.OnAuthorise, simulator.OnCapture} {
		for _, kind := range []simulator.FaultKind{
			simulator.TimeoutAfter, simulator.TimeoutBefore, simulator.CutAfter, simulator.ErrorAfter,
			simulator.ErrorBefore, simulator.Busy,
		} {
			id := m.reserve(1)
			require.NoError(t, m.psp.Script(simulator.Fault{Kind: kind, On: on, Order: id.String()}))
			p := m.pay(request(id, "k", payment.MethodCard))
			require.Equal(t, order.StatusCaptured, p.Status, "%s %s", on, kind)
			require.Equal(t, int64(price), m.audit(id))
			keys := make(map[string]bool)
			for _, call := range m.psp.Calls(string(p.ID)) {
				if call.Operation == on {
					keys[call.Key] = true
				}
			}
			require.Len(t, keys, 1)
		}
	}
}

// TestReview goes both ways, and can be repeated.
func TestReview(t *testing.T) {
	t.Parallel()
	m := open(t, func(_ *inventory.Settings, c *order.Config) {
		c.Fraud = judge(func(context.Context) (order.Verdict, error) { return "", errBroken })
	})
	for _, approve := range []bool{true, false} {
		id := m.reserve(1)
		p := m.pay(request(id, "k", payment.MethodCard))
		require.Equal(t, order.StatusReview, p.Status)
		require.Empty(t, m.psp.Payment(string(p.ID)))
		for range 2 {
			var err error
			p, err = m.checkout.Review(t.Context(), p.ID, approve, "admin")
			require.NoError(t, err)
		}
		_, err := m.checkout.Review(t.Context(), p.ID, !approve, "admin")
		require.ErrorIs(t, err, order.ErrConflict)
		kept := m.audit(id)
		if approve {
			require.Equal(t, int64(price), kept)
		} else {
			require.Equal(t, inventory.StatusRefused, m.order(id).Status)
		}
	}
}

// TestSecondProvider takes over new payments when the first keeps failing. A payment that has one
// keeps it.
func TestSecondProvider(t *testing.T) {
	t.Parallel()
	m := open(t)
	var second payment.Provider
	m.second, second = m.startProvider("second")
	m.config.Accounts[tenant] = append(m.config.Accounts[tenant],
		order.Account{Provider: second, ID: accountID})
	m.checkout = m.newCheckout()
	_, _, err := m.checkout.Pay(t.Context(), request(m.reserve(1), "k", payment.MethodCard))
	require.NoError(t, err) // what the first payment has to make is made
	require.NoError(t, m.psp.Script(simulator.Fault{Kind: simulator.ErrorAfter, Times: -1}))
	var ids []inventory.OrderID
	var stuck, moved []order.Payment
	for len(moved) < 5 {
		require.Less(t, len(stuck), 20)
		id := m.reserve(1)
		ids = append(ids, id)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		p, _, err := m.checkout.Pay(ctx, request(id, "k", payment.MethodCard))
		cancel()
		require.NoError(t, err)
		if p.Provider == "second" {
			require.Equal(t, order.StatusCaptured, p.Status)
			moved = append(moved, p)
			continue
		}
		require.Empty(t, moved, "a new payment of the provider that fails")
		require.False(t, p.Status.Rests())
		stuck = append(stuck, p)
	}
	require.NotEmpty(t, stuck)
	m.psp.ClearFaults()
	m.settle()
	for _, id := range ids {
		require.Equal(t, int64(price), m.audit(id))
	}
	for _, p := range stuck {
		require.Empty(t, m.second.Payment(string(p.ID)))
	}
}

// TestDeclinedCardLeavesThePix: an order is given up by the last of its attempts only, in the name
// of the one that began it.
func TestDeclinedCardLeavesThePix(t *testing.T) {
	t.Parallel()
	m := open(t)
	declined := func(id inventory.OrderID, key string) order.Payment {
		r := request(id, key, payment.MethodCard)
		r.CardToken = "sim:decline"
		return m.pay(r)
	}
	id := m.reserve(1)
	m.pay(request(id, "pix", payment.MethodPix))
	require.Equal(t, order.StatusRefused, declined(id, "card").Status)
	require.Equal(t, inventory.StatusPaying, m.order(id).Status)
	m.buyersPay()
	m.settle()
	require.Equal(t, int64(price), m.audit(id))

	id = m.reserve(1)
	first := m.pay(request(id, "a", payment.MethodPix))
	second := m.pay(request(id, "b", payment.MethodPix))
	declined(id, "card")
	for i, p := range []order.Payment{first, second} {
		_, err := m.pool.Exec(t.Context(), `UPDATE payments SET expires_at = now() - interval '1 s',
			due_at = now() WHERE id = $1`, string(p.ID))
		require.NoError(t, err)
		m.settle()
		require.Equal(t, order.StatusVoided, m.payment(p.ID).Status)
		want := []inventory.Status{inventory.StatusPaying, inventory.StatusRefused}[i]
		require.Equal(t, want, m.order(id).Status)
	}
	require.Zero(t, m.audit(id))
}

// TestHangingProvider holds no more calls than it may, whoever comes; what was not asked for is
// asked for later.
func TestHangingProvider(t *testing.T) {
	t.Parallel()
	m := open(t, func(_ *inventory.Settings, c *order.Config) {
		c.Calls, c.CallTimeout = 2, time.Minute
	})
	require.NoError(t, m.psp.Script(simulator.Fault{Kind: simulator.TimeoutBefore, Times: -1}))
	ids := make([]inventory.OrderID, 10)
	for i := range ids {
		ids[i] = m.reserve(1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	together(len(ids), func(i int) {
		p, _, err := m.checkout.Pay(ctx, request(ids[i], "k", payment.MethodCard))
		require.NoError(t, err)
		require.False(t, p.Status.Rests())
	})
	calls := 0
	for _, id := range m.column(`SELECT id FROM payments`) {
		calls += len(m.psp.Calls(id))
	}
	require.LessOrEqual(t, calls, 2)
	m.psp.ClearFaults()
	m.settle()
	for _, id := range ids {
		require.Equal(t, int64(price), m.audit(id))
	}
}
