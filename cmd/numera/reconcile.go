package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/shards"
)

// reconcileCommand compares the orders of a running system with their rows.
type reconcileCommand struct {
	Data     string `default:"data" type:"path" help:"The data directory of a running numera dev, which says how to reach it."`
	NATSURL  string `name:"nats-url" help:"Where the shards are reached. Default: as the data directory says."`
	Postgres string `placeholder:"DSN" help:"The database. Default: the private one in the data directory."`
	Repair   bool   `help:"Make rows that are missing, too old or altered what the engine says."`
}

// Help says what the result means.
func (c *reconcileCommand) Help() string {
	return `Prints what differs between the engine, the rows of orders and the payments, and what else is
open in the table of findings, and fails if anything is left. Orders that ended longer ago than the
engine keeps them are not compared: nobody knows about them any more but their rows.`
}

// errFindings is returned when something is left to be looked at.
var errFindings = errors.New("findings are left to be looked at")

// Run compares once.
func (c *reconcileCommand) Run(ctx context.Context, s *streams) error {
	if err := c.locate(); err != nil {
		return err
	}
	conn, err := nats.Connect(c.NATSURL, nats.Name("numera reconcile"), nats.ReconnectBufSize(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	client, err := shards.New(conn, shards.Config{})
	if err != nil {
		return err
	}
	defer client.Close()
	pool, err := postgres.Open(ctx, postgres.PoolConfig{DSN: c.Postgres, Connections: 2})
	if err != nil {
		return err
	}
	defer pool.Close()
	repair := order.RepairNothing
	if c.Repair {
		repair = order.RepairAll
	}
	report, err := order.Reconcile(ctx, client, postgres.NewOrders(pool), repair)
	if err != nil {
		return err
	}
	open, err := postgres.OpenFindings(ctx, pool, mostShown)
	if err != nil {
		return err
	}
	return show(s.out, report, open)
}

// mostShown bounds the list.
const mostShown = 10_000

// show prints what was repaired and what is left.
func show(w io.Writer, report order.Report, open []postgres.OpenFinding) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range report.Repaired {
		fmt.Fprintf(table, "repaired\t%s\t%s\t%s\n", f.Kind, f.Subject, f.Detail)
	}
	for _, f := range open {
		fmt.Fprintf(table, "left\t%s\t%s\t%s\n", f.Kind, f.Subject, f.Detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d orders compared in %v: %d repaired, %d left; %d rows had not been written yet\n",
		report.Orders, report.Took.Round(time.Millisecond), len(report.Repaired), len(open),
		report.Behind)
	if len(open) > 0 {
		return errFindings
	}
	return nil
}

// locate fills in what the data directory says.
func (c *reconcileCommand) locate() error {
	if c.NATSURL != "" && c.Postgres != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(c.Data, runningFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no numera dev runs over %s: start it, name its --data, or give --nats-url "+
			"and --postgres", c.Data)
	} else if err != nil {
		return err
	}
	var r running
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", runningFile, err)
	}
	if c.NATSURL == "" {
		c.NATSURL = r.Inside
	}
	if c.Postgres == "" {
		c.Postgres = r.Postgres
	}
	if c.Postgres == "" {
		return errors.New("this numera dev was given a database: give it here too, with --postgres")
	}
	return nil
}

// running is how the subcommands of this machine's user reach a running dev. It holds a secret: the
// file is its owner's alone.
type running struct {
	Inside   string `json:"inside"`             // NATS, with the secret of the shards' account
	Postgres string `json:"postgres,omitempty"` // of the private one; the DSN of another is not kept
}

const runningFile = "running.json"

// announce writes the file, and gives what takes it away.
func announce(dir string, r running) (func() error, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, runningFile)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return func() error { return os.Remove(path) }, nil
}

// reconciler compares again and again. Its pauses are long against its passes, so that it takes
// little from the others.
type reconciler struct {
	client   *shards.Client
	orders   *postgres.Orders
	checkout *order.Checkout
	count    func(context.Context) (map[string]int, error)
	period   time.Duration
	log      *slog.Logger

	open    *prometheus.GaugeVec
	last    prometheus.Gauge
	cancel  context.CancelFunc
	running sync.WaitGroup
	logged  map[string]int             // what was found when it was last logged
	unknown map[inventory.OrderID]bool // whose lost payments no provider knows of
}

// passShare: a pass takes a twentieth of the time at the most.
const passShare = 20

// startReconciler compares every period until close.
func startReconciler(
	client *shards.Client, d *database, checkout *order.Checkout, period time.Duration,
	registry *prometheus.Registry,
) *reconciler {
	r := &reconciler{
		client: client, orders: postgres.NewOrders(d.pool), checkout: checkout, period: period,
		log: d.log, unknown: make(map[inventory.OrderID]bool),
		count: func(ctx context.Context) (map[string]int, error) {
			return postgres.CountFindings(ctx, d.pool)
		},
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "numera_findings_open", Help: "What somebody has to look at, by kind.",
		}, []string{"kind"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "numera_reconciled_timestamp_seconds",
			Help: "When orders and rows were last compared, to the end.",
		}),
	}
	registry.MustRegister(r.open, r.last)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.running.Go(func() { r.run(ctx) })
	return r
}

func (r *reconciler) close() error {
	r.cancel()
	r.running.Wait()
	return nil
}

func (r *reconciler) run(ctx context.Context) {
	for pause := r.period; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("orders could not be compared with their rows", "error", err)
		}
		pause = max(r.period, passShare*time.Since(began))
	}
}

func (r *reconciler) pass(ctx context.Context) error {
	if err := r.recover(ctx); err != nil {
		return err
	}
	report, err := order.Reconcile(ctx, r.client, r.orders, order.RepairLost)
	if err != nil {
		return err
	}
	counts, err := r.count(ctx)
	if err != nil {
		return err
	}
	r.open.Reset()
	for kind, n := range counts {
		r.open.WithLabelValues(kind).Set(float64(n))
	}
	r.last.SetToCurrentTime()
	if maps.Equal(report.Found, r.logged) {
		return nil
	}
	r.logged = report.Found
	r.log.Warn("orders and their rows were compared", "report", report)
	for _, f := range report.Left[:min(len(report.Left), mostLogged)] {
		r.log.Warn("finding", "kind", f.Kind, "subject", f.Subject, "detail", f.Detail)
	}
	return nil
}

const (
	mostRecovered   = 1000 // in one pass
	recoverPatience = 10 * time.Second
)

// recover brings payments back that PostgreSQL has lost. A provider that knows nothing of one is
// asked once.
func (r *reconciler) recover(ctx context.Context) error {
	lost, err := r.orders.LostPayments(ctx, mostRecovered+len(r.unknown))
	if err != nil {
		return err
	}
	for _, id := range lost {
		if r.unknown[id] {
			continue
		}
		within, cancel := context.WithTimeout(ctx, recoverPatience)
		err := r.checkout.Recover(within, id)
		cancel()
		switch {
		case err == nil:
			r.log.Warn("a lost payment was brought back from its provider", "order", id)
		case errors.Is(err, order.ErrPaymentNotFound), errors.Is(err, order.ErrOrderStatus):
			r.unknown[id] = true
		default:
			r.log.Warn("a lost payment could not be looked up", "order", id, "error", err)
		}
	}
	return nil
}

// mostLogged bounds the lines of one pass. The table of findings has them all.
const mostLogged = 20
