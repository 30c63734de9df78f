package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
	"numera/gateway"
	"numera/gateway/events"
	"numera/gateway/order"
	"numera/gateway/order/fraud"
	"numera/gateway/order/postgres"
	"numera/gateway/payment"
	"numera/gateway/payment/mercadopago"
	"numera/gateway/payment/simulator"
	"numera/gateway/payment/stripe"
	"numera/gateway/shards"
	"numera/shard/wire"
)

// paymentFlags say who takes the money. Without any provider, the payments of dev are those of a
// simulator in the same process: nobody pays.
type paymentFlags struct {
	PublicURL string `name:"public-url" placeholder:"URL" help:"Where providers reach this system. Their webhooks go to /v1/webhooks/default/PROVIDER below it. Default: the address of --http."`

	StripeKey           string   `help:"Secret key of Stripe: it takes cards."`
	StripeAccount       string   `help:"Account at Stripe, acct_…: charges of another one are raised."`
	StripeWebhookSecret []string `help:"Secrets of Stripe's webhooks, during a rotation several."`
	StripeReturnURL     string   `help:"Where banks send buyers back to after they have confirmed."`

	MercadoPagoToken         string   `name:"mercadopago-token" help:"Access token of Mercado Pago: it takes Pix."`
	MercadoPagoWebhookSecret []string `name:"mercadopago-webhook-secret" help:"Secrets of Mercado Pago's webhooks."`

	PSPHTTP string `name:"psp-http" default:"127.0.0.1:0" help:"Address of the payment simulator, which takes what no provider here does. Port 0 picks one. Empty: no simulator."`

	FraudURL   string `placeholder:"URL" help:"Anti-fraud service that is asked before a provider is. Default: nobody is asked."`
	FraudToken string `help:"Bearer token for the anti-fraud service."`
}

// desk is everything that takes payments in one process.
type desk struct {
	checkout  *order.Checkout
	back      *backOffice
	fraud     *fraud.Service // nil: nobody is asked
	simulator string         // URL of its page, or ""
	provider  *simulator.Server
}

// startPayments begins to take payments. Postgres may be down: what needs it waits.
func (d *dev) startPayments(
	ctx context.Context, client *shards.Client, secret []byte, registry *prometheus.Registry,
) (*desk, error) {
	c := &d.command.paymentFlags
	k := &desk{}
	accounts, err := d.openAccounts(k, secret)
	if err != nil {
		return nil, err
	}
	store := postgres.NewPayments(d.database.pool, 0)
	store.Behind(d.follower)
	config := order.Config{
		Engine: client, Store: store, Logger: d.log, Registerer: registry,
		Accounts: map[string][]order.Account{"": accounts},
		Policy:   (&policies{client: client}).of,
	}
	if c.FraudURL != "" {
		k.fraud = fraud.New(fraud.Config{URL: c.FraudURL, Token: c.FraudToken})
		config.Fraud = k.fraud
	}
	if k.checkout, err = order.New(config); err != nil {
		return nil, err
	}
	jobs, err := postgres.NewJobs(postgres.JobsConfig{
		Pool: d.database.pool, Checkout: k.checkout, Logger: d.log, Registerer: registry,
	})
	if err != nil {
		return nil, err
	}
	k.back = &backOffice{Payments: store, jobs: jobs, pool: d.database.pool}
	relay, err := events.StartPayments(ctx, d.bus.public,
		paymentEvents{postgres.NewPaymentEvents(d.database.pool)}, events.Config{Log: d.log})
	if err != nil {
		return nil, err
	}
	working, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.checkout.Run(working) })
	running.Go(func() {
		if err := jobs.Run(working); err != nil {
			d.log.Error("jobs do not end", "error", err)
		}
	})
	d.onStop(func() error {
		cancel()
		running.Wait()
		relay.Close()
		return nil
	})
	return k, nil
}

