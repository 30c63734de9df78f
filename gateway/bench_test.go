package gateway

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"numera/engine/inventory"
)

// answering is Shards that have the answer to every command ready.
type answering struct {
	Shards
	o *inventory.Outcome
}

func (a answering) Do(context.Context, inventory.Entry) (*inventory.Outcome, error) {
	return a.o, nil
}

// BenchmarkCreateOrder measures what the gateway itself costs an order over HTTP, from the parsed
// request to the written response, with shards that answer at once. The constant handler is what
// no gateway could be faster than.
func BenchmarkCreateOrder(b *testing.B) {
	decided := &inventory.Outcome{AtUnixMilli: testTime, Order: testOrder()}
	g, err := New(Config{TokenSecret: []byte(strings.Repeat("s", 32))}, answering{o: decided})
	require.NoError(b, err)
	token, _, _, err := g.authority.session()
	require.NoError(b, err)
	body := `{"items":[{"product":"rifa-1","numbers":[17,4271]},` +
		`{"product":"rifa-1","quantity":3,"pick":"random"}],"partial":false}`
	run := func(b *testing.B, handler fasthttp.RequestHandler) {
		var ctx fasthttp.RequestCtx
		ctx.Init(&fasthttp.Request{}, nil, nil)
		ctx.Request.Header.SetMethod("POST")
		ctx.Request.SetRequestURI("/v1/orders")
		ctx.Request.Header.Set("Authorization", "Bearer "+token)
		ctx.Request.Header.Set(headerKey, "0197a0f2-2f0f-7bd0-9d3c-8f1f6a4c1f11")
		ctx.Request.Header.Set("Content-Type", "application/json")
		ctx.Request.SetBodyString(body)
		b.ReportAllocs()
		for b.Loop() {
			ctx.Response.Reset()
			handler(&ctx)
		}
		require.Equal(b, 201, ctx.Response.StatusCode(), "%s", ctx.Response.Body())
	}
	b.Run("gateway", func(b *testing.B) { run(b, g.server.Handler) })
	b.Run("constant", func(b *testing.B) {
		answer := appendOrderAnswer(nil, testOrder(), testTime)
		run(b, func(ctx *fasthttp.RequestCtx) {
			ctx.Response.SetStatusCode(201)
			ctx.Response.Header.Set("Content-Type", typeJSON)
			ctx.Response.SetBody(answer)
		})
	})
}
