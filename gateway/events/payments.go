package events

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Row is an event of payments, as it is published.
type Row struct {
	ID   int64
	Kind string
	Data []byte // JSON
}

// Rows is the outbox of payments: see postgres.PaymentEvents for the contract.
type Rows interface {
	Pull(ctx context.Context, limit int) ([]Row, error)
	Delete(ctx context.Context, ids []int64) error
}

// rowsBatch is how many rows are published before they are deleted, Config.SyncDelay later: with
// the default of it, some 6,000 a second can follow.
const rowsBatch = 20_000

// PaymentRelay publishes the events of payments to the same stream, each at least once, those of
// one payment in order, with the message id pg-<id>. It has one goroutine: Close ends it.
type PaymentRelay struct {
	config  Config
	js      jetstream.JetStream
	rows    Rows
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// StartPayments relays until Close. The rows may be out of reach, and come back.
func StartPayments(ctx context.Context, conn *nats.Conn, rows Rows, c Config) (*PaymentRelay, error) {
	c = c.withDefaults()
	js, err := openStream(ctx, conn, c)
	if err != nil {
		return nil, err
	}
	r := &PaymentRelay{config: c, js: js, rows: rows}
	ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(func() { r.relay(ctx) })
	return r, nil
}

// Close stops relaying. What was not deleted will be relayed again after a start.
func (r *PaymentRelay) Close() {
	r.cancel()
	r.running.Wait()
}

func (r *PaymentRelay) relay(ctx context.Context) {
	lost := false // said once, until it is back: Postgres is named by others
	for ctx.Err() == nil {
		published, err := r.once(ctx)
		if err != nil && ctx.Err() == nil {
			if !lost {
				r.config.Log.Warn("relaying events of payments was interrupted", "error", err)
			}
			sleep(ctx, time.Second)
		}
		lost = err != nil
		if published == 0 {
			sleep(ctx, idle)
		}
	}
}

// once publishes what there is, and deletes it when JetStream has had it for SyncDelay.
func (r *PaymentRelay) once(ctx context.Context) (published int, err error) {
	rows, err := r.rows.Pull(ctx, rowsBatch)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	messages := make([]message, len(rows))
	ids := make([]int64, len(rows))
	for i := range rows {
		m := nats.NewMsg(SubjectPrefix + rows[i].Kind)
		m.Data = rows[i].Data
		messages[i] = message{m, "pg-" + strconv.FormatInt(rows[i].ID, 10)}
		ids[i] = rows[i].ID
	}
	if err := publish(ctx, r.js, messages); err != nil {
		return 0, err
	}
	sleep(ctx, r.config.SyncDelay)
	if err := r.rows.Delete(ctx, ids); err != nil {
		return 0, fmt.Errorf("events: %w", err)
	}
	return len(rows), nil
}
