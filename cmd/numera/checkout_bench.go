package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"numera/bench"
	"numera/gateway/payment"
)

type benchCheckout struct {
	benchOptions
	Rate     float64       `default:"900" help:"Checkouts a second meant to start; latency counts from then."`
	Beside   float64       `default:"500" help:"Reservations a second of others, who do not pay."`
	Duration time.Duration `default:"60s" help:"How long."`
	Stall    time.Duration `help:"Hold Postgres up for so long, every 20 s: 5s. Default: never."`
	Postgres string        `placeholder:"DSN" help:"An empty database. Default: a private one."`
}

// Run measures whole sales on a system of its own, all in this process but Postgres.
func (b *benchCheckout) Run(ctx context.Context, s *streams) error {
	dir, err := os.MkdirTemp(b.Dir, "numera-checkout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // for the user that Postgres runs as
		return err
	}
	d := &dev{command: &devCommand{
		Data: dir, HTTP: "127.0.0.1:0", NATS: "127.0.0.1:0", Postgres: b.Postgres,
		AdminToken: "bench-admin", ServiceToken: "bench-service", SnapshotEntries: 65536,
		paymentFlags: paymentFlags{PSPHTTP: "127.0.0.1:0"},
	}, log: s.logger(slog.LevelWarn), fault: make(chan error, 1), benched: true}
	if err := d.start(ctx); err != nil {
		return err
	}
	defer d.stop()
	if err := d.database.ready(); err != nil {
		return fmt.Errorf("this bench needs PostgreSQL: %w", err)
	}
	config := bench.CheckoutConfig{
		Target: "http://" + d.http.Addr().String(), ServiceToken: d.service, AdminToken: d.admin,
		Rate: b.Rate, Beside: b.Beside, Duration: b.Duration, Seed: b.Seed, Progress: s.err,
		Lag: func() float64 {
			_, seconds := d.follower.Lag()
			return seconds
		},
		Charged: d.desk.charged, Webhooks: d.desk.webhooks, StallFor: b.Stall,
	}
	if b.Stall > 0 {
		config.Stall = d.database.stall
	}
	return b.run(s, func() (report, error) { return bench.RunCheckout(ctx, config) })
}

// charged counts the charges of the simulator that took money, by payment.
func (k *desk) charged() map[string]int {
	counts := make(map[string]int)
	for _, c := range k.provider.Charges() {
		if c.Status == payment.StatusCaptured {
			counts[c.Payment]++
		}
	}
	return counts
}

// webhooks counts those that the simulator has delivered, and those that wait to be.
func (k *desk) webhooks() (delivered, waiting int) {
	counts := k.provider.Deliveries()
	return counts.Delivered, counts.Waiting
}

// stall holds everything up that writes or reads orders or payments.
func (d *database) stall(ctx context.Context, how time.Duration) error {
	tx, err := d.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // it holds nothing but the locks
	if _, err := tx.Exec(ctx, "LOCK TABLE orders, payments IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(how):
	}
	return nil
}
