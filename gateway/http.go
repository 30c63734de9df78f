package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fasthttp/router"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"numera/gateway/order"
	"numera/gateway/payment"
)

// newServer routes every operation, and what there is beside them for whoever runs the gateway.
func (g *Gateway) newServer() *fasthttp.Server {
	r := router.New()
	r.RedirectTrailingSlash = false
	r.RedirectFixedPath = false
	r.NotFound = func(ctx *fasthttp.RequestCtx) { g.unrouted(ctx, codeNotFound, "") }
	r.MethodNotAllowed = func(ctx *fasthttp.RequestCtx) { g.unrouted(ctx, codeMethodNotAllowed, "") }
	r.GlobalOPTIONS = g.options
	r.PanicHandler = func(ctx *fasthttp.RequestCtx, reason any) {
		g.logPanic("", reason)
		g.unrouted(ctx, codeInternal, "")
	}
	handle := func(method, path string, handler fasthttp.RequestHandler) {
		r.Handle(method, path, handler)
		if method == http.MethodGet {
			r.Handle(http.MethodHead, path, handler)
		}
	}
	for i := range operations {
		handle(operations[i].method, operations[i].path, g.handler(&operations[i]))
	}
	handle(http.MethodPost, webhookPath, g.webhook)
	metrics := fasthttpadaptor.NewFastHTTPHandler(
		promhttp.HandlerFor(g.config.Registry, promhttp.HandlerOpts{}))
	handle(http.MethodGet, "/healthz", g.known(g.health))
	handle(http.MethodGet, "/readyz", g.known(g.ready))
	handle(http.MethodGet, "/metrics", g.known(func(ctx *fasthttp.RequestCtx) {
		metrics(ctx)
		g.seal(ctx)
	}))
	handle(http.MethodGet, "/openapi.json", g.known(func(ctx *fasthttp.RequestCtx) {
		g.write(ctx, requestID(ctx), &answer{
			status: http.StatusOK, contentType: typeJSON, body: g.document, atUnixMilli: g.now(),
		})
	}))
	return &fasthttp.Server{
		Handler:                      r.Handler,
		ErrorHandler:                 g.unreadable,
		ReadTimeout:                  g.config.ReadTimeout,
		WriteTimeout:                 g.config.WriteTimeout,
		IdleTimeout:                  g.config.IdleTimeout,
		MaxRequestBodySize:           maxBody,
		ReadBufferSize:               8 << 10, // bounds the headers
		Concurrency:                  g.config.Connections + closingConnections,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       debugLog{g.log},
	}
}

// closingConnections is how many connections may be closed, and so no longer count for
// Config.Connections, while fasthttp is not yet done with them.
const closingConnections = 1024

// debugLog takes what fasthttp has to say of connections: nothing an operator can act on.
type debugLog struct{ log *slog.Logger }

func (l debugLog) Printf(format string, args ...any) {
	l.log.Debug("http", "message", fmt.Sprintf(format, args...))
}

// handler answers one operation.
func (g *Gateway) handler(op *operation) fasthttp.RequestHandler {
	var inURL []string
	for _, m := range op.members {
		if m.place == inPath {
			inURL = append(inURL, m.name)
		}
	}
	takesBody := op.takesBody()
	return func(ctx *fasthttp.RequestCtx) {
		c := g.newCall(op)
		h := &ctx.Request.Header
		c.requestID = requestID(ctx)
		c.authorization = h.Peek("Authorization")
		c.key = string(h.Peek(headerKey))
		if op.method == http.MethodGet {
			c.accept = string(h.Peek("Accept"))
			c.ifNoneMatch = string(h.Peek("If-None-Match"))
		}
		if g.throttle != nil {
			c.address = address(ctx.RemoteAddr())
		}
		c.url = true
		for _, name := range inURL {
			c.parameters = append(c.parameters, parameter{name, unescaped(ctx.UserValue(name))})
		}
		for name, value := range ctx.QueryArgs().All() {
			c.parameters = append(c.parameters, parameter{string(name), string(value)})
		}
		c.payload = ctx.Request.Body()
		c.notJSON = len(c.payload) > 0 && !isJSON(h, takesBody)
		g.perform(c)
		if t, ok := c.stream.(*table); ok {
			conn := ctx.Conn() // outlives the handler, as the table is read by its goroutine
			t.perPage = func() {
				// An error of the connection comes again with the next write.
				_ = conn.SetWriteDeadline(time.Now().Add(g.config.WriteTimeout))
			}
		}
		g.write(ctx, c.requestID, &c.answer)
		c.recycle()
	}
}

// unescaped is the text of a path parameter, which the router leaves as it stood in the URL. What
// cannot be unescaped is no id of anything, and stays.
func unescaped(value any) string {
	raw, _ := value.(string)
	if strings.IndexByte(raw, '%') < 0 {
		return raw
	}
	text, err := url.PathUnescape(raw)
	if err != nil {
		return raw
	}
	return text
}

// isJSON says that a body is what the contract wants: application/json in UTF-8, not encoded.
// Where no body is needed it need not say what it is.
func isJSON(h *fasthttp.RequestHeader, needed bool) bool {
	if len(h.ContentEncoding()) > 0 {
		return false
	}
	contentType := h.ContentType()
	if len(contentType) == 0 {
		return !needed
	}
	name, parameters, _ := bytes.Cut(contentType, []byte(";"))
	parameters = bytes.ReplaceAll(bytes.TrimSpace(parameters), []byte(`"`), nil)
	return bytes.EqualFold(bytes.TrimSpace(name), []byte(typeJSON)) &&
		(len(parameters) == 0 || bytes.EqualFold(parameters, []byte("charset=utf-8")))
}

