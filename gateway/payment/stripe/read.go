package stripe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"numera/gateway/payment"
)

// statuses of a PaymentIntent. A cancelled one may have lapsed instead.
var statuses = map[sdk.PaymentIntentStatus]payment.Status{
	sdk.PaymentIntentStatusRequiresPaymentMethod: payment.StatusPending,
	sdk.PaymentIntentStatusRequiresConfirmation:  payment.StatusPending,
	sdk.PaymentIntentStatusRequiresAction:        payment.StatusPending,
	sdk.PaymentIntentStatusProcessing:            payment.StatusPending,
	sdk.PaymentIntentStatusRequiresCapture:       payment.StatusAuthorised,
	sdk.PaymentIntentStatusSucceeded:             payment.StatusCaptured,
	sdk.PaymentIntentStatusCanceled:              payment.StatusVoided,
}

// charge reads a PaymentIntent, without its refunds. A status that is new to us is pending: it is
// looked at again, and nothing is concluded from it.
func (p *Provider) charge(intent *sdk.PaymentIntent) payment.Charge {
	currency := strings.ToUpper(string(intent.Currency))
	status, known := statuses[intent.Status]
	if !known {
		status = payment.StatusPending
	}
	if status == payment.StatusVoided &&
		intent.CancellationReason == sdk.PaymentIntentCancellationReasonExpired {
		status = payment.StatusLapsed
	}
	charge := payment.Charge{
		Reference: payment.Reference{Payment: intent.Metadata["payment"], Provider: intent.ID},
		Status:    status,
		Amount:    payment.Money{Amount: intent.Amount, Currency: currency},
		Captured:  payment.Money{Currency: currency},
		Refunded:  payment.Money{Currency: currency},
		Method:    payment.MethodCard,
		Account:   p.config.Account,
	}
	if status == payment.StatusCaptured {
		charge.Captured.Amount = intent.AmountReceived
	}
	if intent.LastResponse != nil {
		charge.Raw = intent.LastResponse.RawJSON
	}
	if failed := intent.LastPaymentError; failed != nil {
		charge.DeclinedBy = string(failed.DeclineCode)
		if charge.DeclinedBy == "" {
			charge.DeclinedBy = string(failed.Code)
		}
	}
	switch status {
	case payment.StatusAuthorised:
		charge.LapsesAt = lapsesAt(intent.LatestCharge)
	case payment.StatusPending:
		charge.Action = action(intent)
	}
	return charge
}

func lapsesAt(c *sdk.Charge) time.Time {
	if c == nil || c.PaymentMethodDetails == nil || c.PaymentMethodDetails.Card == nil ||
		c.PaymentMethodDetails.Card.CaptureBefore == 0 {
		return time.Time{}
	}
	return time.Unix(c.PaymentMethodDetails.Card.CaptureBefore, 0).UTC()
}

// action is the bank's page, or Stripe's script in the buyer's browser.
func action(intent *sdk.PaymentIntent) payment.Action {
	if next := intent.NextAction; next != nil && next.RedirectToURL != nil {
		return payment.Action{Kind: payment.ActionRedirect, URL: next.RedirectToURL.URL}
	}
	if intent.Status == sdk.PaymentIntentStatusProcessing || intent.ClientSecret == "" {
		return payment.Action{}
	}
	return payment.Action{Kind: payment.ActionConfirm, ClientKey: intent.ClientSecret}
}

func readRefund(r *sdk.Refund) payment.Refund {
	read := payment.Refund{
		ID: r.Metadata["refund"], Provider: r.ID, Status: payment.RefundPending,
		Amount: payment.Money{Amount: r.Amount, Currency: strings.ToUpper(string(r.Currency))},
	}
	switch r.Status {
	case sdk.RefundStatusSucceeded:
		read.Status = payment.RefundDone
	case sdk.RefundStatusFailed, sdk.RefundStatusCanceled:
		read.Status = payment.RefundFailed
	}
	if r.LastResponse != nil {
		read.Raw = r.LastResponse.RawJSON
	}
	return read
}

// tolerance of a signature's age, both ways.
const tolerance = 300 * time.Second

// ParseWebhook reads events about PaymentIntents, charges and refunds. The event's API version does
// not matter: it carries a charge only where its object is a PaymentIntent.
func (p *Provider) ParseWebhook(header func(name string) string, body []byte, now time.Time,
) (payment.Notice, error) {
	if err := p.verify(header("Stripe-Signature"), body, now); err != nil {
		return payment.Notice{}, err
	}
	var event sdk.Event
	if err := json.Unmarshal(body, &event); err != nil || event.Data == nil {
		return payment.Notice{}, fmt.Errorf("%w: no event", payment.ErrIgnored)
	}
	notice := payment.Notice{
		Event: event.ID, Type: string(event.Type), Account: event.Account,
		At: time.Unix(event.Created, 0).UTC(),
	}
	if notice.Account == "" {
		notice.Account = p.config.Account // only Connect names it: the secret is the account's
	}
	return notice, p.readObject(&notice, event.Data.Raw, body)
}

func (p *Provider) readObject(notice *payment.Notice, raw json.RawMessage, body []byte) error {
	kind, _, _ := strings.Cut(notice.Type, ".")
	var err error
	switch {
	case kind == "payment_intent":
		var intent sdk.PaymentIntent
		if err = json.Unmarshal(raw, &intent); err == nil {
			charge := p.charge(&intent)
			charge.Raw = bytes.Clone(body)
			notice.Reference, notice.Charge = charge.Reference, &charge
		}
	case kind == "refund", strings.HasPrefix(notice.Type, "charge.refund"),
		kind == "charge" && strings.Count(notice.Type, ".") == 1:
		// A charge and a refund both name their PaymentIntent, and keep our metadata.
		var object struct {
			PaymentIntent *sdk.PaymentIntent `json:"payment_intent"`
			Metadata      map[string]string  `json:"metadata"`
		}
		if err = json.Unmarshal(raw, &object); err == nil && object.PaymentIntent != nil {
			notice.Reference = payment.Reference{
				Payment: object.Metadata["payment"], Provider: object.PaymentIntent.ID,
			}
		}
	}
	if err != nil || notice.Provider == "" {
		return fmt.Errorf("%w: %s", payment.ErrIgnored, notice.Type)
	}
	return nil
}

// verify holds a signature to our own clock, and to any of the secrets.
func (p *Provider) verify(header string, body []byte, now time.Time) error {
	var signed time.Time
	for part := range strings.SplitSeq(header, ",") {
		if stamp, is := strings.CutPrefix(part, "t="); is {
			seconds, err := strconv.ParseInt(stamp, 10, 64)
			if err != nil {
				return fmt.Errorf("%w: no time", payment.ErrSignature)
			}
			signed = time.Unix(seconds, 0)
		}
	}
	if age := now.Sub(signed); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: signed at another time", payment.ErrSignature)
	}
	for _, secret := range p.config.WebhookSecrets {
		if webhook.ValidatePayloadIgnoringTolerance(body, header, secret) == nil {
			return nil
		}
	}
	return payment.ErrSignature
}
