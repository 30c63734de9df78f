package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

const (
	adminToken   = "admin-token"
	serviceToken = "service-token"
)

// memory is Shards for tests of the transports: it accepts every command that passes its Check,
// answers with one order and one product, and fails as it is told. It sells nothing.
type memory struct {
	mu      sync.Mutex
	asked   int                // how often a shard would have been asked
	last    inventory.Command  // the last command, a copy
	outcome *inventory.Outcome // what is answered, if set
	err     error              // what is answered, if set
	hold    chan struct{}      // if set, commands and reads of orders wait for it, or their context
	held    chan struct{}      // gets one value for each that waits
	pages   []*wire.OrdersPage // what Orders answers in turn; a nil page is an error
	taken   []byte
}

var errPageLost = &net.AddrError{Err: "the page is lost", Addr: "test"}

func (m *memory) Do(ctx context.Context, e inventory.Entry) (*inventory.Outcome, error) {
	if refusal := e.Command.Check(); refusal != nil {
		return refusal, nil
	}
	copied, _, err := inventory.DecodeEntry(inventory.AppendEntry(nil, e))
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.asked++
	m.last = copied.Command
	outcome, failed := m.outcome, m.err
	m.mu.Unlock()
	if err := m.wait(ctx); err != nil {
		return nil, err
	}
	if outcome != nil || failed != nil {
		return outcome, failed
	}
	return &inventory.Outcome{AtUnixMilli: testTime, Order: testOrder(), Product: testProduct()}, nil
}

// wait is for hold, where that is set.
func (m *memory) wait(ctx context.Context) error {
	m.mu.Lock()
	hold := m.hold
	m.mu.Unlock()
	if hold == nil {
		return nil
	}
	m.held <- struct{}{}
	select {
	case <-hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *memory) read() (*inventory.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.outcome != nil || m.err != nil {
		return m.outcome, m.err
	}
	return &inventory.Outcome{AtUnixMilli: testTime, Order: testOrder(), Product: testProduct()}, nil
}

func (m *memory) Order(ctx context.Context, _ wire.OrderQuery) (*inventory.Outcome, error) {
	if err := m.wait(ctx); err != nil {
		return nil, err
	}
	return m.read()
}

func (m *memory) Product(
	_ context.Context, q wire.ProductQuery,
) (*inventory.Outcome, error) {
	if !q.Product.Valid() {
		return &inventory.Outcome{Code: inventory.CodeProductNotFound}, nil
	}
	return m.read()
}

func (m *memory) Numbers(
	_ context.Context, q wire.NumbersQuery,
) (*wire.Numbers, *inventory.Outcome, error) {
	if _, err := m.read(); err != nil {
		return nil, nil, err
	}
	to := uint32(100)
	if q.Limit != 0 {
		to = min(to, max(q.From, 1)+q.Limit-1)
	}
	return &wire.Numbers{
		AtUnixMilli: testTime, Version: 7, From: max(q.From, 1), To: to, Taken: m.taken,
	}, nil, nil
}

func (m *memory) Orders(
	context.Context, wire.OrdersQuery,
) (*wire.OrdersPage, *inventory.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if len(m.pages) == 0 {
		return &wire.OrdersPage{AtUnixMilli: testTime}, nil, nil
	}
	page := m.pages[0]
	m.pages = m.pages[1:]
	if page == nil {
		return nil, nil, errPageLost
	}
	return page, nil, nil
}

func (m *memory) Ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

const testTime = 1_795_000_000_123

func testOrder() *inventory.OrderView {
	return &inventory.OrderView{
		ID:     inventory.MakeOrderID(1, testTime, inventory.KeyHash{1, 2, 3}),
		Status: inventory.StatusReserved, Buyer: "b-123",
		Items: []inventory.ItemView{{
			Product: "rifa-1", Numbers: []uint32{9, 17, 4271},
			UnitPrice: inventory.Money{Amount: 1990, Currency: "BRL"},
		}},
		CreatedUnixMilli: testTime, ExpiresUnixMilli: testTime + 1_800_000,
	}
}

func testProduct() *inventory.ProductView {
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count = "Rifa \"Nº 1\"", 1_000_000
	settings.Price = inventory.Money{Amount: 1990, Currency: "BRL"}
	settings.ClosesAtUnixMilli = testTime
	return &inventory.ProductView{
		ID: "rifa-1", Settings: settings, Version: 7,
		Counters: inventory.Counters{Count: 1_000_000, Available: 999_999, Reserved: 1},
	}
}

// errorLog fails the test when something is logged as an error.
type errorLog struct {
	slog.Handler
	t       *testing.T
	allowed *sync.Map // messages
}

func (l errorLog) Enabled(context.Context, slog.Level) bool { return true }

func (l errorLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		if _, ok := l.allowed.Load(r.Message); !ok {
			l.t.Errorf("logged as an error: %s", r.Message)
		}
	}
	return l.Handler.Handle(ctx, r)
}

// gate is a gateway that serves on both transports.
type gate struct {
	*Gateway
	t       *testing.T
	shards  *memory
	http    string // http://address
	address string
	nats    *nats.Conn
	allowed *sync.Map // error messages that may be logged
	client  *http.Client
}

