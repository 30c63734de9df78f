package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// Shards is where the gateway asks. Every method may be called by any number of goroutines, ends
// by the deadline of its context, and keeps nothing it was given. Errors are those of package
// shards; an error from Do that is none of them counts as an unknown outcome.
type Shards interface {
	// Do has a command decided, and ends in seconds also without a deadline. What fails its Check is
	// refused without asking anyone.
	Do(ctx context.Context, e inventory.Entry) (*inventory.Outcome, error)
	Order(ctx context.Context, q wire.OrderQuery) (*inventory.Outcome, error)
	Product(ctx context.Context, q wire.ProductQuery) (*inventory.Outcome, error)
	// Numbers and Orders answer with exactly one of their two results, or an error.
	Numbers(ctx context.Context, q wire.NumbersQuery) (*wire.Numbers, *inventory.Outcome, error)
	Orders(ctx context.Context, q wire.OrdersQuery) (*wire.OrdersPage, *inventory.Outcome, error)
	// Ready is nil when every shard has a leader, and else names those that have none.
	Ready(ctx context.Context) error
}

// Gateway serves the API. Its methods may be called by any goroutine.
type Gateway struct {
	config    Config
	shards    Shards
	log       *slog.Logger
	authority *authority
	throttle  *throttle // nil: no rate limit
	metrics   *metrics
	document  []byte // openapi.json
	server    *fasthttp.Server

	paying   chan struct{}  // one for each payment under way
	payments *crew          // runs them
	failures rate.Sometimes // how often one is logged

	// base is the context of everything under way. It ends when Close gives up waiting.
	base context.Context
	stop context.CancelFunc

	mu       sync.Mutex
	closed   bool
	services []*natsService
}

// New makes a gateway that asks shards. It starts nothing.
func New(config Config, shards Shards) (*Gateway, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Gateway{
		config:    config,
		shards:    shards,
		log:       config.Log,
		authority: newAuthority(&config),
		throttle:  newThrottle(&config),
		paying:    make(chan struct{}, config.Paying),
	}
	var err error
	if g.metrics, err = newMetrics(config.Registry); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if g.document, err = openAPI(); err != nil {
		return nil, fmt.Errorf("gateway: write the OpenAPI document: %w", err)
	}
	g.failures = rate.Sometimes{First: 10, Interval: time.Second}
	g.base, g.stop = context.WithCancel(context.Background())
	g.payments = newCrew(g.base.Done())
	g.server = g.newServer()
	return g, nil
}

// Serve answers HTTP on the listener until Close, and closes it. It returns nil after Close.
func (g *Gateway) Serve(listener net.Listener) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		return errors.Join(ErrClosed, listener.Close())
	}
	if err := g.server.Serve(refuseBeyond(listener, g.config.Connections)); err != nil {
		return fmt.Errorf("gateway: serve HTTP: %w", err)
	}
	return nil
}

// Close stops taking requests, waits for those under way until ctx ends, and then cuts them off.
// It returns the error of ctx if it had to.
func (g *Gateway) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	services := g.services
	g.services = nil
	g.mu.Unlock()

	defer g.payments.wait()
	defer g.stop()
	var failed []error
	for _, service := range services {
		failed = append(failed, service.close(ctx))
	}
	if err := g.server.ShutdownWithContext(ctx); err != nil {
		failed = append(failed, fmt.Errorf("gateway: stop HTTP: %w", err))
	}
	return errors.Join(failed...)
}

// now is the gateway's own time, for answers that no log time decided.
func (g *Gateway) now() int64 { return g.config.Now().UnixMilli() }

// deadline bounds one request.
func (g *Gateway) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(g.base, g.config.Timeout)
}

const defaultTimeout = 5 * time.Second
