package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"numera/engine/inventory"
)

// serviceName is what the operations are called together on NATS.
const serviceName = "numera"

// pending bounds what one subscription holds before the gateway has looked at it. Looking takes
// microseconds, so it fills only when the process is starved.
const (
	pendingMessages = 8192
	pendingBytes    = 64 << 20
)

// natsService answers the operations on one connection, each request in a goroutine of its own.
type natsService struct {
	g       *Gateway
	nc      *nats.Conn
	service micro.Service
	workers chan struct{} // one for each request under way

	mu       sync.Mutex
	stopped  bool
	underWay sync.WaitGroup // added to under mu while not stopped
}

// ServeNATS answers the operations on a connection as a micro service, until Close. When it
// returns nil the server knows of all of them. The connection stays the caller's and has to be
// closed after the gateway.
func (g *Gateway) ServeNATS(nc *nats.Conn) error {
	s := &natsService{g: g, nc: nc, workers: make(chan struct{}, g.config.NATSWorkers)}
	var err error
	s.service, err = micro.AddService(nc, micro.Config{
		Name: serviceName, Version: "1.0.0",
		Description: "Sells finite numbered items: products, orders and their transitions",
	})
	if err != nil {
		return fmt.Errorf("gateway: serve NATS: %w", err)
	}
	for i := range operations {
		op := &operations[i]
		err = s.service.AddEndpoint(endpointName(op),
			micro.HandlerFunc(func(r micro.Request) { s.take(op, r) }),
			micro.WithEndpointSubject(subjectPrefix+op.subject),
			micro.WithEndpointPendingLimits(pendingMessages, pendingBytes),
			micro.WithEndpointMetadata(map[string]string{
				"summary": op.summary, "role": op.role.String(),
				"http": op.method + " " + op.path,
			}))
		if err != nil {
			return fmt.Errorf("gateway: serve %s: %w", op.subject, errors.Join(err, s.service.Stop()))
		}
	}
	if err := nc.Flush(); err != nil {
		return fmt.Errorf("gateway: serve NATS: %w", errors.Join(err, s.service.Stop()))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errors.Join(ErrClosed, s.service.Stop())
	}
	g.services = append(g.services, s)
	return nil
}

// endpointName is an operation's name where names have no dots.
func endpointName(op *operation) string { return strings.ReplaceAll(op.subject, ".", "-") }

// take is called by the connection's delivery and must not keep it: it hands the request on, or
// refuses it at once.
func (s *natsService) take(op *operation, r micro.Request) {
	if r.Reply() == "" {
		return // nobody would hear the answer
	}
	s.mu.Lock()
	full := s.stopped
	if !full {
		select {
		case s.workers <- struct{}{}:
			s.underWay.Add(1)
		default:
			full = true
		}
	}
	s.mu.Unlock()
	if full {
		code := codeOf(inventory.CodeOverloaded)
		a := retryLater(code, 0).answer(nil, s.g.now())
		s.g.metrics.observe(op, code, 0)
		s.answer(r, requestIDOf(r.Headers().Get(headerRequestID)), &a)
		return
	}
	go func() {
		defer s.underWay.Done()
		defer func() { <-s.workers }()
		s.serve(op, r)
	}()
}

func (s *natsService) serve(op *operation, r micro.Request) {
	c := s.g.newCall(op)
	defer c.recycle()
	h := r.Headers()
	c.requestID = requestIDOf(h.Get(headerRequestID))
	c.authorization = []byte(h.Get("Authorization"))
	c.key = h.Get(headerKey)
	c.address = "nats"
	c.payload = r.Data()
	s.g.perform(c)
	if int64(len(c.body)) > s.nc.MaxPayload()-maxHeaders {
		c.refuse(tooLargeForNATS(), c.atUnixMilli)
	}
	s.answer(r, c.requestID, &c.answer)
}

// maxHeaders is more than the headers of any answer take, in bytes.
const maxHeaders = 4 << 10

func tooLargeForNATS() *problem {
	return refusedBy(&inventory.Outcome{
		Code: inventory.CodeValueInvalid,
		Refusal: &inventory.Refusal{
			Pointer: "/limit",
			Detail:  "the answer is larger than a NATS message: ask for less at once",
		},
	})
}

// answer sends an answer. The service's own way to answer would race with its statistics, as the
// handler has returned; the headers are the same.
func (s *natsService) answer(r micro.Request, requestID string, a *answer) {
	msg := &nats.Msg{Subject: r.Reply(), Data: a.body, Header: make(nats.Header, 8)}
	a.headers(requestID, func(name, value string) { msg.Header[name] = []string{value} })
	msg.Header.Set(headerStatus, strconv.Itoa(a.status))
	if a.status >= http.StatusBadRequest {
		msg.Header.Set(micro.ErrorHeader, refusals[a.code].title)
		msg.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(a.status))
	}
	if err := s.nc.PublishMsg(msg); err != nil {
		s.g.log.Warn("an answer could not be sent", "request", requestID, "error", err)
	}
}

// close stops the service and waits for the requests under way until ctx ends.
func (s *natsService) close(ctx context.Context) error {
	stopErr := s.service.Stop()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.underWay.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("gateway: stop NATS: %w", ctx.Err())
	}
	if stopErr != nil {
		return fmt.Errorf("gateway: stop NATS: %w", stopErr)
	}
	if err := s.nc.FlushWithContext(ctx); err != nil && !s.nc.IsClosed() {
		return fmt.Errorf("gateway: stop NATS: %w", err)
	}
	return nil
}
