package simulator

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Operation is a call to a provider, or its webhook.
type Operation string

// The operations.
const (
	OnAuthorise Operation = "authorise"
	OnCapture   Operation = "capture"
	OnVoid      Operation = "void"
	OnRefund    Operation = "refund"
	OnLookUp    Operation = "look_up"
	OnWebhook   Operation = "webhook"
)

// FaultKind is a way to fail.
type FaultKind string

// Faults of calls: of every operation but webhooks.
const (
	TimeoutBefore FaultKind = "timeout_before" // no answer, no effect
	TimeoutAfter  FaultKind = "timeout_after"  // no answer, but the effect
	CutBefore     FaultKind = "cut_before"     // the connection breaks, no effect
	CutAfter      FaultKind = "cut_after"      // the connection breaks after the effect
	ErrorBefore   FaultKind = "error_before"   // 500, no effect, the key is not bound
	ErrorAfter    FaultKind = "error_after"    // 500 after the effect
	ErrorStored   FaultKind = "error_stored"   // 500, no effect, and 500 for this key for ever
	Busy          FaultKind = "busy"           // 429, no effect
	Slow          FaultKind = "slow"           // acts and answers after the delay, beside other faults
)

// Faults of one operation.
const (
	Decline        FaultKind = "decline"         // authorise: the card is declined
	ActionRequired FaultKind = "action_required" // authorise: the card's bank asks the buyer first
	SettleLate     FaultKind = "settle_late"     // authorise: a Pix is paid, the delay after it ended
	Lapsed         FaultKind = "lapsed"          // capture: the authorisation has run out
	RefundFailed   FaultKind = "refund_failed"   // refund: fails for good
	RefundPending  FaultKind = "refund_pending"  // refund: pending; done after the delay, if it has one
)

// Faults of webhooks.
const (
	WebhookNone      FaultKind = "webhook_none"      // never sent
	WebhookDuplicate FaultKind = "webhook_duplicate" // sent twice
	WebhookReorder   FaultKind = "webhook_reorder"   // sent after the payment's next one
	WebhookLate      FaultKind = "webhook_late"      // sent after the delay
	WebhookForged    FaultKind = "webhook_forged"    // preceded by a forged one that says "captured"
)

// faultOn says where a kind belongs. "" is every call.
var faultOn = map[FaultKind]Operation{
	TimeoutBefore: "", TimeoutAfter: "", CutBefore: "", CutAfter: "", ErrorBefore: "",
	ErrorAfter: "", ErrorStored: "", Busy: "", Slow: "",
	Decline: OnAuthorise, ActionRequired: OnAuthorise, SettleLate: OnAuthorise,
	Lapsed: OnCapture, RefundFailed: OnRefund, RefundPending: OnRefund,
	WebhookNone: OnWebhook, WebhookDuplicate: OnWebhook, WebhookReorder: OnWebhook,
	WebhookLate: OnWebhook, WebhookForged: OnWebhook,
}

// Fault is one line of the script: fail so, so many times, where it matches.
type Fault struct {
	Kind       FaultKind `json:"kind"`
	On         Operation `json:"on,omitempty"`       // "": every operation of its kind
	Times      int       `json:"times,omitempty"`    // 0: once; below: always
	DelayMilli int64     `json:"delay_ms,omitempty"` // of what comes later
	Payment    string    `json:"payment,omitempty"`  // "": any
	Order      string    `json:"order,omitempty"`    // "": any
}

func (f Fault) delay() time.Duration { return time.Duration(f.DelayMilli) * time.Millisecond }

// matches a ledger whose payment is the fault's, if it has one.
func (f Fault) matches(on Operation, l *ledger) bool {
	return (f.On == on || f.On == "" && on != OnWebhook) &&
		(f.Order == "" || f.Order == l.order)
}

// Script adds a fault behind those that are there. A call takes the first that matches, and the
// first Slow that matches. The error says what is wrong with the fault.
func (s *Server) Script(f Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script.add(f)
}

// Faults is what is left of the script.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script.all()
}

// ClearFaults ends the script.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = newScript()
}

// script keeps the faults of one payment apart, so that a call looks at few of a great many.
type script struct {
	general   []*Fault
	byPayment map[string][]*Fault
}

func newScript() script { return script{byPayment: make(map[string][]*Fault)} }

func (s *script) add(f Fault) error {
	on, known := faultOn[f.Kind]
	switch {
	case !known:
		return fmt.Errorf("simulator: unknown fault %q", f.Kind)
	case f.On == "":
		f.On = on
	case f.On != on && (on != "" || f.On == OnWebhook):
		return fmt.Errorf("simulator: no fault %q of %q", f.Kind, f.On)
	}
	if f.Times == 0 {
		f.Times = 1
	}
	if f.Payment != "" {
		s.byPayment[f.Payment] = append(s.byPayment[f.Payment], &f)
	} else {
		s.general = append(s.general, &f)
	}
	return nil
}

func (s *script) all() []Fault {
	var all []Fault
	for _, f := range s.general {
		all = append(all, *f)
	}
	for _, faults := range s.byPayment {
		for _, f := range faults {
			all = append(all, *f)
		}
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return strings.Compare(a.Payment, b.Payment) })
	return all
}

// take counts down the fault that an operation meets, and the slowness beside it. Those of the
// payment come before those of all.
func (s *script) take(on Operation, l *ledger) (fault Fault, slow time.Duration) {
	own := s.byPayment[l.payment]
	if len(own) > 0 {
		own = take(own, on, l, &fault, &slow)
		s.byPayment[l.payment] = own
		if len(own) == 0 {
			delete(s.byPayment, l.payment)
		}
	}
	s.general = take(s.general, on, l, &fault, &slow)
	return fault, slow
}

func take(from []*Fault, on Operation, l *ledger, fault *Fault, slow *time.Duration) []*Fault {
	for _, f := range from {
		switch {
		case !f.matches(on, l) || f.Times == 0:
			continue
		case f.Kind == Slow && *slow == 0:
			*slow = f.delay()
		case f.Kind != Slow && fault.Kind == "":
			*fault = *f
		default:
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
	}
	return slices.DeleteFunc(from, func(f *Fault) bool { return f.Times == 0 })
}

// marker is a fault written into a card token or a description, for that payment only:
// sim:KIND, then *TIMES, +DELAY in ms and @OPERATION where they matter, such as
// sim:timeout_after*2@capture.
var marker = regexp.MustCompile(`sim:([a-z_]+)(?:\*(\d+))?(?:\+(\d+))?(?:@([a-z_]+))?`)

// readMarkers scripts what a payment's first authorisation asks for. One that is not understood is
// refused, lest a test pass without its fault.
func (s *Server) readMarkers(l *ledger, texts ...string) error {
	if l.marked {
		return nil
	}
	l.marked = true
	for _, text := range texts {
		if !strings.Contains(text, "sim:") {
			continue
		}
		for _, found := range marker.FindAllStringSubmatch(text, -1) {
			times, _ := strconv.Atoi(found[2])
			delay, _ := strconv.ParseInt(found[3], 10, 64)
			err := s.script.add(Fault{
				Kind: FaultKind(found[1]), Times: times, DelayMilli: delay,
				On: Operation(found[4]), Payment: l.payment,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
