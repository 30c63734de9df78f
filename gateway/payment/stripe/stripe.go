// Package stripe pays by card through Stripe: a PaymentIntent per payment, captured by hand.
//
// Every call carries our key, stored before it is made; the SDK repeats nothing by itself. A
// PaymentIntent carries the payment's id as metadata and as transfer group. Stripe never ends an
// unpaid PaymentIntent by itself: Authorisation.ExpiresAt is for the caller, who voids it.
//
// A card that is declined while we ask is declined for good, since nobody else can try again: only
// our answer would have carried the client secret. One that fails later, in the buyer's browser, is
// pending: the buyer may try another card until it is voided.
//
// A 500 that Stripe has stored for a key comes back for as long as it keeps the key. It is
// ErrUnknown every time, since a 500 may have charged: a payment that stays so, and whose look-up
// finds nothing, needs an operator and a new payment.
//
// Card numbers never come here: the card token is the id of a PaymentMethod.
package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/stripe/stripe-go/v85"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
)

// Config is an account at Stripe.
type Config struct {
	Name           string   // "": stripe
	SecretKey      string   // of the API; never logged
	WebhookSecrets []string // any one of which has signed
	Account        string   // acct_…: whose money it is
	ReturnURL      string   // where banks send the buyer back to; "": the page confirms in place
	URL            string   // "": Stripe's
	Exchange       exchange.Config
}

// Provider is a [payment.Provider].
type Provider struct {
	config Config
	http   *http.Client
	client *sdk.Client
}

var _ payment.Provider = (*Provider)(nil)

// New makes a provider. It connects when it is first called; Close releases its connections.
func New(config Config) *Provider {
	config.Name = cmp.Or(config.Name, "stripe")
	backend := &sdk.BackendConfig{
		HTTPClient:        exchange.NewClient(config.Exchange),
		LeveledLogger:     &sdk.LeveledLogger{Level: sdk.LevelNull}, // it would log what was answered
		MaxNetworkRetries: sdk.Int64(0),
		EnableTelemetry:   sdk.Bool(false),
	}
	if config.URL != "" {
		backend.URL = sdk.String(config.URL)
	}
	api := sdk.GetBackendWithConfig(sdk.APIBackend, backend)
	return &Provider{
		config: config, http: backend.HTTPClient,
		client: sdk.NewClient(config.SecretKey, sdk.WithBackends(&sdk.Backends{API: api})),
	}
}

// Close closes idle connections.
func (p *Provider) Close() { p.http.CloseIdleConnections() }

// Name is the configured one.
func (p *Provider) Name() string { return p.config.Name }

// withCard has the answer say until when an authorisation holds.
const withCard = "latest_charge"

// Authorise creates and confirms a PaymentIntent.
func (p *Provider) Authorise(ctx context.Context, a payment.Authorisation,
) (payment.Charge, error) {
	if a.Method != payment.MethodCard || a.CardToken == "" {
		return payment.Charge{}, fmt.Errorf("%w: authorise: cards only", payment.ErrRejected)
	}
	capture := sdk.PaymentIntentCaptureMethodManual
	if a.CaptureNow {
		capture = sdk.PaymentIntentCaptureMethodAutomatic
	}
	params := &sdk.PaymentIntentCreateParams{
		Amount:             sdk.Int64(a.Amount.Amount),
		Currency:           sdk.String(strings.ToLower(a.Amount.Currency)),
		CaptureMethod:      sdk.String(string(capture)),
		Confirm:            sdk.Bool(true),
		PaymentMethod:      sdk.String(a.CardToken),
		PaymentMethodTypes: []*string{sdk.String("card")},
		TransferGroup:      sdk.String(a.Payment),
	}
	if a.Description != "" {
		params.Description = sdk.String(a.Description)
	}
	if p.config.ReturnURL != "" {
		params.ReturnURL = sdk.String(p.config.ReturnURL)
	}
	params.AddMetadata("payment", a.Payment)
	params.AddMetadata("order", a.Order)
	params.AddExpand(withCard)
	params.SetIdempotencyKey(a.Key)
	intent, err := p.client.V1PaymentIntents.Create(ctx, params)
	if declined, is := p.declined(err, a); is {
		return declined, nil
	}
	if err != nil {
		return payment.Charge{}, failure("authorise", err)
	}
	return p.charge(intent), nil
}

