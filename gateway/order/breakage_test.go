package order_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
	"numera/gateway/shards"
	"numera/shard/wire"
)

// breakage lets the n-th call of a checkout to anything outside of it go wrong: to the engine, to
// Postgres, to the provider, to anti-fraud. It counts them in the order in which they are made.
type breakage struct {
	at     int // which one; the first is 1
	mode   mode
	cancel context.CancelFunc // of whoever called the checkout

	mu    sync.Mutex
	calls []string
	dead  bool
}

// mode is how a call goes wrong.
type mode int

const (
	failBefore mode = iota // an error, and no effect
	failAfter              // an error, and the effect: nobody can tell the two apart
	killBefore             // the process ends, before the effect
	killAfter              // and after it
	modes
)

func (m mode) String() string {
	return [...]string{"fail before", "fail after", "kill before", "kill after"}[m]
}

var (
	errBroken = errors.New("broken by the test")
	errDead   = errors.New("this process is dead")
)

// count says how many calls were made.
func (b *breakage) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// broken is the call that went wrong.
func (b *breakage) broken() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[b.at-1]
}

// enter counts a call. effect: it has to be made; err: what to answer instead of what it said.
func (b *breakage) enter(name string) (effect bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return false, errDead
	}
	b.calls = append(b.calls, name)
	if len(b.calls) != b.at {
		return true, nil
	}
	if b.mode == killBefore || b.mode == killAfter {
		b.dead = true
		defer b.cancel()
		return b.mode == killAfter, errDead
	}
	return b.mode == failAfter, errBroken
}

// through makes a call with an answer. What is broken has no answer. The effect of a call that was
// made before the process died happens, whatever became of its context.
func through[T any](
	ctx context.Context, b *breakage, name string, call func(context.Context) (T, error),
) (answer T, err error) {
	effect, broken := b.enter(name)
	if broken == nil {
		return call(ctx)
	}
	if effect {
		_, _ = call(context.WithoutCancel(ctx))
	}
	return answer, broken
}

// apply breaks a checkout's surroundings.
func (b *breakage) apply(config order.Config) order.Config {
	config.Engine = brokenEngine{b, config.Engine}
	config.Store = brokenStore{b, config.Store}
	if config.Fraud != nil {
		config.Fraud = brokenFraud{b, config.Fraud}
	}
	accounts := make(map[string][]order.Account)
	for tenant, all := range config.Accounts {
		for _, a := range all {
			a.Provider = brokenProvider{b, a.Provider}
			accounts[tenant] = append(accounts[tenant], a)
		}
	}
	config.Accounts = accounts
	return config
}

type brokenEngine struct {
	b    *breakage
	real order.Engine
}

func (e brokenEngine) Do(
	ctx context.Context, entry inventory.Entry,
) (*inventory.Outcome, error) {
	name := fmt.Sprintf("engine %T", entry.Command)
	outcome, err := through(ctx, e.b, name, func(ctx context.Context) (*inventory.Outcome, error) {
		return e.real.Do(ctx, entry)
	})
	if errors.Is(err, errBroken) {
		err = shards.ErrOutcomeUnknown
	}
	return outcome, err
}

func (e brokenEngine) Order(
	ctx context.Context, q wire.OrderQuery,
) (*inventory.Outcome, error) {
	return through(ctx, e.b, "engine order", func(ctx context.Context) (*inventory.Outcome, error) {
		return e.real.Order(ctx, q)
	})
}

type brokenFraud struct {
	b    *breakage
	real order.Fraud
}

func (f brokenFraud) Judge(ctx context.Context, c order.FraudCase) (order.Verdict, error) {
	return through(ctx, f.b, "fraud", func(ctx context.Context) (order.Verdict, error) {
		return f.real.Judge(ctx, c)
	})
}

type brokenProvider struct {
	b *breakage
	payment.Provider
}

// provider is a call to the provider: what is broken may have acted.
func provider[T any](
	ctx context.Context, b *breakage, name string, call func(context.Context) (T, error),
) (T, error) {
	answer, err := through(ctx, b, "provider "+name, call)
	if errors.Is(err, errBroken) {
		err = payment.ErrUnknown
	}
	return answer, err
}

func (p brokenProvider) Authorise(
	ctx context.Context, a payment.Authorisation,
) (payment.Charge, error) {
	return provider(ctx, p.b, "authorise", func(ctx context.Context) (payment.Charge, error) {
		return p.Provider.Authorise(ctx, a)
	})
}

func (p brokenProvider) Capture(
	ctx context.Context, c payment.Capture,
) (payment.Charge, error) {
	return provider(ctx, p.b, "capture", func(ctx context.Context) (payment.Charge, error) {
		return p.Provider.Capture(ctx, c)
	})
}

