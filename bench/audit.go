package bench

import (
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"numera/engine/inventory"
)

// audit holds what is read back against what was answered: first every order, by order, then every
// product, by product, then finish. It belongs to one goroutine, while the load is still.
type audit struct {
	load     *load
	products map[inventory.ProductID]*holdings
	orders   int                      // of this load
	foreign  int                      // of others
	statuses map[inventory.Status]int // of this load's orders
}

// holdings are what the orders of a product hold.
type holdings struct {
	owned          *roaring.Bitmap // with a live owner: reserved, paying, paid or shipped
	reserved, sold uint32
}

func newAudit(l *load) *audit {
	for _, lane := range l.lanes {
		for i := range lane.records.len {
			lane.records.at(i).found = 0
		}
	}
	return &audit{
		load: l, products: make(map[inventory.ProductID]*holdings),
		statuses: make(map[inventory.Status]int),
	}
}

func (a *audit) holdings(id inventory.ProductID) *holdings {
	h := a.products[id]
	if h == nil {
		h = &holdings{owned: roaring.New()}
		a.products[id] = h
	}
	return h
}

// order takes one order, of whatever status.
func (a *audit) order(o *inventory.OrderView) {
	for i := range o.Items {
		item := &o.Items[i]
		h := a.holdings(item.Product)
		switch {
		case o.Status.Live():
			h.reserved += uint32(len(item.Numbers))
		case o.Status.Sold():
			h.sold += uint32(len(item.Numbers))
		default:
			continue
		}
		for _, number := range item.Numbers {
			if !h.owned.CheckedAdd(number) {
				a.violate("number %d of %s has two live owners, one of them is order %v",
					number, item.Product, o.ID)
			}
		}
	}
	a.match(o)
}

// match finds the record of an order and compares the two.
func (a *audit) match(o *inventory.OrderView) {
	b, ok := parseBuyer(o.Buyer)
	owner := a.load.owner(b)
	if !ok || owner == nil || b.record() >= owner.records.len {
		a.foreign++
		return
	}
	a.orders++
	a.statuses[o.Status]++
	r := owner.records.at(b.record())
	if r.found++; r.found > 1 {
		a.violate("%s has acted twice: order %v is its second", b.text(), o.ID)
		r.found = 2 // so that it does not wrap
		return
	}
	sum, count := fingerprint(o.Items)
	switch {
	case r.status == inventory.StatusNone && r.doubts == 0:
		a.violate("%s was refused and has order %v all the same", b.text(), o.ID)
	case r.status == inventory.StatusNone:
		// It acted once, as the requests without an answer may.
	case r.order != o.ID:
		a.violate("%s was given order %v, and has order %v", b.text(), r.order, o.ID)
	case r.numbers != sum || int(r.count) != count:
		a.violate("order %v of %s has other numbers than it was given", o.ID, b.text())
	case !r.leadsTo(o.Status):
		a.violate("order %v of %s was %v when it was last answered, and is %v now",
			o.ID, b.text(), r.status, o.Status)
	}
}

// leadsTo says whether an order can be in a status by itself, or by what was left unanswered.
func (r *record) leadsTo(now inventory.Status) bool {
	return now == r.status || r.doubts > 0 ||
		r.status == inventory.StatusReserved && now == inventory.StatusExpired
}

// product takes a product with its taken numbers, both at one version, after all orders.
func (a *audit) product(p *inventory.ProductView, taken *roaring.Bitmap) {
	h := a.holdings(p.ID)
	c := p.Counters
	if c.Reserved != h.reserved || c.Sold != h.sold {
		a.violate("%s counts %d reserved and %d sold, and its orders hold %d and %d",
			p.ID, c.Reserved, c.Sold, h.reserved, h.sold)
	}
	if uint64(c.Available)+uint64(c.Reserved)+uint64(c.Sold)+uint64(c.Blocked) != uint64(c.Count) {
		a.violate("%s counts %d available, %d reserved, %d sold, %d blocked, which is not its %d",
			p.ID, c.Available, c.Reserved, c.Sold, c.Blocked, c.Count)
	}
	if p.Halted != "" {
		a.violate("%s was halted: %s", p.ID, p.Halted)
	}
	if want := uint64(c.Reserved) + uint64(c.Sold) + uint64(c.Blocked); taken.GetCardinality() != want {
		a.violate("%s has %d numbers taken, and counts %d", p.ID, taken.GetCardinality(), want)
	}
	if free := roaring.AndNot(h.owned, taken); !free.IsEmpty() {
		a.violate("number %d of %s has a live owner and is not taken", free.Minimum(), p.ID)
	}
	if h.owned.IsEmpty() {
		return
	}
	if first, last := p.Settings.FirstNumber, p.Settings.LastNumber(); h.owned.Minimum() < first ||
		h.owned.Maximum() > last {
		a.violate("%s has %d to %d, and orders hold %d to %d", p.ID, first, last,
			h.owned.Minimum(), h.owned.Maximum())
	}
}

// finish finds what is missing.
func (a *audit) finish() {
	for _, lane := range a.load.lanes {
		for i := range lane.records.len {
			if r := lane.records.at(i); r.status != inventory.StatusNone && r.found == 0 {
				a.violate("order %v of %s was acknowledged and is missing",
					r.order, makeBuyer(lane.id, i).text())
			}
		}
	}
}

func (a *audit) violate(format string, args ...any) { a.load.violate(fmt.Errorf(format, args...)) }
