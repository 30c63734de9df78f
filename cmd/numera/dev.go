package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"numera/gateway"
	"numera/gateway/events"
	"numera/gateway/order/postgres"
	"numera/gateway/shards"
	"numera/shard"
	"numera/shard/clock"
)

// devCommand runs every role in one process, on loopback unless told otherwise.
type devCommand struct {
	Data    string `default:"data" type:"path" help:"Where everything durable is kept."`
	HTTP    string `name:"http" default:"127.0.0.1:8080" help:"Address of the HTTP API. Port 0 picks one."`
	NATS    string `name:"nats" default:"127.0.0.1:4222" help:"Address of the NATS server it starts. Port 0 picks one."`
	NATSURL string `name:"nats-url" help:"Join this NATS server instead of starting one."`
	Shards  int    `default:"0" help:"Number of shards, fixed when the data directory is made. 0: 8, or what it was made with."`

	Postgres  string        `placeholder:"DSN" help:"PostgreSQL for orders and payments. Default: a private one under the data directory, from the machine's own programs."`
	Reconcile time.Duration `default:"1m" help:"Pause between two comparisons of all orders with their rows. 0: never."`

	paymentFlags

	AdminToken   string   `help:"Bearer token of admins. Default: made from the data directory's secret, and printed."`
	ServiceToken string   `help:"Bearer token of services, likewise."`
	CORSOrigin   []string `name:"cors-origin" help:"Origins whose pages may call the API; * for any."`

	SnapshotEntries int        `default:"65536" help:"Log entries of a shard between two snapshots; more where snapshots are large."`
	LogLevel        slog.Level `default:"info" help:"debug, info, warn or error."`
}

// Run serves until ctx ends.
func (c *devCommand) Run(ctx context.Context, s *streams) error {
	d := &dev{command: c, log: s.logger(c.LogLevel), fault: make(chan error, 1)}
	if err := errors.Join(d.start(ctx), ctx.Err()); err != nil {
		d.stop()
		if ctx.Err() != nil {
			return nil // asked to stop while starting
		}
		return err
	}
	d.greet(s)
	select {
	case <-ctx.Done():
		return d.stop()
	case err := <-d.fault:
		// The storage cannot be trusted any more, and goroutines may hang in it: a clean stop is
		// neither possible nor needed. Everything acknowledged is on disk.
		return fmt.Errorf("stopped: %w", err)
	}
}

// dev is everything that runs, in the order of its start; it stops in reverse.
type dev struct {
	command *devCommand
	log     *slog.Logger
	fault   chan error

	benched bool // the payment simulator forgets when it ends, and is as fast as it can

	admin, service string // tokens
	http           net.Listener
	bus            *bus
	database       *database
	follower       *postgres.Follower
	desk           *desk
	stops          []func() error
}

// onStop adds what has to be done at the stop, before what was added earlier.
func (d *dev) onStop(f func() error) { d.stops = append(d.stops, f) }

func (d *dev) stop() error {
	var errs []error
	for i := len(d.stops) - 1; i >= 0; i-- {
		errs = append(errs, d.stops[i]())
	}
	d.stops = nil
	return errors.Join(errs...)
}

