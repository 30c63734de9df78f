package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/shards"
)

// till is Payments for tests of the transports: it answers with one payment and one refund, and
// fails as it is told. It takes no money.
type till struct {
	hold     chan struct{} // if set, Pay waits for it
	mu       sync.Mutex
	err      error
	paid     order.PayRequest
	refunded order.RefundRequest
	tenant   string
	body     string
}

func (s *till) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *till) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func testPayment() order.Payment {
	return order.Payment{
		ID: "p-1", Order: testOrder().ID, Method: payment.MethodPix, Provider: "simulator",
		Amount: payment.Money{Amount: 1990, Currency: "BRL"}, Status: order.StatusPending,
		Action: payment.Action{Kind: payment.ActionPix, PixCode: "000201"},
	}
}

func (s *till) Pay(ctx context.Context, r order.PayRequest) (order.Payment, bool, error) {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return order.Payment{}, false, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.CardToken == "breaks" {
		panic("a payment that breaks")
	}
	s.paid = r
	return testPayment(), false, s.err
}

func (s *till) Payments(
	context.Context, inventory.OrderID, inventory.BuyerID,
) ([]order.Payment, error) {
	bare := testPayment()
	bare.Key = "slow"
	bare.Action = payment.Action{}
	return []order.Payment{testPayment(), bare}, s.failure()
}

func (s *till) Refund(_ context.Context, r order.RefundRequest) (order.Refund, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refunded = r
	return testRefund(), true, s.err
}

func testRefund() order.Refund {
	return order.Refund{
		ID: "r-1", Payment: "p-1", Amount: payment.Money{Amount: 990, Currency: "BRL"},
		Status: order.RefundPending, Reason: "late", CreatedAt: time.UnixMilli(testTime),
	}
}

func (s *till) Refunds(context.Context, inventory.PaymentID) ([]order.Refund, error) {
	return []order.Refund{testRefund(), testRefund()}, s.failure()
}

func (s *till) Ship(context.Context, inventory.OrderID) (*inventory.OrderView, error) {
	return testOrder(), s.failure()
}

func (s *till) Review(context.Context, inventory.PaymentID, bool, string) (order.Payment, error) {
	return testPayment(), s.failure()
}

func (s *till) Webhook(
	_ context.Context, tenant, _ string, header func(string) string, body []byte,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenant, s.body = tenant, header("Signature")+string(body)
	return s.err
}

// counter is a Desk for the same.
type counter struct{}

func (counter) InStatus(
	context.Context, order.Status, inventory.PaymentID, int,
) ([]order.Payment, error) {
	return []order.Payment{testPayment()}, nil
}

func (counter) Findings(context.Context, int) ([]Finding, error) {
	return []Finding{{Finding: order.Finding{Kind: order.FindingOverdue, Subject: "p-1"}}}, nil
}

func (counter) DeadLetters(_ context.Context, q order.Queue, after int64, limit int) ([]DeadLetter, error) {
	letter := DeadLetter{ID: after + 1, Queue: order.QueueExpiry, About: []byte(`{"payment":"p-1"}`)}
	return []DeadLetter{letter}[:min(1, limit)], nil
}

func (counter) Replay(_ context.Context, id int64) error {
	if id != 7 {
		return ErrNoDeadLetter
	}
	return nil
}

func (counter) ReplayAll(_ context.Context, q order.Queue) (int, error) { return 2, nil }

func (g *gate) taker() *till { return g.config.Payments.(*till) }

const testPayments = "/v1/orders/00015127010203000000000000000000/payments"

// TestPayIsPassedOn: for whom, with what, and nobody else's order.
func TestPayIsPassedOn(t *testing.T) {
	g := open(t, nil)
	body := `{"method":"card","card":{"token":"tok-1"},"payer":{"name":"Ana","email":"a@b.c",
		"document":"1","phone":"2"}}`
	r := g.request("POST", testPayments, asking{token: serviceToken, key: "k-1", body: body})
	require.Equal(t, 201, r.status, "%s", r.body)
	require.Equal(t, order.PayRequest{
		Order: testOrder().ID, Key: "k-1", Method: payment.MethodCard, Secret: order.Secret{
			CardToken: "tok-1",
			Payer:     payment.Payer{Name: "Ana", Email: "a@b.c", Document: "1", Phone: "2"},
		},
	}, g.taker().paid)
	require.Contains(t, string(r.body), `"qr_svg":"<`)

	r = g.request("POST", "/v1/sessions", asking{})
	session := r.json(t)
	r = g.request("POST", testPayments,
		asking{token: session["token"].(string), key: "k-2", body: `{"method":"pix"}`})
	require.Equal(t, 201, r.status, "%s", r.body)
	require.Equal(t, inventory.BuyerID(session["buyer"].(string)), g.taker().paid.By)
	require.Empty(t, g.taker().paid.CardToken, "nothing of the request before")
}

