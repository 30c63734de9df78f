package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/payment"
)

// Payments are the rows of payments: an order.Store. Any goroutine may call them.
type Payments struct {
	pool     *pgxpool.Pool
	creates  group[creation]
	saves    group[saving]
	receipts group[receipt]
	orders   *Orders
	follower *Follower // nil: nobody writes rows of orders here
	patience time.Duration
}

var _ order.Store = (*Payments)(nil)

// NewPayments uses a pool of a migrated database. patience is how long a webhook may stand still
// before it is handed to its queue; zero: 15 s.
func NewPayments(pool *pgxpool.Pool, patience time.Duration) *Payments {
	if patience <= 0 {
		patience = 15 * time.Second
	}
	s := &Payments{pool: pool, orders: NewOrders(pool), patience: patience}
	// Attempts of one order are counted, and change each other.
	s.creates = group[creation]{write: s.createAll, most: 2, key: func(c *creation) string {
		return string(c.payment.Order[:])
	}}
	s.saves = group[saving]{write: s.saveAll, most: 1, key: func(s *saving) string {
		return string(s.change.Payment.Order[:])
	}}
	s.receipts = group[receipt]{write: s.receiveAll, most: 1, key: func(r *receipt) string {
		return r.webhook.Tenant + " " + r.webhook.Provider + " " + r.webhook.Event
	}}
	return s
}

// Behind makes new payments wait for the rows of their orders, which f writes: to write such a row
// here would have the two wait for each other, every time. Call it before anything else.
func (s *Payments) Behind(f *Follower) { s.follower = f }

// mayPay are the statuses of payments that count as attempts.
var mayPay = func() (may []string) {
	for _, status := range order.Statuses() {
		if status.MayPay() {
			may = append(may, string(status))
		}
	}
	return may
}()

// createStatement stores payments, of each order one: each if its order has a row, its key is new,
// and not too many others of the order are under way. It says what of that was not so.
var createStatement = newTemplate(`
WITH asked AS (
	SELECT a.*,
		EXISTS (SELECT FROM orders AS o
			WHERE o.day = date '1970-01-01' + a.day AND o.id = a.order_id) AS known,
		(SELECT count(*) FROM payments AS p
			WHERE p.order_id = a.order_id AND p.status = ANY (@may_pay)) AS attempts
	FROM unnest(@id::text[], @tenant::text[], @day::int[], @order::uuid[], @buyer::text[],
		@key::text[], @fingerprint::bytea[], @method::text[], @provider::text[], @account::text[],
		@capture_at::text[], @late::text[], @currency::text[], @amount::bigint[], @status::text[],
		@expires_at::timestamptz[], @due_at::timestamptz[], @created_at::timestamptz[],
		@card_token::text[], @name::text[], @email::text[], @document::text[], @phone::text[])
	AS a (id, tenant, day, order_id, buyer, key, fingerprint, method, provider, account, capture_at,
		late, currency, amount, status, expires_at, due_at, created_at, card_token, name, email,
		document, phone)
), made AS (
	INSERT INTO payments (id, tenant, order_day, order_id, buyer, key, fingerprint, method, provider,
		account, capture_at, late, currency, amount, status, expires_at, due_at, created_at)
	SELECT id, tenant, date '1970-01-01' + day, order_id, buyer, key, fingerprint, method,
		nullif(provider, ''), account, capture_at, late, currency, amount, status, expires_at, due_at,
		created_at
	FROM asked WHERE known AND attempts < @most
	ON CONFLICT (order_id, key) DO NOTHING
	RETURNING id
), secret AS (
	INSERT INTO payers (payment, card_token, name, email, document, phone)
	SELECT id, card_token, name, email, document, phone FROM made JOIN asked USING (id)
	ON CONFLICT (payment) DO NOTHING -- of one that was lost and is recovered
)
SELECT id, EXISTS (SELECT FROM made WHERE made.id = asked.id) AS new, known, attempts FROM asked`)