func (d *dev) start(ctx context.Context) error {
	c := d.command
	// Others may enter, not look: PostgreSQL runs as a user of its own when root starts it.
	if err := os.MkdirAll(c.Data, 0o711); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	var err error
	if d.http, err = net.Listen("tcp", c.HTTP); err != nil {
		return fmt.Errorf("%w: choose another address with --http", err)
	}
	d.onStop(func() error {
		if err := d.http.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	if d.bus, err = openBus(c, d.log); err != nil {
		return err
	}
	d.onStop(d.bus.close)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(
		collectors.ProcessCollectorOpts{}))
	node, err := d.openNode(d.bus.internal, registry)
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := node.Ready(ready); err != nil {
		return err
	}
	dir := filepath.Join(c.Data, "postgres")
	if d.database, err = openDatabase(ctx, c.Postgres, dir, d.log); err != nil {
		return err
	}
	d.onStop(d.database.close)
	if err := d.startGateway(ctx, node, registry); err != nil {
		return err
	}
	withdraw, err := announce(c.Data, running{Inside: d.bus.inside, Postgres: d.database.private()})
	if err != nil {
		return err
	}
	d.onStop(withdraw)
	return nil
}

func (d *dev) openNode(conn *nats.Conn, registry *prometheus.Registry) (*shard.Node, error) {
	c := d.command
	node, err := shard.Open(shard.Config{
		Dir: filepath.Join(c.Data, "shards"), Shards: c.Shards, Conn: conn,
		Clock: clock.New(clock.NewSystem(), d.log), Logger: d.log, Registerer: registry,
		SnapshotEntries: c.SnapshotEntries,
		ElectionTimeout: 150 * time.Millisecond, // a node alone has nobody to wait for
		OnFault: func(err error) {
			select {
			case d.fault <- err:
			default:
			}
		},
	})
	if err != nil {
		return nil, err
	}
	d.onStop(node.Close)
	return node, nil
}

func (d *dev) startGateway(
	ctx context.Context, node *shard.Node, registry *prometheus.Registry,
) error {
	c := d.command
	client, err := shards.New(d.bus.internal, shards.Config{})
	if err != nil {
		return err
	}
	d.onStop(func() error { client.Close(); return nil })
	d.follower = postgres.Follow(d.database.pool, client, postgres.FollowerConfig{
		Registerer: registry, Log: d.log,
	})
	d.onStop(func() error { d.follower.Close(); return nil })
	if d.desk, err = d.startPayments(ctx, client, node.Secret(), registry); err != nil {
		return err
	}
	if c.Reconcile > 0 {
		d.onStop(startReconciler(client, d.database, d.desk.checkout, c.Reconcile, registry).close)
	}
	d.admin = orDerived(c.AdminToken, node.Secret(), "admin token")
	d.service = orDerived(c.ServiceToken, node.Secret(), "service token")
	g, err := gateway.New(gateway.Config{
		TokenSecret: derive(node.Secret(), "buyer tokens"), AdminToken: d.admin, ServiceToken: d.service,
		CORSOrigins: c.CORSOrigin, Registry: registry, Log: d.log, Payments: d.desk.checkout, Desk: d.desk.back,
		Degraded: func(ctx context.Context) []string {
			return append(d.follower.Degraded(ctx), d.desk.degraded()...)
		},
	}, client)
	if err != nil {
		return err
	}
	relay, err := events.Start(ctx, d.bus.public, client, uint16(node.Shards()), events.Config{Log: d.log})
	if err != nil {
		return err
	}
	d.onStop(func() error { relay.Close(); return nil })
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "numera_events_lag", Help: "Events of all shards that are not in the stream yet.",
	}, func() float64 { return float64(relay.Lag()) }))
	if err := g.ServeNATS(d.bus.public); err != nil {
		return err
	}
	d.onStop(func() error {
		patience, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := g.Close(patience)
		if errors.Is(err, context.DeadlineExceeded) {
			d.log.Info("cut off clients that kept their connections open")
			return nil
		}
		return err
	})
	go func() {
		if err := g.Serve(d.http); err != nil {
			d.fault <- err
		}
	}()
	return nil
}

// orDerived is the token given, or one that stays the same for this data directory.
func orDerived(token string, secret []byte, purpose string) string {
	if token != "" {
		return token
	}
	return hex.EncodeToString(derive(secret, purpose)[:20])
}

// derive makes a key of 32 bytes from the cluster's secret, for one purpose.
func derive(secret []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// greet says what runs, where, and what to try.
func (d *dev) greet(s *streams) {
	url := "http://" + d.http.Addr().String()
	fmt.Fprintf(s.out, strings.TrimLeft(`
numera is ready.
  HTTP   %[1]s   (the contract: %[1]s/openapi.json)
  NATS   %[4]s   (nats micro info numera)
  data   %[5]s
  orders %[6]s
  paying %[7]s
  admin token    %[2]s
  service token  %[3]s

Try, in another terminal: put a hundred numbers on sale, and buy two of them.
  curl -X PUT %[1]s/v1/admin/products/rifa-1 -H 'Authorization: Bearer %[2]s' \
       -H 'Content-Type: application/json' \
       -d '{"name":"Rifa","price":{"amount":1990,"currency":"BRL"},"count":100}'
  curl -X POST %[1]s/v1/orders -H 'Authorization: Bearer %[3]s' \
       -H 'Content-Type: application/json' -H 'Idempotency-Key: try-1' \
       -d '{"buyer":"ana","items":[{"product":"rifa-1","numbers":[17,42]}]}'
Pay it: put the id of the order that came back in place of ORDER.
  curl -X POST %[1]s/v1/orders/ORDER/payments -H 'Authorization: Bearer %[3]s' \
       -H 'Content-Type: application/json' -H 'Idempotency-Key: pay-1' -d '{"method":"pix"}'

Ctrl-C stops it.
`, "\n"), url, d.admin, d.service, d.bus.url, d.command.Data, d.database, d.desk)
}