// declined reads a card's refusal, which Stripe answers as an error.
func (p *Provider) declined(err error, a payment.Authorisation) (payment.Charge, bool) {
	var said *sdk.Error
	if !errors.As(err, &said) || said.Type != sdk.ErrorTypeCard {
		return payment.Charge{}, false
	}
	charge := payment.Charge{
		Reference: payment.Reference{Payment: a.Payment}, Amount: a.Amount,
		Captured: payment.Money{Currency: a.Amount.Currency},
		Refunded: payment.Money{Currency: a.Amount.Currency},
	}
	if said.PaymentIntent != nil {
		charge = p.charge(said.PaymentIntent)
	}
	charge.Status, charge.Method = payment.StatusDeclined, payment.MethodCard
	charge.Account, charge.Action = p.config.Account, payment.Action{}
	charge.DeclinedBy = cmp.Or(string(said.DeclineCode), string(said.Code))
	if said.LastResponse != nil {
		charge.Raw = said.LastResponse.RawJSON
	}
	return charge, true
}

// Capture takes the whole amount. What is no longer authorised comes back as it is.
func (p *Provider) Capture(ctx context.Context, c payment.Capture) (payment.Charge, error) {
	id, err := p.intentOf(ctx, c.Reference)
	if err != nil {
		return payment.Charge{}, asked("capture", err)
	}
	params := &sdk.PaymentIntentCaptureParams{AmountToCapture: sdk.Int64(c.Amount.Amount)}
	params.AddExpand(withCard)
	params.SetIdempotencyKey(c.Key)
	intent, err := p.client.V1PaymentIntents.Capture(ctx, id, params)
	if err != nil {
		return p.orAsItIs(ctx, "capture", id, err)
	}
	return p.charge(intent), nil
}

// Void cancels the PaymentIntent. One that has settled comes back as captured.
func (p *Provider) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	id, err := p.intentOf(ctx, v.Reference)
	if err != nil {
		return payment.Charge{}, asked("void", err)
	}
	params := &sdk.PaymentIntentCancelParams{}
	params.AddExpand(withCard)
	params.SetIdempotencyKey(v.Key)
	intent, err := p.client.V1PaymentIntents.Cancel(ctx, id, params)
	if err != nil {
		return p.orAsItIs(ctx, "void", id, err)
	}
	return p.charge(intent), nil
}

// orAsItIs looks at what refused a change because of its state.
func (p *Provider) orAsItIs(ctx context.Context, call, id string, err error,
) (payment.Charge, error) {
	var said *sdk.Error
	if !errors.As(err, &said) || said.Code != sdk.ErrorCodePaymentIntentUnexpectedState &&
		said.Code != sdk.ErrorCodeChargeExpiredForCapture {
		return payment.Charge{}, failure(call, err)
	}
	found, lookErr := p.retrieve(ctx, id)
	if lookErr != nil {
		return payment.Charge{}, fmt.Errorf("%s: %w", call, lookErr)
	}
	if found.Status == payment.StatusPending || found.Status == payment.StatusAuthorised {
		return payment.Charge{}, failure(call, err) // it is no state that explains the refusal
	}
	return found, nil
}

// Refund returns money to the card.
func (p *Provider) Refund(ctx context.Context, r payment.RefundRequest) (payment.Refund, error) {
	id, err := p.intentOf(ctx, r.Reference)
	if err != nil {
		return payment.Refund{}, asked("refund", err)
	}
	params := &sdk.RefundCreateParams{
		PaymentIntent: sdk.String(id), Amount: sdk.Int64(r.Amount.Amount),
	}
	params.AddMetadata("refund", r.Refund)
	params.AddMetadata("payment", r.Payment)
	if r.Reason != "" {
		params.AddMetadata("reason", r.Reason) // Stripe's own reasons are a closed list
	}
	params.SetIdempotencyKey(r.Key)
	refund, err := p.client.V1Refunds.Create(ctx, params)
	if err != nil {
		return payment.Refund{}, failure("refund", err)
	}
	return readRefund(refund), nil
}

// failure says what an error of the SDK means. Stripe's words are not repeated: they hold the whole
// answer, client secret included.
func failure(call string, err error) error {
	var said *sdk.Error
	if !errors.As(err, &said) || said.HTTPStatusCode < 400 {
		return fmt.Errorf("%s: %w", call, exchange.Failed(err))
	}
	meaning := exchange.Refused(said.HTTPStatusCode)
	if errors.Is(meaning, payment.ErrNotFound) && call != lookUp {
		meaning = payment.ErrRejected
	}
	return fmt.Errorf("%w: %s: %d %s %s (%s)", meaning, call, said.HTTPStatusCode, said.Type,
		said.Code, said.RequestID)
}

// asked wraps the failure of a look-up that another call needed; what isn't there can't be changed.
func asked(call string, err error) error {
	if errors.Is(err, payment.ErrNotFound) {
		return fmt.Errorf("%w: %s: no such charge", payment.ErrRejected, call)
	}
	return fmt.Errorf("%s: %w", call, err)
}
