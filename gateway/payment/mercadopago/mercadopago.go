// Package mercadopago takes Pix through Mercado Pago's payments API and its SDK.
//
// The SDK makes up an idempotency key for every call, which protects nothing: requester puts ours in
// its place. It also leaves out the SDK's own repetitions.
//
// A payment is found by its external reference, which is our payment's id. What cannot be asked of
// Mercado Pago: it keeps no id of ours with a refund, so in a look-up refunds are known by its own
// ids; and a Pix lives for half an hour at least, so it expires there later than
// Authorisation.ExpiresAt by Config.ExpiryMargin: the caller voids it in time, and a Pix that is
// paid in between is a late payment like any other.
//
// A webhook's signature covers the id of the payment it is about and nothing else of the body, so
// its notice carries no charge, and our own payment's id is for the look-up to tell.
package mercadopago

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdkconfig "github.com/mercadopago/sdk-go/pkg/config"
	"github.com/mercadopago/sdk-go/pkg/mperror"
	sdk "github.com/mercadopago/sdk-go/pkg/payment"
	"github.com/mercadopago/sdk-go/pkg/refund"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
)

// Config is an account at Mercado Pago.
type Config struct {
	Name           string        // "": mercadopago
	AccessToken    string        // of the API; never logged
	WebhookSecrets []string      // any one of which has signed
	WebhookURL     string        // "": what is configured at Mercado Pago
	ExpiryMargin   time.Duration // 0: 30 min, the least that Mercado Pago lets a Pix live
	URL            string        // "": Mercado Pago's
	Exchange       exchange.Config
}

// Provider is a [payment.Provider].
type Provider struct {
	config   Config
	http     *http.Client
	payments sdk.Client
	refunds  refund.Client
}

var _ payment.Provider = (*Provider)(nil)

// New makes a provider. It connects when it is first called; Close releases its connections. The
// error is about Config.URL.
func New(config Config) (*Provider, error) {
	config.Name = cmp.Or(config.Name, "mercadopago")
	config.ExpiryMargin = cmp.Or(config.ExpiryMargin, 30*time.Minute)
	client := exchange.NewClient(config.Exchange)
	r := &requester{http: client}
	if config.URL != "" {
		elsewhere, err := url.Parse(config.URL)
		if err != nil {
			return nil, fmt.Errorf("mercadopago: %w", err)
		}
		r.elsewhere = elsewhere
	}
	c := &sdkconfig.Config{AccessToken: config.AccessToken, Requester: r}
	return &Provider{
		config: config, http: client,
		payments: sdk.NewClient(c), refunds: refund.NewClient(c),
	}, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.http.CloseIdleConnections() }

// Name is the configured one.
func (p *Provider) Name() string { return p.config.Name }

// Authorise issues a Pix. Mercado Pago wants to know the payer's e-mail address.
func (p *Provider) Authorise(ctx context.Context, a payment.Authorisation,
) (payment.Charge, error) {
	switch {
	case a.Method != payment.MethodPix || a.Amount.Currency != "BRL":
		return payment.Charge{}, fmt.Errorf("%w: authorise: Pix only, in BRL", payment.ErrRejected)
	case a.Payer.Email == "":
		return payment.Charge{}, fmt.Errorf("%w: authorise: no e-mail", payment.ErrRejected)
	}
	r := sdk.Request{
		PaymentMethodID: "pix", TransactionAmount: reais(a.Amount.Amount),
		ExternalReference: a.Payment, Description: a.Description,
		NotificationURL: p.config.WebhookURL, Payer: payer(a.Payer),
		Metadata: map[string]any{"order": a.Order},
	}
	if !a.ExpiresAt.IsZero() {
		// Of what is given alone: a repeat has to ask for the same.
		at := a.ExpiresAt.UTC().Truncate(time.Second).Add(p.config.ExpiryMargin)
		r.DateOfExpiration = &at
	}
	ctx, call := begin(ctx, a.Key)
	answered, err := p.payments.Create(ctx, r)
	if err != nil {
		return payment.Charge{}, failure("authorise", err)
	}
	charge := read(answered, call.raw)
	if charge.Action.Kind == payment.ActionPix && !a.ExpiresAt.IsZero() {
		charge.Action.ExpiresAt = a.ExpiresAt
	}
	return charge, nil
}

// payer tells what Mercado Pago asks for: name, e-mail, and a CPF of 11 characters or a CNPJ.
func payer(p payment.Payer) *sdk.PayerRequest {
	first, last, _ := strings.Cut(strings.TrimSpace(p.Name), " ")
	r := &sdk.PayerRequest{Email: p.Email, FirstName: first, LastName: strings.TrimSpace(last)}
	if number := punctuation.Replace(p.Document); number != "" {
		kind := "CNPJ"
		if len(number) == 11 {
			kind = "CPF"
		}
		r.Identification = &sdk.IdentificationRequest{Type: kind, Number: number}
	}
	return r
}

var punctuation = strings.NewReplacer(".", "", "-", "", "/", "", " ", "")

