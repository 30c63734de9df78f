package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/shards"
)

func TestPathsAreTakenLiterally(t *testing.T) {
	g := open(t, nil)
	for _, path := range []string{
		"/", "/v1", "/v1/orders/", "/v1/products/rifa-1/", "/V1/products/rifa-1",
		"/v1//products/rifa-1", "/v1/products/rifa-1/../rifa-1", "/v1/./products/rifa-1",
		"/v1/products/a%2Fnumbers/numbers/x", "/healthz/", "/v1/admin",
	} {
		r := g.request("GET", path, asking{token: adminToken})
		require.Equal(t, 404, r.status, path)
		require.Equal(t, "not_found", r.code(t), path)
		require.NotEmpty(t, r.header[headerServerTime], path)
		require.NotEmpty(t, r.header[headerRequestID], path)
	}
	for path, allow := range map[string]string{
		"/v1/orders": "OPTIONS, POST", "/v1/products/rifa-1": "GET, HEAD, OPTIONS",
		"/v1/orders/x": "DELETE, GET, HEAD, OPTIONS", "/healthz": "GET, HEAD, OPTIONS",
		"/v1/admin/products/x": "GET, HEAD, OPTIONS, PUT",
	} {
		for _, method := range []string{"PATCH", "TRACE", "PURGE"} {
			r := g.request(method, path, asking{token: adminToken})
			require.Equal(t, 405, r.status, path)
			require.Equal(t, "method_not_allowed", r.code(t))
			require.Equal(t, allow, r.header["Allow"])
		}
		r := g.request("OPTIONS", path, asking{})
		require.Equal(t, 204, r.status)
		require.Equal(t, allow, r.header["Allow"])
		require.Empty(t, r.header["Access-Control-Allow-Origin"])
	}
}

func TestHeadIsWhereverGetIs(t *testing.T) {
	g := open(t, nil)
	paths := []string{"/healthz", "/readyz", "/openapi.json"}
	for i := range operations {
		if operations[i].method == "GET" {
			path := strings.ReplaceAll(operations[i].path, "{order}", testOrder().ID.String())
			paths = append(paths, strings.ReplaceAll(path, "{product}", "rifa-1"))
		}
	}
	for _, path := range paths {
		get := g.request("GET", path, asking{token: adminToken})
		head := g.request("HEAD", path, asking{token: adminToken})
		require.Equal(t, 200, get.status, path)
		require.Equal(t, get.status, head.status, path)
		require.Empty(t, head.body)
		require.Equal(t, get.header["Content-Type"], head.header["Content-Type"])
		require.Equal(t, fmt.Sprint(len(get.body)), head.header["Content-Length"], path)
	}
	head := g.request("HEAD", "/v1/admin/products/rifa-1/orders",
		asking{token: adminToken, header: map[string]string{"Accept": "text/csv"}})
	require.Equal(t, 200, head.status)
	require.Equal(t, 404, g.request("HEAD", "/nothing", asking{}).status)
}

func TestRequestIDIsTheCallersIfSane(t *testing.T) {
	g := open(t, nil)
	ask := asking{subject: "products.get", params: aProduct}
	ask.header = map[string]string{headerRequestID: "req-1"}
	require.Equal(t, "req-1", g.overHTTP(ask).header[headerRequestID])
	require.Equal(t, "req-1", g.overNATS(ask).header[headerRequestID])
	for _, id := range []string{"a b", strings.Repeat("i", 129), "é"} {
		ask.header[headerRequestID] = id
		made := g.overHTTP(ask).header[headerRequestID]
		require.Len(t, made, 32)
		require.NotEqual(t, made, g.overHTTP(ask).header[headerRequestID])
	}
}

