package order

import (
	"context"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// Fraud judges a payment before its provider is asked. Any error sends it to manual review.
type Fraud interface {
	Judge(ctx context.Context, c FraudCase) (Verdict, error)
}

// FraudCase is what is judged. The Payer is personal data.
type FraudCase struct {
	Payment inventory.PaymentID
	Order   inventory.OrderID
	Buyer   inventory.BuyerID
	Tenant  string
	Amount  payment.Money
	Method  payment.Method
	Payer   payment.Payer
}

// Verdict of anti-fraud.
type Verdict string

// The verdicts.
const (
	FraudAllow  Verdict = "allow"
	FraudDeny   Verdict = "deny"
	FraudReview Verdict = "review"
)