// becomesPaying waits until so many payments are under way.
func (g *gate) becomesPaying(n int) {
	g.t.Helper()
	require.Eventually(g.t, func() bool { return len(g.paying) == n }, 20*time.Second, time.Millisecond)
}

// TestSlowPaymentGoesOn: the buyer hears how it stands, the payment is not cut off, and those beyond
// the bound are turned away at once.
func TestSlowPaymentGoesOn(t *testing.T) {
	taker := &till{hold: make(chan struct{})}
	g := open(t, func(c *Config) { c.Payments, c.Paying = taker, 1 })
	first := make(chan reply, 1)
	go func() {
		first <- g.request("POST", testPayments, asking{token: serviceToken, key: "slow", body: `{"method":"pix"}`})
	}()
	g.becomesPaying(1)
	second := g.request("POST", testPayments, asking{token: serviceToken, key: "k", body: `{"method":"pix"}`})
	require.Equal(t, "overloaded", second.code(t), "while the first is held")
	r := <-first
	require.Equal(t, 201, r.status, "%s", r.body)
	require.Equal(t, "p-1", r.json(t)["payment"].(map[string]any)["id"])
	require.Len(t, g.paying, 1, "it goes on")
	close(taker.hold)
	g.becomesPaying(0)
	taker.mu.Lock()
	defer taker.mu.Unlock()
	require.Equal(t, "slow", taker.paid.Key)
}

// TestBrokenPaymentBreaksNothingElse: it has a goroutine of its own.
func TestBrokenPaymentBreaksNothingElse(t *testing.T) {
	g := open(t, nil)
	g.allowed.Store("a request broke the gateway", true)
	g.allowed.Store("a request failed", true)
	r := g.request("POST", testPayments, asking{
		token: serviceToken, key: "k", body: `{"method":"card","card":{"token":"breaks"}}`,
	})
	require.Equal(t, "outcome_unknown", r.code(t))
	r = g.request("POST", testPayments, asking{token: serviceToken, key: "k", body: `{"method":"pix"}`})
	require.Equal(t, 201, r.status)
	g.becomesPaying(0)
}

func TestPayRefusesWhatMakesNoSense(t *testing.T) {
	g := open(t, nil)
	for body, want := range map[string]string{
		`{}`:                                    "400 malformed /method",
		`{"method":"cash"}`:                     "422 value_invalid /method",
		`{"method":"card"}`:                     "422 value_invalid /card",
		`{"method":"pix","card":{"token":"t"}}`: "422 value_invalid /card",
		`{"method":"card","card":{}}`:           "400 malformed /card/token",
		`{"method":"card","card":{"token":""}}`: "422 value_invalid /card/token",
		`{"method":"pix","payer":{"name":"` + strings.Repeat("n", 256) + `"}}`: "422 value_invalid /payer/name",
		`{"method":"card","card":{"number":"4111111111111111"}}`:               "400 unknown_member /card/number",
	} {
		r := g.request("POST", testPayments, asking{token: serviceToken, key: "k", body: body})
		p := r.json(t)
		require.Equal(t, want, fmt.Sprint(r.status, " ", p["code"], " ", p["pointer"]), body)
	}
	require.Zero(t, g.taker().paid, "nobody was asked to pay")
}

// TestFailuresOfPaymentsAreNamed: what a checkout can say, and what a client is told.
func TestFailuresOfPaymentsAreNamed(t *testing.T) {
	g := open(t, nil)
	g.allowed.Store("a request failed", true)
	for _, c := range []struct {
		err  error
		want string
	}{
		{order.ErrOrderNotFound, "404 order_not_found"},
		{order.ErrPaymentNotFound, "404 payment_not_found"},
		{&order.StatusError{Status: inventory.StatusReleased}, "409 order_status"},
		{order.ErrInProgress, "409 idempotency_in_progress"},
		{order.ErrConflict, "409 payment_status"},
		{order.ErrTooManyAttempts, "409 too_many_attempts"},
		{order.ErrLapsed, "409 authorisation_lapsed"},
		{order.ErrKeyReused, "422 idempotency_key_reused"},
		{order.ErrMethod, "422 method_unavailable"},
		{order.ErrAmount, "422 refund_amount"},
		{&shards.OverloadedError{}, "503 overloaded"},
		{&shards.UnavailableError{}, "503 unavailable"},
		{shards.ErrOutcomeUnknown, "503 outcome_unknown"},
		{errors.New("the database is away"), "503 outcome_unknown"},
	} {
		g.taker().fail(fmt.Errorf("wrapped: %w", c.err))
		r := g.request("POST", testPayments, asking{token: serviceToken, key: "k", body: `{"method":"pix"}`})
		require.Equal(t, c.want, fmt.Sprint(r.status, " ", r.code(t)))
		if r.status == http.StatusServiceUnavailable {
			require.NotEmpty(t, r.header["Retry-After"])
		}
	}
	r := g.request("GET", testPayments, asking{token: serviceToken})
	require.Contains(t, string(r.body), `"code":"unavailable"`, "a reading has no outcome")
}