func open(t *testing.T, change func(*Config)) *gate {
	t.Helper()
	taken, err := roaring.BitmapOf(17, 40, 41, 42, 52).ToBytes()
	require.NoError(t, err)
	g := &gate{
		t: t, allowed: &sync.Map{},
		shards: &memory{held: make(chan struct{}, 10_000), taken: taken},
	}
	config := Config{
		TokenSecret: []byte(strings.Repeat("s", 32)), AdminToken: adminToken,
		ServiceToken: serviceToken, Payments: &till{}, Desk: counter{},
		Log: slog.New(errorLog{slog.DiscardHandler, t, g.allowed}),
	}
	if change != nil {
		change(&config)
	}
	g.Gateway, err = New(config, g.shards)
	require.NoError(t, err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	g.address = listener.Addr().String()
	g.http = "http://" + g.address
	transport := &http.Transport{}
	g.client = &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	g.nats = busFor(t)
	require.NoError(t, g.ServeNATS(g.nats))
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
		require.NoError(t, <-served)
	})
	return g
}

// busFor starts a NATS server of the test's own and connects to it.
func busFor(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, MaxPayload: 1 << 20,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(20*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// asking is one request, for either transport.
type asking struct {
	subject string
	params  map[string]string // of path and query
	body    string
	token   string
	key     string
	header  map[string]string
}

// reply is what came back, from either transport.
type reply struct {
	status int
	header map[string]string
	body   []byte
}

func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal(r.body, &members), "%s", r.body)
	return members
}

func (r reply) code(t *testing.T) string {
	t.Helper()
	name, _ := r.json(t)["code"].(string)
	return name
}

func operationOf(t *testing.T, subject string) *operation {
	t.Helper()
	for i := range operations {
		if operations[i].subject == subject {
			return &operations[i]
		}
	}
	t.Fatalf("there is no operation %s", subject)
	return nil
}

// overHTTP asks by HTTP.
func (g *gate) overHTTP(a asking) reply {
	g.t.Helper()
	op := operationOf(g.t, a.subject)
	path, query := op.path, url.Values{}
	for _, m := range op.members {
		value, ok := a.params[m.name]
		switch {
		case !ok:
		case m.place == inPath:
			path = strings.ReplaceAll(path, "{"+m.name+"}", url.PathEscape(value))
		default:
			query.Set(m.name, value)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return g.request(op.method, path, a)
}

func (g *gate) request(method, path string, a asking) reply {
	g.t.Helper()
	r, err := http.NewRequest(method, g.http+path, bytes.NewReader([]byte(a.body)))
	require.NoError(g.t, err)
	if a.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	if a.key != "" {
		r.Header.Set(headerKey, a.key)
	}
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	response, err := g.client.Do(r)
	require.NoError(g.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(g.t, err)
	header := map[string]string{}
	for name, values := range response.Header {
		header[name] = strings.Join(values, ", ")
	}
	return reply{response.StatusCode, header, body}
}

// overNATS asks by NATS. Parameters become members of the body, in front of the others.
func (g *gate) overNATS(a asking) reply {
	g.t.Helper()
	msg := nats.NewMsg(subjectPrefix + a.subject)
	msg.Data = []byte(withParameters(g.t, operationOf(g.t, a.subject), a))
	if a.token != "" {
		msg.Header.Set("Authorization", "Bearer "+a.token)
	}
	if a.key != "" {
		msg.Header.Set(headerKey, a.key)
	}
	for name, value := range a.header {
		msg.Header.Set(name, value)
	}
	answer, err := g.nats.RequestMsg(msg, 20*time.Second)
	require.NoError(g.t, err)
	status, err := strconv.Atoi(answer.Header.Get(headerStatus))
	require.NoError(g.t, err)
	header := map[string]string{}
	for name := range answer.Header {
		header[name] = answer.Header.Get(name)
	}
	return reply{status, header, answer.Data}
}

func withParameters(t *testing.T, op *operation, a asking) string {
	t.Helper()
	if len(a.params) == 0 {
		return a.body
	}
	members := map[string]any{}
	for name, value := range a.params {
		members[name] = value
		if i := find(op.members, name); i >= 0 && op.members[i].schema["type"] == "integer" {
			members[name] = json.RawMessage(value)
		}
	}
	encoded, err := json.Marshal(members)
	require.NoError(t, err)
	rest, isObject := strings.CutPrefix(strings.TrimSpace(a.body), "{")
	switch {
	case a.body == "":
		return string(encoded)
	case !isObject:
		return a.body
	case strings.TrimSpace(rest) == "}":
		return string(encoded)
	}
	return strings.TrimSuffix(string(encoded), "}") + "," + rest
}

// both asks over both transports and makes sure that they agree.
func (g *gate) both(a asking) reply {
	g.t.Helper()
	overHTTP, overNATS := g.overHTTP(a), g.overNATS(a)
	require.Equal(g.t, overHTTP.status, overNATS.status, "%s\n%s", overHTTP.body, overNATS.body)
	require.Equal(g.t, steady(overHTTP.body), steady(overNATS.body))
	return overHTTP
}

// steady is a body without what differs from one asking to the next.
func steady(body []byte) string {
	var members map[string]any
	if json.Unmarshal(body, &members) != nil {
		return string(body)
	}
	if _, isProblem := members["code"]; isProblem {
		delete(members, "server_time")
		delete(members, "offset") // counts the parameters in the body on NATS
		delete(members, "detail") // says where it came from
	}
	out, _ := json.Marshal(members)
	return string(out)
}

func (g *gate) session() (token, buyer string) {
	g.t.Helper()
	r := g.overHTTP(asking{subject: "sessions.create"})
	require.Equal(g.t, 201, r.status, "%s", r.body)
	members := r.json(g.t)
	return members["token"].(string), members["buyer"].(string)
}
