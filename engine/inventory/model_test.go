package inventory_test

import (
	"fmt"
	"slices"

	. "numera/engine/inventory"
)

// model is what a shard should do, written from DESIGN.md and API.md alone and as simply as can be:
// every number of every product has an entry that says who has it, and everything is looked up by
// walking over everything. It shares no code with what it is compared with.
//
// Where the state machine may choose, the model takes its choice from the answer and demands that
// it was a legal one: which numbers a random pick takes, and when after 24 hours an ended order is
// forgotten.
type model struct {
	limits    Limits
	clock     int64
	products  []*modelProduct // in order of creation
	orders    []*modelOrder   // in order of creation
	events    []modelEvent
	consumers map[string]int // how many events each has acknowledged
}

type modelProduct struct {
	id       ProductID
	settings Settings
	state    SaleState
	numbers  []owner                 // by offset from the first number
	restocks map[string]modelRestock // by key with its scope
}

type modelRestock struct {
	count uint32
	at    int64
}

// owner says where a number is: with an order, blocked, or nowhere.
type owner struct {
	order   *modelOrder
	blocked bool
}

type modelOrder struct {
	id       OrderID
	key      string // with its scope
	body     string
	status   Status
	overdue  bool
	releases bool // overdue, and given up at expires
	buyer    BuyerID
	payment  PaymentID
	items    []ItemView
	created  int64
	expires  int64
	changed  int // events so far when it last changed
	endedAt  int64
}

type modelEvent struct {
	kind    string
	order   *OrderView
	product ProductID
}

func newModel(limits Limits) *model {
	return &model{limits: limits, consumers: make(map[string]int)}
}

func (m *model) product(id ProductID) *modelProduct {
	for _, p := range m.products {
		if p.id == id {
			return p
		}
	}
	return nil
}

// begin starts a batch: the clock moves on and what is due expires, oldest first.
func (m *model) begin(time int64, kept func(OrderID) bool) {
	m.clock = max(m.clock, time)
	m.forget(kept)
	for range m.limits.ExpirePerBatch {
		due := slices.DeleteFunc(slices.Clone(m.orders), func(o *modelOrder) bool { return !m.due(o) })
		if len(due) == 0 {
			return
		}
		m.expire(slices.MinFunc(due, func(a, b *modelOrder) int {
			if a.expires != b.expires {
				return int(a.expires - b.expires)
			}
			return m.firstProduct(a) - m.firstProduct(b) // and then in order of creation
		}))
	}
}

func (m *model) firstProduct(o *modelOrder) int {
	first := len(m.products)
	for _, item := range o.items {
		first = min(first, slices.Index(m.products, m.product(item.Product)))
	}
	return first
}

func (m *model) due(o *modelOrder) bool {
	return o.status.Live() && (!o.overdue || o.releases) && o.expires <= m.clock
}

func (m *model) expire(o *modelOrder) {
	if o.status == StatusReserved || o.overdue {
		m.assign(o, owner{})
		m.become(o, StatusExpired, "inventory.released")
		return
	}
	at := int64(0)
	for _, item := range o.items {
		seconds := m.product(item.Product).settings.OverdueReleaseSeconds
		if seconds == 0 {
			at = -1
			break
		}
		at = max(at, o.expires+seconds*1000)
	}
	o.overdue = true
	if o.releases = at >= 0; o.releases {
		o.expires = at
	}
	m.tell(o, "order.overdue")
}

func (m *model) become(o *modelOrder, status Status, events ...string) {
	o.status, o.overdue, o.releases = status, false, false
	if !status.Live() && !status.Sold() {
		o.endedAt = m.clock
	}
	m.tell(o, events...)
}

func (m *model) tell(o *modelOrder, events ...string) {
	o.changed = len(m.events) + len(events)
	for _, kind := range events {
		m.events = append(m.events, modelEvent{kind: kind, order: o.view()})
	}
}

func (m *model) tellProduct(p *modelProduct, kind string) {
	m.events = append(m.events, modelEvent{kind: kind, product: p.id})
}

