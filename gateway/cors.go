package gateway

import (
	"net/http"
	"slices"

	"github.com/valyala/fasthttp"
)

// exposed are the headers that a page may read.
const exposed = headerServerTime + ", " + headerRequestID + ", " + headerReplay +
	", ETag, Retry-After, Allow"

// cors lets the page that asks read the answer, where the configuration allows its origin.
func (g *Gateway) cors(ctx *fasthttp.RequestCtx) {
	if len(g.config.CORSOrigins) == 0 {
		return
	}
	h := &ctx.Response.Header
	h.Add("Vary", "Origin")
	if origin := g.allowedOrigin(ctx); origin != "" {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposed)
	}
}

// allowedOrigin is the origin to name in an answer, or "".
func (g *Gateway) allowedOrigin(ctx *fasthttp.RequestCtx) string {
	origin := string(ctx.Request.Header.Peek("Origin"))
	if origin != "" && slices.Contains(g.config.CORSOrigins, origin) {
		return origin
	}
	if origin != "" && slices.Contains(g.config.CORSOrigins, "*") {
		return "*"
	}
	return ""
}

// options answers OPTIONS where there is a path, whose Allow the router has set. It is also what a
// browser asks before it lets a page call.
func (g *Gateway) options(ctx *fasthttp.RequestCtx) {
	allow := string(ctx.Response.Header.Peek("Allow"))
	h := &ctx.Response.Header
	if len(ctx.Request.Header.Peek("Access-Control-Request-Method")) > 0 &&
		g.allowedOrigin(ctx) != "" {
		h.Set("Access-Control-Allow-Methods", allow)
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, "+
			"If-None-Match, "+headerKey+", "+headerRequestID)
		h.Set("Access-Control-Max-Age", "600")
	}
	ctx.Response.SetStatusCode(http.StatusNoContent)
	g.seal(ctx)
}
