package events

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

// payments is a real outbox of payments in PostgreSQL, and a real JetStream.
type payments struct {
	*house
	pool *pgxpool.Pool
}

// rows gives the outbox as cmd does, but for what the data say.
type rows struct{ *postgres.PaymentEvents }

func (r rows) Pull(ctx context.Context, limit int) ([]Row, error) {
	pulled, err := r.PaymentEvents.Pull(ctx, limit)
	all := make([]Row, len(pulled))
	for i, e := range pulled {
		all[i] = Row{ID: e.ID, Kind: e.Kind, Data: fmt.Appendf(nil, "%s of %s", e.Kind, e.Payment)}
	}
	return all, err
}

func openPayments(t *testing.T) *payments {
	t.Helper()
	p := &payments{&house{t: t, conn: startNATS(t)}, postgrestest.New(t)}
	var err error
	p.js, err = jetstream.New(p.conn)
	require.NoError(t, err)
	return p
}

// happen writes n events under ids from one on, as the transactions of payments do.
func (p *payments) happen(from, n int) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), `INSERT INTO payment_events
		(id, kind, payment, order_id, tenant, currency, amount, captured, refunded)
		OVERRIDING SYSTEM VALUE SELECT id, 'payment.captured', 'p' || id, gen_random_uuid(), 't',
		'BRL', 100, 100, 0 FROM generate_series($1::int, $2::int) id`, from, from+n-1)
	require.NoError(p.t, err)
}

func (p *payments) relay(syncDelay time.Duration) *PaymentRelay {
	p.t.Helper()
	r, err := StartPayments(p.t.Context(), p.conn, rows{postgres.NewPaymentEvents(p.pool)},
		Config{SyncDelay: syncDelay})
	require.NoError(p.t, err)
	p.t.Cleanup(r.Close)
	return r
}

func (p *payments) left() (n int) {
	p.t.Helper()
	row := p.pool.QueryRow(p.t.Context(), "SELECT count(*) FROM payment_events")
	require.NoError(p.t, row.Scan(&n))
	return n
}

// requireTold expects the events of these ids in the stream, in this order, each once.
func (p *payments) requireTold(ids ...int) {
	p.t.Helper()
	for i, m := range p.told(len(ids)) {
		require.Equal(p.t, fmt.Sprint("pg-", ids[i]), m.Headers().Get(nats.MsgIdHdr))
		require.Equal(p.t, SubjectPrefix+"payment.captured", m.Subject())
		require.Equal(p.t, fmt.Sprint("payment.captured of p", ids[i]), string(m.Data()))
	}
	stream, err := p.js.Stream(p.t.Context(), Stream)
	require.NoError(p.t, err)
	require.EqualValues(p.t, len(ids), stream.CachedInfo().State.Msgs)
}

// TestPaymentsAreToldAndForgotten, those too that become visible under a lower id later.
func TestPaymentsAreToldAndForgotten(t *testing.T) {
	t.Parallel()
	p := openPayments(t)
	p.happen(11, 2)
	p.relay(time.Millisecond)
	p.requireTold(11, 12)
	require.Eventually(t, func() bool { return p.left() == 0 }, patience, 5*time.Millisecond)
	p.happen(1, 2)
	p.requireTold(11, 12, 1, 2)
	require.Eventually(t, func() bool { return p.left() == 0 }, patience, 5*time.Millisecond)
}

// TestPaymentsAreKeptUntilTheyAreSafe: for SyncDelay, and so over a stop before it is over.
func TestPaymentsAreKeptUntilTheyAreSafe(t *testing.T) {
	t.Parallel()
	p := openPayments(t)
	p.happen(1, 3)
	r := p.relay(never)
	p.requireTold(1, 2, 3)
	r.Close()
	require.Equal(t, 3, p.left())

	p.happen(4, 1)
	r = p.relay(never)
	p.requireTold(1, 2, 3, 4)
	r.Close()
	require.NoError(t, p.js.DeleteStream(t.Context(), Stream))
	p.relay(never)
	p.requireTold(1, 2, 3, 4)
}
