package order_test

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

// work runs jobs until the test ends, and counts them.
func (m *market) work() *postgres.Jobs {
	m.t.Helper()
	m.jobs = prometheus.NewRegistry()
	jobs, err := postgres.NewJobs(postgres.JobsConfig{
		Pool: m.pool, Checkout: m.newCheckout(), Attempts: 1, Sweep: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: m.jobs,
	})
	require.NoError(m.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- jobs.Run(ctx) }()
	m.t.Cleanup(func() {
		stop()
		require.NoError(m.t, <-done)
	})
	return jobs
}

// countedJobs are how many jobs of a queue came to what.
func (m *market) countedJobs() map[string]float64 {
	m.t.Helper()
	families, err := m.jobs.Gather()
	require.NoError(m.t, err)
	counted := make(map[string]float64)
	for _, metric := range families[0].GetMetric() {
		labels := metric.GetLabel()
		counted[labels[0].GetValue()+" "+labels[1].GetValue()] = metric.GetCounter().GetValue()
	}
	return counted
}

// reaches waits until the payment is in a status.
func (m *market) reaches(id inventory.PaymentID, status order.Status) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.payment(id).Status == status },
		payPatience, 10*time.Millisecond, "%s", status)
}

// TestJobsTakeUp what a process that was killed has left, at every point that it can be left at, an
// expired Pix, a refund under way, and a webhook that nobody acted on.
func TestJobsTakeUp(t *testing.T) {
	t.Parallel()
	m := open(t)
	var killed []inventory.PaymentID
	for at := 3; at <= 9; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := order.New((&breakage{at: at, mode: killAfter, cancel: cancel}).apply(m.config))
		require.NoError(t, err)
		p, _, err := c.Pay(ctx, request(m.reserve(1), "k", payment.MethodCard))
		require.NoError(t, err)
		killed = append(killed, p.ID)
	}
	refunded := m.reserve(1)
	r := m.pay(request(refunded, "k", payment.MethodCard))
	require.NoError(t, m.psp.Script(simulator.Fault{
		Kind: simulator.RefundPending, DelayMilli: 100,
	}))
	_, _, err := m.checkout.Refund(t.Context(), order.RefundRequest{Order: refunded, Key: "r"})
	require.NoError(t, err)
	part := m.reserve(1)
	m.pay(request(part, "k", payment.MethodCard))
	require.NoError(t, m.psp.Script(simulator.Fault{
		Kind: simulator.RefundPending, DelayMilli: 100,
	}))
	_, _, err = m.checkout.Refund(t.Context(), partial(part))
	require.NoError(t, err)
	m.webhooks.Store(m.checkout) // which does not run
	pix := m.reserve(1)
	p := m.pay(request(pix, "k", payment.MethodPix))
	_, err = m.psp.Pay(string(p.ID))
	require.NoError(t, err)

	m.work()
	for _, id := range append(killed, p.ID) {
		m.reaches(id, order.StatusCaptured)
		m.audit(m.payment(id).Order)
	}
	m.reaches(r.ID, order.StatusRefunded)
	require.Zero(t, m.audit(refunded))
	require.Eventually(t, func() bool {
		return m.count(`SELECT count(*) FROM refunds WHERE status <> 'done'`) == 0
	}, payPatience, 10*time.Millisecond)
	require.Equal(t, int64(price-500), m.audit(part))
	require.Eventually(t, func() bool {
		return m.count(`SELECT count(*) FROM webhook_events WHERE acted_at IS NULL`) == 0
	}, payPatience, 10*time.Millisecond)
}

// TestJobsOfTheKilled leaves a job as a process does that is killed while it has it: after 40 s
// another takes it up.
func TestJobsOfTheKilled(t *testing.T) {
	t.Parallel()
	m := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := order.New((&breakage{at: 4, mode: killAfter, cancel: cancel}).apply(m.config))
	require.NoError(t, err)
	p, _, err := c.Pay(ctx, request(m.reserve(1), "k", payment.MethodCard))
	require.NoError(t, err)
	jobs, err := postgres.NewJobs(postgres.JobsConfig{Pool: m.pool, Checkout: m.checkout})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		handed, err := jobs.Sweep(t.Context())
		return err == nil && handed == 1
	}, payPatience, 10*time.Millisecond)
	_, err = m.pool.Exec(t.Context(), `UPDATE river_job SET state = 'running', attempt = 1,
		attempted_at = now() - interval '41 s', attempted_by = '{killed}'`)
	require.NoError(t, err)
	m.work()
	m.reaches(p.ID, order.StatusCaptured)
	require.Equal(t, int64(price), m.audit(p.Order))
}

// TestDeadLetters fails for good, is found, and is replayed when the reason has gone.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	var lies atomic.Bool
	lies.Store(true)
	m := open(t, func(_ *inventory.Settings, c *order.Config) {
		c.Accounts[tenant][0].Provider = lying{
			c.Accounts[tenant][0].Provider, func(c *payment.Charge) {
				if lies.Load() {
					c.Amount.Amount--
				}
			},
		}
	})
	p := m.pay(request(m.reserve(1), "k", payment.MethodPix))
	_, err := m.psp.Pay(string(p.ID))
	require.NoError(t, err)
	m.allDue()
	jobs := m.work()
	filter := postgres.DeadFilter{Queue: order.QueueExpiry, Payment: string(p.ID)}
	var letters []postgres.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = jobs.DeadLetters(t.Context(), filter)
		require.NoError(t, err)
		return len(letters) == 1
	}, payPatience, 10*time.Millisecond)
	require.Contains(t, letters[0].Error, order.ErrMismatch.Error())
	require.Contains(t, string(letters[0].About), p.ID)
	require.ErrorIs(t, jobs.Replay(t.Context(), letters[0].ID+1000), postgres.ErrNoDeadLetter)
	none, err := jobs.ReplayAll(t.Context(), postgres.DeadFilter{Queue: order.QueueCapture})
	require.NoError(t, err)
	require.Zero(t, none)
	lies.Store(false)
	require.NoError(t, jobs.Replay(t.Context(), letters[0].ID))
	m.reaches(p.ID, order.StatusCaptured)
	require.Equal(t, int64(price), m.audit(p.Order))
	letters, err = jobs.DeadLetters(t.Context(), postgres.DeadFilter{})
	require.NoError(t, err)
	require.Empty(t, letters)
	require.Eventually(t, func() bool { return m.countedJobs()["expiry done"] == 1 },
		20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1.0, m.countedJobs()["expiry dead"])
}
