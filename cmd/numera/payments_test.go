package main

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"numera/gateway/events"
	"numera/gateway/order"
)

// pay asks to pay an order, with the same key until the payment rests: a busy machine says earlier
// how it stands.
func (s *system) pay(id, key, body string) *reply {
	s.t.Helper()
	for until := time.Now().Add(patience); ; {
		r := s.call("POST", "/v1/orders/"+id+"/payments", serviceToken, key, body)
		status, _ := r.payment()["status"].(string)
		moves := status != "" && !order.Status(status).Rests()
		if !moves && r.code() != "idempotency_in_progress" &&
			r.status != http.StatusServiceUnavailable || time.Now().After(until) {
			return r
		}
	}
}

// payment is the one in the answer.
func (r *reply) payment() map[string]any {
	p, _ := r.body["payment"].(map[string]any)
	return p
}

// held makes an order and gives its id.
func (s *system) held(key, product string) string {
	s.t.Helper()
	r := s.reserve(key, "ana", `{"product":"`+product+`","quantity":1}`)
	require.Equal(s.t, 201, r.status, r.text)
	return r.order()["id"].(string)
}

func (s *system) status(order string) string {
	s.t.Helper()
	status, _ := s.call("GET", "/v1/orders/"+order, serviceToken, "", "").order()["status"].(string)
	return status
}

// becomes waits until an order has a status.
func (s *system) becomes(order, status string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.status(order) == status }, patience,
		20*time.Millisecond, "%s: %s\n%s", order, s.status(order), s.log)
}

// psp asks the simulator.
func (s *system) atPSP(method, path, body string) []map[string]any {
	s.t.Helper()
	r, err := http.NewRequest(method, s.psp+path, strings.NewReader(body))
	require.NoError(s.t, err)
	answer, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	require.Less(s.t, answer.StatusCode, 300, "%s", text)
	var many []map[string]any
	_ = json.Unmarshal(text, &many) // not every answer is a list
	return many
}

// captured is what the provider has of an order, in charges and in money.
func (s *system) captured(order string) (charges, money int) {
	s.t.Helper()
	for _, c := range s.atPSP("GET", "/charges", "") {
		if c["order"] == order && c["captured"].(float64) > 0 {
			charges++
			money += int(c["captured"].(float64) - c["refunded"].(float64))
		}
	}
	return charges, money
}

const card = `{"method":"card","card":{"token":"tok"}}`

// TestPayments goes through what a storefront does, over HTTP, with everything real but the bank.
func TestPayments(t *testing.T) {
	s := startSystem(t, t.TempDir())
	s.product("a", 100, "")

	t.Run("card", func(t *testing.T) {
		order := s.held("card", "a")
		paid := s.pay(order, "p", card)
		require.Equal(t, 201, paid.status, paid.text)
		require.Equal(t, "captured", paid.payment()["status"])
		require.Equal(t, "paid", s.status(order))
		again := s.pay(order, "p", card)
		require.Equal(t, paid.payment(), again.payment())
		require.Equal(t, "true", again.header.Get("Idempotent-Replay"))
		require.Equal(t, "idempotency_key_reused", s.pay(order, "p", `{"method":"pix"}`).code())
		require.Equal(t, "order_status", s.pay(order, "q", card).code())
		charges, money := s.captured(order)
		require.Equal(t, []int{1, 100}, []int{charges, money})
	})
	t.Run("pix, and the whole back", func(t *testing.T) {
		order := s.held("pix", "a")
		asked := s.pay(order, "p", `{"method":"pix"}`)
		require.Equal(t, "pending", asked.payment()["status"], asked.text)
		require.Contains(t, asked.payment()["action"].(map[string]any)["qr_svg"], "<svg")
		require.Equal(t, "paying", s.status(order))
		s.atPSP("POST", "/charges/"+asked.payment()["id"].(string)+"/pay", "")
		s.becomes(order, "paid")
		require.Eventually(t, func() bool { // the row follows the order by a moment
			r := s.call("GET", "/v1/orders/"+order+"/payments", serviceToken, "", "")
			return strings.Contains(r.text, `"status":"captured"`)
		}, patience, 20*time.Millisecond)
		sold := s.counters("a").Sold
		back := s.call("POST", "/v1/admin/orders/"+order+"/refund", adminToken, "", `{"return_to_stock":true}`)
		require.Equal(t, 200, back.status, back.text)
		s.becomes(order, "refunded")
		require.Equal(t, sold-1, s.counters("a").Sold)
		_, money := s.captured(order)
		require.Zero(t, money)
	})
	t.Run("a part back", func(t *testing.T) {
		order := s.held("part", "a")
		require.Equal(t, 201, s.pay(order, "p", card).status)
		refund := func(key, amount string) *reply {
			return s.call("POST", "/v1/admin/orders/"+order+"/refunds", adminToken, key,
				`{"amount":{"amount":`+amount+`,"currency":"BRL"},"reason":"r"}`)
		}
		require.Equal(t, 201, refund("1", "60").status)
		require.Equal(t, 201, refund("1", "60").status, "the same again")
		require.Equal(t, "refund_amount", refund("2", "41").code())
		require.Equal(t, "paid", s.status(order))
		require.Eventually(t, func() bool {
			_, money := s.captured(order)
			return money == 40
		}, patience, 20*time.Millisecond)
	})
	t.Run("captured when shipped", func(t *testing.T) {
		s.product("s", 10, `,"capture":"shipping"`)
		order := s.held("ship", "s")
		paid := s.pay(order, "p", card)
		require.Equal(t, "confirmed", paid.payment()["status"], paid.text)
		charges, _ := s.captured(order)
		require.Zero(t, charges)
		shipped := s.call("POST", "/v1/admin/orders/"+order+"/ship", adminToken, "", "")
		require.Equal(t, 200, shipped.status, shipped.text)
		require.Equal(t, "shipped", s.status(order))
		charges, _ = s.captured(order)
		require.Equal(t, 1, charges)
	})
	t.Run("declined", func(t *testing.T) {
		order := s.held("declined", "a")
		s.atPSP("POST", "/faults", `{"kind":"decline"}`)
		require.Equal(t, "refused", s.pay(order, "p", card).payment()["status"])
		require.Equal(t, "refused", s.status(order))
	})
	t.Run("what was counted", func(t *testing.T) {
		forged := s.call("POST", "/v1/webhooks/default/simulator", "", "", `{"id":"evt"}`)
		require.Equal(t, 401, forged.status, forged.text)
		text := s.call("GET", "/metrics", "", "", "").text
		for _, line := range []string{
			`_total{status="created"} 5`, `_total{status="authorised"} 3`,
			`_total{status="captured"} 4`, `_total{status="declined"} 1`,
			`_total{status="refunded"} 1`, `_total{status="surplus"} 0`,
			`_calls_total{call="authorise",provider="simulator",result="ok"} 4`,
			`_calls_total{call="authorise",provider="simulator",result="declined"} 1`,
			`_calls_total{call="capture",provider="simulator",result="ok"} 3`,
			`_calls_total{call="refund",provider="simulator",result="ok"} 2`,
			`_call_duration_seconds_count{call="authorise",provider="simulator"} 5`,
			`_webhooks_total{provider="simulator",result="forged"} 1`,
		} {
			require.Contains(t, text, "\nnumera_payments"+line+"\n")
		}
		require.Regexp(t, `\nnumera_payments_webhooks_total{provider="simulator",result="stored"} [1-9]`, text)
	})
	t.Run("what persons look at", func(t *testing.T) {
		for _, path := range []string{"payments", "payments?status=captured", "findings", "dead-letters?queue=expiry"} {
			r := s.call("GET", "/v1/admin/"+path, adminToken, "", "")
			require.Equal(t, 200, r.status, r.text)
		}
		r := s.call("POST", "/v1/admin/dead-letters/1/replay", adminToken, "", "")
		require.Equal(t, "dead_letter_not_found", r.code())
		r = s.call("POST", "/v1/admin/dead-letters/replay", adminToken, "", "")
		require.Equal(t, 0.0, r.body["replayed"], r.text)
	})
	s.stop()
}

