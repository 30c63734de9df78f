package fraud

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"numera/gateway/order"
	"numera/gateway/payment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs an anti-fraud service.
func serve(t *testing.T, handle http.HandlerFunc, config Config) *Service {
	server := httptest.NewServer(handle)
	config.URL = server.URL
	service := New(config)
	t.Cleanup(func() {
		service.config.Client.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return service
}

var someCase = order.FraudCase{
	Payment: "p-1", Buyer: "b-1", Tenant: "loja", Method: payment.MethodCard,
	Amount: payment.Money{Amount: 1990, Currency: "BRL"}, Payer: payment.Payer{Email: "a@example.com"},
}

func TestVerdicts(t *testing.T) {
	var answer, asked, token string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked, token = string(body), r.Header.Get("Authorization")
		_, _ = io.WriteString(w, answer)
	}, Config{Token: "secret"})
	for _, verdict := range []order.Verdict{order.FraudAllow, order.FraudDeny, order.FraudReview} {
		answer = `{"verdict": "` + string(verdict) + `", "score": 3}`
		got, err := s.Judge(t.Context(), someCase)
		require.NoError(t, err)
		require.Equal(t, verdict, got)
	}
	require.Equal(t, "Bearer secret", token)
	var question map[string]any
	require.NoError(t, json.Unmarshal([]byte(asked), &question))
	require.Equal(t, map[string]any{"amount": 1990.0, "currency": "BRL"}, question["amount"])
	require.Equal(t, map[string]any{"email": "a@example.com"}, question["payer"])
	for _, answer = range []string{"", "{}", `{"verdict": "yes"}`, "null"} {
		_, err := s.Judge(t.Context(), someCase)
		require.ErrorIs(t, err, ErrService, answer)
	}
}

func TestTimeout(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, Config{Timeout: 50 * time.Millisecond})
	_, err := s.Judge(t.Context(), someCase) // which without a timeout would never end
	require.ErrorIs(t, err, ErrService)
}

// TestBreaker opens when a fifth of the calls has failed, asks nothing while it is open, and closes
// when a call after its rest goes well.
func TestBreaker(t *testing.T) {
	var asked atomic.Int64
	var broken atomic.Bool
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"verdict": "allow"}`)
	}, Config{Timeout: time.Minute, Rest: time.Second})
	for range 9 {
		_, err := s.Judge(t.Context(), someCase)
		require.NoError(t, err)
	}
	broken.Store(true)
	for range 3 {
		require.False(t, s.Open())
		_, err := s.Judge(t.Context(), someCase)
		require.ErrorIs(t, err, ErrService)
	}
	require.True(t, s.Open(), "3 of 12 have failed")
	before := asked.Load()
	_, err := s.Judge(t.Context(), someCase)
	require.ErrorIs(t, err, circuitbreaker.ErrOpen)
	require.Equal(t, before, asked.Load())
	broken.Store(false)
	require.Eventually(t, func() bool {
		_, err := s.Judge(t.Context(), someCase)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.False(t, s.Open())
}
