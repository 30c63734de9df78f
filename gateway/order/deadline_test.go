package order_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

// TestStoredFailure is of a provider that repeats a failure for ever under its key: the order is
// given up when its time is over, and nobody is charged.
func TestStoredFailure(t *testing.T) {
	t.Parallel()
	m := open(t, func(s *inventory.Settings, c *order.Config) {
		s.HoldSeconds, s.HoldMaxSeconds, s.PaymentGraceSeconds = 3, 3, 1
		c.CallTimeout, c.ActsWithin = time.Second, time.Millisecond
	})
	for _, method := range []payment.Method{payment.MethodCard, payment.MethodPix} {
		id := m.reserve(1)
		require.NoError(t, m.psp.Script(simulator.Fault{
			Kind: simulator.ErrorStored, On: simulator.OnAuthorise, Order: id.String(),
		}))
		p := m.pay(request(id, "k", method))
		m.settle()
		require.Equal(t, "expired", m.payment(p.ID).DeclinedBy)
		require.Zero(t, m.audit(id))
		asked := 0
		for _, call := range m.psp.Calls(string(p.ID)) {
			if call.Operation == simulator.OnAuthorise {
				asked++
				require.Equal(t, http.StatusInternalServerError, call.Status, "a repeat is the same")
			}
		}
		require.Greater(t, asked, 1)
	}
}

// slowRoad is a provider whose Authorise is on its way until the test says so: whoever asked has
// lost patience, and nobody knows of it yet.
type slowRoad struct {
	payment.Provider
	asked chan payment.Authorisation
}

func (s slowRoad) Authorise(
	_ context.Context, a payment.Authorisation,
) (payment.Charge, error) {
	s.asked <- a
	return payment.Charge{}, payment.ErrUnknown
}

// TestAskedAtTheLastMoment: a provider that knows nothing may yet come to know.
func TestAskedAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		road := slowRoad{asked: make(chan payment.Authorisation, 100)}
		var after atomic.Int64 // the clock is ahead by so much
		m := open(t, func(_ *inventory.Settings, c *order.Config) {
			road.Provider = c.Accounts[tenant][0].Provider
			c.Accounts[tenant][0].Provider = road
			c.Now = func() time.Time { return time.Now().Add(time.Duration(after.Load())) }
		})
		id := m.reserve(1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan order.Payment)
		go func() {
			p, _, _ := m.checkout.Pay(ctx, request(id, "k", payment.MethodCard))
			done <- p
		}()
		a := <-road.asked
		cancel() // the process is killed
		p := <-done
		after.Store(int64(time.Until(p.ExpiresAt) + time.Second))
		err := m.checkout.Advance(t.Context(), p.ID)
		require.ErrorIs(t, err, payment.ErrUnknown)
		require.True(t, order.Temporary(err))
		require.Equal(t, order.StatusCreated, m.payment(p.ID).Status)
		if arrives {
			_, err = road.Provider.Authorise(t.Context(), a)
			require.NoError(t, err)
			m.settle()
			require.Equal(t, int64(price), m.audit(id))
			continue
		}
		after.Add(int64(2 * time.Minute))
		m.settle()
		require.Equal(t, "expired", m.payment(p.ID).DeclinedBy)
		require.Zero(t, m.audit(id))
	}
}

// TestOvertaken is slow at anti-fraud: meanwhile the payment is given up by another, and is not
// asked for any more.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	var after atomic.Int64
	asked, release := make(chan struct{}), make(chan struct{})
	m := open(t, func(_ *inventory.Settings, c *order.Config) {
		c.Fraud = judge(func(context.Context) (order.Verdict, error) {
			close(asked)
			<-release
			return order.FraudAllow, nil
		})
		c.Now = func() time.Time { return time.Now().Add(time.Duration(after.Load())) }
	})
	id := m.reserve(1)
	done := make(chan order.Payment)
	go func() {
		p, _, _ := m.checkout.Pay(t.Context(), request(id, "k", payment.MethodCard))
		done <- p
	}()
	<-asked
	after.Store(int64(time.Hour))
	m.settle()
	close(release)
	require.Equal(t, order.StatusRefused, (<-done).Status)
	require.Zero(t, m.audit(id))
}

// TestOverdueIsHeld while the provider is down: nothing but its answer ends the order.
func TestOverdueIsHeld(t *testing.T) {
	t.Parallel()
	for _, buyerPays := range []bool{false, true} {
		m := open(t, func(s *inventory.Settings, _ *order.Config) {
			s.HoldSeconds, s.HoldMaxSeconds, s.PaymentGraceSeconds = 3, 3, 1
		})
		id := m.reserve(1)
		p := m.pay(request(id, "k", payment.MethodPix))
		if buyerPays {
			_, err := m.psp.Pay(string(p.ID))
			require.NoError(t, err)
		}
		require.NoError(t, m.psp.Script(simulator.Fault{Kind: simulator.ErrorBefore, Times: -1}))
		require.Eventually(t, func() bool { return m.order(id).Overdue },
			payPatience, 20*time.Millisecond)
		for range 5 {
			require.ErrorIs(t, m.checkout.Advance(t.Context(), p.ID), payment.ErrUnknown)
		}
		require.Equal(t, inventory.StatusPaying, m.order(id).Status)
		const open = `SELECT count(*) FROM findings WHERE kind = 'payment_overdue' AND resolved_at IS NULL`
		require.Equal(t, 1, m.count(open))
		m.psp.ClearFaults()
		m.settle()
		require.Zero(t, m.count(open))
		if buyerPays {
			require.Equal(t, int64(price), m.audit(id))
		} else {
			require.Zero(t, m.audit(id))
			require.Equal(t, inventory.StatusRefused, m.order(id).Status)
		}
	}
}

// TestLateMoney comes to an order that has ended: the same numbers if they are free and the product
// says so, else it goes back.
func TestLateMoney(t *testing.T) {
	t.Parallel()
	for _, late := range []order.Late{order.LateReclaim, order.LateRefund} {
		m := open(t, func(_ *inventory.Settings, c *order.Config) {
			c.Policy = func(context.Context, inventory.ProductID) (order.Policy, error) {
				return order.Policy{Late: late}, nil
			}
		})
		id := m.reserve(1)
		p := m.pay(request(id, "k", payment.MethodPix))
		m.do(&inventory.Refuse{OnOrder: inventory.OnOrder{Order: id}, Payment: p.ID})
		m.buyersPay()
		m.settle()
		if late == order.LateReclaim {
			require.Equal(t, int64(price), m.audit(id))
			require.Equal(t, inventory.StatusPaid, m.order(id).Status)
			continue
		}
		require.Zero(t, m.audit(id))
		require.Equal(t, inventory.StatusRefused, m.order(id).Status)
		require.Equal(t, order.StatusRefunded, m.payment(p.ID).Status)
	}
}
