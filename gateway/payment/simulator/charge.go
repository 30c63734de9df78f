package simulator

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"numera/gateway/payment"
	"numera/gateway/payment/pix"
)

// Charge is the provider's record of one. Amounts are in minor units of its currency.
type Charge struct {
	ID          string         `json:"id"`
	Payment     string         `json:"payment"`
	Order       string         `json:"order"`
	Account     string         `json:"account"`
	Method      payment.Method `json:"method"`
	Status      payment.Status `json:"status"`
	Amount      int64          `json:"amount"`
	Currency    string         `json:"currency"`
	Captured    int64          `json:"captured"`
	Refunded    int64          `json:"refunded"` // of refunds that are done
	Refunds     []Refund       `json:"refunds,omitempty"`
	Description string         `json:"description,omitempty"`
	DeclinedBy  string         `json:"declined_by,omitempty"`
	CreatedAt   time.Time      `json:"created_at"`
	ExpiresAt   time.Time      `json:"expires_at,omitzero"` // the buyer's time to pay
	LapsesAt    time.Time      `json:"lapses_at,omitzero"`  // of an authorisation
	CaptureNow  bool           `json:"capture_now,omitempty"`
	PixCode     string         `json:"pix_code,omitempty"`
	EndToEnd    string         `json:"end_to_end,omitempty"` // of the Pix that paid it
	PaidLate    bool           `json:"paid_late,omitempty"`  // after it had expired or been voided
	RedirectURL string         `json:"redirect_url,omitempty"`
	Version     int            `json:"version"` // rises with every change

	settlesLate time.Duration // by itself, so long after it has ended unpaid; 0: it doesn't
}

// Refund of a charge.
type Refund struct {
	ID     string               `json:"id"`
	Refund string               `json:"refund"` // the caller's id
	Amount int64                `json:"amount"`
	Status payment.RefundStatus `json:"status"`
	Reason string               `json:"reason,omitempty"`
}

// Call is a call that arrived, whatever came of it.
type Call struct {
	Operation Operation `json:"operation"`
	Key       string    `json:"key,omitempty"`
	At        time.Time `json:"at"`
	Fault     FaultKind `json:"fault,omitempty"`
	Status    int       `json:"status"` // of the answer; 0: there was none
}

func (c *Charge) copy() Charge {
	clone := *c
	clone.Refunds = slices.Clone(c.Refunds)
	return clone
}

// refusal is an answer that changes nothing.
type refusal struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(status int, code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

var errNoSuchCharge = refuse(http.StatusNotFound, "not_found", "no such charge")

// become changes the status and says so to the world.
func (s *Server) become(l *ledger, c *Charge, status payment.Status) {
	c.Status = status
	c.Version++
	s.announce(l, "charge."+string(status), c)
	if status == payment.StatusVoided && c.settlesLate > 0 {
		after := c.settlesLate
		c.settlesLate = 0
		s.later(after, func() {
			if c.EndToEnd == "" {
				s.settle(l, c)
				s.remember(l, nil)
			}
		})
	}
}

// observe lets what time has ended be ended.
func (s *Server) observe(l *ledger, c *Charge) {
	now := s.now()
	switch {
	case c.Status == payment.StatusPending && !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt):
		s.become(l, c, payment.StatusVoided)
	case c.Status == payment.StatusAuthorised && !now.Before(c.LapsesAt):
		s.become(l, c, payment.StatusLapsed)
	}
}

// settle is the buyer's money, or word, coming in.
func (s *Server) settle(l *ledger, c *Charge) {
	if c.Method == payment.MethodPix {
		c.EndToEnd = s.newID("E00000000")
		c.PaidLate = c.Status != payment.StatusPending
	} else if !c.CaptureNow {
		s.reserve(l, c)
		return
	}
	c.Captured = c.Amount
	s.become(l, c, payment.StatusCaptured)
}

func (s *Server) reserve(l *ledger, c *Charge) {
	c.LapsesAt = s.now().Add(s.config.AuthorisationLife)
	s.become(l, c, payment.StatusAuthorised)
}

