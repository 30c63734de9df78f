package stripe

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/stripe/stripe-go/v85"

	"numera/gateway/payment"
)

const lookUp = "look up"

// LookUp tells the state of a charge, with its refunds.
//
// Stripe's search lags by seconds, so a payment whose PaymentIntent is not known yet is also sought
// among the charges of its transfer group, which do not lag. What neither finds has moved no money,
// and nobody holds what would let it move: ErrNotFound. A call that Stripe is still working on is
// not found either, so that is final only when the last call that could have made the charge was
// answered, or is much older than a call can take.
func (p *Provider) LookUp(ctx context.Context, r payment.Reference) (payment.Charge, error) {
	id, err := p.intentOf(ctx, r)
	if err != nil {
		return payment.Charge{}, err
	}
	return p.retrieve(ctx, id)
}

func (p *Provider) retrieve(ctx context.Context, id string) (payment.Charge, error) {
	params := &sdk.PaymentIntentRetrieveParams{}
	params.AddExpand(withCard)
	intent, err := p.client.V1PaymentIntents.Retrieve(ctx, id, params)
	if err != nil {
		return payment.Charge{}, failure(lookUp, err)
	}
	charge := p.charge(intent)
	if charge.Captured.Amount == 0 {
		return charge, nil
	}
	list := &sdk.RefundListParams{PaymentIntent: sdk.String(id)}
	list.Limit = sdk.Int64(100)
	for refund, err := range p.client.V1Refunds.List(ctx, list).All(ctx) {
		if err != nil {
			return payment.Charge{}, failure(lookUp, err)
		}
		read := readRefund(refund)
		if read.Status == payment.RefundDone {
			charge.Refunded.Amount += read.Amount.Amount
		}
		charge.Refunds = append(charge.Refunds, read)
	}
	return charge, nil
}

// intentOf is the id of a payment's PaymentIntent: of several, one that holds money.
func (p *Provider) intentOf(ctx context.Context, r payment.Reference) (string, error) {
	if r.Provider != "" {
		return r.Provider, nil
	}
	group := &sdk.ChargeListParams{TransferGroup: sdk.String(r.Payment)}
	group.Limit = sdk.Int64(100)
	failed := ""
	for charge, err := range p.client.V1Charges.List(ctx, group).All(ctx) {
		if err != nil {
			return "", failure(lookUp, err)
		}
		if charge.PaymentIntent == nil {
			continue
		}
		if charge.Status != sdk.ChargeStatusFailed {
			return charge.PaymentIntent.ID, nil
		}
		failed = charge.PaymentIntent.ID
	}
	if failed != "" {
		return failed, nil
	}
	search := &sdk.PaymentIntentSearchParams{}
	search.Query = fmt.Sprintf("metadata['payment']:'%s'", quoted.Replace(r.Payment))
	for intent, err := range p.client.V1PaymentIntents.Search(ctx, search).All(ctx) {
		if err != nil {
			return "", failure(lookUp, err)
		}
		return intent.ID, nil
	}
	return "", fmt.Errorf("%w: %s", payment.ErrNotFound, lookUp)
}

// quoted escapes what would end a search's text.
var quoted = strings.NewReplacer(`\`, `\\`, `'`, `\'`)
