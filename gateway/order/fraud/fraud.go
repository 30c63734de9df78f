// Package fraud asks an anti-fraud service over HTTP.
//
//	POST {URL}
//	{"payment": "…", "order": "…", "buyer": "…", "tenant": "…", "method": "card",
//	 "amount": {"amount": 1990, "currency": "BRL"},
//	 "payer": {"name": "…", "email": "…", "document": "…", "phone": "…"}}
//
//	200 {"verdict": "allow" | "deny" | "review"}
//
// The service is asked again about the same payment after a crash; it should answer the same. Any
// other answer, and none within the timeout, is a failure. When 20 % of the calls of 30 s have
// failed, it is not asked for 30 s: the breaker is open, and every call fails at once. Whoever asks
// sends what has failed to manual review, so that a service that is down stops no sale.
package fraud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"numera/gateway/order"
	"numera/gateway/payment"
)

// Config is where the service is. Zero members take the default.
type Config struct {
	URL     string        // required
	Token   string        // sent as a bearer token, unless empty
	Timeout time.Duration // of a call; default 2 s
	// Rest is how long the breaker stays open before it lets one call try. Default 30 s.
	Rest   time.Duration
	Client *http.Client // default: one of its own, with at most 64 connections
}

// The breaker opens when failureRate of the calls within failurePeriod have failed, of which
// there were failureCalls at least: fewer say nothing.
const (
	failureRate   = 0.2
	failurePeriod = 30 * time.Second
	failureCalls  = 10
)

// ErrService is returned when the service did not answer as it should.
var ErrService = errors.New("fraud: no verdict")

// Service is the client, an order.Fraud. Any goroutine may call it.
type Service struct {
	config  Config
	breaker circuitbreaker.CircuitBreaker[order.Verdict]
	guarded failsafe.Executor[order.Verdict]
}

var _ order.Fraud = (*Service)(nil)

// New makes a client. It does not connect.
func New(config Config) *Service {
	if config.Timeout <= 0 {
		config.Timeout = 2 * time.Second
	}
	if config.Rest <= 0 {
		config.Rest = failurePeriod
	}
	if config.Client == nil {
		config.Client = &http.Client{Transport: &http.Transport{
			MaxConnsPerHost: 64, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		}}
	}
	breaker := circuitbreaker.NewBuilder[order.Verdict]().
		WithFailureRateThreshold(failureRate, failureCalls, failurePeriod).
		WithDelay(config.Rest).Build()
	return &Service{
		config: config, breaker: breaker, guarded: failsafe.With[order.Verdict](breaker),
	}
}

// Open says that the breaker is open: everything goes to manual review.
func (s *Service) Open() bool { return s.breaker.IsOpen() }

// Judge implements order.Fraud. The error is ErrService, or that of the open breaker.
func (s *Service) Judge(ctx context.Context, c order.FraudCase) (order.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	verdict, err := s.guarded.Get(func() (order.Verdict, error) { return s.ask(ctx, c) })
	if err != nil {
		return "", fmt.Errorf("fraud: payment %s: %w", c.Payment, err)
	}
	return verdict, nil
}

// question is the body of a request.
type question struct {
	Payment string         `json:"payment"`
	Order   string         `json:"order"`
	Buyer   string         `json:"buyer"`
	Tenant  string         `json:"tenant"`
	Method  payment.Method `json:"method"`
	Amount  money          `json:"amount"`
	Payer   payer          `json:"payer"`
}

type money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

type payer struct {
	Name     string `json:"name,omitempty"`
	Email    string `json:"email,omitempty"`
	Document string `json:"document,omitempty"`
	Phone    string `json:"phone,omitempty"`
}

const maxAnswer = 64 << 10

func (s *Service) ask(ctx context.Context, c order.FraudCase) (order.Verdict, error) {
	body, err := json.Marshal(question{
		Payment: string(c.Payment), Order: c.Order.String(), Buyer: string(c.Buyer),
		Tenant: c.Tenant, Method: c.Method, Amount: money(c.Amount), Payer: payer(c.Payer),
	})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.URL,
		bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrService, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if s.config.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.config.Token)
	}
	response, err := s.config.Client.Do(request)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrService, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrService, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%w: status %d", ErrService, response.StatusCode)
	}
	var answer struct {
		Verdict order.Verdict `json:"verdict"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", fmt.Errorf("%w: %w", ErrService, err)
	}
	switch answer.Verdict {
	case order.FraudAllow, order.FraudDeny, order.FraudReview:
		return answer.Verdict, nil
	}
	return "", fmt.Errorf("%w: an unknown verdict", ErrService)
}
