package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"numera/engine/inventory"
)

// executor is a pool, a connection or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// partitions knows which days have theirs, so that each is asked for once. Any goroutine may call
// it.
type partitions struct {
	mu   sync.Mutex
	days map[uint16]bool // since 1970
}

// dayOf is the day in an order's id, in days since 1970.
func dayOf(id inventory.OrderID) uint16 { return binary.BigEndian.Uint16(id[2:]) }

// make makes the partitions that orders need, each in a transaction of its own.
func (p *partitions) make(ctx context.Context, to executor, views []*inventory.OrderView) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, view := range views {
		if err := p.makeDay(ctx, to, dayOf(view.ID)); err != nil {
			return err
		}
	}
	return nil
}

// makeAhead makes the partitions from yesterday to a week from now, so that orders do not wait for
// their day's.
func (p *partitions) makeAhead(ctx context.Context, to executor, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	today := uint16(now.Unix() / (24 * 60 * 60))
	for day := today - 1; day <= today+7; day++ {
		if err := p.makeDay(ctx, to, day); err != nil {
			return err
		}
	}
	return nil
}

func (p *partitions) makeDay(ctx context.Context, to executor, day uint16) error {
	if p.days[day] {
		return nil
	}
	_, err := to.Exec(ctx, "SELECT make_order_day(date '1970-01-01' + $1::int)", int32(day))
	if err != nil {
		return fmt.Errorf("make the partitions of day %d: %w", day, err)
	}
	if p.days == nil {
		p.days = make(map[uint16]bool)
	}
	p.days[day] = true
	return nil
}

// forget makes sure that the next orders have their partitions looked for again: somebody may have
// dropped one.
func (p *partitions) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.days = nil
}
