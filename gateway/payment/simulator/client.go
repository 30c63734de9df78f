package simulator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
)

// ClientConfig says where the provider is.
type ClientConfig struct {
	Name           string          // "": simulator
	URL            string          // of the Server, without /v1
	WebhookSecrets []string        // any one of which has signed; none: every webhook is forged
	Exchange       exchange.Config // bounds of its calls
}

// Client is the provider as numera sees it: a [payment.Provider].
type Client struct {
	config ClientConfig
	http   *http.Client
}

var _ payment.Provider = (*Client)(nil)

// NewClient makes a client; Close releases its connections.
func NewClient(config ClientConfig) *Client {
	config.Name = cmp.Or(config.Name, "simulator")
	config.URL = strings.TrimSuffix(config.URL, "/")
	return &Client{config: config, http: exchange.NewClient(config.Exchange)}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Name is the configured one.
func (c *Client) Name() string { return c.config.Name }

// Authorise asks for the money.
func (c *Client) Authorise(ctx context.Context, a payment.Authorisation) (payment.Charge, error) {
	return c.charge(ctx, OnAuthorise, a.Key, &request{
		Payment: a.Payment, Order: a.Order, Method: a.Method, Amount: a.Amount.Amount,
		Currency: a.Amount.Currency, CaptureNow: a.CaptureNow, CardToken: a.CardToken,
		ExpiresAt: a.ExpiresAt.UTC(), Description: a.Description,
		Payer: &payer{a.Payer.Name, a.Payer.Email, a.Payer.Document, a.Payer.Phone},
	})
}

// Capture takes what was authorised.
func (c *Client) Capture(ctx context.Context, p payment.Capture) (payment.Charge, error) {
	return c.charge(ctx, OnCapture, p.Key, &request{
		Payment: p.Payment, Charge: p.Provider, Amount: p.Amount.Amount, Currency: p.Amount.Currency,
	})
}

// Void gives an authorisation or an unpaid charge back.
func (c *Client) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	return c.charge(ctx, OnVoid, v.Key, &request{Payment: v.Payment, Charge: v.Provider})
}

// Refund returns settled money.
func (c *Client) Refund(ctx context.Context, r payment.RefundRequest) (payment.Refund, error) {
	raw, err := c.call(ctx, OnRefund, r.Key, &request{
		Payment: r.Payment, Charge: r.Provider, Refund: r.Refund, Reason: r.Reason,
		Amount: r.Amount.Amount, Currency: r.Amount.Currency,
	})
	if err != nil {
		return payment.Refund{}, err
	}
	var answered Refund
	if err := json.Unmarshal(raw, &answered); err != nil {
		return payment.Refund{}, fmt.Errorf("%w: refund: %w", payment.ErrUnknown, err)
	}
	refund := answered.read(r.Amount.Currency)
	refund.Raw = raw
	return refund, nil
}

// LookUp tells the charge's state. A payment whose first call is under way is ErrUnknown.
func (c *Client) LookUp(ctx context.Context, r payment.Reference) (payment.Charge, error) {
	return c.charge(ctx, OnLookUp, "", &request{Payment: r.Payment, Charge: r.Provider})
}

func (c *Client) charge(ctx context.Context, on Operation, key string, r *request,
) (payment.Charge, error) {
	raw, err := c.call(ctx, on, key, r)
	if err != nil {
		return payment.Charge{}, err
	}
	var answered Charge
	if err := json.Unmarshal(raw, &answered); err != nil {
		return payment.Charge{}, fmt.Errorf("%w: %s: %w", payment.ErrUnknown, on, err)
	}
	charge := answered.read()
	charge.Raw = raw
	return charge, nil
}

func (c *Client) call(ctx context.Context, on Operation, key string, r *request) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", payment.ErrRejected, on, err)
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.URL+"/v1/"+string(on),
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", payment.ErrRejected, on, err)
	}
	post.Header.Set("Content-Type", "application/json")
	if key != "" {
		// In small letters net/http does not take it for a licence to send the call again by itself,
		// which would hide a broken connection from whoever counts on it.
		post.Header[strings.ToLower(KeyHeader)] = []string{key}
	}
	response, err := c.http.Do(post)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", on, exchange.Failed(err))
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", on, exchange.Failed(err))
	}
	if response.StatusCode != http.StatusOK {
		return nil, c.refused(on, response.StatusCode, raw)
	}
	return raw, nil
}

// refused reads an answer that is none. Only a look-up may find nothing.
func (c *Client) refused(on Operation, status int, raw []byte) error {
	var said refusal
	_ = json.Unmarshal(raw, &said) // what somebody else answered instead says nothing
	meaning := exchange.Refused(status)
	if on != OnLookUp && errors.Is(meaning, payment.ErrNotFound) {
		meaning = payment.ErrRejected
	}
	return fmt.Errorf("%w: %s: %d %s", meaning, on, status, said.Code)
}

// ParseWebhook reads what Server sends.
func (c *Client) ParseWebhook(header func(name string) string, body []byte, now time.Time,
) (payment.Notice, error) {
	err := verify(c.config.WebhookSecrets, header(SignatureHeader), body, now)
	if err != nil {
		return payment.Notice{}, err
	}
	var n notice
	if err := json.Unmarshal(body, &n); err != nil || n.Charge == nil {
		return payment.Notice{}, fmt.Errorf("%w: no charge", payment.ErrIgnored)
	}
	charge := n.Charge.read()
	charge.Raw = bytes.Clone(body)
	return payment.Notice{
		Event: n.ID, Reference: charge.Reference, Type: n.Type, Account: n.Account, At: n.At,
		Charge: &charge,
	}, nil
}

// read says it in the words of every provider.
func (c *Charge) read() payment.Charge {
	money := func(amount int64) payment.Money {
		return payment.Money{Amount: amount, Currency: c.Currency}
	}
	read := payment.Charge{
		Reference: payment.Reference{Payment: c.Payment, Provider: c.ID},
		Status:    c.Status, Amount: money(c.Amount), Captured: money(c.Captured),
		Refunded: money(c.Refunded), Method: c.Method, Account: c.Account, LapsesAt: c.LapsesAt,
		DeclinedBy: c.DeclinedBy,
	}
	for i := range c.Refunds {
		read.Refunds = append(read.Refunds, c.Refunds[i].read(c.Currency))
	}
	switch {
	case c.PixCode != "":
		read.Action = payment.Action{
			Kind: payment.ActionPix, PixCode: c.PixCode, ExpiresAt: c.ExpiresAt,
		}
	case c.RedirectURL != "" && c.Status == payment.StatusPending:
		read.Action = payment.Action{Kind: payment.ActionRedirect, URL: c.RedirectURL}
	}
	return read
}

func (r *Refund) read(currency string) payment.Refund {
	return payment.Refund{
		ID: r.Refund, Provider: r.ID, Status: r.Status,
		Amount: payment.Money{Amount: r.Amount, Currency: currency},
	}
}
