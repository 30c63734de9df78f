package mercadopago_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
	"numera/gateway/payment/mercadopago"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx   = context.Background()
	known = payment.Reference{Payment: "p-1", Provider: "123"}
)

func brl(amount int64) payment.Money { return payment.Money{Amount: amount, Currency: "BRL"} }

// api answers as Mercado Pago would, from a table of method and path, and keeps what it was asked.
type api struct {
	mu      sync.Mutex
	answers map[string]answer
	asked   []request
}

type answer struct {
	status int // 0: none comes
	body   string
}

type request struct {
	call, query, body string
	header            http.Header
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := r.Method + " " + r.URL.Path
	a.mu.Lock()
	a.asked = append(a.asked, request{call, r.URL.RawQuery, string(body), r.Header})
	given, set := a.answers[call]
	a.mu.Unlock()
	switch {
	case !set:
		given = answer{404, `{"message": "Payment not found", "status": 404}`}
	case given.status == 0:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Request-Id", "req-1")
	w.WriteHeader(given.status)
	_, _ = io.WriteString(w, given.body)
}

func (a *api) set(call string, given answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[call] = given
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

func (a *api) last() request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[len(a.asked)-1]
}

func start(t *testing.T, answers map[string]answer) (*mercadopago.Provider, *api) {
	a := &api{answers: answers}
	server := httptest.NewServer(a)
	p, err := mercadopago.New(mercadopago.Config{
		AccessToken: "APP_USR-secret", URL: server.URL, WebhookSecrets: []string{"old", "new"},
		WebhookURL: "https://shop.example/v1/webhooks/main/mercadopago",
		Exchange:   exchange.Config{Timeout: 2 * time.Second},
	})
	require.NoError(t, err)
	t.Cleanup(func() { p.Close(); server.Close() })
	return p, a
}

// pixPayment is an answer of the payments API, with some members of its own.
func pixPayment(status, members string) string {
	return fmt.Sprintf(`{"id": 123, "status": %q, "external_reference": "p-1",
		"transaction_amount": 19.9, "currency_id": "BRL", "collector_id": 777,
		"date_of_expiration": "2026-11-29T23:30:00.000-03:00",
		"payer": {"email": "ana@example.com"},
		"point_of_interaction": {"transaction_data": {"qr_code": "000201…6304ABCD"}} %s}`,
		status, members)
}

var authorisation = payment.Authorisation{
	Key: "k1", Payment: "p-1", Order: "o-1", Amount: brl(1990), Method: payment.MethodPix,
	Description: "Rifa", ExpiresAt: time.Date(2026, 11, 30, 2, 0, 0, 5e8, time.UTC),
	Payer: payment.Payer{
		Name: "Ana Maria Souza", Email: "ana@example.com", Document: "123.456.789-09",
	},
}

func TestAuthorise(t *testing.T) {
	p, a := start(t, map[string]answer{"POST /v1/payments": {201, pixPayment("pending", "")}})
	c, err := p.Authorise(ctx, authorisation)
	require.NoError(t, err)
	require.Equal(t, known, c.Reference)
	require.Equal(t, payment.StatusPending, c.Status)
	require.Equal(t, brl(1990), c.Amount)
	require.Equal(t, "777", c.Account)
	require.Equal(t, payment.Action{
		Kind: payment.ActionPix, PixCode: "000201…6304ABCD", ExpiresAt: authorisation.ExpiresAt,
	}, c.Action)
	require.JSONEq(t, pixPayment("pending", ""), string(c.Raw))

	asked := a.last()
	require.Equal(t, []string{"k1"}, asked.header["X-Idempotency-Key"], "ours, not the SDK's")
	require.Equal(t, "Bearer APP_USR-secret", asked.header.Get("Authorization"))
	require.JSONEq(t, `{
		"payment_method_id": "pix", "transaction_amount": 19.9, "external_reference": "p-1",
		"description": "Rifa", "date_of_expiration": "2026-11-30T02:30:00Z",
		"notification_url": "https://shop.example/v1/webhooks/main/mercadopago",
		"metadata": {"order": "o-1"},
		"payer": {"email": "ana@example.com", "first_name": "Ana", "last_name": "Maria Souza",
		          "identification": {"type": "CPF", "number": "12345678909"}}}`, asked.body)

	_, err = p.Authorise(ctx, authorisation)
	require.NoError(t, err)
	require.Equal(t, asked.body, a.last().body, "a repeat asks for the same")

	nobody, card, dollars := authorisation, authorisation, authorisation
	nobody.Payer.Email = ""
	card.Method = payment.MethodCard
	dollars.Amount.Currency = "USD"
	for _, wrong := range []payment.Authorisation{nobody, card, dollars} {
		_, err = p.Authorise(ctx, wrong)
		require.ErrorIs(t, err, payment.ErrRejected)
	}
	require.Equal(t, 2, a.count())
}

func TestStatuses(t *testing.T) {
	for status, want := range map[string]payment.Status{
		"pending": payment.StatusPending, "in_process": payment.StatusPending,
		"authorized": payment.StatusAuthorised, "approved": payment.StatusCaptured,
		"in_mediation": payment.StatusCaptured, "rejected": payment.StatusDeclined,
		"cancelled": payment.StatusVoided, "refunded": payment.StatusCaptured,
		"charged_back": payment.StatusCaptured, "levitating": payment.StatusPending,
	} {
		p, _ := start(t, map[string]answer{"GET /v1/payments/123": {200, pixPayment(status, "")}})
		c, err := p.LookUp(ctx, known)
		require.NoError(t, err)
		require.Equal(t, want, c.Status, status)
		if want == payment.StatusCaptured {
			require.Equal(t, brl(1990), c.Captured)
		} else {
			require.Equal(t, brl(0), c.Captured)
		}
	}
}

func TestErrors(t *testing.T) {
	for name, row := range map[string]struct {
		answer answer
		fails  error
	}{
		"timeout":          {answer{}, payment.ErrUnknown},
		"500":              {answer{500, "ana@example.com"}, payment.ErrUnknown},
		"no JSON":          {answer{201, "<html>"}, payment.ErrUnknown},
		"nothing":          {answer{201, ""}, payment.ErrUnknown},
		"null":             {answer{201, "null"}, payment.ErrUnknown},
		"wrong parameters": {answer{400, `{"message": "ana@example.com"}`}, payment.ErrRejected},
		"wrong token":      {answer{401, `{}`}, payment.ErrRejected},
		"no such call":     {answer{404, `{}`}, payment.ErrRejected},
		"under way":        {answer{409, `{}`}, payment.ErrUnknown},
		"bank not there":   {answer{424, `{}`}, payment.ErrUnknown},
		"too many":         {answer{429, `{}`}, payment.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			p, a := start(t, map[string]answer{"POST /v1/payments": row.answer})
			_, err := p.Authorise(ctx, authorisation)
			require.ErrorIs(t, err, row.fails)
			require.NotContains(t, err.Error(), "ana@example.com")
			require.Equal(t, 1, a.count(), "the SDK does not repeat")
		})
	}
	nowhere, err := mercadopago.New(mercadopago.Config{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, err = nowhere.Authorise(ctx, authorisation)
	require.ErrorIs(t, err, payment.ErrUnavailable)
}

func TestLookUp(t *testing.T) {
	p, a := start(t, map[string]answer{
		"GET /v1/payments/search": {200, `{"paging": {"total": 0}, "results": []}`},
		"GET /v1/payments/123": {200, pixPayment("approved", `, "refunds": [
			{"id": 1, "amount": 0.9, "status": "approved"},
			{"id": 2, "amount": 0.29, "status": "in_process"},
			{"id": 3, "amount": 5, "status": "rejected"}]`)},
	})
	byPayment := payment.Reference{Payment: "p-1"}
	_, err := p.LookUp(ctx, byPayment)
	require.ErrorIs(t, err, payment.ErrNotFound)
	require.Equal(t, "criteria=desc&external_reference=p-1&limit=30&offset=0&sort=date_created",
		a.last().query)
	require.NotContains(t, a.last().header, "X-Idempotency-Key")
	_, err = p.LookUp(ctx, payment.Reference{Payment: "p-1", Provider: "9"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = p.Refund(ctx, payment.RefundRequest{Reference: byPayment, Amount: brl(1)})
	require.ErrorIs(t, err, payment.ErrRejected)

	a.set("GET /v1/payments/search", answer{200, `{"results": [
		{"id": 124, "status": "pending"}, {"id": 123, "status": "approved"}]}`})
	c, err := p.LookUp(ctx, byPayment)
	require.NoError(t, err)
	require.Equal(t, known, c.Reference, "the one that holds money")
	require.Equal(t, brl(90), c.Refunded)
	require.Equal(t, []payment.Refund{
		{Provider: "1", Amount: brl(90), Status: payment.RefundDone},
		{Provider: "2", Amount: brl(29), Status: payment.RefundPending},
		{Provider: "3", Amount: brl(500), Status: payment.RefundFailed},
	}, c.Refunds)
	c, err = p.Capture(ctx, payment.Capture{Key: "k", Reference: known, Amount: brl(1990)})
	require.NoError(t, err)
	require.Equal(t, payment.StatusCaptured, c.Status)

	a.set("GET /v1/payments/search", answer{})
	_, err = p.LookUp(ctx, byPayment)
	require.ErrorIs(t, err, payment.ErrUnknown, "silence is not absence")
}

func TestVoid(t *testing.T) {
	p, a := start(t, map[string]answer{
		"PUT /v1/payments/123": {200, pixPayment("cancelled", "")},
	})
	c, err := p.Void(ctx, payment.Void{Key: "k2", Reference: known})
	require.NoError(t, err)
	require.Equal(t, payment.StatusVoided, c.Status)
	require.Equal(t, "k2", a.last().header.Get("X-Idempotency-Key"))
	require.JSONEq(t, `{"status": "cancelled"}`, a.last().body)

	a.set("PUT /v1/payments/123", answer{400, `{"message": "Invalid status"}`})
	a.set("GET /v1/payments/123", answer{200, pixPayment("approved", "")})
	c, err = p.Void(ctx, payment.Void{Key: "k2", Reference: known})
	require.NoError(t, err)
	require.Equal(t, payment.StatusCaptured, c.Status, "paid meanwhile")

	a.set("GET /v1/payments/123", answer{200, pixPayment("pending", "")})
	_, err = p.Void(ctx, payment.Void{Key: "k2", Reference: known})
	require.ErrorIs(t, err, payment.ErrRejected)
	_, err = p.Capture(ctx, payment.Capture{Key: "k", Reference: known, Amount: brl(1990)})
	require.ErrorIs(t, err, payment.ErrRejected, "nobody has paid")
}

func TestRefund(t *testing.T) {
	p, a := start(t, map[string]answer{"POST /v1/payments/123/refunds": {
		201,
		`{"id": 55, "payment_id": 123, "amount": 0.29, "status": "in_process"}`,
	}})
	ask := payment.RefundRequest{Key: "k3", Refund: "r-1", Reference: known, Amount: brl(29)}
	r, err := p.Refund(ctx, ask)
	require.NoError(t, err)
	require.Equal(t, "r-1", r.ID)
	require.Equal(t, "55", r.Provider)
	require.Equal(t, brl(29), r.Amount)
	require.Equal(t, payment.RefundPending, r.Status)
	require.Equal(t, "k3", a.last().header.Get("X-Idempotency-Key"))
	require.JSONEq(t, `{"amount": 0.29}`, a.last().body)

	ask.Amount = brl(0)
	_, err = p.Refund(ctx, ask)
	require.ErrorIs(t, err, payment.ErrRejected, "nothing is not everything")
	require.Equal(t, 1, a.count())
}

func TestWebhooks(t *testing.T) {
	p, _ := start(t, nil)
	now := time.Now()
	const body = `{"id": 9001, "type": "payment", "action": "payment.updated", "user_id": 777,
		"date_created": "2026-11-29T10:04:58.396-03:00", "live_mode": true, "data": {"id": "123"}}`
	sign := func(secret, manifest string, stamp int64) string {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(mac, manifest, stamp)
		return "ts=" + strconv.FormatInt(stamp, 10) + ", v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	read := func(signature, request, body string) (payment.Notice, error) {
		return p.ParseWebhook(func(name string) string {
			return map[string]string{"X-Signature": signature, "X-Request-Id": request}[name]
		}, []byte(body), now)
	}
	const manifest = "id:123;request-id:req-9;ts:%d;"
	for _, signature := range []string{
		sign("new", manifest, now.Unix()), sign("old", manifest, now.Unix()-299),
		sign("new", manifest, now.UnixMilli()),
	} {
		n, err := read(signature, "req-9", body)
		require.NoError(t, err)
		require.Equal(t, payment.Notice{
			Event: "9001", Reference: payment.Reference{Provider: "123"}, Type: "payment.updated",
			Account: "777", At: time.Date(2026, 11, 29, 13, 4, 58, 396e6, time.UTC),
		}, n)
	}
	_, err := read(sign("new", "id:123;ts:%d;", now.Unix()), "", body)
	require.NoError(t, err, "no request id")

	for name, row := range map[string][2]string{
		"other secret":  {sign("forged", manifest, now.Unix()), body},
		"other payment": {sign("new", "id:124;request-id:req-9;ts:%d;", now.Unix()), body},
		"other request": {sign("new", "id:123;request-id:req-8;ts:%d;", now.Unix()), body},
		"old":           {sign("new", manifest, now.Unix()-302), body},
		"early":         {sign("new", manifest, now.UnixMilli()+302_000), body},
		"none":          {"", body},
		"no body":       {sign("new", manifest, now.Unix()), ""},
	} {
		_, err := read(row[0], "req-9", row[1])
		require.ErrorIs(t, err, payment.ErrSignature, name)
	}
	_, err = read(sign("new", "id:ord01abc;request-id:req-9;ts:%d;", now.Unix()), "req-9",
		`{"type": "order", "data": {"id": "ORD01ABC"}}`)
	require.ErrorIs(t, err, payment.ErrIgnored)
}