// Capture has nothing to do: a Pix that was paid is captured. One that was not is ErrRejected.
func (p *Provider) Capture(ctx context.Context, c payment.Capture) (payment.Charge, error) {
	charge, err := p.LookUp(ctx, c.Reference)
	switch {
	case err != nil:
		return payment.Charge{}, asked("capture", err)
	case charge.Status == payment.StatusPending:
		return payment.Charge{}, fmt.Errorf("%w: capture: not paid yet", payment.ErrRejected)
	}
	return charge, nil
}

// Void cancels a Pix that nobody has paid. One that was paid comes back as captured.
func (p *Provider) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	id, err := p.idOf(ctx, v.Reference)
	if err != nil {
		return payment.Charge{}, asked("void", err)
	}
	keyed, call := begin(ctx, v.Key)
	answered, err := p.payments.Cancel(keyed, id)
	if err == nil {
		return read(answered, call.raw), nil
	}
	failed := failure("void", err)
	if !errors.Is(failed, payment.ErrRejected) {
		return payment.Charge{}, failed
	}
	charge, err := p.get(ctx, id)
	switch {
	case err != nil:
		return payment.Charge{}, fmt.Errorf("void: %w", err)
	case charge.Status == payment.StatusPending:
		return payment.Charge{}, failed // its state does not explain the refusal
	}
	return charge, nil
}

// Refund returns settled money to the account that paid. It may take the bank a while.
func (p *Provider) Refund(ctx context.Context, r payment.RefundRequest) (payment.Refund, error) {
	if r.Amount.Amount <= 0 { // the SDK leaves a zero out, which asks for everything back
		return payment.Refund{}, fmt.Errorf("%w: refund: of nothing", payment.ErrRejected)
	}
	id, err := p.idOf(ctx, r.Reference)
	if err != nil {
		return payment.Refund{}, asked("refund", err)
	}
	ctx, call := begin(ctx, r.Key)
	answered, err := p.refunds.CreatePartialRefund(ctx, id, reais(r.Amount.Amount))
	if err != nil {
		return payment.Refund{}, failure("refund", err)
	}
	back := readRefund(answered.ID, answered.Amount, answered.Status)
	back.ID, back.Raw = r.Refund, call.raw
	return back, nil
}

// LookUp tells the state of a charge, with its refunds, by Mercado Pago's id or by ours. A call that
// Mercado Pago is still working on is not found by ours: ErrNotFound is final only when the last
// call that could have made the charge was answered, or is much older than a call can take.
func (p *Provider) LookUp(ctx context.Context, r payment.Reference) (payment.Charge, error) {
	id, err := p.idOf(ctx, r)
	if err != nil {
		return payment.Charge{}, err
	}
	return p.get(ctx, id)
}

func (p *Provider) get(ctx context.Context, id int) (payment.Charge, error) {
	ctx, call := begin(ctx, "")
	found, err := p.payments.Get(ctx, id)
	if err != nil {
		return payment.Charge{}, failure(lookUp, err)
	}
	return read(found, call.raw), nil
}

// idOf is Mercado Pago's id of a payment: of several, one that holds money, else the latest.
func (p *Provider) idOf(ctx context.Context, r payment.Reference) (int, error) {
	if r.Provider != "" {
		id, err := strconv.Atoi(r.Provider)
		if err != nil {
			return 0, fmt.Errorf("%w: %s: no id of Mercado Pago's", payment.ErrRejected, lookUp)
		}
		return id, nil
	}
	ctx, _ = begin(ctx, "")
	found, err := p.payments.Search(ctx, sdk.SearchRequest{Filters: map[string]string{
		"external_reference": r.Payment, "sort": "date_created", "criteria": "desc",
	}})
	if err != nil {
		return 0, failure(lookUp, err)
	}
	if len(found.Results) == 0 {
		return 0, fmt.Errorf("%w: %s", payment.ErrNotFound, lookUp)
	}
	for i := range found.Results {
		if statusOf(&found.Results[i]) == payment.StatusCaptured {
			return found.Results[i].ID, nil
		}
	}
	return found.Results[0].ID, nil
}

const lookUp = "look up"

// failure says what an error of the SDK means. Its words are not repeated: they are the whole
// answer, payer included.
func failure(call string, err error) error {
	var said *mperror.ResponseError
	if !errors.As(err, &said) || said.StatusCode < 400 {
		return fmt.Errorf("%s: %w", call, exchange.Failed(err))
	}
	meaning := exchange.Refused(said.StatusCode)
	if errors.Is(meaning, payment.ErrNotFound) && call != lookUp {
		meaning = payment.ErrRejected
	}
	return fmt.Errorf("%w: %s: %d (%s)", meaning, call, said.StatusCode,
		said.Headers.Get("X-Request-Id"))
}

// asked wraps the failure of a look-up that another call needed; what isn't there can't be changed.
func asked(call string, err error) error {
	if errors.Is(err, payment.ErrNotFound) {
		return fmt.Errorf("%w: %s: no such charge", payment.ErrRejected, call)
	}
	return fmt.Errorf("%s: %w", call, err)
}

// reais are what Mercado Pago counts in.
func reais(cents int64) float64 { return float64(cents) / 100 }

func money(reais float64) payment.Money {
	return payment.Money{Amount: int64(math.Round(reais * 100)), Currency: "BRL"}
}
