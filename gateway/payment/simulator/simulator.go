// Package simulator is a payment provider that remembers: it authorises, captures, refunds, issues
// Pix codes, sends signed webhooks, and fails as it is told to.
//
// [Server] is the provider, an [http.Handler]. [Client] is numera's side of it, a
// [payment.Provider]. Tests and `numera psp` run the same server.
//
// What it holds to, as real providers do:
//
//   - The key of a call and its parameters are bound together. The same again is the stored answer,
//     also while the first is under way; with other parameters it is an error. A refused call (4xx)
//     leaves its key free.
//   - Another key is another charge, even for the same payment: a caller who forgets its key
//     charges twice, and [Server.Charges] shows it.
//   - A Pix can be paid after it expired or was voided. Money that came in is never voided.
//   - captured ≥ refunded + refunds under way, always.
//
// It fails by [Fault]s, in the order in which they were scripted, each so many times: nothing is
// random. It keeps everything in memory until it ends, and in a file of its own if it is given one.
// It never sees a card number, and keeps neither card tokens nor payers.
package simulator

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"numera/gateway/payment"
)

// Config says what a Server is. The zero value is a provider without webhooks.
type Config struct {
	Account  string // "": acct_simulator
	Currency string // the only one it takes; "": BRL

	WebhookURL     string   // "": no webhooks
	WebhookSecrets []string // each event is signed with every one of them
	WebhookLanes   int      // webhooks under way at once; 0: 16

	AuthorisationLife time.Duration    // until an uncaptured authorisation lapses; 0: 7 days
	HangTime          time.Duration    // of a call that times out, if its caller stays; 0: 1 min
	File              string           // where it remembers; "": it forgets when it ends
	Now               func() time.Time // nil: time.Now
}