// address is what a rate limit counts: an IPv4 address, or the /64 that an IPv6 one is from.
func address(remote net.Addr) string {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return remote.String()
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return ip.String()
	}
	return prefix.String()
}

func requestID(ctx *fasthttp.RequestCtx) string {
	return requestIDOf(ctx.Request.Header.Peek(headerRequestID))
}

// write sends the answer. The body is copied, the stream is not.
func (g *Gateway) write(ctx *fasthttp.RequestCtx, requestID string, a *answer) {
	h := &ctx.Response.Header
	ctx.Response.SetStatusCode(a.status)
	a.headers(requestID, h.Set)
	g.cors(ctx)
	if a.stream != nil {
		ctx.Response.SetBodyStream(a.stream, -1)
		return
	}
	ctx.Response.SetBody(a.body)
}

// seal gives an answer that another handler wrote what every answer has.
func (g *Gateway) seal(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(headerRequestID, requestID(ctx))
	ctx.Response.Header.Set(headerServerTime, string(appendInstant(nil, g.now())))
	g.cors(ctx)
}

// unrouted refuses what reached no operation.
func (g *Gateway) unrouted(ctx *fasthttp.RequestCtx, c code, detail string) {
	g.metrics.unrouted.WithLabelValues(string(c)).Inc()
	a := refused(c, detail).answer(nil, g.now())
	g.write(ctx, requestID(ctx), &a)
}

// unreadable answers what fasthttp could not read as a request. The connection is closed then.
func (g *Gateway) unreadable(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	timedOut := errors.As(err, &network) && network.Timeout()
	if conn, ok := ctx.Conn().(*countedConn); ok && !timedOut {
		conn.leaveUnread()
	}
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		g.unrouted(ctx, codeTooLarge, "")
	case errors.As(err, &small):
		g.unrouted(ctx, codeHeaderTooLarge, "")
	case timedOut:
		g.unrouted(ctx, codeTimeout, "")
	default:
		g.unrouted(ctx, codeMalformed, "this is not an HTTP request")
	}
}

// known refuses callers with a token that is not valid, as everywhere.
func (g *Gateway) known(handler fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if _, ok := g.authority.identify(ctx.Request.Header.Peek("Authorization")); !ok {
			g.unrouted(ctx, codeUnauthenticated, "the token is not valid, or no longer")
			return
		}
		handler(ctx)
	}
}

func (g *Gateway) health(ctx *fasthttp.RequestCtx) {
	g.write(ctx, requestID(ctx), &answer{
		status: http.StatusOK, contentType: typeJSON, body: []byte(`{"status":"alive"}`),
		atUnixMilli: g.now(),
	})
}

// ready says whether orders can be taken, and what else is down.
func (g *Gateway) ready(ctx *fasthttp.RequestCtx) {
	within, cancel := g.deadline()
	defer cancel()
	degraded := []string{}
	if err := g.shards.Ready(within); err != nil {
		p := retryLater(codeUnavailable, 0)
		p.detail, p.degraded = err.Error(), append(degraded, err.Error())
		a := p.answer(nil, g.now())
		g.write(ctx, requestID(ctx), &a)
		return
	}
	if g.config.Degraded != nil {
		degraded = g.config.Degraded(within)
	}
	body := append(appendTexts([]byte(`{"degraded":`), degraded), '}')
	g.write(ctx, requestID(ctx), &answer{
		status: http.StatusOK, contentType: typeJSON, body: body, atUnixMilli: g.now(),
	})
}

// webhookPath is where providers tell of payments. On HTTP only: the signature is over its body.
const webhookPath = "/v1/webhooks/{tenant}/{provider}"

// ownTenant is what the path calls the tenant of this gateway.
const ownTenant = "default"

// webhook takes a provider's notice. It is answered when it is stored.
func (g *Gateway) webhook(ctx *fasthttp.RequestCtx) {
	tenant, provider := unescaped(ctx.UserValue("tenant")), unescaped(ctx.UserValue("provider"))
	if tenant == ownTenant {
		tenant = g.config.Tenant
	}
	if g.config.Payments == nil {
		g.unrouted(ctx, codeNotFound, "")
		return
	}
	within, cancel := g.deadline()
	defer cancel()
	header := func(name string) string { return string(ctx.Request.Header.Peek(name)) }
	err := g.config.Payments.Webhook(within, tenant, provider, header, ctx.Request.Body())
	switch {
	case err == nil:
		g.write(ctx, requestID(ctx), &answer{
			status: http.StatusOK, contentType: typeJSON, body: []byte("{}"), atUnixMilli: g.now(),
		})
	case errors.Is(err, order.ErrProvider):
		g.unrouted(ctx, codeNotFound, "")
	case errors.Is(err, payment.ErrSignature):
		g.unrouted(ctx, codeUnauthenticated, "the signature is not valid")
	default:
		g.log.Error("a webhook was not stored", "provider", provider, "error", err)
		a := retryLater(codeUnavailable, 0).answer(nil, g.now())
		g.write(ctx, requestID(ctx), &a)
	}
}
