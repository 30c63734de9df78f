package stripe_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
	"go.uber.org/goleak"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
	"numera/gateway/payment/stripe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx   = context.Background()
	known = payment.Reference{Payment: "p-1", Provider: "pi_1"}
)

func brl(amount int64) payment.Money { return payment.Money{Amount: amount, Currency: "BRL"} }

// api answers as Stripe would, from a table of method and path, and keeps what it was asked.
type api struct {
	t       *testing.T
	answers map[string]answer

	mu    sync.Mutex
	asked []request
}

type answer struct {
	status int
	body   string
}

type request struct {
	path, key string
	form      url.Values
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	path := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1")
	a.mu.Lock()
	a.asked = append(a.asked, request{path, r.Header.Get("Idempotency-Key"), form})
	given, set := a.answers[path]
	a.mu.Unlock()
	switch {
	case !set:
		given = answer{404, `{"error": {"type": "invalid_request_error", "code": "resource_missing"}}`}
	case given.status == 0:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Request-Id", "req_1")
	w.WriteHeader(given.status)
	_, _ = io.WriteString(w, given.body)
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

func start(t *testing.T, answers map[string]answer) (*stripe.Provider, *api) {
	a := &api{t: t, answers: answers}
	server := httptest.NewServer(a)
	p := stripe.New(stripe.Config{
		SecretKey: "sk_test_secret", Account: "acct_1", URL: server.URL,
		WebhookSecrets: []string{"whsec_old", "whsec_new"},
		Exchange:       exchange.Config{Timeout: 2 * time.Second},
	})
	t.Cleanup(func() { p.Close(); server.Close() })
	return p, a
}

// intent is a PaymentIntent with some members of its own.
func intent(status, members string) string {
	return fmt.Sprintf(`{"id": "pi_1", "object": "payment_intent", "amount": 1990,
		"currency": "brl", "metadata": {"payment": "p-1", "order": "o-1"},
		"client_secret": "pi_1_secret_x", "status": %q %s}`, status, members)
}

var authorisation = payment.Authorisation{
	Key: "k1", Payment: "p-1", Order: "o-1", Amount: brl(1990), Method: payment.MethodCard,
	CardToken: "pm_1", Description: "Rifa",
}

func TestAuthoriseAsksOnceWithOurKey(t *testing.T) {
	p, a := start(t, map[string]answer{"POST /payment_intents": {200, intent("requires_capture",
		`, "latest_charge": {"id": "ch_1", "payment_method_details":
		 {"card": {"capture_before": 1800000000}}}`)}})
	c, err := p.Authorise(ctx, authorisation)
	require.NoError(t, err)
	require.Equal(t, payment.StatusAuthorised, c.Status)
	require.Equal(t, time.Unix(1_800_000_000, 0).UTC(), c.LapsesAt)
	require.Equal(t, "acct_1", c.Account)
	require.Zero(t, c.Captured.Amount)
	require.Contains(t, string(c.Raw), "capture_before")

	asked := a.last()
	require.Equal(t, "k1", asked.key)
	require.Equal(t, url.Values{
		"amount": {"1990"}, "currency": {"brl"}, "capture_method": {"manual"}, "confirm": {"true"},
		"payment_method": {"pm_1"}, "payment_method_types[0]": {"card"}, "description": {"Rifa"},
		"metadata[payment]": {"p-1"}, "metadata[order]": {"o-1"}, "transfer_group": {"p-1"},
		"expand[0]": {"latest_charge"},
	}, asked.form)

	_, err = p.Authorise(ctx, payment.Authorisation{Key: "k", Payment: "p", Method: payment.MethodPix})
	require.ErrorIs(t, err, payment.ErrRejected)
	require.Equal(t, 1, a.count())
}

func TestStatuses(t *testing.T) {
	for name, row := range map[string]struct {
		status, members string
		want            payment.Status
		action          payment.Action
	}{
		"no card yet": {
			"requires_payment_method", "", payment.StatusPending,
			payment.Action{Kind: payment.ActionConfirm, ClientKey: "pi_1_secret_x"},
		},
		"not confirmed": {
			"requires_confirmation", "", payment.StatusPending,
			payment.Action{Kind: payment.ActionConfirm, ClientKey: "pi_1_secret_x"},
		},
		"the bank's page": {
			"requires_action", `, "next_action": {"type": "redirect_to_url",
			 "redirect_to_url": {"url": "https://bank.example"}}`, payment.StatusPending,
			payment.Action{Kind: payment.ActionRedirect, URL: "https://bank.example"},
		},
		"in the browser": {
			"requires_action", `, "next_action": {"type": "use_stripe_sdk"}`, payment.StatusPending,
			payment.Action{Kind: payment.ActionConfirm, ClientKey: "pi_1_secret_x"},
		},
		"processing": {"processing", "", payment.StatusPending, payment.Action{}},
		"authorised": {"requires_capture", "", payment.StatusAuthorised, payment.Action{}},
		"captured":   {"succeeded", "", payment.StatusCaptured, payment.Action{}},
		"cancelled": {
			"canceled", `, "cancellation_reason": "requested_by_customer"`, payment.StatusVoided,
			payment.Action{},
		},
		"lapsed": {
			"canceled", `, "cancellation_reason": "expired"`, payment.StatusLapsed, payment.Action{},
		},
		"from the future": {
			"levitating", "", payment.StatusPending,
			payment.Action{Kind: payment.ActionConfirm, ClientKey: "pi_1_secret_x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t, map[string]answer{
				"GET /payment_intents/pi_1": {200, intent(row.status, row.members)},
			})
			c, err := p.LookUp(ctx, known)
			require.NoError(t, err)
			require.Equal(t, row.want, c.Status)
			require.Equal(t, row.action, c.Action)
			require.Equal(t, known, c.Reference)
		})
	}
}

