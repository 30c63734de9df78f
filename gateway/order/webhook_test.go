package order_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

// listen lets the provider's webhooks in, and acts on them as they come, until the test ends.
func (m *market) listen() {
	ctx, stop := context.WithCancel(context.Background())
	var acting sync.WaitGroup
	acting.Go(func() { m.checkout.Run(ctx) })
	m.webhooks.Store(m.checkout)
	m.t.Cleanup(func() {
		stop()
		acting.Wait()
	})
}

// delivered waits until the provider has nothing more to send, and acts on what was left.
func (m *market) delivered() {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.psp.Deliveries().Waiting == 0 },
		payPatience, 5*time.Millisecond)
	m.settle()
	require.Eventually(m.t, func() bool {
		for _, event := range m.column(`SELECT event FROM webhook_events WHERE acted_at IS NULL`) {
			id := order.WebhookID{Tenant: tenant, Provider: "simulator", Event: event}
			_ = m.checkout.Act(m.t.Context(), id)
		}
		return m.count(`SELECT count(*) FROM webhook_events WHERE acted_at IS NULL`) == 0
	}, payPatience, 5*time.Millisecond)
}

// TestWebhookPaysThePix, whatever else the provider sends, and in whatever order.
func TestWebhookPaysThePix(t *testing.T) {
	t.Parallel()
	for _, kind := range []simulator.FaultKind{
		"", simulator.WebhookDuplicate, simulator.WebhookReorder, simulator.WebhookForged,
	} {
		m := open(t)
		m.listen()
		if kind != "" {
			require.NoError(t, m.psp.Script(simulator.Fault{Kind: kind}))
		}
		id := m.reserve(1)
		p := m.pay(request(id, "k", payment.MethodPix))
		_, err := m.psp.Pay(string(p.ID))
		require.NoError(t, err)
		m.delivered()
		require.Equal(t, int64(price), m.audit(id), kind)
	}
}

// TestWebhookRacesTheAnswer sends every event while its payment is still being made.
func TestWebhookRacesTheAnswer(t *testing.T) {
	t.Parallel()
	m := open(t)
	m.listen()
	ids := make([]inventory.OrderID, 20)
	for i := range ids {
		ids[i] = m.reserve(1)
	}
	together(len(ids), func(i int) {
		_, _, err := m.checkout.Pay(t.Context(), request(ids[i], "k", payment.MethodCard))
		require.NoError(t, err)
	})
	m.delivered()
	for _, id := range ids {
		require.Equal(t, int64(price), m.audit(id))
	}
}

// TestLateFailure comes after the money: it is stored, and changes nothing.
func TestLateFailure(t *testing.T) {
	t.Parallel()
	m := open(t)
	m.listen()
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodCard))
	m.delivered()
	before := m.payment(p.ID)
	require.NoError(t, m.psp.Announce(string(p.ID), simulator.Claim{Status: payment.StatusDeclined}))
	m.delivered()
	require.Equal(t, 1, m.count(`SELECT count(*) FROM webhook_events WHERE type = 'charge.declined'`))
	require.Equal(t, before, m.payment(p.ID))
	require.Equal(t, int64(price), m.audit(id))
}

// hook is a webhook as the provider would send it.
func hook(t testing.TB, secret string, content map[string]any) (func(string) string, []byte) {
	t.Helper()
	body, err := json.Marshal(content)
	require.NoError(t, err)
	header := http.Header{}
	header.Set(simulator.SignatureHeader, simulator.Sign([]string{secret}, time.Now(), body))
	return header.Get, body
}

func captured(p *order.Payment, account string) map[string]any {
	return map[string]any{
		"id": "evt_1", "type": "charge.captured", "account": account, "at": time.Now(),
		"charge": map[string]any{
			"id": p.Reference, "payment": p.ID, "status": "captured", "amount": price,
			"captured": price, "currency": "BRL", "account": account, "method": p.Method,
		},
	}
}

// TestForgedWebhook is refused, and leaves nothing behind.
func TestForgedWebhook(t *testing.T) {
	t.Parallel()
	m := open(t)
	p := m.pay(request(m.reserve(1), "k", payment.MethodPix))
	header, body := hook(t, "another secret", captured(&p, accountID))
	err := m.checkout.Webhook(t.Context(), tenant, "simulator", header, body)
	require.ErrorIs(t, err, payment.ErrSignature)
	require.Zero(t, m.count(`SELECT count(*) FROM webhook_events`))
	header, body = hook(t, secret, captured(&p, accountID))
	err = m.checkout.Webhook(t.Context(), tenant, "nobody", header, body)
	require.ErrorIs(t, err, order.ErrProvider)
	// One that is genuine and says what is not so changes nothing either.
	require.NoError(t, m.checkout.Webhook(t.Context(), tenant, "simulator", header, body))
	event := order.WebhookID{Tenant: tenant, Provider: "simulator", Event: "evt_1"}
	require.NoError(t, m.checkout.Act(t.Context(), event))
	require.Equal(t, order.StatusPending, m.payment(p.ID).Status)
}

