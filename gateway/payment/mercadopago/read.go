package mercadopago

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/mercadopago/sdk-go/pkg/payment"

	"numera/gateway/payment"
)

// statuses of a payment. Settled are also those whose money went back or is disputed: refunds say
// how much.
var statuses = map[string]payment.Status{
	"pending":      payment.StatusPending,
	"in_process":   payment.StatusPending,
	"authorized":   payment.StatusAuthorised,
	"approved":     payment.StatusCaptured,
	"refunded":     payment.StatusCaptured,
	"charged_back": payment.StatusCaptured,
	"in_mediation": payment.StatusCaptured,
	"rejected":     payment.StatusDeclined,
	"cancelled":    payment.StatusVoided,
}

// statusOf a payment; one that is new to us is pending, and looked at again.
func statusOf(r *sdk.Response) payment.Status {
	if status, known := statuses[r.Status]; known {
		return status
	}
	return payment.StatusPending
}

// read says it in the words of every provider.
func read(r *sdk.Response, raw []byte) payment.Charge {
	charge := payment.Charge{
		Reference: payment.Reference{Payment: r.ExternalReference, Provider: strconv.Itoa(r.ID)},
		Status:    statusOf(r), Amount: money(r.TransactionAmount),
		Captured: money(0), Refunded: money(0), Method: payment.MethodPix,
		Account: strconv.FormatInt(r.CollectorID, 10), Raw: raw,
	}
	if charge.Amount.Currency != r.CurrencyID && r.CurrencyID != "" {
		charge.Amount.Currency = r.CurrencyID // not what was asked for: the caller compares
	}
	switch charge.Status {
	case payment.StatusCaptured:
		charge.Captured = charge.Amount
	case payment.StatusDeclined:
		charge.DeclinedBy = r.StatusDetail
	case payment.StatusPending:
		charge.Action = payment.Action{
			Kind: payment.ActionPix, PixCode: r.PointOfInteraction.TransactionData.QRCode,
			ExpiresAt: r.DateOfExpiration,
		}
	}
	for i := range r.Refunds {
		back := readRefund(r.Refunds[i].ID, r.Refunds[i].Amount, r.Refunds[i].Status)
		if back.Status == payment.RefundDone {
			charge.Refunded.Amount += back.Amount.Amount
		}
		charge.Refunds = append(charge.Refunds, back)
	}
	return charge
}

func readRefund(id int, amount float64, status string) payment.Refund {
	back := payment.Refund{
		Provider: strconv.Itoa(id), Amount: money(amount), Status: payment.RefundPending,
	}
	switch status {
	case "approved":
		back.Status = payment.RefundDone
	case "rejected", "cancelled":
		back.Status = payment.RefundFailed
	}
	return back
}

// tolerance of a signature's age, both ways.
const tolerance = 300 * time.Second

// notification is the body of a webhook.
type notification struct {
	ID        json.Number `json:"id"`
	Type      string      `json:"type"`
	Action    string      `json:"action"`
	CreatedAt string      `json:"date_created"`
	Account   json.Number `json:"user_id"`
	Data      struct {
		ID string `json:"id"`
	} `json:"data"`
}

// ParseWebhook reads a notification. Its Reference has Mercado Pago's id only.
func (p *Provider) ParseWebhook(header func(name string) string, body []byte, now time.Time,
) (payment.Notice, error) {
	var n notification
	if err := json.Unmarshal(body, &n); err != nil || n.Data.ID == "" {
		return payment.Notice{}, fmt.Errorf("%w: nothing is signed", payment.ErrSignature)
	}
	request := header("X-Request-Id")
	if err := p.verify(header("X-Signature"), request, n.Data.ID, now); err != nil {
		return payment.Notice{}, err
	}
	if n.Type != "payment" {
		return payment.Notice{}, fmt.Errorf("%w: %s", payment.ErrIgnored, n.Type)
	}
	event := n.ID.String()
	if event == "" {
		event = request
	}
	at, _ := time.Parse(time.RFC3339, n.CreatedAt) // zero: it is for people only
	return payment.Notice{
		Event: event, Reference: payment.Reference{Provider: n.Data.ID}, Type: n.Action,
		Account: n.Account.String(), At: at.UTC(),
	}, nil
}

// verify holds the header ts=…,v1=… to the documented manifest, id:…;request-id:…;ts:…; whose parts
// are left out where they are missing. The time is in seconds or in milliseconds.
func (p *Provider) verify(header, request, id string, now time.Time) error {
	var stamp, signature string
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "ts":
			stamp = value
		case "v1":
			signature = value
		}
	}
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: no time", payment.ErrSignature)
	}
	signed := time.Unix(at, 0)
	if at > 1e11 {
		signed = time.UnixMilli(at)
	}
	if age := now.Sub(signed); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: signed at another time", payment.ErrSignature)
	}
	given, err := hex.DecodeString(signature)
	if err != nil {
		return fmt.Errorf("%w: not in hexadecimal", payment.ErrSignature)
	}
	manifest := "id:" + strings.ToLower(id) + ";"
	if request != "" {
		manifest += "request-id:" + request + ";"
	}
	manifest += "ts:" + stamp + ";"
	for _, secret := range p.config.WebhookSecrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(manifest))
		if hmac.Equal(given, mac.Sum(nil)) {
			return nil
		}
	}
	return payment.ErrSignature
}
