package simulator_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
)

var signed = simulator.Config{WebhookSecrets: []string{"new"}, WebhookLanes: 1}

func TestWebhooksTellWhatHappened(t *testing.T) {
	w := newWorld(t, signed)
	c := w.captured(card("p1"))
	_, err := w.Refund(ctx, refundOf(c, "r1", 90))
	require.NoError(t, err)
	w.hears("charge.authorised", "charge.captured")
	n, err := w.hear()
	require.NoError(t, err)
	require.Equal(t, "refund.done", n.Type)
	require.Equal(t, c.Reference, n.Reference)
	require.Equal(t, "acct_simulator", n.Account)
	require.Equal(t, reais(90), n.Charge.Refunded)
	require.Equal(t, "r1", n.Charge.Refunds[0].ID)
}

func TestWebhookFaults(t *testing.T) {
	w := newWorld(t, signed)
	play := func(id string, kind simulator.FaultKind) {
		w.script(simulator.Fault{Kind: kind, Payment: id, DelayMilli: 500})
		w.captured(card(id))
	}
	play("p1", simulator.WebhookNone)
	w.hears("charge.captured")
	play("p2", simulator.WebhookReorder)
	w.hears("charge.captured", "charge.authorised")
	play("p3", simulator.WebhookLate)
	w.hears("charge.captured", "charge.authorised")

	play("p4", simulator.WebhookDuplicate)
	first, err := w.hear()
	require.NoError(t, err)
	again, err := w.hear()
	require.NoError(t, err)
	require.Equal(t, first, again)
	w.hears("charge.captured")

	play("p5", simulator.WebhookForged)
	_, err = w.hear()
	require.ErrorIs(t, err, payment.ErrSignature)
	w.hears("charge.authorised", "charge.captured")

	require.NoError(t, w.server.Announce("p5", simulator.Claim{
		Status: payment.StatusDeclined, Times: 2,
	}))
	w.hears("charge.declined", "charge.declined")
}

func TestWebhookIsSentUntilItIsAccepted(t *testing.T) {
	w := newWorld(t, signed)
	w.answers.Store(1, 500)
	w.answers.Store(2, 503)
	w.authorised(card("p1"))
	w.hears("charge.authorised")
	require.Eventually(t, func() bool {
		return w.server.Deliveries() == simulator.Deliveries{Delivered: 1, Refused: 2}
	}, patience, time.Millisecond)
}

func TestSignatures(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	now := time.Now()
	body := []byte(`{"id":"evt_1","type":"charge.captured","charge":{"id":"ch_1","payment":"p1"}}`)
	by := func(secret string, age time.Duration) string {
		return simulator.Sign([]string{secret}, now.Add(-age), body)
	}
	for name, row := range map[string]struct {
		header string
		body   []byte
		fails  error
	}{
		"genuine":         {by("new", 0), body, nil},
		"older secret":    {by("old", 0), body, nil},
		"one of several":  {simulator.Sign([]string{"next", "old"}, now, body), body, nil},
		"other secret":    {by("next", 0), body, payment.ErrSignature},
		"other body":      {simulator.Sign([]string{"new"}, now, nil), body, payment.ErrSignature},
		"299 s old":       {by("new", 299*time.Second), body, nil},
		"302 s old":       {by("new", 302*time.Second), body, payment.ErrSignature},
		"from the future": {by("new", -302*time.Second), body, payment.ErrSignature},
		"none":            {"", body, payment.ErrSignature},
		"of nothing": {
			simulator.Sign([]string{"new"}, now, []byte("{}")), []byte("{}"), payment.ErrIgnored,
		},
	} {
		_, err := w.ParseWebhook(func(string) string { return row.header }, row.body, now)
		require.ErrorIs(t, err, row.fails, name)
	}
}

// TestByHand is what a person does with curl and a browser.
func TestByHand(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	require.Equal(t, 204, w.post("/faults", `{"kind": "decline"}`).StatusCode)
	require.Equal(t, 400, w.post("/faults", `{"kind": "declined"}`).StatusCode)
	require.Equal(t, 400, w.post("/faults", `{"kind": "lapsed", "on": "void"}`).StatusCode)
	require.Equal(t, payment.StatusDeclined, w.authorised(card("p1")).Status)
	w.authorised(pixOf("p2"))
	require.Equal(t, 409, w.post("/charges/p1/pay", "").StatusCode)
	require.Equal(t, 404, w.post("/charges/p9/pay", "").StatusCode)
	require.Equal(t, 404, w.post("/charges/p2/burn", "").StatusCode)
	require.Equal(t, 400, w.post("/charges/p2/announce", "x").StatusCode)

	shown := w.get("/")
	require.Contains(t, shown, "BRL 19.90")
	require.Contains(t, shown, "<svg")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	click, err := http.NewRequest(http.MethodPost, w.url+"/charges/p2/pay", nil)
	require.NoError(t, err)
	click.Header.Set("Accept", "text/html,*/*")
	response, err := browser.Do(click)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 200, response.StatusCode)
	require.Contains(t, w.get("/charges"), `"status":"captured"`)
	require.Contains(t, w.get("/payments/p2"), `"end_to_end"`)
	require.Contains(t, w.get("/payments/p2/calls"), `"authorise"`)
	require.Contains(t, w.get("/faults"), "[]")
	require.Contains(t, w.get("/webhooks"), `"delivered":0`)
}

func (w *world) get(path string) string {
	w.t.Helper()
	response, err := http.Get(w.url + path)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, 200, response.StatusCode)
	return string(body)
}
