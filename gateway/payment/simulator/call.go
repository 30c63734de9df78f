package simulator

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/v1"

	"numera/gateway/payment"
)

// request is the body of every call; each operation reads its part of it.
type request struct {
	Payment     string         `json:"payment"`
	Charge      string         `json:"charge,omitempty"` // the provider's id, if the caller knows it
	Order       string         `json:"order,omitempty"`
	Method      payment.Method `json:"method,omitempty"`
	Amount      int64          `json:"amount,omitempty"`
	Currency    string         `json:"currency,omitempty"`
	CaptureNow  bool           `json:"capture_now,omitempty"`
	CardToken   string         `json:"card_token,omitempty"`
	ExpiresAt   time.Time      `json:"expires_at,omitzero"`
	Description string         `json:"description,omitempty"`
	Refund      string         `json:"refund,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	Payer       *payer         `json:"payer,omitempty"`

	host string // that it was sent to
}

// payer is read, for a key's parameters, and not kept.
type payer struct {
	Name     string `json:"name,omitempty"`
	Email    string `json:"email,omitempty"`
	Document string `json:"document,omitempty"`
	Phone    string `json:"phone,omitempty"`
}

// keyed is a call that is bound to its key. A provider keeps one for every call that it ever had.
type keyed struct {
	print  [sha256.Size]byte // of operation and parameters
	done   chan struct{}     // closed when the answer is there, and nil once that is known
	answer answer
}

// answer is an HTTP answer. Status 0: the connection ends without one.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

var noAnswer answer

func failed(r *refusal) answer {
	body, _ := json.Marshal(r) // two texts
	return answer{r.Status, body}
}

var (
	busy     = &refusal{http.StatusTooManyRequests, "busy", "too many calls"}
	broken   = &refusal{http.StatusInternalServerError, "error", "scripted"}
	underWay = &refusal{http.StatusConflict, "in_progress", "a call is under way"}
	keyBound = &refusal{
		http.StatusUnprocessableEntity, "key_reused", "the key was used with other parameters",
	}
)

// visit is one call that has arrived.
type visit struct {
	on     Operation
	key    string
	asked  *request
	raw    []byte // what was asked, as it came
	ledger *ledger
	record int // of its calls
	fault  Fault
	slow   time.Duration
}

// call carries out one call, with the faults that await it. The effect does not wait for whoever
// asked: a caller that has left has its effect all the same.
func (s *Server) call(ctx context.Context, on Operation, key string, r *request, raw []byte) answer {
	s.mu.Lock()
	l := s.ledger(r)
	if on == OnAuthorise {
		l.order = r.Order
		if err := s.readMarkers(l, r.CardToken, r.Description); err != nil {
			s.mu.Unlock()
			return failed(&refusal{http.StatusUnprocessableEntity, "marker", err.Error()})
		}
	}
	v := &visit{on: on, key: key, asked: r, raw: raw, ledger: l, record: len(l.calls)}
	v.fault, v.slow = s.script.take(on, l)
	l.calls = append(l.calls, Call{on, key, s.now(), v.fault.Kind, 0})
	s.mu.Unlock()

	given := s.meet(ctx, v)
	s.mu.Lock()
	l.calls[v.record].Status = given.Status
	s.mu.Unlock()
	return given
}

// meet acts and answers as the fault has it.
func (s *Server) meet(ctx context.Context, v *visit) answer {
	switch v.fault.Kind {
	case TimeoutBefore:
		s.hang(ctx)
		return noAnswer
	case CutBefore:
		return noAnswer
	case ErrorBefore:
		return failed(broken)
	case Busy:
		return failed(busy)
	}
	given := v.fault.spoil(s.once(ctx, v))
	if v.fault.Kind == TimeoutAfter {
		s.hang(ctx)
	}
	return given
}

// spoil is what the caller gets of an answer.
func (f Fault) spoil(given answer) answer {
	switch f.Kind {
	case TimeoutAfter, CutAfter:
		return noAnswer
	case ErrorAfter:
		return failed(broken)
	}
	return given
}

// hang waits until the caller loses patience.
func (s *Server) hang(ctx context.Context) {
	patience := time.NewTimer(s.config.HangTime)
	defer patience.Stop()
	select {
	case <-ctx.Done():
	case <-patience.C:
	case <-s.closing:
	}
}

// once acts for a key once, and has everybody else who comes with it wait for the answer.
func (s *Server) once(ctx context.Context, v *visit) answer {
	if v.on == OnLookUp {
		s.pause(v.slow)
		return s.lookUp(v.asked)
	}
	print := sha256.Sum256(append([]byte(v.on), v.raw...))
	s.mu.Lock()
	if bound, known := s.keys[v.key]; known {
		done := bound.done
		s.mu.Unlock()
		if bound.print != print {
			return failed(keyBound)
		}
		if done == nil {
			return bound.answer
		}
		select {
		case <-done:
			return bound.answer
		case <-ctx.Done():
			return noAnswer
		}
	}
	done := make(chan struct{})
	bound := &keyed{print: print, done: done}
	s.keys[v.key] = bound
	if v.on == OnAuthorise {
		v.ledger.creating++
	}
	s.mu.Unlock()
	s.pause(v.slow)

	s.mu.Lock()
	defer s.mu.Unlock()
	if v.on == OnAuthorise {
		v.ledger.creating--
	}
	defer close(done)
	if s.closed { // an effect now would be forgotten
		return bound.answer
	}
	bound.answer, bound.done = s.act(v), nil
	if bound.answer.Status/100 == 4 {
		delete(s.keys, v.key)
		return bound.answer
	}
	v.ledger.calls[v.record].Status = v.fault.spoil(bound.answer).Status
	s.remember(v.ledger, &boundKey{v.key, print[:], bound.answer})
	return bound.answer
}

// pause is slowness, which a closing server cuts short.
func (s *Server) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-s.closing:
	}
}

// act has the effect, and says what came of it.
func (s *Server) act(v *visit) answer {
	if v.fault.Kind == ErrorStored {
		return failed(broken)
	}
	l, r := v.ledger, v.asked
	var result any
	var err error
	if v.on == OnAuthorise {
		result, err = s.authorise(l, r, v.fault)
	} else if _, c := s.find(l.chargeID(r)); c == nil {
		err = errNoSuchCharge
	} else {
		result = c
		switch v.on {
		case OnCapture:
			err = s.capture(l, c, r, v.fault)
		case OnVoid:
			s.void(l, c)
		case OnRefund:
			result, err = s.refund(l, c, r, v.fault)
		}
	}
	if err != nil {
		return failed(asRefusal(err))
	}
	body, err := json.Marshal(result)
	if err != nil {
		return failed(asRefusal(err))
	}
	return answer{http.StatusOK, body}
}

// lookUp tells the charge that matters: the named one, or of a payment's the one that holds money.
func (s *Server) lookUp(r *request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledger(r)
	_, c := s.find(l.chargeID(r))
	switch {
	case c == nil && l.creating > 0:
		return failed(underWay)
	case c == nil:
		return failed(asRefusal(errNoSuchCharge))
	}
	body, err := json.Marshal(c)
	if err != nil {
		return failed(asRefusal(err))
	}
	return answer{http.StatusOK, body}
}

// ledger is of the payment that a call is about, made if it is new.
func (s *Server) ledger(r *request) *ledger {
	if e, known := s.charges[r.Charge]; known {
		return e.ledger
	}
	l := s.payments[r.Payment]
	if l == nil {
		l = &ledger{payment: r.Payment}
		s.payments[r.Payment] = l
		s.order = append(s.order, l)
	}
	return l
}

// chargeID is the named charge, or the first that holds or held money, or the latest.
func (l *ledger) chargeID(r *request) string {
	if r.Charge != "" {
		return r.Charge
	}
	for _, c := range l.charges {
		if c.Status == payment.StatusCaptured || c.Status == payment.StatusAuthorised {
			return c.ID
		}
	}
	return l.payment
}
