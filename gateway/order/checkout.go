package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
	"numera/gateway/payment"
	"numera/shard/wire"
)

// Config is what a Checkout works with. Zero members take the default.
type Config struct {
	Engine Engine // required
	Store  Store  // required

	// Accounts at providers, by tenant, the preferred one first; "" is for tenants that have none
	// of their own. Orders that cost nothing need none.
	Accounts map[string][]Account

	// Policy says how a product's payments are treated. Default: the zero Policy. It is on the way
	// of every payment: an error of it fails the request.
	Policy func(ctx context.Context, p inventory.ProductID) (Policy, error)

	Fraud  Fraud        // default: everything is cleared
	Logger *slog.Logger // default: slog.Default()
	Now    func() time.Time

	Registerer prometheus.Registerer // takes the metrics; nil: they are kept and not shown

	CallTimeout time.Duration // of one call to a provider; default 10 s
	// ActsWithin is how long after a call to it a provider may still act on it: what it does not know
	// of by then, it was never asked for. Default 1 min.
	ActsWithin time.Duration
	// Patience is how long a payment may stand still before it is handed to its queue. Default 15
	// s, more than CallTimeout, or the hand would be raised over a call that is still waited for.
	Patience time.Duration
	// Calls is how many calls to one account may wait at once; one more is not made. Default 256.
	Calls int
	// Actors is how many webhooks Run acts on at once. Default 8.
	Actors int
}