// TestDuplicatesActOnce sends one event from twenty connections.
func TestDuplicatesActOnce(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodPix))
	_, err := m.psp.Pay(string(p.ID))
	require.NoError(t, err)
	m.listen()
	header, body := hook(t, secret, captured(&p, accountID))
	together(20, func(int) {
		require.NoError(t, m.checkout.Webhook(t.Context(), tenant, "simulator", header, body))
	})
	m.delivered()
	require.Equal(t, 1, m.count(`SELECT count(*) FROM webhook_events WHERE event = 'evt_1'`))
	require.Equal(t, 1, m.count(`SELECT count(*) FROM payment_events WHERE kind = 'payment.captured'`))
	require.Equal(t, int64(price), m.audit(id))
}

// TestWebhookOfAnotherAccount is raised and not acted on.
func TestWebhookOfAnotherAccount(t *testing.T) {
	t.Parallel()
	m := open(t)
	id := m.reserve(1)
	p := m.pay(request(id, "k", payment.MethodPix))
	_, err := m.psp.Pay(string(p.ID))
	require.NoError(t, err)
	header, body := hook(t, secret, captured(&p, "acct_other"))
	require.NoError(t, m.checkout.Webhook(t.Context(), tenant, "simulator", header, body))
	event := order.WebhookID{Tenant: tenant, Provider: "simulator", Event: "evt_1"}
	require.NoError(t, m.checkout.Act(t.Context(), event))
	require.Equal(t, order.StatusPending, m.payment(p.ID).Status)
	require.Equal(t, 1, m.count(`SELECT count(*) FROM findings WHERE kind = 'payment_mismatch'`))
}

// lying is a provider whose charges are not what was asked for.
type lying struct {
	payment.Provider
	lie func(*payment.Charge)
}

func (l lying) LookUp(ctx context.Context, r payment.Reference) (payment.Charge, error) {
	c, err := l.Provider.LookUp(ctx, r)
	l.lie(&c)
	return c, err
}

// TestMismatch is raised and not acted on: another amount, currency or account.
func TestMismatch(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(*payment.Charge){
		"amount":   func(c *payment.Charge) { c.Amount.Amount--; c.Captured.Amount-- },
		"captured": func(c *payment.Charge) { c.Captured.Amount-- },
		"currency": func(c *payment.Charge) { c.Amount.Currency = "USD" },
		"account":  func(c *payment.Charge) { c.Account = "acct_other" },
		"charge":   func(c *payment.Charge) { c.Reference.Provider = "ch_other" },
		"payment":  func(c *payment.Charge) { c.Reference.Payment = "p-other" },
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, func(_ *inventory.Settings, c *order.Config) {
				c.Accounts[tenant][0].Provider = lying{c.Accounts[tenant][0].Provider, lie}
			})
			id := m.reserve(1)
			p := m.pay(request(id, "k", payment.MethodPix))
			_, err := m.psp.Pay(string(p.ID))
			require.NoError(t, err)
			err = m.checkout.Refresh(t.Context(), p.ID)
			require.ErrorIs(t, err, order.ErrMismatch)
			require.False(t, order.Temporary(err))
			require.Equal(t, order.StatusPending, m.payment(p.ID).Status)
			require.Equal(t, inventory.StatusPaying, m.order(id).Status)
			require.Equal(t, 1, m.count(`SELECT count(*) FROM findings WHERE kind = 'payment_mismatch'`))
		})
	}
}

// TestPersonalDataStaysInItsTable: it is not in the log, nor in what is published, nor in the other
// tables; what the provider itself says is kept as it is.
func TestPersonalDataStaysInItsTable(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := open(t, func(_ *inventory.Settings, c *order.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Fraud = judge(func(context.Context) (order.Verdict, error) { return "", errBroken })
	})
	id := m.reserve(1)
	r := request(id, "k", payment.MethodCard)
	r.CardToken = "sim:refund_failed"
	p := m.pay(r)
	_, err := m.checkout.Review(t.Context(), p.ID, true, "admin")
	require.NoError(t, err)
	_, _, err = m.checkout.Refund(t.Context(), order.RefundRequest{Order: id, Key: "r"})
	require.NoError(t, err)
	m.settle()
	m.audit(id)
	require.NotEmpty(t, log.String())
	private := []string{r.Payer.Name, r.Payer.Email, r.Payer.Document, r.CardToken}
	for _, secret := range private {
		require.NotContains(t, log.String(), secret)
		require.Equal(t, 1, m.count(`SELECT count(*) FROM payers WHERE payers::text LIKE $1`,
			"%"+secret+"%"))
	}
	for _, table := range []string{
		"orders", "order_items", "payments", "refunds", "payment_events", "findings",
		"webhook_events", "river_job",
	} {
		for _, secret := range private {
			sql := fmt.Sprintf(`SELECT count(*) FROM %s AS t WHERE t::text LIKE $1`, table)
			require.Zero(t, m.count(sql, "%"+secret+"%"), table)
		}
	}
}
