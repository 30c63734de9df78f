package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"numera/engine/inventory"
)

// session is a stretch of work on one connection, which holds the lock that makes this Follower the
// one that works: with the connection the lock and an open transaction are gone together, so that
// two never write at once. Its writer is one goroutine; it commits the batches of all shards that
// have gathered, in one transaction.
type session struct {
	*Follower
	conn    *pgx.Conn
	batches chan *batch
	stored  []offset // by shard, as the database has them; read by a shard's tail for itself only
}

// What the database may take for. It is not trusted to answer: a server that is stopped in its
// tracks, or a network that swallows packets, says nothing for ever.
const (
	lookPatience  = 5 * time.Second  // for a row or two
	writePatience = 20 * time.Second // for a transaction
)

// session works until something goes wrong with the database.
func (f *Follower) session(ctx context.Context) error {
	starting, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	conn, err := f.lead(starting)
	if err != nil {
		return err
	}
	defer closeBroken(conn)
	s := &session{Follower: f, conn: conn, batches: make(chan *batch)}
	if err := s.begin(starting); err != nil {
		return err
	}
	f.settle(nil)
	f.writing.Store(true)
	defer f.writing.Store(false)
	ctx, stop := context.WithCancel(ctx)
	var tails sync.WaitGroup
	for shard, at := range s.stored {
		tails.Go(func() { (&tail{session: s, shard: inventory.ShardID(shard), at: at}).run(ctx) })
	}
	err = s.write(ctx)
	stop()
	tails.Wait()
	return err
}

// closeBroken closes a connection that may be broken: then there is nobody to say goodbye to.
func closeBroken(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// followerLock is the key of the advisory lock of whoever writes the rows.
const followerLock = 0x6e756d657261 // "numera"

// lead takes the lock on a connection of its own. Should this machine vanish, the server notices
// within half a minute and gives the lock to another.
func (f *Follower) lead(ctx context.Context) (*pgx.Conn, error) {
	pooled, err := f.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	var leads bool
	err = pooled.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(followerLock)).Scan(&leads)
	if err == nil && !leads {
		if err = f.standBy(ctx, pooled.Conn()); err == nil {
			err = errStandby
		}
	}
	if err != nil {
		pooled.Release()
		return nil, fmt.Errorf("lock: %w", err)
	}
	conn := pooled.Hijack()
	// Commits do not wait for the disk, on which the shards' own log may be too: what a crash of
	// PostgreSQL takes away is at the end, rows and offset together, and is pulled again. It is
	// acknowledged when it is durable.
	_, err = conn.Exec(ctx, "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; "+
		"SET tcp_keepalives_count = 3; SET tcp_user_timeout = 25000; SET synchronous_commit = off")
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// standBy notes how far the other Follower is.
func (f *Follower) standBy(ctx context.Context, conn *pgx.Conn) error {
	offsets, err := f.offsets(ctx, conn)
	if err != nil {
		return err
	}
	for shard, at := range offsets {
		f.lag[shard].offset.Store(at.sequence)
	}
	return nil
}

// begin checks that the rows are this engine's, and reads how far they are.
func (s *session) begin(ctx context.Context) error {
	info := s.outboxes.Info()
	_, err := s.conn.Exec(ctx, "INSERT INTO engine (cluster) VALUES ($1) ON CONFLICT DO NOTHING",
		info.Cluster)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	var cluster string
	if err := s.conn.QueryRow(ctx, "SELECT cluster FROM engine").Scan(&cluster); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if cluster != info.Cluster {
		return fmt.Errorf("%w: %s, not %s", ErrAnotherEngine, cluster, info.Cluster)
	}
	s.days.forget()
	if err := s.days.makeAhead(ctx, s.conn, time.Now()); err != nil {
		return err
	}
	_, err = s.conn.Exec(ctx, "INSERT INTO shard_offsets (shard) "+
		"SELECT generate_series(0, $1::int - 1) ON CONFLICT DO NOTHING", int32(info.Shards))
	if err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	s.stored, err = s.offsets(ctx, s.conn)
	for shard, at := range s.stored {
		s.lag[shard].offset.Store(at.sequence)
	}
	return err
}

// offsets reads how far the rows are, by shard.
func (f *Follower) offsets(ctx context.Context, conn *pgx.Conn) ([]offset, error) {
	rows, err := conn.Query(ctx, "SELECT shard, sequence FROM shard_offsets")
	if err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	all := make([]offset, len(f.lag))
	var shard int32
	var sequence *int64
	_, err = pgx.ForEachRow(rows, []any{&shard, &sequence}, func() error {
		if int(shard) < len(all) && sequence != nil {
			all[shard] = offset{true, uint64(*sequence)}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	return all, nil
}

const (
	// gather is how long a batch waits for those of other shards, to share their transaction.
	gather = 20 * time.Millisecond
	// transactionMost is from how many orders on it does not wait.
	transactionMost = 4000
	// watchPeriod is how often an idle session sees whether the database is still what it was.
	watchPeriod = time.Second
	// daysPeriod is how often partitions are made ahead.
	daysPeriod = time.Hour
)

// write commits batches until something goes wrong.
func (s *session) write(ctx context.Context) error {
	watch, days := time.NewTicker(watchPeriod), time.NewTicker(daysPeriod)
	defer watch.Stop()
	defer days.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-s.batches:
			err = s.commit(ctx, s.gather(ctx, b))
		case <-watch.C:
			err = s.watch(ctx)
		case now := <-days.C:
			err = s.days.makeAhead(ctx, s.conn, now)
		}
		if err != nil {
			return err
		}
	}
}

// gather collects what other shards have, for a moment.
func (s *session) gather(ctx context.Context, first *batch) []*batch {
	batches, orders := []*batch{first}, len(first.orders)
	patience := time.NewTimer(gather)
	defer patience.Stop()
	for len(batches) < len(s.stored) && orders < transactionMost {
		select {
		case b := <-s.batches:
			batches, orders = append(batches, b), orders+len(b.orders)
		case <-patience.C:
			return batches
		case <-ctx.Done():
			return batches
		}
	}
	return batches
}

// watch sees whether the offsets are what this session has written: a database that was emptied or
// restored meanwhile has others.
func (s *session) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	offsets, err := s.offsets(ctx, s.conn)
	if err != nil {
		return err
	}
	for shard := range offsets {
		if offsets[shard] != s.stored[shard] {
			return errMoved
		}
	}
	return nil
}

// commit writes the orders of batches and moves their offsets in one transaction.
func (s *session) commit(ctx context.Context, batches []*batch) error {
	var orders []*inventory.OrderView
	for _, b := range batches {
		orders = append(orders, b.orders...)
	}
	err := s.transact(ctx, orders, batches)
	if refused(err) != nil {
		// A partition may have been dropped. Whatever else is wrong with a row is wrong for good,
		// and must not hold up all others.
		s.days.forget()
		err = s.transactApart(ctx, orders, batches)
	}
	if err != nil {
		return fmt.Errorf("write %d orders: %w", len(orders), err)
	}
	for _, b := range batches {
		if b.move {
			s.stored[b.shard] = b.to
		}
		close(b.written)
	}
	return nil
}

// transact writes everything at once or nothing. The statements travel together and are a transaction
// by themselves: checkouts that need one of these rows wait for its end, which must not wait for us.
func (s *session) transact(ctx context.Context, orders []*inventory.OrderView, batches []*batch) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	if err := s.days.make(ctx, s.conn, orders); err != nil {
		return err
	}
	var both pgx.Batch
	if len(orders) > 0 {
		both.Queue(upsertSQL, columnsOf(orders).arguments(false)...)
	}
	if arguments := moves(batches); arguments != nil {
		both.Queue(moveOffsetsSQL, arguments...)
	}
	return moved(s.conn.SendBatch(ctx, &both).Close())
}