func (c *Config) withDefaults() {
	c.Account = cmp.Or(c.Account, "acct_simulator")
	c.Currency = cmp.Or(c.Currency, "BRL")
	c.WebhookLanes = cmp.Or(c.WebhookLanes, 16)
	c.AuthorisationLife = cmp.Or(c.AuthorisationLife, 7*24*time.Hour)
	c.HangTime = cmp.Or(c.HangTime, time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Server is the provider. Its methods may be called by any goroutine until Close.
type Server struct {
	config   Config
	routes   *http.ServeMux
	webhooks *sender
	closing  chan struct{}
	waits    sync.WaitGroup // what happens later by itself: late settlements, slow refunds

	mu       sync.Mutex
	closed   bool
	prefix   string // of ids: no two lives of a server give the same
	lastID   uint64
	payments map[string]*ledger
	order    []*ledger // of payments, oldest first
	charges  map[string]entry
	keys     map[string]*keyed
	script   script
	file     *os.File
}

// ledger is all that is known of one payment.
type ledger struct {
	payment, order string
	charges        []*Charge
	calls          []Call
	creating       int  // authorisations under way
	marked         bool // its markers have been read
	held           []event
}

type entry struct {
	ledger *ledger
	charge *Charge
}

// New makes a provider, and reads its file if there is one. It stops at what the file does not say
// whole: only the last line can be cut short.
func New(config Config) (*Server, error) {
	config.withDefaults()
	var seed [4]byte
	_, _ = rand.Read(seed[:]) // never fails
	s := &Server{
		config: config, prefix: hex.EncodeToString(seed[:]), closing: make(chan struct{}),
		payments: make(map[string]*ledger), charges: make(map[string]entry),
		keys: make(map[string]*keyed), script: newScript(),
	}
	if err := s.openFile(); err != nil {
		return nil, err
	}
	s.webhooks = newSender(config)
	s.route()
	return s, nil
}

// Close ends hanging calls, whose effect does not come any more, and drops webhooks that have not
// been delivered.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	s.waits.Wait()
	s.webhooks.close()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// Errors of what tests and people ask for.
var (
	// ErrNoCharge is returned when there is no such charge or refund.
	ErrNoCharge = errors.New("simulator: no such charge")

	// ErrNotNow is returned when the charge is in no state for it.
	ErrNotNow = errors.New("simulator: not in this state")
)

// Pay is the buyer: pays the Pix, in time or not, or completes what the card's bank asked for. id
// is a charge's or a payment's, whose latest charge is meant. A charge is paid once: ErrNotNow.
func (s *Server) Pay(id string) (Charge, error) {
	return s.change(id, func(l *ledger, c *Charge) error {
		unpaid := c.Status == payment.StatusPending
		if c.Method == payment.MethodPix {
			unpaid = c.EndToEnd == ""
		}
		if !unpaid {
			return fmt.Errorf("%w: %s", ErrNotNow, c.Status)
		}
		s.settle(l, c)
		return nil
	})
}

// Decline is the buyer's bank: refuses a card that waits for the buyer.
func (s *Server) Decline(id string) (Charge, error) {
	return s.change(id, func(l *ledger, c *Charge) error {
		if c.Method != payment.MethodCard || c.Status != payment.StatusPending {
			return fmt.Errorf("%w: %s", ErrNotNow, c.Status)
		}
		c.DeclinedBy = "authentication_failed"
		s.become(l, c, payment.StatusDeclined)
		return nil
	})
}

// Lapse lets an authorisation run out now.
func (s *Server) Lapse(id string) (Charge, error) {
	return s.change(id, func(l *ledger, c *Charge) error {
		if c.Status != payment.StatusAuthorised {
			return fmt.Errorf("%w: %s", ErrNotNow, c.Status)
		}
		c.LapsesAt = s.now()
		s.become(l, c, payment.StatusLapsed)
		return nil
	})
}

// FinishRefund ends a pending refund, by its caller's id.
func (s *Server) FinishRefund(id, refund string, status payment.RefundStatus) (Charge, error) {
	return s.change(id, func(l *ledger, c *Charge) error {
		for i := range c.Refunds {
			if r := &c.Refunds[i]; r.Refund == refund && r.Status == payment.RefundPending {
				s.endRefund(l, c, r, status)
				return nil
			}
		}
		return fmt.Errorf("%w: no such pending refund", ErrNotNow)
	})
}

// change finds a charge and changes it.
func (s *Server) change(id string, how func(*ledger, *Charge) error) (Charge, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Charge{}, fmt.Errorf("%w: closed", ErrNotNow)
	}
	l, c := s.find(id)
	if c == nil {
		return Charge{}, ErrNoCharge
	}
	if err := how(l, c); err != nil {
		return Charge{}, err
	}
	s.remember(l, nil)
	return c.copy(), nil
}

// find is by the id of a charge or of a payment, brought up to date. The charge may be nil.
func (s *Server) find(id string) (*ledger, *Charge) {
	e, known := s.charges[id]
	if !known {
		l := s.payments[id]
		if l == nil || len(l.charges) == 0 {
			return l, nil
		}
		e = entry{l, l.charges[len(l.charges)-1]}
	}
	s.observe(e.ledger, e.charge)
	return e.ledger, e.charge
}

// Statement is a charge with every call about its payment.
type Statement struct {
	Charge
	Calls []Call `json:"calls"`
}

// Charges is everything that was ever charged, oldest payment first: what an oracle asks.
func (s *Server) Charges() []Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Statement
	for _, l := range s.order {
		all = append(all, s.statements(l)...)
	}
	return all
}

// Payment is what was charged for one payment.
func (s *Server) Payment(id string) []Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.payments[id]; l != nil {
		return s.statements(l)
	}
	return nil
}

// Calls is every call about a payment, also of those that had no effect.
func (s *Server) Calls(paymentID string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.payments[paymentID]; l != nil {
		return append([]Call(nil), l.calls...)
	}
	return nil
}

func (s *Server) statements(l *ledger) []Statement {
	all := make([]Statement, len(l.charges))
	for i, c := range l.charges {
		s.observe(l, c)
		all[i] = Statement{c.copy(), append([]Call(nil), l.calls...)}
	}
	return all
}

// now is as exact as what is written down.
func (s *Server) now() time.Time { return s.config.Now().UTC().Truncate(time.Millisecond) }

func (s *Server) newID(kind string) string {
	s.lastID++
	return kind + "_" + s.prefix + "_" + strconv.FormatUint(s.lastID, 10)
}

// later does something under the lock after d, unless the server is closed first.
func (s *Server) later(d time.Duration, do func()) {
	if s.closed {
		return
	}
	s.waits.Go(func() {
		select {
		case <-time.After(d):
			s.mu.Lock()
			defer s.mu.Unlock()
			do()
		case <-s.closing:
		}
	})
}