func (o *modelOrder) view() *OrderView {
	return &OrderView{
		ID: o.id, Status: o.status, Overdue: o.overdue, Buyer: o.buyer, Payment: o.payment,
		Items: o.items, CreatedUnixMilli: o.created, ExpiresUnixMilli: o.expires,
		Changed: uint64(o.changed),
	}
}

// assign gives all numbers of an order to an owner.
func (m *model) assign(o *modelOrder, to owner) {
	for _, item := range o.items {
		p := m.product(item.Product)
		for _, n := range item.Numbers {
			p.numbers[n-p.settings.FirstNumber] = to
		}
	}
}

func (p *modelProduct) free(number uint32) bool {
	return p.numbers[number-p.settings.FirstNumber] == owner{}
}

// freeNumbers lists what is not taken, ascending.
func (p *modelProduct) freeNumbers() []uint32 {
	var free []uint32
	for offset := range p.numbers {
		if n := p.settings.FirstNumber + uint32(offset); p.free(n) {
			free = append(free, n)
		}
	}
	return free
}

// run is the first unbroken run of at least n of the numbers, which are ascending, and the longest
// one there is.
func run(free []uint32, n int) (first []uint32, longest int) {
	for i := range free {
		k := i + 1
		for k < len(free) && free[k] == free[k-1]+1 {
			k++
		}
		longest = max(longest, k-i)
		if first == nil && k-i >= n {
			first = free[i : i+n]
		}
	}
	return first, longest
}

func (p *modelProduct) counters() Counters {
	c := Counters{Count: uint32(len(p.numbers))}
	for _, at := range p.numbers {
		switch {
		case at.blocked:
			c.Blocked++
		case at.order == nil:
			c.Available++
		case at.order.status.Live():
			c.Reserved++
		case at.order.status.Sold():
			c.Sold++
		default:
			panic(fmt.Sprint("an order that is ", at.order.status, " has a number"))
		}
	}
	return c
}

// held is how many numbers of the product a buyer has.
func (p *modelProduct) held(buyer BuyerID) uint32 {
	n := uint32(0)
	for _, at := range p.numbers {
		if at.order != nil && at.order.buyer == buyer {
			n++
		}
	}
	return n
}

// nextExpiry is when the first reservation in one of the products may end, or 0.
func (m *model) nextExpiry(ids ...ProductID) int64 {
	next := int64(0)
	for _, o := range m.orders {
		concerned := slices.ContainsFunc(o.items, func(item ItemView) bool {
			return slices.Contains(ids, item.Product)
		})
		if concerned && o.status.Live() && (!o.overdue || o.releases) &&
			(next == 0 || o.expires < next) {
			next = o.expires
		}
	}
	return next
}

// backlog is how many events are kept for the slowest consumer.
func (m *model) backlog() int {
	slowest := len(m.events)
	for _, acknowledged := range m.consumers {
		slowest = min(slowest, acknowledged)
	}
	return len(m.events) - slowest
}

// outboxFull says that the events of one more command have no room beside what live orders have
// prepaid: four each.
func (m *model) outboxFull(events int) bool {
	live := 0
	for _, o := range m.orders {
		if o.status.Live() {
			live++
		}
	}
	return len(m.consumers) > 0 && m.backlog()+4*live+events > m.limits.OutboxEvents
}

func (m *model) keptFull() bool {
	n := 0
	for _, o := range m.orders {
		if !o.status.Sold() {
			n++
		}
	}
	return n >= m.limits.EndedOrders
}

// forget drops the orders that need not be kept and are not.
func (m *model) forget(kept func(OrderID) bool) {
	m.orders = slices.DeleteFunc(m.orders, func(o *modelOrder) bool {
		ended := !o.status.Live() && !o.status.Sold()
		return ended && o.endedAt < m.clock-24*hour && !kept(o.id)
	})
}

// find looks for an order by its key or its id.
func (m *model) find(which func(*modelOrder) bool) *modelOrder {
	i := slices.IndexFunc(m.orders, which)
	if i < 0 {
		return nil
	}
	o := m.orders[i]
	if m.due(o) {
		m.expire(o) // what is past due is past for every command
	}
	if m.due(o) {
		m.expire(o) // overdue, and given up at once
	}
	return o
}