// transactApart writes what the database takes of the orders, and raises the rest.
func (s *session) transactApart(
	ctx context.Context, orders []*inventory.OrderView, batches []*batch,
) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	if err := s.days.make(ctx, s.conn, orders); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if err := upsertApart(ctx, tx, orders); err != nil {
			return err
		}
		arguments := moves(batches)
		if arguments == nil {
			return nil
		}
		_, err := tx.Exec(ctx, moveOffsetsSQL, arguments...)
		return moved(err)
	})
}

// moveOffsetsSQL moves offsets that are where they are expected to be, or fails with offsetsMoved.
const (
	moveOffsetsSQL = "SELECT move_offsets($1::int[], $2::bigint[], $3::bigint[])"
	offsetsMoved   = "NU001"
)

// moves are the arguments of moveOffsetsSQL; nil: there is none to move.
func moves(batches []*batch) []any {
	var shards []int32
	var from, to []*int64
	for _, b := range batches {
		if b.move {
			shards = append(shards, int32(b.shard))
			from, to = append(from, b.from.column()), append(to, b.to.column())
		}
	}
	if len(shards) == 0 {
		return nil
	}
	return []any{shards, from, to}
}

// moved names the failure of an offset that was not where it was expected.
func moved(err error) error {
	var failure *pgconn.PgError
	if errors.As(err, &failure) && failure.Code == offsetsMoved {
		return errMoved
	}
	return err
}

func (o offset) column() *int64 {
	if !o.known {
		return nil
	}
	sequence := int64(o.sequence)
	return &sequence
}

// refused is the database's refusal of a row, or nil: classes 22 and 23 of its error codes.
func refused(err error) *pgconn.PgError {
	var failure *pgconn.PgError
	if errors.As(err, &failure) &&
		(strings.HasPrefix(failure.Code, "22") || strings.HasPrefix(failure.Code, "23")) {
		return failure
	}
	return nil
}

// FindingRowRefused is raised for an order that the database does not take.
const FindingRowRefused = "row_refused"

// upsertApart writes what the database takes and raises the rest: by halves, since there are few.
func upsertApart(ctx context.Context, to executor, orders []*inventory.OrderView) error {
	tx := to.(pgx.Tx)
	err := pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { return upsert(ctx, part, orders) })
	refusal := refused(err)
	switch {
	case refusal == nil:
		return err
	case len(orders) > 1:
		half := len(orders) / 2
		if err := upsertApart(ctx, tx, orders[:half]); err != nil {
			return err
		}
		return upsertApart(ctx, tx, orders[half:])
	}
	return raise(ctx, tx, Finding{
		Kind: FindingRowRefused, Subject: orders[0].ID.String(),
		Detail: fmt.Sprintf("%s %s: the row would break the rule %s",
			orders[0].Status, refusal.Code, refusal.ConstraintName),
	})
}