func TestErrors(t *testing.T) {
	fail := func(kind, code string) string {
		return fmt.Sprintf(`{"error": {"type": %q, "code": %q, "message": "ana@example.com",
			"payment_intent": %s}}`, kind, code, intent("requires_payment_method", ""))
	}
	const invalid = "invalid_request_error"
	for name, row := range map[string]struct {
		answer answer
		fails  error
	}{
		"timeout":          {answer{}, payment.ErrUnknown},
		"500":              {answer{500, fail("api_error", "")}, payment.ErrUnknown},
		"502, no JSON":     {answer{502, "<html>"}, payment.ErrUnknown},
		"200, no JSON":     {answer{200, "<html>"}, payment.ErrUnknown},
		"key in use":       {answer{409, fail(invalid, "idempotency_key_in_use")}, payment.ErrUnknown},
		"key reused":       {answer{400, fail("idempotency_error", "")}, payment.ErrRejected},
		"wrong parameters": {answer{400, fail(invalid, "parameter_missing")}, payment.ErrRejected},
		"wrong key":        {answer{401, fail(invalid, "")}, payment.ErrRejected},
		"no such card":     {answer{404, fail(invalid, "resource_missing")}, payment.ErrRejected},
		"too many":         {answer{429, fail(invalid, "rate_limit")}, payment.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			p, a := start(t, map[string]answer{"POST /payment_intents": row.answer})
			_, err := p.Authorise(ctx, authorisation)
			require.ErrorIs(t, err, row.fails)
			require.NotContains(t, err.Error(), "ana@example.com")
			require.NotContains(t, err.Error(), "secret")
			require.Equal(t, 1, a.count(), "the SDK does not repeat")
		})
	}
	nowhere := stripe.New(stripe.Config{SecretKey: "sk", URL: "http://127.0.0.1:1"})
	_, err := nowhere.Authorise(ctx, authorisation)
	require.ErrorIs(t, err, payment.ErrUnavailable)
}

