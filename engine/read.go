package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"numera/engine/inventory"
	"numera/engine/inventory/numberset"
)

// published is what readers see of a product without waiting for the apply goroutine.
type published struct {
	standing atomic.Pointer[inventory.Standing]

	mu      sync.Mutex // held while numbers are frozen anew
	numbers atomic.Pointer[numbers]
}

// publishedPiece is how many products stand side by side, so that they can be found by their slots.
const publishedPiece = 256

// numbers are a product's taken numbers at one version.
type numbers struct {
	view  *inventory.ProductView
	taken numberset.View
	at    time.Time
}

// publishChanged shows readers how the products that have changed stand now. It looks at all places
// first, as a write waits for its place to come from memory, and so would each of them in turn.
func (e *Engine) publishChanged() {
	e.warmed = 0
	for _, p := range e.state.Changed() {
		if e.place(p.Slot()).standing.Load() != nil {
			e.warmed++
		}
	}
	e.state.TakeChanged(e.publish)
}

// publish shows readers how a product stands now. The apply goroutine calls it.
func (e *Engine) publish(slot uint32, now *inventory.Standing) {
	p := e.place(slot)
	isNew := p.standing.Load() == nil
	p.standing.Store(now) // before others can find it
	if isNew {
		e.products.Store(now.ID(), p)
	}
}

// place finds what is published of a product by its slot: a batch that touches many would look up
// as many names. It makes room for new ones, which come slot by slot.
func (e *Engine) place(slot uint32) *published {
	piece := slot / publishedPiece
	if int(piece) == len(e.bySlot) {
		e.bySlot = append(e.bySlot, new([publishedPiece]published))
	}
	return &e.bySlot[piece][slot%publishedPiece]
}

func (e *Engine) published(id inventory.ProductID) *published {
	if p, ok := e.products.Load(id); ok {
		return p.(*published)
	}
	return nil
}

// Product is the product as of the last batch that Apply has returned from, or nil. It never waits.
func (e *Engine) Product(id inventory.ProductID) *inventory.ProductView {
	if p := e.published(id); p != nil {
		return p.standing.Load().View()
	}
	return nil
}

// FreshProduct is the product with all that Apply has told so far, or nil. It waits for the batch
// under way.
func (e *Engine) FreshProduct(id inventory.ProductID) *inventory.ProductView {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.Product(id)
}

// numbersMaxAge is how stale the taken numbers may be: freezing them makes the actor copy what it
// changes next, so it is not done for every reader.
const numbersMaxAge = 250 * time.Millisecond

// Numbers are the product's taken numbers, as offsets from its first, with the view of the product
// at the same version; nil if there is no such product. They are at most numbersMaxAge older than
// the last batch. It may wait for one batch.
func (e *Engine) Numbers(id inventory.ProductID) (*inventory.ProductView, numberset.View) {
	p := e.published(id)
	if p == nil {
		return nil, numberset.View{}
	}
	fresh := func() *numbers {
		n := p.numbers.Load()
		if n == nil || n.view.Version != p.standing.Load().Version() && time.Since(n.at) > numbersMaxAge {
			return nil
		}
		return n
	}
	if n := fresh(); n != nil {
		return n.view, n.taken
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := fresh(); n != nil {
		return n.view, n.taken
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	product := e.state.Product(id)
	if product == nil {
		return nil, numberset.View{} // the state was replaced meanwhile
	}
	p = e.published(id) // another one if the state was replaced meanwhile
	n := &numbers{view: p.standing.Load().View(), taken: product.Taken(), at: time.Now()}
	p.numbers.Store(n)
	return n.view, n.taken
}

// Order reads an order as of the last batch.
func (e *Engine) Order(c inventory.OnOrder) *inventory.Outcome {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.state.Order(c)
}

// Tail reads the outbox after a sequence, and gives that of the newest event. trimmed says that
// what comes next is no longer kept.
func (e *Engine) Tail(after uint64, limit int) (t inventory.Tail, last uint64, trimmed bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, trimmed = e.state.Tail(after, limit)
	return t, e.state.Sequence(), trimmed
}

// Scan reads a part of the orders; see inventory.State.Scan.
func (e *Engine) Scan(c inventory.ScanCursor, limit int) (
	orders []*inventory.OrderView, next inventory.ScanCursor, more bool, sequence uint64,
) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	next, more = e.state.Scan(c, limit, func(o *inventory.OrderView) { orders = append(orders, o) })
	return orders, next, more, e.state.Sequence()
}

// Placed lists the product's orders from the one placed after the given sequence on, oldest first;
// ok is false if there is no such product. It costs a walk over all orders of the shard, which
// runs beside the apply goroutine.
func (e *Engine) Placed(id inventory.ProductID, after uint64) (orders []inventory.Placed, ok bool) {
	e.mu.Lock()
	p := e.state.Product(id)
	if p == nil {
		e.mu.Unlock()
		return nil, false
	}
	frozen := e.state.FreezeOrders()
	e.mu.Unlock()
	orders = slices.DeleteFunc(frozen.Placed(p.Slot()), func(o inventory.Placed) bool {
		return o.Sequence <= after
	})
	slices.SortFunc(orders, func(a, b inventory.Placed) int {
		return int(a.Sequence) - int(b.Sequence)
	})
	return slices.Compact(orders), true
}

// Orders reads many orders; those that are no longer kept are left out.
func (e *Engine) Orders(ids []inventory.Placed) []*inventory.OrderView {
	e.mu.RLock()
	defer e.mu.RUnlock()
	orders := make([]*inventory.OrderView, 0, len(ids))
	for _, id := range ids {
		if o := e.state.Order(inventory.OnOrder{Order: id.Order}); o.Order != nil {
			orders = append(orders, o.Order)
		}
	}
	return orders
}

// NextDeadline is when the earliest order is due in log time, in Unix milliseconds; 0 if none is.
func (e *Engine) NextDeadline() int64 { return e.nextDeadline.Load() }

// Clock is the log time in Unix milliseconds.
func (e *Engine) Clock() int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.state.Clock()
}

// Digest is that of the state after the last batch.
func (e *Engine) Digest() uint64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.state.Digest()
}