// Create implements order.Store.
func (s *Payments) Create(
	ctx context.Context, p order.Payment, secret order.Secret, o *inventory.OrderView,
) (order.Created, error) {
	made, err := s.insert(ctx, p, secret, o)
	if err != nil {
		return order.Created{}, fmt.Errorf("postgres: create payment: %w", err)
	}
	if made.new {
		p.Version, p.UpdatedAt = 1, p.CreatedAt
		return order.Created{Payment: p, Alone: made.attempts == 0}, nil
	}
	stored, err := s.ByKey(ctx, p.Order, p.Key)
	if errors.Is(err, order.ErrPaymentNotFound) {
		return order.Created{}, order.ErrTooManyAttempts
	}
	return order.Created{Payment: stored}, err
}

// creation is a payment to be stored, and what came of it.
type creation struct {
	payment order.Payment
	secret  order.Secret
	inserted
}

// inserted is what createStatement says.
type inserted struct {
	new      bool
	known    bool // the order has a row
	attempts int  // of the order, before it
}

// insert stores the payment, behind the order's row if that is not there. What is newer than young
// hardly ever is: its row is waited for, or else written in the same round trip.
func (s *Payments) insert(
	ctx context.Context, p order.Payment, secret order.Secret, o *inventory.OrderView,
) (inserted, error) {
	withOrder := p.CreatedAt.Sub(time.UnixMilli(o.CreatedUnixMilli)) < young
	if withOrder && s.follower != nil {
		withOrder = !s.follower.Await(ctx, o.ID.Shard(), o.Changed, rowPatience)
	}
	c := &creation{payment: p, secret: secret}
	if !withOrder {
		if err := s.creates.do(ctx, c); err != nil {
			return inserted{}, err
		}
		if c.known {
			return c.inserted, nil
		}
	}
	views := []*inventory.OrderView{o}
	if err := s.orders.days.make(ctx, s.pool, views); err != nil {
		return inserted{}, err
	}
	var batch pgx.Batch
	batch.Queue(upsertSQL, columnsOf(views).arguments(false)...)
	queueCreations(&batch, []*creation{c})
	err := s.pool.SendBatch(ctx, &batch).Close()
	return c.inserted, err
}

// createAll stores payments.
func (s *Payments) createAll(ctx context.Context, all []*creation) error {
	var batch pgx.Batch
	queueCreations(&batch, all)
	return s.pool.SendBatch(ctx, &batch).Close()
}

// rowPatience is how long a payment waits for the row of its order: many rounds of the follower, since
// to write it here when the follower is slow would make it slower.
const rowPatience = 2 * time.Second

// young is how far the rows of orders may lag behind the engine without costing a round trip.
const young = 2 * time.Second

func queueCreations(batch *pgx.Batch, all []*creation) {
	args := createStatement.arguments(createColumns(all))
	batch.Queue(createStatement.sql, args...).Query(func(rows pgx.Rows) error {
		by := make(map[inventory.PaymentID]*creation, len(all))
		for _, c := range all {
			by[c.payment.ID] = c
		}
		var id string
		var got inserted
		_, err := pgx.ForEachRow(rows, []any{&id, &got.new, &got.known, &got.attempts}, func() error {
			by[inventory.PaymentID(id)].inserted = got
			return nil
		})
		return err
	})
}