// TestRefundOfWhatNobodyPaidHere goes to the engine as it always did; of what was paid it does not.
func TestRefundOfWhatNobodyPaidHere(t *testing.T) {
	g := open(t, nil)
	refund := strings.TrimSuffix("/v1/admin"+strings.TrimPrefix(testPayments, "/v1"), "/payments") + "/refund"
	r := g.request("POST", refund, asking{token: adminToken, body: `{"return_to_stock":true,"reason":"why"}`})
	require.Equal(t, 200, r.status, "%s", r.body)
	require.Equal(t, order.RefundRequest{
		Order: testOrder().ID, Key: wholeRefund, ReturnToStock: true, Reason: "why", By: "admin",
	}, g.taker().refunded)
	require.Nil(t, g.shards.last)

	g.taker().fail(order.ErrPaymentNotFound)
	r = g.request("POST", refund, asking{token: adminToken})
	require.Equal(t, 200, r.status, "%s", r.body)
	require.IsType(t, &inventory.Refund{}, g.shards.last)
}

func TestWebhooks(t *testing.T) {
	g := open(t, func(c *Config) { c.Tenant = "loja" })
	g.allowed.Store("a webhook was not stored", true)
	hook := func(path string) reply {
		return g.request("POST", path, asking{
			body: "raw bytes", header: map[string]string{"Signature": "s", "Content-Type": "text/plain"},
		})
	}
	require.Equal(t, 200, hook("/v1/webhooks/default/simulator").status)
	require.Equal(t, "loja", g.taker().tenant)
	require.Equal(t, "sraw bytes", g.taker().body)
	require.Equal(t, 200, hook("/v1/webhooks/outra/simulator").status)
	require.Equal(t, "outra", g.taker().tenant)
	for err, status := range map[error]int{
		payment.ErrSignature: 401, order.ErrProvider: 404, errors.New("down"): 503,
	} {
		g.taker().fail(err)
		require.Equal(t, status, hook("/v1/webhooks/default/simulator").status)
	}
	require.Equal(t, 405, g.request("GET", "/v1/webhooks/default/simulator", asking{}).status)
}

func TestDesk(t *testing.T) {
	g := open(t, nil)
	for amount, want := range map[string]string{"0": "value_invalid", "-1": "value_invalid", "null": "malformed"} {
		r := g.request("POST", "/v1/admin"+strings.TrimSuffix(strings.TrimPrefix(testPayments, "/v1"), "/payments")+"/refunds",
			asking{token: adminToken, key: "k", body: `{"amount":{"amount":` + amount + `,"currency":"BRL"}}`})
		require.Equal(t, want, r.code(t), amount)
	}
	ask := func(method, path string) reply {
		return g.request(method, "/v1/admin"+path, asking{token: adminToken})
	}
	require.Equal(t, "9", ask("GET", "/dead-letters?after=8&limit=1").json(t)["next"])
	require.Nil(t, ask("GET", "/dead-letters?after=8&limit=2").json(t)["next"])
	require.Equal(t, 422, ask("GET", "/dead-letters?after=x").status)
	require.Equal(t, 422, ask("GET", "/dead-letters?queue=x").status)
	require.Equal(t, 200, ask("POST", "/dead-letters/7/replay").status)
	for _, id := range []string{"8", "x", "99999999999999999999"} {
		require.Equal(t, "dead_letter_not_found", ask("POST", "/dead-letters/"+id+"/replay").code(t), id)
	}
	require.Equal(t, 2.0, ask("POST", "/dead-letters/replay").json(t)["replayed"])
	require.Equal(t, 200, ask("GET", "/payments").status)
	require.Equal(t, 422, ask("GET", "/payments?status=x").status)
	require.Len(t, ask("GET", "/payments?status=review").json(t)["payments"], 1)
}

func TestWithoutPayments(t *testing.T) {
	g := open(t, func(c *Config) { c.Payments, c.Desk = nil, nil })
	r := g.request("POST", testPayments, asking{token: serviceToken, key: "k", body: `{"method":"pix"}`})
	require.Equal(t, 503, r.status)
	require.Contains(t, string(r.body), "takes no payments")
	require.Equal(t, 404, g.request("POST", "/v1/webhooks/default/simulator", asking{}).status)
}