func TestDeclinedCard(t *testing.T) {
	p, _ := start(t, map[string]answer{"POST /payment_intents": {402, `{"error": {
		"type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds",
		"payment_intent": ` + intent("requires_payment_method", "") + `}}`}})
	c, err := p.Authorise(ctx, authorisation)
	require.NoError(t, err)
	require.Equal(t, payment.StatusDeclined, c.Status)
	require.Equal(t, "insufficient_funds", c.DeclinedBy)
	require.Equal(t, known, c.Reference)
	require.Equal(t, payment.Action{}, c.Action, "nobody gets to try it again")
	require.NotEmpty(t, c.Raw)
}

func TestChangesThatComeTooLate(t *testing.T) {
	unexpected := answer{400, `{"error": {"type": "invalid_request_error",
		"code": "payment_intent_unexpected_state"}}`}
	settled := answer{200, intent("succeeded", `, "amount_received": 1990`)}
	refunds := answer{200, `{"object": "list", "data": [
		{"id": "re_1", "amount": 90, "currency": "brl", "status": "succeeded",
		 "metadata": {"refund": "r-1"}},
		{"id": "re_2", "amount": 10, "currency": "brl", "status": "pending"},
		{"id": "re_3", "amount": 20, "currency": "brl", "status": "failed"}]}`}
	p, a := start(t, map[string]answer{
		"POST /payment_intents/pi_1/capture": unexpected,
		"POST /payment_intents/pi_1/cancel":  unexpected,
		"GET /payment_intents/pi_1":          settled,
		"GET /refunds":                       refunds,
	})
	c, err := p.Void(ctx, payment.Void{Key: "k", Reference: known})
	require.NoError(t, err)
	require.Equal(t, payment.StatusCaptured, c.Status)
	require.Equal(t, brl(1990), c.Captured)
	require.Equal(t, brl(90), c.Refunded)
	require.Len(t, c.Refunds, 3)
	require.Equal(t, "r-1", c.Refunds[0].ID)
	require.Equal(t, payment.RefundPending, c.Refunds[1].Status)
	require.Equal(t, payment.RefundFailed, c.Refunds[2].Status)
	c, err = p.Capture(ctx, payment.Capture{Key: "k", Reference: known, Amount: brl(1990)})
	require.NoError(t, err)
	require.Equal(t, payment.StatusCaptured, c.Status, "captured before")

	a.mu.Lock()
	a.answers["GET /payment_intents/pi_1"] = answer{
		200, intent("canceled", `, "cancellation_reason": "expired"`),
	}
	a.mu.Unlock()
	c, err = p.Capture(ctx, payment.Capture{Key: "k", Reference: known, Amount: brl(1990)})
	require.NoError(t, err)
	require.Equal(t, payment.StatusLapsed, c.Status)

	a.mu.Lock()
	a.answers["GET /payment_intents/pi_1"] = answer{200, intent("requires_capture", "")}
	a.mu.Unlock()
	_, err = p.Capture(ctx, payment.Capture{Key: "k", Reference: known, Amount: brl(1990)})
	require.ErrorIs(t, err, payment.ErrRejected)
}

func TestRefundsCarryTheirIdAndAmount(t *testing.T) {
	p, a := start(t, map[string]answer{"POST /refunds": {200, `{"id": "re_1", "amount": 90,
		"currency": "brl", "status": "succeeded", "metadata": {"refund": "r-1"}}`}})
	r, err := p.Refund(ctx, payment.RefundRequest{
		Key: "k9", Refund: "r-1", Reference: known, Amount: brl(90), Reason: "gave up",
	})
	require.NoError(t, err)
	require.Equal(t, payment.RefundDone, r.Status)
	require.Equal(t, "r-1", r.ID)
	require.Equal(t, "k9", a.last().key)
	require.Equal(t, url.Values{
		"payment_intent": {"pi_1"}, "amount": {"90"}, "metadata[refund]": {"r-1"},
		"metadata[payment]": {"p-1"}, "metadata[reason]": {"gave up"},
	}, a.last().form)
}