func createColumns(all []*creation) named {
	text := func(value func(p *order.Payment) string) []string {
		return column(all, func(c *creation) string { return value(&c.payment) })
	}
	instant := func(value func(p *order.Payment) time.Time) []time.Time {
		return column(all, func(c *creation) time.Time { return value(&c.payment) })
	}
	payer := func(value func(s *order.Secret) string) []string {
		return column(all, func(c *creation) string { return value(&c.secret) })
	}
	return named{
		"id":          text(func(p *order.Payment) string { return string(p.ID) }),
		"tenant":      text(func(p *order.Payment) string { return p.Tenant }),
		"day":         column(all, func(c *creation) int32 { return int32(dayOf(c.payment.Order)) }),
		"order":       column(all, func(c *creation) [16]byte { return c.payment.Order }),
		"buyer":       text(func(p *order.Payment) string { return string(p.Buyer) }),
		"key":         text(func(p *order.Payment) string { return p.Key }),
		"fingerprint": column(all, func(c *creation) []byte { return c.payment.Fingerprint }),
		"method":      text(func(p *order.Payment) string { return string(p.Method) }),
		"provider":    text(func(p *order.Payment) string { return p.Provider }),
		"account":     text(func(p *order.Payment) string { return p.Account }),
		"capture_at":  text(func(p *order.Payment) string { return string(p.Policy.CaptureAt) }),
		"late":        text(func(p *order.Payment) string { return string(p.Policy.Late) }),
		"currency":    text(func(p *order.Payment) string { return p.Amount.Currency }),
		"amount":      column(all, func(c *creation) int64 { return c.payment.Amount.Amount }),
		"status":      text(func(p *order.Payment) string { return string(p.Status) }),
		"expires_at":  instant(func(p *order.Payment) time.Time { return p.ExpiresAt }),
		"due_at":      instant(func(p *order.Payment) time.Time { return p.DueAt }),
		"created_at":  instant(func(p *order.Payment) time.Time { return p.CreatedAt }),
		"card_token":  payer(func(s *order.Secret) string { return s.CardToken }),
		"name":        payer(func(s *order.Secret) string { return s.Payer.Name }),
		"email":       payer(func(s *order.Secret) string { return s.Payer.Email }),
		"document":    payer(func(s *order.Secret) string { return s.Payer.Document }),
		"phone":       payer(func(s *order.Secret) string { return s.Payer.Phone }),
		"may_pay":     mayPay, "most": order.MaxAttempts,
	}
}

