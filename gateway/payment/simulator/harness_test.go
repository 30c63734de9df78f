package simulator_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
	"numera/gateway/payment/simulator"
)

// TestMain lets fasthttp's housekeeping be, which ends by itself some seconds after its connections.
func TestMain(m *testing.M) {
	const fasthttp = "github.com/valyala/fasthttp."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(fasthttp+"(*Client).mCleaner"),
		goleak.IgnoreAnyFunction(fasthttp+"(*HostClient).connsCleaner"))
}

// world is a provider on a port, numera's client of it, and whoever receives its webhooks.
type world struct {
	*simulator.Client
	hasty  *simulator.Client
	t      testing.TB
	server *simulator.Server
	url    string
	now    atomic.Int64 // nanoseconds after the start, as the provider sees it

	inbox   chan delivery
	answers sync.Map // status by attempt, int by int; 200 where there is none
	arrived atomic.Int64
}

type delivery struct {
	signature string
	body      []byte
}

const (
	patience   = time.Minute            // of the client
	impatience = 500 * time.Millisecond // of the one that is to be kept waiting
)

func newWorld(t testing.TB, config simulator.Config) *world {
	w := &world{t: t, inbox: make(chan delivery, 1000)}
	sink := httptest.NewServer(http.HandlerFunc(w.receive))
	start := time.Now()
	config.Now = func() time.Time { return start.Add(time.Duration(w.now.Load())) }
	if config.WebhookSecrets != nil {
		config.WebhookURL = sink.URL
	}
	var err error
	w.server, err = simulator.New(config)
	require.NoError(t, err)
	front := httptest.NewServer(w.server)
	w.url = front.URL
	client := func(waits time.Duration) *simulator.Client {
		return simulator.NewClient(simulator.ClientConfig{
			URL: front.URL, WebhookSecrets: []string{"old", "new"},
			Exchange: exchange.Config{Timeout: waits},
		})
	}
	w.Client, w.hasty = client(patience), client(impatience)
	t.Cleanup(func() {
		w.Close()
		w.hasty.Close()
		require.NoError(t, w.server.Close())
		front.Close()
		sink.Close()
	})
	return w
}

func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if status, set := w.answers.Load(int(w.arrived.Add(1))); set {
		rw.WriteHeader(status.(int))
		return
	}
	w.inbox <- delivery{r.Header.Get(simulator.SignatureHeader), body}
}

// hear waits for the next webhook and reads it.
func (w *world) hear() (payment.Notice, error) {
	w.t.Helper()
	select {
	case d := <-w.inbox:
		return w.ParseWebhook(func(string) string { return d.signature }, d.body, w.clock())
	case <-time.After(patience):
		require.FailNow(w.t, "no webhook")
		panic("unreachable")
	}
}

// hears requires these events to come next.
func (w *world) hears(kinds ...string) {
	w.t.Helper()
	for _, kind := range kinds {
		n, err := w.hear()
		require.NoError(w.t, err)
		require.Equal(w.t, kind, n.Type)
	}
}

func (w *world) clock() time.Time { return time.Now().Add(time.Duration(w.now.Load())) }

func (w *world) script(f simulator.Fault) {
	w.t.Helper()
	require.NoError(w.t, w.server.Script(f))
}

func (w *world) post(path, body string) *http.Response {
	w.t.Helper()
	response, err := http.Post(w.url+path, "application/json", strings.NewReader(body))
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())
	return response
}

func reais(cents int64) payment.Money { return payment.Money{Amount: cents, Currency: "BRL"} }

func card(id string) payment.Authorisation {
	return payment.Authorisation{
		Key: "key-" + id, Payment: id, Order: "order-" + id, Amount: reais(1990),
		Method: payment.MethodCard, CardToken: "tok_1",
	}
}

func pixOf(id string) payment.Authorisation {
	a := card(id)
	a.Method, a.CardToken = payment.MethodPix, ""
	return a
}

// authorised is a charge that went well.
func (w *world) authorised(a payment.Authorisation) payment.Charge {
	w.t.Helper()
	c, err := w.Authorise(context.Background(), a)
	require.NoError(w.t, err)
	return c
}

func (w *world) captured(a payment.Authorisation) payment.Charge {
	w.t.Helper()
	c, err := w.Capture(context.Background(), captureOf(w.authorised(a)))
	require.NoError(w.t, err)
	require.Equal(w.t, payment.StatusCaptured, c.Status)
	return c
}

func captureOf(c payment.Charge) payment.Capture {
	return payment.Capture{Key: "capture-" + c.Payment, Reference: c.Reference, Amount: c.Amount}
}

func refundOf(c payment.Charge, id string, cents int64) payment.RefundRequest {
	return payment.RefundRequest{
		Key: "key-" + id, Refund: id, Reference: c.Reference, Amount: reais(cents),
	}
}