// TestPaymentSurvivesTheProcess kills everything while the provider has the call: afterwards the
// order is paid by itself, and charged once.
func TestPaymentSurvivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	s := startSystem(t, dir)
	s.product("a", 100, "")
	order := s.held("k", "a")
	s.atPSP("POST", "/faults", `{"kind":"slow","on":"capture","delay_ms":60000}`)
	go s.try("POST", "/v1/orders/"+order+"/payments", serviceToken, "p", card) // nobody hears the answer
	s.becomes(order, "paid")                                                   // confirmed, and not captured yet
	s.kill()
	s = startSystem(t, dir)
	require.Eventually(t, func() bool {
		charges, money := s.captured(order)
		return charges == 1 && money == 100
	}, patience, 50*time.Millisecond, "%s", s.log)
	s.stop()
}

// TestPersonalDataStaysInPostgres looks for it everywhere else: the log, the metrics, the events, and
// every file that the system keeps but Postgres's.
func TestPersonalDataStaysInPostgres(t *testing.T) {
	dir := t.TempDir()
	s := startSystem(t, dir, "--log-level", "debug")
	s.product("a", 100, "")
	secrets := []string{"Ana-Mustermann-77", "ana77@example.org", "39053344705", "+5511987654321", "tok-77-secret"}
	order := s.held("k", "a")
	paid := s.pay(order, "p", `{"method":"card","card":{"token":"`+secrets[4]+`"},"payer":{"name":"`+
		secrets[0]+`","email":"`+secrets[1]+`","document":"`+secrets[2]+`","phone":"`+secrets[3]+`"}}`)
	require.Equal(t, "captured", paid.payment()["status"], paid.text)

	nc, err := nats.Connect(s.nats, nats.Timeout(patience))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	told := func() bool {
		m, err := js.Stream(t.Context(), events.Stream)
		if err != nil {
			return false
		}
		last, err := m.GetLastMsgForSubject(t.Context(), events.SubjectPrefix+"payment.captured")
		return err == nil && bytes.Contains(last.Data, []byte(`"order":"`+order+`"`))
	}
	require.Eventually(t, told, patience, 50*time.Millisecond, "the event of the capture")
	metrics := s.call("GET", "/metrics", "", "", "").text
	s.stop()
	for _, secret := range secrets {
		require.NotContains(t, s.log.String(), secret)
		require.NotContains(t, metrics, secret)
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, secret := range secrets {
			require.False(t, bytes.Contains(content, []byte(secret)), "%s holds %s", path, secret)
		}
		return err
	}))
}