func TestMediaTypes(t *testing.T) {
	g := open(t, nil)
	ask := minimal(operationOf(t, "orders.create"))
	ask.token = adminToken
	for contentType, status := range map[string]int{
		"application/json": 201, "Application/JSON; charset=utf-8": 201,
		`application/json;charset="UTF-8"`: 201, "application/json; charset=latin1": 415,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "application/jsonp": 415,
		"multipart/form-data; boundary=x": 415, "": 415,
	} {
		ask.header = map[string]string{"Content-Type": contentType}
		r := g.overHTTP(ask)
		require.Equal(t, status, r.status, "%s: %s", contentType, r.body)
	}
	ask.header = map[string]string{"Content-Encoding": "gzip"}
	require.Equal(t, "unsupported_media_type", g.overHTTP(ask).code(t))
	// Where no body is needed none is fine whatever it says it is.
	extend := asking{
		subject: "orders.extend", params: anOrder, token: adminToken,
		header: map[string]string{"Content-Type": "text/plain"},
	}
	require.Equal(t, 200, g.overHTTP(extend).status)
	extend.body = "{}"
	require.Equal(t, 415, g.overHTTP(extend).status)
}

func TestOversizeIsRefused(t *testing.T) {
	g := open(t, nil)
	ask := minimal(operationOf(t, "orders.create"))
	ask.token = adminToken
	ask.body += strings.Repeat(" ", maxBody-len(ask.body))
	require.Equal(t, 201, g.both(ask).status)
	ask.body += " "
	for _, r := range []reply{g.overHTTP(ask), g.overNATS(ask)} {
		require.Equal(t, 413, r.status)
		require.Equal(t, "payload_too_large", r.code(t))
		require.NotEmpty(t, r.header[headerServerTime])
		require.NotEmpty(t, r.header[headerRequestID])
	}
	r := g.request("GET", "/healthz", asking{header: map[string]string{"X-Long": strings.Repeat("x", 9000)}})
	require.Equal(t, 431, r.status)
	require.Equal(t, "header_too_large", r.code(t))

	raw := g.exchange("nonsense\r\n\r\n")
	require.Contains(t, raw, " 400 ")
	require.Contains(t, raw, typeProblem)
	raw = g.exchange("POST /v1/orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"fffff\r\n" + strings.Repeat("x", 1<<17))
	require.Contains(t, raw, " 413 ")
	require.Contains(t, raw, typeProblem)
	// Whoever sends all of it before reading gets the answer too, and not a reset.
	for range 20 {
		raw = g.exchange("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" +
			strings.Repeat("x", 1<<20))
		require.Contains(t, raw, " 413 ")
	}
}

// exchange sends bytes on a connection of its own and reads until the gateway closes it.
func (g *gate) exchange(request string) string {
	g.t.Helper()
	conn := g.dial()
	_, err := io.WriteString(conn, request)
	require.NoError(g.t, err)
	require.NoError(g.t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(g.t, err)
	return string(answer)
}

func (g *gate) dial() net.Conn {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.address)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(g.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

func TestSlowSendersAreCutOffAndHurtNobody(t *testing.T) {
	g := open(t, func(c *Config) { c.ReadTimeout = 300 * time.Millisecond })
	cut := make(chan string, 200)
	for range cap(cut) {
		conn := g.dial()
		_, err := io.WriteString(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nX-")
		require.NoError(t, err)
		go func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			go func() { // until the connection is closed
				for range tick.C {
					if _, err := io.WriteString(conn, "a"); err != nil {
						return
					}
				}
			}()
			answer, _ := io.ReadAll(conn)
			_ = conn.Close()
			cut <- string(answer)
		}()
	}
	require.Equal(t, 200, g.overHTTP(asking{subject: "products.get", params: aProduct}).status)
	for range cap(cut) {
		answer := <-cut
		require.Contains(t, answer, " 408 ")
		require.Contains(t, answer, typeProblem)
	}
}

func TestIdleConnectionsHurtNobody(t *testing.T) {
	g := open(t, nil)
	for range 2000 {
		g.dial()
	}
	for range 100 {
		require.Equal(t, 200, g.overHTTP(asking{subject: "products.get", params: aProduct}).status)
	}
}

func TestAConnectionTooManyIsToldSo(t *testing.T) {
	g := open(t, func(c *Config) { c.Connections = 2 })
	first, second := g.dial(), g.dial()
	for _, conn := range []net.Conn{first, second} { // both are served
		require.Equal(t, 200, statusOver(t, conn))
	}
	third, err := http.ReadResponse(bufio.NewReader(g.dial()), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(third.Body)
	require.NoError(t, err)
	require.Equal(t, 503, third.StatusCode)
	require.Equal(t, typeProblem, third.Header.Get("Content-Type"))
	require.Contains(t, string(body), `"code":"overloaded"`)
	require.Equal(t, "1", third.Header.Get("Retry-After"))
	for range 20 { // also to whoever asks before reading
		require.Contains(t, g.exchange("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), " 503 ")
	}
	require.Equal(t, 200, statusOver(t, first))

	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", g.address)
		require.NoError(t, err)
		defer conn.Close()
		return statusOver(t, conn) == 200
	}, 10*time.Second, 5*time.Millisecond)
}

func statusOver(t *testing.T, conn net.Conn) int {
	t.Helper()
	_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if err != nil {
		return 0
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestFailuresDoNotFloodTheLog: when something is down every request fails.
func TestFailuresDoNotFloodTheLog(t *testing.T) {
	var log bytes.Buffer
	g := open(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 1000 {
		g.logFailure(&call{op: operationOf(t, "orders.get")}, context.DeadlineExceeded)
	}
	require.Less(t, strings.Count(log.String(), "a request failed"), 100)
	require.Contains(t, log.String(), "operation=orders.get")
}

func TestWhatTheShardsCannotDo(t *testing.T) {
	g := open(t, nil)
	g.allowed.Store("a request failed", true)
	get := asking{subject: "orders.get", params: anOrder, token: adminToken}
	create := minimal(operationOf(t, "orders.create"))
	create.token = adminToken
	cases := []struct {
		err        error
		create     string
		get        string
		retryAfter string
	}{
		{&shards.OverloadedError{RetryAfter: 1500 * time.Millisecond}, "503 overloaded", "503 overloaded", "2"},
		{fmt.Errorf("wrapped: %w", &shards.UnavailableError{}), "503 unavailable", "503 unavailable", "1"},
		{shards.ErrClosed, "503 unavailable", "503 unavailable", "1"},
		{shards.ErrOutcomeUnknown, "503 outcome_unknown", "500 internal", ""},
		{context.DeadlineExceeded, "503 outcome_unknown", "503 unavailable", "1"},
		{errors.New("whatever"), "503 outcome_unknown", "500 internal", ""},
		{shards.ErrInvalid, "500 internal", "500 internal", ""},
	}
	for _, c := range cases {
		g.shards.set(func() { g.shards.err = c.err })
		r := g.both(create)
		require.Equal(t, c.create, fmt.Sprint(r.status, " ", r.code(t)), c.err)
		r = g.both(get)
		require.Equal(t, c.get, fmt.Sprint(r.status, " ", r.code(t)), c.err)
		if c.retryAfter != "" {
			require.Equal(t, c.retryAfter, r.header["Retry-After"])
		}
	}
}

func TestAPanicIsAnAnswer(t *testing.T) {
	g := open(t, nil)
	g.allowed.Store("a request broke the gateway", true)
	g.shards.set(func() { g.shards.outcome = &inventory.Outcome{} }) // accepted, but no order
	r := g.both(asking{subject: "orders.get", params: anOrder, token: adminToken})
	require.Equal(t, 500, r.status)
	require.Equal(t, "internal", r.code(t))
	g.shards.set(func() { g.shards.outcome = nil })
	require.Equal(t, 200, g.both(asking{subject: "orders.get", params: anOrder, token: adminToken}).status)
}

func TestProductsAreCachedByVersion(t *testing.T) {
	g := open(t, nil)
	get := asking{subject: "products.get", params: aProduct, header: map[string]string{}}
	r := g.overHTTP(get)
	require.Equal(t, `W/"7"`, r.header["Etag"])
	require.Equal(t, "public, max-age=1", r.header["Cache-Control"])
	require.Equal(t, written(testTime), r.header[headerServerTime])
	for tag, status := range map[string]int{
		`W/"7"`: 304, `"7"`: 304, `W/"6", W/"7"`: 304, "*": 304, `W/"6"`: 200, "7": 200,
	} {
		get.header["If-None-Match"] = tag
		r := g.overHTTP(get)
		require.Equal(t, status, r.status, tag)
		require.Equal(t, `W/"7"`, r.header["Etag"])
		require.NotEmpty(t, r.header[headerServerTime])
	}
	r = g.overHTTP(asking{
		subject: "products.get-fresh", params: aProduct, token: adminToken,
		header: map[string]string{"If-None-Match": `W/"7"`},
	})
	require.Equal(t, 200, r.status)
	require.Equal(t, "no-store", r.header["Cache-Control"])
	require.Empty(t, r.header["Etag"])
}

func TestReplaysAndCreationsAreTold(t *testing.T) {
	g := open(t, nil)
	create := minimal(operationOf(t, "orders.create"))
	create.token = adminToken
	require.Empty(t, g.both(create).header[headerReplay])
	g.shards.set(func() {
		g.shards.outcome = &inventory.Outcome{
			Replay: true, Created: true, AtUnixMilli: testTime, Order: testOrder(), Product: testProduct(),
		}
	})
	for _, r := range []reply{g.overHTTP(create), g.overNATS(create)} {
		require.Equal(t, 201, r.status)
		require.Equal(t, "true", r.header[headerReplay])
		require.Equal(t, written(testTime), r.header[headerServerTime])
	}
	put := minimal(operationOf(t, "products.put"))
	put.token = adminToken
	require.Equal(t, 201, g.both(put).status)
	g.shards.set(func() { g.shards.outcome = nil })
	require.Equal(t, 200, g.both(put).status)
}

func TestCrossOriginOnlyWhereAllowed(t *testing.T) {
	g := open(t, func(c *Config) { c.CORSOrigins = []string{"https://shop.example"} })
	preflight := map[string]string{
		"Origin": "https://shop.example", "Access-Control-Request-Method": "POST",
	}
	r := g.request("OPTIONS", "/v1/orders", asking{header: preflight})
	require.Equal(t, 204, r.status)
	require.Equal(t, "https://shop.example", r.header["Access-Control-Allow-Origin"])
	require.Contains(t, r.header["Access-Control-Allow-Methods"], "POST")
	require.Contains(t, r.header["Access-Control-Allow-Headers"], headerKey)

	for _, path := range []string{"/v1/products/rifa-1", "/v1/nothing", "/metrics"} {
		r = g.request("GET", path, asking{header: map[string]string{"Origin": "https://shop.example"}})
		require.Equal(t, "https://shop.example", r.header["Access-Control-Allow-Origin"], path)
		require.Contains(t, r.header["Access-Control-Expose-Headers"], headerServerTime)
		require.Contains(t, r.header["Vary"], "Origin")
		r = g.request("GET", path, asking{header: map[string]string{"Origin": "https://evil.example"}})
		require.Empty(t, r.header["Access-Control-Allow-Origin"], path)
	}
	preflight["Origin"] = "https://evil.example"
	r = g.request("OPTIONS", "/v1/orders", asking{header: preflight})
	require.Empty(t, r.header["Access-Control-Allow-Origin"])
	require.Empty(t, r.header["Access-Control-Allow-Methods"])
}

func TestHealthReadinessAndMetrics(t *testing.T) {
	g := open(t, func(c *Config) {
		c.Degraded = func(context.Context) []string { return []string{"postgres"} }
	})
	require.Equal(t, 200, g.request("GET", "/healthz", asking{}).status)
	r := g.request("GET", "/readyz", asking{})
	require.Equal(t, 200, r.status)
	require.JSONEq(t, `{"degraded":["postgres"]}`, string(r.body))
	g.shards.set(func() { g.shards.err = errors.New("shard 3 has no leader") })
	r = g.request("GET", "/readyz", asking{})
	require.Equal(t, 503, r.status)
	require.Equal(t, []any{"shard 3 has no leader"}, r.json(t)["degraded"])
	require.Equal(t, "1", r.header["Retry-After"])
	g.shards.set(func() { g.shards.err = nil })

	token, buyer := g.session()
	create := minimal(operationOf(t, "orders.create"))
	create.token, create.body = token, `{"items":[{"product":"rifa-1","quantity":1}]}`
	require.Equal(t, 201, g.overHTTP(create).status)
	create.key = ""
	require.Equal(t, 400, g.overHTTP(create).status)
	require.Equal(t, 404, g.request("GET", "/secret-path", asking{}).status)
	shown := string(g.request("GET", "/metrics", asking{}).body)
	require.Contains(t, shown, `numera_gateway_admitted_total{operation="orders.create"} 1`)
	require.Contains(t, shown,
		`numera_gateway_refused_total{code="idempotency_key_missing",operation="orders.create"} 1`)
	require.Contains(t, shown, `numera_gateway_request_duration_seconds_count{operation="orders.create"} 2`)
	for _, secret := range []string{buyer, token, "secret-path", "rifa-1"} {
		require.NotContains(t, shown, secret)
	}
}

// underWay begins an order that the shards hold until release is closed.
func (g *gate) underWay(ask func(*gate, asking) reply) (answer chan reply, release chan struct{}) {
	answer, release = make(chan reply, 1), make(chan struct{})
	g.shards.set(func() { g.shards.hold = release })
	create := minimal(operationOf(g.t, "orders.create"))
	create.token = adminToken
	go func() { answer <- ask(g, create) }()
	<-g.shards.held
	return answer, release
}

var transports = map[string]func(*gate, asking) reply{
	"HTTP": (*gate).overHTTP, "NATS": (*gate).overNATS,
}

func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	for name, ask := range transports {
		t.Run(name, func(t *testing.T) {
			g := open(t, nil)
			answer, release := g.underWay(ask)
			closed := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				closed <- g.Close(ctx)
			}()
			require.Eventually(t, func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.closed
			}, 10*time.Second, time.Millisecond)
			close(release)
			require.Equal(t, 201, (<-answer).status)
			require.NoError(t, <-closed)
			require.ErrorIs(t, g.ServeNATS(g.nats), ErrClosed)
		})
	}
}

func TestCloseCutsOffWhatItCannotWaitFor(t *testing.T) {
	for name, ask := range transports {
		t.Run(name, func(t *testing.T) {
			g := open(t, nil)
			g.allowed.Store("a request failed", true)
			answer, release := g.underWay(ask)
			defer close(release)
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, g.Close(ctx), context.DeadlineExceeded)
			require.Equal(t, "outcome_unknown", (<-answer).code(t))
		})
	}
}

// TestEveryReadEndsByItsTimeout: commands are bounded by who sends them, see package shards.
func TestEveryReadEndsByItsTimeout(t *testing.T) {
	g := open(t, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	g.allowed.Store("a request failed", true)
	hold := make(chan struct{})
	defer close(hold)
	g.shards.set(func() { g.shards.hold = hold })
	get := minimal(operationOf(t, "orders.get"))
	get.token = adminToken
	r := g.both(get)
	require.Equal(t, 503, r.status)
	require.Equal(t, "unavailable", r.code(t))
}
