package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"numera/engine/inventory"
	"numera/gateway/shards"
	"numera/shard/wire"
)

// source is where the state is read back from. Its methods may be called by any goroutine.
type source interface {
	// product reads a product as it is now.
	product(ctx context.Context, id inventory.ProductID) (*inventory.ProductView, error)
	// taken reads the taken numbers, and at which version.
	taken(ctx context.Context, id inventory.ProductID) (*roaring.Bitmap, uint64, error)
	// orders visits every order of these products, and maybe others, once.
	orders(ctx context.Context, ids []inventory.ProductID, visit func(*inventory.OrderView)) error
}

// clientSource reads from the shards.
type clientSource struct{ client *shards.Client }

func (s clientSource) product(
	ctx context.Context, id inventory.ProductID,
) (*inventory.ProductView, error) {
	o, err := s.client.Product(ctx, wire.ProductQuery{Product: id, Fresh: true})
	if err == nil && o.Product == nil {
		err = fmt.Errorf("read %s: %v", id, o.Code)
	}
	if err != nil {
		return nil, err
	}
	return o.Product, nil
}

func (s clientSource) taken(
	ctx context.Context, id inventory.ProductID,
) (*roaring.Bitmap, uint64, error) {
	var n *wire.Numbers
	var o *inventory.Outcome
	err := whenFree(ctx, func() (err error) {
		n, o, err = s.client.Numbers(ctx, wire.NumbersQuery{Product: id})
		return err
	})
	if err == nil && n == nil {
		err = fmt.Errorf("read numbers of %s: %v", id, o.Code)
	}
	if err != nil {
		return nil, 0, err
	}
	taken := roaring.New()
	if err := taken.UnmarshalBinary(n.Taken); err != nil {
		return nil, 0, fmt.Errorf("read numbers of %s: %w", id, err)
	}
	return taken, n.Version, nil
}

func (s clientSource) orders(
	ctx context.Context, _ []inventory.ProductID, visit func(*inventory.OrderView),
) error {
	for id := range s.client.Info().Shards {
		var after []byte
		for more := true; more; {
			var part *wire.Scan
			err := whenFree(ctx, func() (err error) {
				q := wire.ScanQuery{After: after, Limit: 5000}
				part, err = s.client.Scan(ctx, inventory.ShardID(id), q)
				return err
			})
			if err != nil {
				return fmt.Errorf("scan shard %d: %w", id, err)
			}
			for _, o := range part.Orders {
				visit(o)
			}
			after = part.Next
			more = len(after) > 0
		}
	}
	return nil
}

// whenFree asks until the shard is not overloaded: it answers only a few long queries at a time.
func whenFree(ctx context.Context, ask func() error) error {
	for deadline := time.Now().Add(patience); ; pause(ctx, 5*time.Millisecond) {
		err := ask()
		if !errors.Is(err, shards.ErrOverloaded) || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

// inspect reads everything back and audits it. The products must stand still meanwhile.
func inspect(ctx context.Context, l *load, from source) (*audit, error) {
	views, err := readProducts(ctx, l.plan.ids, from)
	if err != nil {
		return nil, err
	}
	a := newAudit(l)
	if err := from.orders(ctx, l.plan.ids, a.order); err != nil {
		return nil, fmt.Errorf("%w: read orders: %w", ErrIncomplete, err)
	}
	err = each(ctx, readers, len(views), func(ctx context.Context, i int) error {
		now, err := from.product(ctx, views[i].view.ID)
		if err == nil && now.Version != views[i].view.Version {
			err = fmt.Errorf("%s changed meanwhile", now.ID)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: read products again: %w", ErrIncomplete, err)
	}
	for i := range views {
		a.product(views[i].view, views[i].taken)
	}
	a.finish()
	return a, nil
}

// productState is a product with its taken numbers, at one version.
type productState struct {
	view  *inventory.ProductView
	taken *roaring.Bitmap
}

const readers = 16

func readProducts(
	ctx context.Context, ids []inventory.ProductID, from source,
) ([]productState, error) {
	states := make([]productState, len(ids))
	err := each(ctx, readers, len(ids), func(ctx context.Context, i int) (err error) {
		states[i], err = readProduct(ctx, ids[i], from)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: read products: %w", ErrIncomplete, err)
	}
	return states, nil
}

// settles is how long the taken numbers may take to reach the version of their product: they are
// promised to be stale by a second at most.
const settles = 3 * time.Second

func readProduct(
	ctx context.Context, id inventory.ProductID, from source,
) (state productState, err error) {
	for deadline := time.Now().Add(settles); ; pause(ctx, 20*time.Millisecond) {
		var version uint64
		if state.view, err = from.product(ctx, id); err != nil {
			return state, err
		}
		if state.taken, version, err = from.taken(ctx, id); err != nil {
			return state, err
		}
		if version == state.view.Version {
			return state, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return state, errors.Join(ctx.Err(), fmt.Errorf(
				"%s is at version %d and its numbers at %d", id, state.view.Version, version))
		}
	}
}

// each calls do for 0 to n-1, a few at a time, and returns the first error.
func each(ctx context.Context, most, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var running sync.WaitGroup
	for range min(most, n) {
		running.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}

// drain waits until no number of the plan is reserved any more.
func drain(ctx context.Context, p *plan, from source) error {
	deadline := time.Now().Add(time.Duration(p.hold)*time.Second + 5*time.Second)
	for _, id := range p.ids {
		for {
			view, err := from.product(ctx, id)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrIncomplete, err)
			}
			if view.Counters.Reserved == 0 {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%w: %s still holds %d numbers that were due long ago",
					ErrViolated, id, view.Counters.Reserved)
			}
			pause(ctx, 50*time.Millisecond)
		}
	}
	return ctx.Err()
}