func TestLookUpByPayment(t *testing.T) {
	nothing := answer{200, `{"object": "list", "data": []}`}
	p, a := start(t, map[string]answer{
		"GET /charges": nothing, "GET /payment_intents/search": nothing,
		"GET /payment_intents/pi_1": {200, intent("requires_capture", "")},
	})
	byPayment := payment.Reference{Payment: "p-1"}
	_, err := p.LookUp(ctx, byPayment)
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = p.LookUp(ctx, payment.Reference{Payment: "p-1", Provider: "pi_9"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = p.Capture(ctx, payment.Capture{Key: "k", Reference: byPayment})
	require.ErrorIs(t, err, payment.ErrRejected)

	a.mu.Lock()
	a.answers["GET /charges"] = answer{200, `{"object": "list", "data": [
		{"id": "ch_2", "status": "failed", "payment_intent": "pi_2"},
		{"id": "ch_1", "status": "succeeded", "payment_intent": "pi_1"}]}`}
	a.mu.Unlock()
	c, err := p.LookUp(ctx, byPayment)
	require.NoError(t, err)
	require.Equal(t, known, c.Reference, "the one that holds money")

	a.mu.Lock()
	a.answers["GET /charges"] = nothing
	a.answers["GET /payment_intents/search"] = answer{200, `{"object": "search_result", "data": [` +
		intent("requires_action", "") + `]}`}
	a.mu.Unlock()
	c, err = p.LookUp(ctx, byPayment)
	require.NoError(t, err)
	require.Equal(t, known, c.Reference)

	a.mu.Lock()
	a.answers["GET /charges"] = answer{}
	a.mu.Unlock()
	_, err = p.LookUp(ctx, byPayment)
	require.ErrorIs(t, err, payment.ErrUnknown, "silence is not absence")
}

func TestWebhooks(t *testing.T) {
	p, _ := start(t, nil)
	now := time.Now()
	event := func(kind, object string) []byte {
		return fmt.Appendf(nil, `{"id": "evt_1", "object": "event", "type": %q, "created": 1800000000,
			"api_version": "2019-01-01", "data": {"object": %s}}`, kind, object)
	}
	paid := event("payment_intent.succeeded", intent("succeeded", `, "amount_received": 1990`))
	sign := func(body []byte, secret string, age time.Duration) string {
		return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
			Payload: body, Secret: secret, Timestamp: now.Add(-age),
		}).Header
	}
	read := func(header string, body []byte) (payment.Notice, error) {
		return p.ParseWebhook(func(name string) string {
			require.Equal(t, "Stripe-Signature", name)
			return header
		}, body, now)
	}
	n, err := read(sign(paid, "whsec_new", 0), paid)
	require.NoError(t, err)
	require.Equal(t, "evt_1", n.Event)
	require.Equal(t, known, n.Reference)
	require.Equal(t, "acct_1", n.Account)
	require.Equal(t, brl(1990), n.Charge.Captured)
	_, err = read(sign(paid, "whsec_old", 299*time.Second), paid)
	require.NoError(t, err)

	for name, header := range map[string]string{
		"other secret": sign(paid, "whsec_forged", 0), "other body": sign([]byte("{}"), "whsec_new", 0),
		"old":   sign(paid, "whsec_new", 302*time.Second),
		"early": sign(paid, "whsec_new", -302*time.Second),
		"none":  "", "no time": "v1=00",
	} {
		_, err := read(header, paid)
		require.ErrorIs(t, err, payment.ErrSignature, name)
	}

	refund := `{"id": "re_1", "payment_intent": "pi_1", "metadata": {"payment": "p-1"}}`
	for _, kind := range []string{"refund.updated", "charge.refund.updated", "charge.refunded"} {
		body := event(kind, refund)
		n, err := read(sign(body, "whsec_new", 0), body)
		require.NoError(t, err, kind)
		require.Equal(t, known, n.Reference)
		require.Nil(t, n.Charge)
	}
	for _, body := range [][]byte{
		event("customer.created", `{"id": "cus_1"}`), event("charge.succeeded", `{"id": "ch_1"}`),
		[]byte("{}"), []byte("[]"),
	} {
		_, err := read(sign(body, "whsec_new", 0), body)
		require.ErrorIs(t, err, payment.ErrIgnored)
	}
	require.Equal(t, "2026-03-25.dahlia", sdk.APIVersion, "another version: read its changes first")
}