func (s *Server) authorise(l *ledger, r *request, f Fault) (*Charge, error) {
	switch {
	case r.Amount <= 0 || r.Currency != s.config.Currency:
		return nil, refuse(http.StatusUnprocessableEntity, "amount", "not in %s", s.config.Currency)
	case r.Method == payment.MethodCard && r.CardToken == "":
		return nil, refuse(http.StatusUnprocessableEntity, "card_token", "missing")
	case r.Method != payment.MethodCard && r.Method != payment.MethodPix:
		return nil, refuse(http.StatusUnprocessableEntity, "method", "card or pix")
	}
	now := s.now()
	c := &Charge{
		ID: s.newID("ch"), Payment: r.Payment, Order: r.Order, Account: s.config.Account,
		Method: r.Method, Amount: r.Amount, Currency: r.Currency, Description: r.Description,
		CreatedAt: now, ExpiresAt: r.ExpiresAt, CaptureNow: r.CaptureNow,
	}
	switch {
	case f.Kind == Decline:
		c.DeclinedBy = "insufficient_funds"
		s.become(l, c, payment.StatusDeclined)
	case r.Method == payment.MethodPix:
		code, err := s.pixCode(c)
		if err != nil {
			return nil, err
		}
		c.PixCode = code
		if f.Kind == SettleLate {
			s.settleLate(l, c, f.delay())
		}
		s.become(l, c, payment.StatusPending)
	case f.Kind == ActionRequired:
		c.RedirectURL = "http://" + r.host + "/#" + c.ID
		s.become(l, c, payment.StatusPending)
	default:
		s.settle(l, c)
	}
	l.charges = append(l.charges, c)
	s.charges[c.ID] = entry{l, c}
	return c, nil
}

// settleLate has a Pix paid after it ended: watched for, since nobody may look when it expires.
func (s *Server) settleLate(l *ledger, c *Charge, after time.Duration) {
	c.settlesLate = cmp.Or(after, time.Millisecond)
	if !c.ExpiresAt.IsZero() {
		s.later(c.ExpiresAt.Sub(s.now()), func() { s.observe(l, c) })
	}
}

func (s *Server) pixCode(c *Charge) (string, error) {
	if c.Currency != "BRL" {
		return "", refuse(http.StatusUnprocessableEntity, "currency", "a Pix is in BRL")
	}
	text, err := pix.Code{
		Location: "pix.example.com/qr/" + strings.ToLower(c.ID), AmountCents: c.Amount,
		Name: "NUMERA SIMULATOR", City: "SAO PAULO",
	}.Text()
	if err != nil {
		return "", refuse(http.StatusUnprocessableEntity, "amount", "%v", err)
	}
	return text, nil
}

func (s *Server) capture(l *ledger, c *Charge, r *request, f Fault) error {
	if f.Kind == Lapsed && c.Status == payment.StatusAuthorised {
		c.LapsesAt = s.now()
		s.observe(l, c)
	}
	switch {
	case r.Amount != c.Amount || r.Currency != c.Currency:
		return refuse(http.StatusUnprocessableEntity, "amount", "not what was authorised")
	case c.Status == payment.StatusPending:
		return refuse(http.StatusUnprocessableEntity, "status", "pending")
	case c.Status == payment.StatusAuthorised:
		c.Captured = c.Amount
		s.become(l, c, payment.StatusCaptured)
	}
	return nil // whatever it is, the answer shows it
}

func (s *Server) void(l *ledger, c *Charge) {
	if c.Status == payment.StatusPending || c.Status == payment.StatusAuthorised {
		s.become(l, c, payment.StatusVoided)
	}
}

func (s *Server) refund(l *ledger, c *Charge, r *request, f Fault) (*Refund, error) {
	free := c.Captured
	for i := range c.Refunds {
		known := &c.Refunds[i]
		switch {
		case known.Refund == r.Refund && known.Amount == r.Amount:
			return known, nil
		case known.Refund == r.Refund:
			return nil, refuse(http.StatusUnprocessableEntity, "refund", "known with another amount")
		case known.Status != payment.RefundFailed:
			free -= known.Amount
		}
	}
	if r.Refund == "" || r.Amount <= 0 || r.Amount > free || r.Currency != c.Currency {
		return nil, refuse(http.StatusUnprocessableEntity, "amount", "%d can be refunded", free)
	}
	c.Refunds = append(c.Refunds, Refund{
		ID: s.newID("re"), Refund: r.Refund, Amount: r.Amount, Reason: r.Reason,
		Status: payment.RefundPending,
	})
	at := len(c.Refunds) - 1
	switch f.Kind {
	case RefundFailed:
		s.endRefund(l, c, &c.Refunds[at], payment.RefundFailed)
	case RefundPending:
		c.Version++
		s.announce(l, "refund.pending", c)
		if f.DelayMilli > 0 {
			s.later(f.delay(), func() {
				s.endRefund(l, c, &c.Refunds[at], payment.RefundDone)
				s.remember(l, nil)
			})
		}
	default:
		s.endRefund(l, c, &c.Refunds[at], payment.RefundDone)
	}
	return &c.Refunds[at], nil
}

// endRefund ends a pending refund; one that has ended stays as it is.
func (s *Server) endRefund(l *ledger, c *Charge, r *Refund, status payment.RefundStatus) {
	if r.Status != payment.RefundPending {
		return
	}
	r.Status = status
	if status == payment.RefundDone {
		c.Refunded += r.Amount
	}
	c.Version++
	s.announce(l, "refund."+string(status), c)
}

// asRefusal is what a caller is told of an error.
func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return &refusal{http.StatusInternalServerError, "internal", "the simulator failed"}
}