// openAccounts are the providers' accounts, the preferred one of a method first.
func (d *dev) openAccounts(k *desk, secret []byte) (accounts []order.Account, err error) {
	c := &d.command.paymentFlags
	public := c.PublicURL
	if public == "" {
		public = "http://" + d.http.Addr().String()
	}
	webhooks := public + "/v1/webhooks/default/"
	closing := func(f func()) { d.onStop(func() error { f(); return nil }) }
	if c.StripeKey != "" {
		p := stripe.New(stripe.Config{
			SecretKey: c.StripeKey, WebhookSecrets: c.StripeWebhookSecret, Account: c.StripeAccount,
			ReturnURL: c.StripeReturnURL,
		})
		closing(p.Close)
		accounts = append(accounts, order.Account{
			Provider: p, ID: c.StripeAccount, Methods: []payment.Method{payment.MethodCard},
		})
	}
	if c.MercadoPagoToken != "" {
		p, err := mercadopago.New(mercadopago.Config{
			AccessToken: c.MercadoPagoToken, WebhookSecrets: c.MercadoPagoWebhookSecret,
			WebhookURL: webhooks + "mercadopago",
		})
		if err != nil {
			return nil, fmt.Errorf("--mercadopago-token: %w", err)
		}
		closing(p.Close)
		accounts = append(accounts, order.Account{
			Provider: p, Methods: []payment.Method{payment.MethodPix},
		})
	}
	if c.PSPHTTP == "" {
		return accounts, nil
	}
	p, err := d.startSimulator(k, webhooks+"simulator", hex.EncodeToString(derive(secret, "simulator")))
	if err != nil {
		return nil, err
	}
	closing(p.Close)
	return append(accounts, order.Account{Provider: p, ID: simulatorAccount}), nil
}

const simulatorAccount = "acct_simulator"

// startSimulator serves a provider that takes no money.
func (d *dev) startSimulator(k *desk, webhooks, secret string) (*simulator.Client, error) {
	listener, err := net.Listen("tcp", d.command.PSPHTTP)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --psp-http", err)
	}
	secrets := []string{secret}
	config := simulator.Config{
		Account: simulatorAccount, WebhookURL: webhooks, WebhookSecrets: secrets,
	}
	if d.benched {
		config.WebhookLanes = 64 // so that no webhook waits
	} else {
		config.File = filepath.Join(d.command.Data, "simulator")
	}
	provider, err := simulator.New(config)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := simulatorServer(provider)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("the payment simulator has ended", "error", err)
		}
	}()
	d.onStop(func() error { return errors.Join(server.Close(), provider.Close()) })
	k.provider = provider
	k.simulator = "http://" + listener.Addr().String()
	return simulator.NewClient(simulator.ClientConfig{URL: k.simulator, WebhookSecrets: secrets}), nil
}

// degraded names what is down of what payments need.
func (k *desk) degraded() []string {
	if k.fraud != nil && k.fraud.Open() {
		return []string{"fraud"}
	}
	return nil
}

// policies are what products say of their payments, read at most once in policyAge.
type policies struct {
	client *shards.Client
	known  sync.Map // inventory.ProductID → policy
}

type policy struct {
	order.Policy
	read time.Time
}

const policyAge = time.Second

func (p *policies) of(ctx context.Context, id inventory.ProductID) (order.Policy, error) {
	if known, ok := p.known.Load(id); ok && time.Since(known.(policy).read) < policyAge {
		return known.(policy).Policy, nil
	}
	o, err := p.client.Product(ctx, wire.ProductQuery{Product: id})
	if err != nil {
		return order.Policy{}, err
	}
	if o.Product == nil {
		return order.Policy{}, fmt.Errorf("product %s: %v", id, o.Code)
	}
	fresh := policy{Policy: order.PolicyOf(&o.Product.Settings), read: time.Now()}
	p.known.Store(id, fresh)
	return fresh.Policy, nil
}

// paymentEvents are the rows of the outbox of payments, as the relay publishes them.
type paymentEvents struct{ rows *postgres.PaymentEvents }

func (p paymentEvents) Pull(ctx context.Context, limit int) ([]events.Row, error) {
	pulled, err := p.rows.Pull(ctx, limit)
	rows := make([]events.Row, len(pulled))
	for i := range pulled {
		e := &pulled[i]
		rows[i] = events.Row{ID: e.ID, Kind: e.Kind, Data: gateway.AppendPaymentEvent(nil, &gateway.PaymentEvent{
			ID: e.ID, Kind: e.Kind, Payment: inventory.PaymentID(e.Payment), Order: e.OrderID,
			Currency: e.Currency, Amount: e.Amount, Captured: e.Captured, Refunded: e.Refunded,
			AtUnixMilli: e.At.UnixMilli(),
		})}
	}
	return rows, err
}

func (p paymentEvents) Delete(ctx context.Context, ids []int64) error { return p.rows.Delete(ctx, ids) }

// String says where payments go.
func (k *desk) String() string {
	if k.simulator == "" {
		return "at the providers of the flags"
	}
	return k.simulator + "   (a simulator: pay a Pix by a click)"
}
