package order_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
	"numera/gateway/payment"
	"numera/gateway/payment/simulator"
	"numera/gateway/shards"
	"numera/shard"
	"numera/shard/clock"
	"numera/shard/wire"
)

// engine is a real shard node behind a real NATS server, in this process, for all tests.
var engine struct {
	client   *shards.Client
	products atomic.Int64
}

func TestMain(m *testing.M) {
	stop, err := startEngine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := postgrestest.Run(m)
	stop()
	os.Exit(status)
}

func startEngine() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "numera-order-")
	if err != nil {
		return nil, err
	}
	bus, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, err
	}
	bus.Start()
	if !bus.ReadyForConnections(30 * time.Second) {
		return nil, errors.New("NATS does not start")
	}
	conn, err := nats.Connect("", nats.InProcessServer(bus), nats.ReconnectBufSize(-1),
		nats.Timeout(30*time.Second))
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	node, err := shard.Open(shard.Config{
		Dir: dir, Shards: 2, Conn: conn, Clock: clock.New(clock.NewSystem(), quiet), Logger: quiet,
		ElectionTimeout: 100 * time.Millisecond, MemTableBytes: 4 << 20,
		OnFault: func(err error) { panic(err) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := node.Ready(ctx); err != nil {
		return nil, err
	}
	if engine.client, err = shards.New(conn, shards.Config{}); err != nil {
		return nil, err
	}
	return func() {
		engine.client.Close()
		_ = node.Close()
		conn.Close()
		bus.Shutdown()
		bus.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}, nil
}

// market is a checkout with all that it needs, and nothing in it pretends: a database, a provider
// over HTTP, and the engine.
type market struct {
	t        testing.TB
	pool     *pgxpool.Pool
	store    *postgres.Payments
	psp      *simulator.Server
	second   *simulator.Server // another provider, if it has been asked for
	provider payment.Provider
	config   order.Config
	checkout *order.Checkout
	product  inventory.ProductID
	webhooks atomic.Pointer[order.Checkout] // takes what the provider sends
	jobs     *prometheus.Registry           // counts those of work
	orders   int
}

const (
	price     = 1990
	secret    = "webhook-secret"
	tenant    = "loja"
	accountID = "acct_test"
	patience  = 50 * time.Millisecond

	payPatience = time.Minute // of a machine with much else to do
)

// open makes a market. settings may change the product's settings, and the config.
func open(t testing.TB, change ...func(*inventory.Settings, *order.Config)) *market {
	t.Helper()
	m := &market{t: t, pool: postgrestest.New(t)}
	m.store = postgres.NewPayments(m.pool, patience)
	m.psp, m.provider = m.startProvider("simulator")
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count = "test", 100
	settings.Price = inventory.Money{Amount: price, Currency: "BRL"}
	m.config = order.Config{
		Engine: engine.client, Store: m.store, Patience: patience, CallTimeout: 2 * time.Second,
		Accounts: map[string][]order.Account{tenant: {{Provider: m.provider, ID: accountID}}},
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(&settings, &m.config)
	}
	m.checkout = m.newCheckout()
	m.product = inventory.ProductID(fmt.Sprint("p", engine.products.Add(1)))
	m.do(&inventory.PutProduct{Product: m.product, Settings: settings})
	return m
}

// startProvider runs a simulator over HTTP, whose webhooks come to m.webhooks, if that is set.
func (m *market) startProvider(name string) (*simulator.Server, payment.Provider) {
	m.t.Helper()
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checkout := m.webhooks.Load()
		body, err := io.ReadAll(r.Body)
		if err != nil || checkout == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		switch err := checkout.Webhook(r.Context(), tenant, name, r.Header.Get, body); {
		case errors.Is(err, payment.ErrSignature):
			w.WriteHeader(http.StatusUnauthorized)
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	psp, err := simulator.New(simulator.Config{
		Account: accountID, WebhookURL: hooks.URL, WebhookSecrets: []string{secret},
	})
	require.NoError(m.t, err)
	api := httptest.NewServer(psp)
	client := simulator.NewClient(simulator.ClientConfig{
		Name: name, URL: api.URL, WebhookSecrets: []string{secret},
	})
	m.t.Cleanup(func() {
		client.Close()
		require.NoError(m.t, psp.Close())
		api.Close()
		hooks.Close()
	})
	return psp, client
}

func (m *market) newCheckout() *order.Checkout {
	m.t.Helper()
	checkout, err := order.New(m.config)
	require.NoError(m.t, err)
	return checkout
}

func (m *market) do(c inventory.Command) *inventory.Outcome {
	m.t.Helper()
	outcome, err := engine.client.Do(m.t.Context(), inventory.Entry{Command: c})
	require.NoError(m.t, err)
	require.Equal(m.t, inventory.CodeOK, outcome.Code, "%+v", outcome.Refusal)
	return outcome
}

// reserve makes an order of so many numbers.
func (m *market) reserve(quantity uint32) inventory.OrderID {
	m.t.Helper()
	m.orders++
	return m.do(&inventory.Reserve{
		Tenant: tenant, Key: strconv.Itoa(m.orders), Buyer: "b-1",
		Lines: []inventory.Line{{Product: m.product, Quantity: quantity}},
	}).Order.ID
}

func (m *market) order(id inventory.OrderID) *inventory.OrderView {
	m.t.Helper()
	outcome, err := engine.client.Order(m.t.Context(), wire.OrderQuery{Order: id})
	require.NoError(m.t, err)
	require.Equal(m.t, inventory.CodeOK, outcome.Code)
	return outcome.Order
}

// request asks to pay.
func request(id inventory.OrderID, key string, method payment.Method) order.PayRequest {
	r := order.PayRequest{Tenant: tenant, Order: id, By: "b-1", Key: key, Method: method}
	r.Payer = payment.Payer{Name: "Ana", Email: "ana@example.com", Document: "00000000191"}
	if method == payment.MethodCard {
		r.CardToken = "tok_1"
	}
	return r
}

func (m *market) pay(r order.PayRequest) order.Payment {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), payPatience)
	defer cancel()
	p, replay, err := m.checkout.Pay(ctx, r)
	require.NoError(m.t, err)
	require.False(m.t, replay)
	return p
}

func (m *market) payment(id inventory.PaymentID) order.Payment {
	m.t.Helper()
	p, err := m.store.Payment(m.t.Context(), id)
	require.NoError(m.t, err)
	return p
}

// settle is every worker of a healthy system: it moves what stands still until everything rests.
func (m *market) settle() {
	m.t.Helper()
	checkout := m.newCheckout()
	for range 200 {
		if m.round(checkout) == 0 {
			return
		}
	}
	m.t.Fatal("payments do not come to rest")
}

// round moves once what is not at rest, and says how much that was.
func (m *market) round(checkout *order.Checkout) (moving int) {
	m.t.Helper()
	ctx := m.t.Context()
	for _, id := range m.column(`SELECT id FROM payments WHERE status <> ALL ($1)
		OR status = 'pending' AND due_at <= now()`, m.resting()) {
		moving++
		if err := checkout.Advance(ctx, inventory.PaymentID(id)); err != nil {
			m.t.Log(id, err)
		}
	}
	for _, id := range m.column(`SELECT id FROM payments WHERE status = 'review'`) {
		moving++ // an admin decides
		_, err := checkout.Review(ctx, inventory.PaymentID(id), true, "admin")
		require.NoError(m.t, err)
	}
	for _, id := range m.column(`SELECT id FROM refunds WHERE NOT whole
		AND status IN ('requested', 'pending')`) {
		moving++
		if err := checkout.AdvanceRefund(ctx, id); err != nil {
			m.t.Log(id, err)
		}
	}
	return moving
}

func (m *market) resting() (statuses []string) {
	for _, status := range order.Statuses() {
		if status.Rests() {
			statuses = append(statuses, string(status))
		}
	}
	return statuses
}

func (m *market) column(sql string, args ...any) (values []string) {
	m.t.Helper()
	rows, err := m.pool.Query(m.t.Context(), sql, args...)
	require.NoError(m.t, err)
	for rows.Next() {
		var value string
		require.NoError(m.t, rows.Scan(&value))
		values = append(values, value)
	}
	require.NoError(m.t, rows.Err())
	return values
}

func (m *market) count(sql string, args ...any) (n int) {
	m.t.Helper()
	require.NoError(m.t, m.pool.QueryRow(m.t.Context(), sql, args...).Scan(&n))
	return n
}

// audit is the oracle: what the provider, Postgres and the engine say of an order has to agree, and
// the money with it. It says how much of the order's price the provider has.
func (m *market) audit(id inventory.OrderID) (kept int64) {
	m.t.Helper()
	o := m.order(id)
	payments, err := m.store.OfOrder(m.t.Context(), id)
	require.NoError(m.t, err)
	paying, held := 0, 0
	for _, p := range payments {
		require.True(m.t, p.Status.Rests(), "%s: %s", p.ID, p.Status)
		charges := m.psp.Payment(string(p.ID))
		if m.second != nil {
			charges = append(charges, m.second.Payment(string(p.ID))...)
		}
		require.LessOrEqual(m.t, len(charges), 1, "%s was charged twice", p.ID)
		for _, c := range charges {
			if c.Status == payment.StatusAuthorised {
				held++
			}
			kept += c.Captured - c.Refunded
			require.Equal(m.t, c.Captured, p.Captured, "%s of %s", p.Status, p.ID)
			require.Equal(m.t, c.Refunded, p.Refunded, "%s of %s", p.Status, p.ID)
			require.Equal(m.t, c.ID, p.Reference)
		}
		if len(charges) == 0 {
			require.Zero(m.t, p.Captured)
		}
		if p.ID == o.Payment && (p.Status == order.StatusCaptured || p.Status == order.StatusConfirmed) {
			paying++
		}
	}
	require.GreaterOrEqual(m.t, kept, int64(0))
	require.LessOrEqual(m.t, kept, o.Total().Amount)
	switch {
	case o.Status.Sold():
		require.Equal(m.t, 1, paying, "payments of an order that is %v", o.Status)
		require.LessOrEqual(m.t, held, 1)
	case o.Status == inventory.StatusReserved:
		require.Empty(m.t, payments)
	case o.Status.Live(), o.Status == inventory.StatusRefundPending:
		m.t.Fatalf("order is %v, payments %+v", o.Status, payments)
	}
	if !o.Status.Sold() {
		require.Zero(m.t, kept, "money of an order that is %v", o.Status)
		require.Zero(m.t, held, "an authorisation of an order that is %v", o.Status)
	}
	return kept
}

// together runs f so many times at once.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