func (c Config) withDefaults() Config {
	if c.Policy == nil {
		c.Policy = func(context.Context, inventory.ProductID) (Policy, error) { return Policy{}, nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, d := range []struct {
		value   *time.Duration
		unless0 time.Duration
	}{
		{&c.CallTimeout, 10 * time.Second},
		{&c.ActsWithin, time.Minute},
		{&c.Patience, 15 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.unless0
		}
	}
	if c.Calls <= 0 {
		c.Calls = 256
	}
	if c.Actors <= 0 {
		c.Actors = 8
	}
	return c
}

// Checkout pays orders. Any goroutine may call it, in any number of processes on one database.
type Checkout struct {
	config   Config
	engine   Engine
	store    Store
	accounts map[string][]*account
	metrics  *metrics
	nudges   chan WebhookID
}

// New makes a Checkout. It starts nothing: see Run.
func New(config Config) (*Checkout, error) {
	if config.Engine == nil || config.Store == nil {
		return nil, errors.New("order: Config needs Engine and Store")
	}
	config = config.withDefaults()
	m := newMetrics(config.Registerer)
	c := &Checkout{
		config: config, engine: config.Engine, store: countedStore{config.Store, m}, metrics: m,
		accounts: make(map[string][]*account),
		nudges:   make(chan WebhookID, 4096),
	}
	for tenant, accounts := range config.Accounts {
		for _, a := range accounts {
			c.accounts[tenant] = append(c.accounts[tenant], newAccount(a, config, m))
		}
	}
	return c, nil
}

// PayRequest asks to pay an order.
type PayRequest struct {
	Tenant string
	Order  inventory.OrderID
	By     inventory.BuyerID // whose order it must be; "" for a service
	Key    string            // idempotency key, 1–255 visible ASCII
	Method payment.Method
	Secret
}

// Pay makes a payment and moves it until it rests or ctx ends; then it goes on by itself, and comes
// back as it stands. replay: the key had made it already.
//
// Errors before anything was stored: ErrOrderNotFound, ErrOrderStatus, ErrMethod,
// ErrTooManyAttempts and those of the engine and the store. Of the key: ErrKeyReused,
// ErrInProgress.
func (c *Checkout) Pay(ctx context.Context, r PayRequest) (p Payment, replay bool, err error) {
	o, err := c.order(ctx, r.Order, r.By)
	if err != nil {
		return Payment{}, false, err
	}
	if !o.Status.Live() || o.Overdue {
		p, err := c.store.ByKey(ctx, r.Order, r.Key)
		if errors.Is(err, ErrPaymentNotFound) {
			return Payment{}, false, &StatusError{o.Status}
		}
		return r.repeat(p, err)
	}
	intent, err := c.intent(ctx, r, o)
	if err != nil {
		return Payment{}, false, err
	}
	made, err := c.create(ctx, intent, r.Secret, o)
	if err != nil {
		return Payment{}, false, err
	}
	if made.Payment.ID != intent.ID {
		return r.repeat(made.Payment, nil)
	}
	c.metrics.moved("", made.Payment.Status)
	w := &walk{
		c: c, p: made.Payment, untouched: intent.CreatedAt, alone: made.Alone, secret: &r.Secret,
	}
	w.run(ctx)
	return w.p, false, nil
}

// repeat answers a request whose key has made p.
func (r *PayRequest) repeat(p Payment, err error) (Payment, bool, error) {
	switch {
	case err != nil:
		return Payment{}, false, err
	case string(p.Fingerprint) != string(r.fingerprint(p.ID)):
		return Payment{}, false, ErrKeyReused
	case !p.Status.Rests():
		return Payment{}, false, ErrInProgress
	}
	return p, true, nil
}

// fingerprint is a hash of the body, salted by the payment's id, since what is in it can be
// guessed.
func (r *PayRequest) fingerprint(id inventory.PaymentID) []byte {
	return fingerprint(string(id), string(r.Method), r.CardToken,
		r.Payer.Name, r.Payer.Email, r.Payer.Document, r.Payer.Phone)
}

// intent is the row as it begins.
func (c *Checkout) intent(
	ctx context.Context, r PayRequest, o *inventory.OrderView,
) (Payment, error) {
	now := c.config.Now()
	p := Payment{
		ID: inventory.PaymentID(newID()), Tenant: r.Tenant, Order: o.ID, Buyer: o.Buyer, Key: r.Key,
		Method: r.Method, Amount: payment.Money(o.Total()), Status: StatusCreated,
		ExpiresAt: providerDeadline(now, o), DueAt: now.Add(c.config.Patience), CreatedAt: now,
	}
	p.Fingerprint = r.fingerprint(p.ID)
	for _, item := range o.Items {
		policy, err := c.config.Policy(ctx, item.Product)
		if err != nil {
			return Payment{}, fmt.Errorf("order: policy of %s: %w", item.Product, err)
		}
		p.Policy = p.Policy.join(policy)
	}
	if p.Amount.Amount > 0 {
		a, err := c.route(r.Tenant, r.Method)
		if err != nil {
			return Payment{}, err
		}
		p.Provider, p.Account = a.Provider.Name(), a.ID
	}
	return p, nil
}

// create stores the intent. What a lost answer leaves open is asked again: the id tells whether the
// row is this one.
func (c *Checkout) create(
	ctx context.Context, p Payment, s Secret, o *inventory.OrderView,
) (made Created, err error) {
	for attempt := range createAttempts {
		made, err = c.store.Create(ctx, p, s, o)
		if err == nil || errors.Is(err, ErrTooManyAttempts) ||
			!pause(ctx, firstPause<<attempt) {
			break
		}
	}
	return made, err
}

const createAttempts = 3

// Payments are those of an order, oldest first. by is whose order it must be, or "".
func (c *Checkout) Payments(
	ctx context.Context, id inventory.OrderID, by inventory.BuyerID,
) ([]Payment, error) {
	if _, err := c.order(ctx, id, by); err != nil {
		return nil, err
	}
	return c.store.OfOrder(ctx, id)
}

// Refunds are those of a payment, oldest first.
func (c *Checkout) Refunds(ctx context.Context, id inventory.PaymentID) ([]Refund, error) {
	return c.store.Refunds(ctx, id)
}

// order reads an order linearizably.
func (c *Checkout) order(
	ctx context.Context, id inventory.OrderID, by inventory.BuyerID,
) (*inventory.OrderView, error) {
	outcome, err := c.engine.Order(ctx, wire.OrderQuery{Order: id, By: by})
	switch {
	case err != nil:
		return nil, fmt.Errorf("order: %w", err)
	case outcome.Code == inventory.CodeOrderNotFound:
		return nil, ErrOrderNotFound
	case outcome.Code != inventory.CodeOK:
		return nil, fmt.Errorf("%w: %v", ErrEngine, outcome.Code)
	}
	return outcome.Order, nil
}

// Review ends the manual review of a payment: it is asked for, or refused. by is the admin, for the
// log. Deciding the same again is the payment as it is now; otherwise ErrConflict.
func (c *Checkout) Review(
	ctx context.Context, id inventory.PaymentID, approve bool, by string,
) (Payment, error) {
	p, err := c.store.Payment(ctx, id)
	if err != nil {
		return Payment{}, err
	}
	if p.Status != StatusReview {
		refused := p.Status == StatusDeclined || p.Status == StatusRefused
		if p.Status == StatusCreated || refused == approve {
			return p, ErrConflict
		}
		return p, nil
	}
	w := &walk{c: c, p: p}
	next := p
	next.Status = StatusDeclined
	if approve {
		next.Status = StatusCleared
	} else {
		next.DeclinedBy = "review"
	}
	c.config.Logger.InfoContext(ctx, "payment reviewed", "payment", id, "approved", approve, "by", by)
	if err := w.save(ctx, Change{Payment: next}); err != nil {
		return Payment{}, err
	}
	w.untouched = c.config.Now() // a payment in review has never been asked for
	w.run(ctx)
	return w.p, nil
}

// Advance moves a payment as far as it goes now. It is what workers call. A nil error: it rests, or
// waits for its DueAt. Any other: do it again later, without end if Temporary says so.
func (c *Checkout) Advance(ctx context.Context, id inventory.PaymentID) error {
	w := &walk{c: c}
	if err := w.load(ctx, id); err != nil {
		return err
	}
	if w.p.Status == StatusPending {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// Refresh asks the provider what became of the payment, wherever it rests, and moves it from there.
func (c *Checkout) Refresh(ctx context.Context, id inventory.PaymentID) error {
	w := &walk{c: c}
	if err := w.load(ctx, id); err != nil {
		return err
	}
	if w.p.Provider != "" && w.p.Status.Rests() && w.p.Status != StatusReview &&
		w.p.Status != StatusRejected {
		if err := w.lookUp(ctx); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// Temporary says that an error will end without anybody's help: what failed is done again until
// then.
func Temporary(err error) bool {
	return !errors.Is(err, ErrMismatch) && !errors.Is(err, payment.ErrRejected) &&
		!errors.Is(err, ErrPaymentNotFound) && !errors.Is(err, ErrProvider)
}
