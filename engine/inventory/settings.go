package inventory

import (
	"fmt"
	"unicode/utf8"
)

// Money is an amount in minor units of an ISO 4217 currency (three capital letters).
type Money struct {
	Amount   int64
	Currency string
}

// Settings are what an admin says about a product. Range (FirstNumber, Count) and currency are
// fixed once created; Count grows by restock only.
type Settings struct {
	Name                  string
	Price                 Money
	FirstNumber           uint32
	Count                 uint32 // 1 to MaxCount
	OpensAtUnixMilli      int64  // 0: open now
	ClosesAtUnixMilli     int64  // 0: never closes
	HoldSeconds           int64  // how long a reservation holds its numbers
	HoldMaxSeconds        int64  // how long extends can make it, from creation
	PaymentGraceSeconds   int64  // what begin-payment adds
	OverdueReleaseSeconds int64  // 0: an overdue order stays held
	MinPerOrder           uint32
	MaxPerOrder           uint32 // ≤ MaxNumbersInOrder
	MaxPerBuyer           uint32 // 0: no limit; live and sold numbers count
	Campaign              string // ≤ 64 bytes; "" for none

	// What a product says of its payments is kept here for whoever takes them: nothing in the engine
	// depends on it.
	CaptureAtShipping bool // authorised money is taken when the order is shipped, not once it is paid
	RefundLate        bool // money for an order that has ended goes back: its numbers are not taken again
}

// Bounds of settings and commands.
const (
	MaxCount          = 100_000_000
	MaxNumbersInOrder = 1000
	MaxLines          = 100
	maxSeconds        = 100 * 366 * 24 * 60 * 60 // a century: no sum of times overflows
	maxUnixMilli      = 253402300799999          // the end of year 9999, as RFC 3339 can write it
	maxAmount         = 1 << 53 / MaxNumbersInOrder
)

// DefaultSettings are the values of the members that a product may omit.
func DefaultSettings() Settings {
	return Settings{
		FirstNumber: 1, HoldSeconds: 1800, HoldMaxSeconds: 7200, PaymentGraceSeconds: 300,
		MinPerOrder: 1, MaxPerOrder: 100,
	}
}

// Invalid says what is wrong with a value: where (a JSON Pointer) and why.
type Invalid struct {
	Pointer string
	Detail  string
}

// Check finds the first value out of bounds, or nil. It is the only place that knows them.
func (s *Settings) Check() *Invalid {
	seconds := func(v int64) bool { return v >= 1 && v <= maxSeconds }
	instant := func(v int64) bool { return v >= 0 && v <= maxUnixMilli }
	rules := [...]struct {
		ok      bool
		pointer string
		detail  string
	}{
		{
			len(s.Name) >= 1 && len(s.Name) <= 200 && utf8.ValidString(s.Name),
			"/name", "must be 1 to 200 bytes of UTF-8",
		},
		{s.Price.Amount >= 0 && s.Price.Amount <= maxAmount, "/price/amount", amountDetail},
		{validCurrency(s.Price.Currency), "/price/currency", "must be an ISO 4217 code like BRL"},
		{s.Count >= 1 && s.Count <= MaxCount, "/count", "must be 1 to 100000000"},
		{
			uint64(s.FirstNumber)+uint64(s.Count)-1 <= 1<<32-1,
			"/first_number", "the last number must be at most 4294967295",
		},
		{instant(s.OpensAtUnixMilli), "/opens_at", instantDetail},
		{instant(s.ClosesAtUnixMilli), "/closes_at", instantDetail},
		{
			s.ClosesAtUnixMilli == 0 || s.ClosesAtUnixMilli > s.OpensAtUnixMilli,
			"/closes_at", "must be after opens_at",
		},
		{seconds(s.HoldSeconds), "/hold_seconds", secondsDetail},
		{seconds(s.HoldMaxSeconds), "/hold_max_seconds", secondsDetail},
		{s.HoldMaxSeconds >= s.HoldSeconds, "/hold_max_seconds", "must be at least hold_seconds"},
		{seconds(s.PaymentGraceSeconds), "/payment_grace_seconds", secondsDetail},
		{
			s.OverdueReleaseSeconds == 0 || seconds(s.OverdueReleaseSeconds),
			"/overdue_release_seconds", secondsDetail,
		},
		{s.MinPerOrder >= 1, "/min_per_order", "must be at least 1"},
		{s.MaxPerOrder <= MaxNumbersInOrder, "/max_per_order", "must be at most 1000"},
		{s.MinPerOrder <= s.MaxPerOrder, "/min_per_order", "must be at most max_per_order"},
		{
			len(s.Campaign) <= 64 && utf8.ValidString(s.Campaign),
			"/campaign", "must be at most 64 bytes of UTF-8",
		},
	}
	for _, rule := range rules {
		if !rule.ok {
			return &Invalid{rule.pointer, rule.detail}
		}
	}
	return nil
}

const instantDetail = "must be an instant between 1970 and 9999"

var (
	amountDetail  = fmt.Sprintf("must be 0 to %d minor units", int64(maxAmount))
	secondsDetail = fmt.Sprintf("must be 1 to %d seconds", int64(maxSeconds))
)

func validCurrency(code string) bool {
	if len(code) != 3 {
		return false
	}
	for i := range len(code) {
		if code[i] < 'A' || code[i] > 'Z' {
			return false
		}
	}
	return true
}

// LastNumber is the highest number of the product.
func (s *Settings) LastNumber() uint32 { return s.FirstNumber + s.Count - 1 }
