package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	group    group
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
	return &Payments{
		pool: pool, group: group{pool: pool}, orders: NewOrders(pool), patience: patience,
	}
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

// createSQL stores a payment if its order has a row, its key is new, and not too many others of the
// order are under way; it says what of that was not so.
const createSQL = `
WITH known AS (SELECT FROM orders WHERE day = date '1970-01-01' + @day::int AND id = @order),
under_way AS (
	SELECT count(*) AS attempts FROM payments WHERE order_id = @order AND status = ANY (@may_pay)
), made AS (
	INSERT INTO payments (id, tenant, order_day, order_id, buyer, key, fingerprint, method, provider,
		account, capture_at, late, currency, amount, status, expires_at, due_at, created_at)
	SELECT @id, @tenant, date '1970-01-01' + @day::int, @order, @buyer, @key, @fingerprint, @method,
		nullif(@provider::text, ''), @account, @capture_at, @late, @currency, @amount, @status,
		@expires_at, @due_at, @created_at
	FROM known, under_way WHERE attempts < @most
	ON CONFLICT (order_id, key) DO NOTHING
	RETURNING id
), secret AS (
	INSERT INTO payers (payment, card_token, name, email, document, phone)
	SELECT id, @card_token, @name, @email, @document, @phone FROM made
)
SELECT EXISTS (SELECT FROM made) AS made, EXISTS (SELECT FROM known) AS known,
	(SELECT attempts FROM under_way) AS attempts`

var createStatement = newTemplate(createSQL)

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

// inserted is what createSQL says.
type inserted struct {
	new      bool
	known    bool // the order has a row
	attempts int  // of the order, before it
}

// insert stores the payment, behind the order's row if that is not there. What is newer than young
// hardly ever is: its row is waited for, or else written in the same round trip.
func (s *Payments) insert(
	ctx context.Context, p order.Payment, secret order.Secret, o *inventory.OrderView,
) (made inserted, err error) {
	withOrder := p.CreatedAt.Sub(time.UnixMilli(o.CreatedUnixMilli)) < young
	if withOrder && s.follower != nil {
		withOrder = !s.follower.Await(ctx, o.ID.Shard(), o.Changed, rowPatience)
	}
	sql, args := createStatement.sql, createArguments(p, secret)
	if !withOrder {
		_, err := s.group.do(ctx, sql, args, &made.new, &made.known, &made.attempts)
		if err != nil {
			return inserted{}, err // made may still be written to
		}
		if made.known {
			return made, nil
		}
	}
	views := []*inventory.OrderView{o}
	if err := s.orders.days.make(ctx, s.pool, views); err != nil {
		return inserted{}, err
	}
	var batch pgx.Batch
	batch.Queue(upsertSQL, columnsOf(views).arguments(false)...)
	batch.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
		return row.Scan(&made.new, &made.known, &made.attempts)
	})
	return made, s.pool.SendBatch(ctx, &batch).Close()
}

// rowPatience is how long a payment waits for the row of its order: some rounds of the follower.
const rowPatience = 300 * time.Millisecond

// young is how far the rows of orders may lag behind the engine without costing a round trip.
const young = 2 * time.Second

func createArguments(p order.Payment, secret order.Secret) []any {
	return createStatement.arguments(named{
		"id": string(p.ID), "tenant": p.Tenant, "day": int32(dayOf(p.Order)),
		"order": [16]byte(p.Order), "buyer": string(p.Buyer), "key": p.Key,
		"fingerprint": p.Fingerprint, "method": string(p.Method), "provider": p.Provider,
		"account": p.Account, "capture_at": string(p.Policy.CaptureAt),
		"late": string(p.Policy.Late), "currency": p.Amount.Currency, "amount": p.Amount.Amount,
		"status": string(p.Status), "expires_at": p.ExpiresAt, "due_at": p.DueAt,
		"created_at": p.CreatedAt, "may_pay": mayPay, "most": order.MaxAttempts,
		"card_token": secret.CardToken, "name": secret.Payer.Name, "email": secret.Payer.Email,
		"document": secret.Payer.Document, "phone": secret.Payer.Phone,
	})
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
	return s.query(ctx, inStatusSQL, string(status), string(after), limit)
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