// paymentRow is a row of payments.
type paymentRow struct {
	ID            string
	Tenant        string
	OrderID       [16]byte
	Buyer         string
	Key           string
	Fingerprint   []byte
	Method        string
	Provider      *string
	Account       string
	Reference     *string
	CaptureAt     string
	Late          string
	Currency      string
	Amount        int64
	Captured      int64
	Refunding     int64
	Refunded      int64
	Status        string
	Version       int64
	ReturnToStock bool
	Action        []byte
	DeclinedBy    string
	ExpiresAt     time.Time
	LapsesAt      *time.Time
	DueAt         *time.Time
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

const paymentColumns = `id, tenant, order_id, buyer, key, fingerprint, method, provider, account,
	reference, capture_at, late, currency, amount, captured, refunding, refunded, status, version,
	return_to_stock, action, declined_by, expires_at, lapses_at, due_at, created_at, updated_at`

func (r *paymentRow) payment() (order.Payment, error) {
	p := order.Payment{
		ID: inventory.PaymentID(r.ID), Tenant: r.Tenant, Order: r.OrderID,
		Buyer: inventory.BuyerID(r.Buyer), Key: r.Key, Fingerprint: r.Fingerprint,
		Method: payment.Method(r.Method), Provider: valueOf(r.Provider), Account: r.Account,
		Reference: valueOf(r.Reference),
		Policy: order.Policy{
			CaptureAt: order.CaptureAt(r.CaptureAt), Late: order.Late(r.Late),
		},
		Amount:   payment.Money{Amount: r.Amount, Currency: r.Currency},
		Captured: r.Captured, Refunding: r.Refunding, Refunded: r.Refunded,
		Status: order.Status(r.Status), Version: r.Version, ReturnToStock: r.ReturnToStock,
		DeclinedBy: r.DeclinedBy, ExpiresAt: r.ExpiresAt, LapsesAt: valueOf(r.LapsesAt),
		DueAt: valueOf(r.DueAt), CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if r.Action != nil {
		if err := json.Unmarshal(r.Action, &p.Action); err != nil {
			return order.Payment{}, fmt.Errorf("postgres: action of %s: %w", r.ID, err)
		}
	}
	return p, nil
}

// valueOf is what p points at, or zero.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// orNull is a pointer to v, or nil if it is zero.
func orNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

const (
	paymentSQL     = `SELECT ` + paymentColumns + ` FROM payments WHERE id = $1`
	byKeySQL       = `SELECT ` + paymentColumns + ` FROM payments WHERE order_id = $1 AND key = $2`
	byReferenceSQL = `SELECT ` + paymentColumns + ` FROM payments
		WHERE provider = $1 AND reference = $2`
	ofOrderSQL = `SELECT ` + paymentColumns + ` FROM payments WHERE order_id = $1
		ORDER BY created_at, id`
	inStatusSQL = `SELECT ` + paymentColumns + ` FROM payments
		WHERE status = $1 AND id > $2 ORDER BY id LIMIT $3`
	// offTheWaySQL repeats the condition of the index payments_off_the_way, which a plan for all
	// statuses can use only then.
	offTheWaySQL = `SELECT ` + paymentColumns + ` FROM payments
		WHERE status = $1 AND status NOT IN ` + theWay + ` AND id > $2 ORDER BY id LIMIT $3`
	theWay = `('created', 'begun', 'cleared', 'pending', 'authorised', 'settled', 'confirmed',
		'capturing', 'captured')`
	secretSQL = `SELECT card_token, name, email, document, phone FROM payers WHERE payment = $1`
)

// Payment implements order.Store.
func (s *Payments) Payment(ctx context.Context, id inventory.PaymentID) (order.Payment, error) {
	return s.one(ctx, paymentSQL, string(id))
}

// ByKey implements order.Store.
func (s *Payments) ByKey(
	ctx context.Context, id inventory.OrderID, key string,
) (order.Payment, error) {
	return s.one(ctx, byKeySQL, [16]byte(id), key)
}

// ByReference implements order.Store.
func (s *Payments) ByReference(
	ctx context.Context, provider, reference string,
) (order.Payment, error) {
	return s.one(ctx, byReferenceSQL, provider, reference)
}

// InStatus lists payments by id, which rises with their age: those after one, at most limit.
func (s *Payments) InStatus(
	ctx context.Context, status order.Status, after inventory.PaymentID, limit int,
) ([]order.Payment, error) {
	sql := offTheWaySQL
	if strings.Contains(theWay, "'"+string(status)+"'") {
		sql = inStatusSQL
	}
	return s.query(ctx, sql, string(status), string(after), limit)
}

// OfOrder implements order.Store.
func (s *Payments) OfOrder(ctx context.Context, id inventory.OrderID) ([]order.Payment, error) {
	return s.query(ctx, ofOrderSQL, [16]byte(id))
}

func (s *Payments) one(ctx context.Context, sql string, args ...any) (order.Payment, error) {
	payments, err := s.query(ctx, sql, args...)
	if err != nil {
		return order.Payment{}, err
	}
	if len(payments) == 0 {
		return order.Payment{}, order.ErrPaymentNotFound
	}
	return payments[0], nil
}

func (s *Payments) query(ctx context.Context, sql string, args ...any) ([]order.Payment, error) {
	rows, _ := s.pool.Query(ctx, sql, args...)
	read, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[paymentRow])
	if err != nil {
		return nil, fmt.Errorf("postgres: read payments: %w", err)
	}
	payments := make([]order.Payment, len(read))
	for i, row := range read {
		if payments[i], err = row.payment(); err != nil {
			return nil, err
		}
	}
	return payments, nil
}

// Secret implements order.Store.
func (s *Payments) Secret(ctx context.Context, id inventory.PaymentID) (order.Secret, error) {
	type row struct{ CardToken, Name, Email, Document, Phone string }
	rows, _ := s.pool.Query(ctx, secretSQL, string(id))
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[row])
	if errors.Is(err, pgx.ErrNoRows) {
		return order.Secret{}, order.ErrPaymentNotFound
	}
	if err != nil {
		return order.Secret{}, fmt.Errorf("postgres: read payer: %w", err)
	}
	return order.Secret{CardToken: r.CardToken, Payer: payment.Payer{
		Name: r.Name, Email: r.Email, Document: r.Document, Phone: r.Phone,
	}}, nil
}

// Raise implements order.Store.
func (s *Payments) Raise(ctx context.Context, f order.Finding) error {
	return raise(ctx, s.pool, Finding(f))
}
