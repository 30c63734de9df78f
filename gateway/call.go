package gateway

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"numera/engine/inventory"
	"numera/gateway/shards"
)

// call is one request from its arrival to its answer, the same on both transports. The transport
// fills the request, perform the answer. It belongs to one goroutine, and goes back to the pool
// with its memory when the answer is written.
type call struct {
	op     *operation
	tenant string

	request
	who     caller
	in      input
	decoder decoder

	answer
}

// request is what the transport knows of a call. The bytes belong to the transport.
type request struct {
	requestID     string
	authorization []byte // all of the header, or none
	key           string
	accept        string
	ifNoneMatch   string
	address       string      // whom a rate limit counts where there is no buyer
	url           bool        // the members of the URL are in parameters, not in the payload
	parameters    []parameter // memory is used again
	notJSON       bool        // the payload says that it is something else
	payload       []byte
}

// answer is what a call is answered with.
type answer struct {
	status      int
	code        code // "": accepted
	contentType string
	body        []byte
	stream      io.ReadCloser // in place of body, if set
	atUnixMilli int64
	replay      bool
	etag        string        // "": none
	cacheable   bool          // by anybody, for a second
	varies      bool          // by Accept
	retryAfter  time.Duration // 0: no advice
}

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typeRoaring = "application/vnd.roaring"
	typeCSV     = "text/csv; charset=utf-8"
)

// headers calls set with every header of the answer, but none of CORS and HTTP's own.
func (a *answer) headers(requestID string, set func(name, value string)) {
	set(headerRequestID, requestID)
	set(headerServerTime, string(appendInstant(make([]byte, 0, 32), a.atUnixMilli)))
	set("Content-Type", a.contentType)
	if a.replay {
		set(headerReplay, "true")
	}
	if a.etag != "" {
		set("ETag", a.etag)
	}
	if a.cacheable {
		set("Cache-Control", "public, max-age=1")
	} else {
		set("Cache-Control", "no-store")
	}
	if a.varies {
		set("Vary", "Accept")
	}
	if a.retryAfter > 0 {
		seconds := (a.retryAfter + time.Second - 1) / time.Second
		set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if a.status == http.StatusUnauthorized {
		set("WWW-Authenticate", "Bearer")
	}
}

// The headers that the contract names.
const (
	headerKey        = "Idempotency-Key"
	headerReplay     = "Idempotent-Replay"
	headerRequestID  = "X-Request-Id"
	headerServerTime = "Numera-Server-Time"
	headerStatus     = "Numera-Status"
)

const maxRequestID = 128

// requestIDOf takes the caller's id of the request if it has the form of one, or makes one.
func requestIDOf[Bytes ~string | ~[]byte](given Bytes) string {
	if visible(given, maxRequestID) {
		return string(given)
	}
	var id [16]byte
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.in.reset()
	return c
}}

func (g *Gateway) newCall(op *operation) *call {
	c := calls.Get().(*call)
	c.op, c.tenant = op, g.config.Tenant
	return c
}

// recycle forgets the request and keeps the memory, unless it has grown beyond the usual.
func (c *call) recycle() {
	const most = 256 << 10
	c.request = request{parameters: c.parameters[:0]}
	c.in.reset()
	body := c.body[:0]
	if cap(body) > most {
		body = nil
	}
	c.answer = answer{body: body}
	calls.Put(c)
}

// perform answers the call. It never panics.
func (g *Gateway) perform(c *call) {
	began := time.Now()
	defer func() {
		if reason := recover(); reason != nil {
			g.logPanic(c.requestID, reason)
			c.refuse(refused(codeInternal, ""), g.now())
		}
		g.metrics.observe(c.op, c.code, time.Since(began))
	}()
	c.status, c.contentType = c.op.status, typeJSON
	if p := g.admit(c); p != nil {
		c.refuse(p, g.now())
		return
	}
	if c.op.command == nil {
		ctx, cancel := g.deadline()
		defer cancel()
		c.op.ask(ctx, g, c)
		return
	}
	entry := inventory.Entry{Correlation: c.requestID, Command: c.op.command(c)}
	ctx := g.base // the shards' client bounds a command by itself
	if c.op.paid != nil && g.config.Payments != nil && entry.Command.Check() == nil {
		within, cancel := g.deadline()
		defer cancel()
		if c.op.paid(within, g, c) {
			return
		}
		ctx = within
	}
	o, err := g.shards.Do(ctx, entry)
	if err != nil {
		c.refuse(g.failed(c, err), g.now())
		return
	}
	if g.accepted(c, o) {
		c.op.accept(c, o)
	}
}

