package simulator

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/v1"

	"numera/gateway/payment"
)

// maxBody of a call, in bytes.
const maxBody = 64 << 10

// KeyHeader carries a call's idempotency key.
const KeyHeader = "Idempotency-Key"

// route lays out the provider's own API under /v1, all POST with JSON, and beside it what tests and
// people use.
func (s *Server) route() {
	s.routes = http.NewServeMux()
	for _, on := range []Operation{OnAuthorise, OnCapture, OnVoid, OnRefund, OnLookUp} {
		s.routes.HandleFunc("POST /v1/"+string(on), func(w http.ResponseWriter, r *http.Request) {
			s.serveCall(w, r, on)
		})
	}
	s.routes.HandleFunc("GET /{$}", s.servePage)
	s.routes.HandleFunc("GET /charges", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, orEmpty(s.Charges()))
	})
	s.routes.HandleFunc("GET /payments/{payment}", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, orEmpty(s.Payment(r.PathValue("payment"))))
	})
	s.routes.HandleFunc("GET /payments/{payment}/calls", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, orEmpty(s.Calls(r.PathValue("payment"))))
	})
	s.routes.HandleFunc("GET /webhooks", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, s.Deliveries())
	})
	s.routes.HandleFunc("POST /charges/{id}/{what}", s.serveChange)
	s.routes.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, orEmpty(s.Faults()))
	})
	s.routes.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	s.routes.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		err := readJSON(w, r, &f)
		if err == nil {
			err = s.Script(f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// ServeHTTP serves the provider, what is scripted, and a page for people at /.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, on Operation) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	call := request{host: r.Host}
	key := r.Header.Get(KeyHeader)
	switch err := json.Unmarshal(raw, &call); {
	case err != nil || call.Payment == "":
		writeAnswer(w, failed(&refusal{http.StatusBadRequest, "malformed", "no such request"}))
	case key == "" && on != OnLookUp:
		writeAnswer(w, failed(&refusal{http.StatusBadRequest, "key_missing", "no " + KeyHeader}))
	default:
		given := s.call(r.Context(), on, key, &call, raw)
		if given.Status == 0 {
			panic(http.ErrAbortHandler) // closes the connection
		}
		writeAnswer(w, given)
	}
}

// serveChange is the buyer, the buyer's bank, and time.
func (s *Server) serveChange(w http.ResponseWriter, r *http.Request) {
	var wish struct {
		Refund string               `json:"refund"`
		Status payment.RefundStatus `json:"status"`
	}
	var claim Claim
	var c Charge
	var err error
	id := r.PathValue("id")
	switch r.PathValue("what") {
	case "pay":
		c, err = s.Pay(id)
	case "decline":
		c, err = s.Decline(id)
	case "lapse":
		c, err = s.Lapse(id)
	case "refund":
		if err = readJSON(w, r, &wish); err == nil {
			c, err = s.FinishRefund(id, wish.Refund, wish.Status)
		}
	case "announce":
		if err = readJSON(w, r, &claim); err == nil {
			err = s.Announce(id, claim)
		}
	default:
		err = ErrNoCharge
	}
	switch {
	case errors.Is(err, ErrNoCharge):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, ErrNotNow):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case c.ID == "":
		w.WriteHeader(http.StatusNoContent)
	default:
		writeJSON(w, c)
	}
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone
}

func writeAnswer(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the caller has gone
}

// orEmpty has nothing written as [] rather than null.
func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