func (p brokenProvider) Void(ctx context.Context, v payment.Void) (payment.Charge, error) {
	return provider(ctx, p.b, "void", func(ctx context.Context) (payment.Charge, error) {
		return p.Provider.Void(ctx, v)
	})
}

func (p brokenProvider) Refund(
	ctx context.Context, r payment.RefundRequest,
) (payment.Refund, error) {
	return provider(ctx, p.b, "refund", func(ctx context.Context) (payment.Refund, error) {
		return p.Provider.Refund(ctx, r)
	})
}

func (p brokenProvider) LookUp(
	ctx context.Context, r payment.Reference,
) (payment.Charge, error) {
	return provider(ctx, p.b, "look up", func(ctx context.Context) (payment.Charge, error) {
		return p.Provider.LookUp(ctx, r)
	})
}

type brokenStore struct {
	b *breakage
	order.Store
}

func (s brokenStore) Create(
	ctx context.Context, p order.Payment, secret order.Secret, o *inventory.OrderView,
) (order.Created, error) {
	return through(ctx, s.b, "store create", func(ctx context.Context) (order.Created, error) {
		return s.Store.Create(ctx, p, secret, o)
	})
}

func (s brokenStore) Save(ctx context.Context, c order.Change) (order.Payment, error) {
	name := "store save " + string(c.Payment.Status)
	return through(ctx, s.b, name, func(ctx context.Context) (order.Payment, error) {
		return s.Store.Save(ctx, c)
	})
}

func (s brokenStore) Payment(
	ctx context.Context, id inventory.PaymentID,
) (order.Payment, error) {
	return through(ctx, s.b, "store payment", func(ctx context.Context) (order.Payment, error) {
		return s.Store.Payment(ctx, id)
	})
}

func (s brokenStore) ByKey(
	ctx context.Context, id inventory.OrderID, key string,
) (order.Payment, error) {
	return through(ctx, s.b, "store by key", func(ctx context.Context) (order.Payment, error) {
		return s.Store.ByKey(ctx, id, key)
	})
}

func (s brokenStore) OfOrder(
	ctx context.Context, id inventory.OrderID,
) ([]order.Payment, error) {
	return through(ctx, s.b, "store of order", func(ctx context.Context) ([]order.Payment, error) {
		return s.Store.OfOrder(ctx, id)
	})
}

func (s brokenStore) Secret(
	ctx context.Context, id inventory.PaymentID,
) (order.Secret, error) {
	return through(ctx, s.b, "store secret", func(ctx context.Context) (order.Secret, error) {
		return s.Store.Secret(ctx, id)
	})
}

func (s brokenStore) Refunds(
	ctx context.Context, id inventory.PaymentID,
) ([]order.Refund, error) {
	return through(ctx, s.b, "store refunds", func(ctx context.Context) ([]order.Refund, error) {
		return s.Store.Refunds(ctx, id)
	})
}

func (s brokenStore) Refund(ctx context.Context, id string) (order.Refund, error) {
	return through(ctx, s.b, "store refund", func(ctx context.Context) (order.Refund, error) {
		return s.Store.Refund(ctx, id)
	})
}

func (s brokenStore) Raise(ctx context.Context, f order.Finding) error {
	_, err := through(ctx, s.b, "store raise", func(ctx context.Context) (any, error) {
		return nil, s.Store.Raise(ctx, f)
	})
	return err
}

func (s brokenStore) Receive(ctx context.Context, w order.Webhook) (bool, error) {
	return through(ctx, s.b, "store receive", func(ctx context.Context) (bool, error) {
		return s.Store.Receive(ctx, w)
	})
}

func (s brokenStore) Webhook(ctx context.Context, id order.WebhookID) (order.Webhook, error) {
	return through(ctx, s.b, "store webhook", func(ctx context.Context) (order.Webhook, error) {
		return s.Store.Webhook(ctx, id)
	})
}

func (s brokenStore) Acted(ctx context.Context, id order.WebhookID) error {
	_, err := through(ctx, s.b, "store acted", func(ctx context.Context) (any, error) {
		return nil, s.Store.Acted(ctx, id)
	})
	return err
}

func (s brokenStore) Sift(
	ctx context.Context, ids []order.WebhookID, since time.Time,
) (moving, news []order.WebhookID, err error) {
	_, err = through(ctx, s.b, "store sift", func(ctx context.Context) (any, error) {
		var err error
		moving, news, err = s.Store.Sift(ctx, ids, since)
		return nil, err
	})
	return moving, news, err
}