// admit lets a call through to the shards, or says why not, in the order of DESIGN.md.
func (g *Gateway) admit(c *call) *problem {
	var known bool
	c.who, known = g.authority.identify(c.authorization)
	if wait := g.throttle.wait(c); wait > 0 {
		return retryLater(codeRateLimited, wait)
	}
	switch {
	case !known:
		return refused(codeUnauthenticated, "the token is not valid, or no longer")
	case c.who.role >= c.op.role:
	case c.who.role == rolePublic:
		return refused(codeUnauthenticated, "")
	default:
		return refused(codeForbidden, "")
	}
	if len(c.payload) > maxBody {
		return refused(codeTooLarge, "")
	}
	if c.notJSON && len(c.payload) > 0 {
		return refused(codeMediaType, "")
	}
	malformed, wrong := c.decoder.decode(c.op.members, c.url, c.parameters, c.payload, &c.in)
	switch {
	case malformed != nil:
		return malformed
	case c.op.keyed && c.key == "":
		return refused(codeKeyMissing, "")
	case c.op.keyed && !visible(c.key, maxKey):
		return refused(codeKeyInvalid, "")
	case wrong != nil:
		return wrong
	}
	if c.op.check != nil {
		return c.op.check(c)
	}
	return nil
}

const (
	maxBody = 64 << 10
	maxKey  = 255
)

// nameBuyer decides for whom an order is: a buyer's token speaks for its buyer, a service has to
// name one.
func nameBuyer(c *call) *problem {
	switch {
	case c.who.role != roleBuyer && c.in.buyer == "":
		return &problem{
			code: codeMalformed, pointer: "/buyer", located: true, offset: noOffset,
			detail: "a service has to say who orders",
		}
	case c.who.role != roleBuyer, c.in.buyer == c.who.buyer:
		return nil
	case c.in.buyer != "":
		return refused(codeForbidden, "a buyer's token cannot order for another buyer")
	}
	c.in.buyer = c.who.buyer
	return nil
}

// accepted says whether the outcome is an acceptance, and answers with the refusal if not.
func (g *Gateway) accepted(c *call, o *inventory.Outcome) bool {
	c.atUnixMilli = o.AtUnixMilli
	if c.atUnixMilli == 0 { // refused for its form, on the way
		c.atUnixMilli = g.now()
	}
	if o.Code == inventory.CodeOK {
		return true
	}
	c.refuse(refusedBy(o), c.atUnixMilli)
	return false
}

// refuse answers with a problem, whatever has been answered so far.
func (c *call) refuse(p *problem, atUnixMilli int64) {
	c.answer = p.answer(c.body, atUnixMilli)
}

// answer is the problem as an answer, written into the memory of buf.
func (p *problem) answer(buf []byte, atUnixMilli int64) answer {
	return answer{
		status: refusals[p.code].status, code: p.code, contentType: typeProblem,
		body: p.append(buf[:0], atUnixMilli), atUnixMilli: atUnixMilli, retryAfter: p.retryAfter,
	}
}

// failed maps an error of the shards. What is not known to have done nothing is unknown.
func (g *Gateway) failed(c *call, err error) *problem {
	var overloaded *shards.OverloadedError
	var unavailable *shards.UnavailableError
	switch {
	case errors.As(err, &overloaded):
		return retryLater(codeOf(inventory.CodeOverloaded), overloaded.RetryAfter)
	case errors.As(err, &unavailable):
		return retryLater(codeUnavailable, unavailable.RetryAfter)
	case errors.Is(err, shards.ErrClosed):
		return retryLater(codeUnavailable, 0)
	case errors.Is(err, shards.ErrRejected), errors.Is(err, shards.ErrInvalid):
		g.logFailure(c, err)
		return refused(codeInternal, "")
	case c.op.command != nil: // ErrOutcomeUnknown, and whatever is no proof of anything else
		g.logFailure(c, err)
		return retryLater(codeOutcomeUnknown, 0)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return retryLater(codeUnavailable, 0)
	}
	g.logFailure(c, err)
	return refused(codeInternal, "")
}

// logFailure leaves a trace of what an operator has to look at. While something is down it is so for
// every request: then a line a second is enough, and the metrics count.
func (g *Gateway) logFailure(c *call, err error) {
	g.failures.Do(func() {
		g.log.Error("a request failed",
			"operation", c.op.subject, "request", c.requestID, "error", err)
	})
}

func (g *Gateway) logPanic(requestID string, reason any) {
	g.log.Error("a request broke the gateway",
		"request", requestID, "reason", fmt.Sprint(reason), "stack", string(debug.Stack()))
}
