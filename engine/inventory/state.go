package inventory

// State is everything a shard knows, at one index of its log. It belongs to the apply goroutine;
// of its products, see [Product].
//
// Orders are found by the hash of their idempotency key. Live and sold ones stand in a slab, ended
// ones in compact blocks; replace moves an order between the two as its status changes.
type State struct {
	shard  ShardID
	limits Limits
	clock  int64 // Unix milliseconds: the highest batch time so far

	products map[ProductID]*Product
	list     []*Product  // by slot
	timers   []deadlines // by product: when its live orders are due
	due      deadlines   // of products: when their timers may have something due

	orders orders
	index  index
	ended  ended
	count  struct{ live, sold, ended int }

	prices     []Money // each distinct price once, in order of first use
	priceSlots map[Money]uint32

	outbox outbox
	halted []*Product // in no order

	orderDigest64   uint64 // the sum over all orders
	productDigest64 uint64 // the sum over all products, as TakeChanged saw them
	changed         []*Product

	scans   uint64        // see NameScans
	rooms   []*answerRoom // not given out
	warming []*Product    // memory of WarmProducts
	nearby  []*indexCell  // memory of WarmKeys
	scratch []byte
	warmth  uint32 // so that the compiler keeps the loads of warm.go
}

// Limits bound what a shard keeps. They decide outcomes: every replica has the same, since they
// are fixed when the shard is made.
type Limits struct {
	EndedOrders    int // at so many, or at 1 GB of them, new orders are refused as overloaded; ≤ 20 million
	OutboxEvents   int // likewise, counting the events that live orders may still cause
	ExpirePerBatch int
}

// DefaultLimits are those of a production shard: a full outbox is below 2 GB; ended orders have at most about
// 1 GB of records, which is reached before their number where ids are long (at 16 million with uuids of
// buyers), and 14 bytes each in the index.
func DefaultLimits() Limits {
	return Limits{EndedOrders: 20_000_000, OutboxEvents: 8 << 20, ExpirePerBatch: 2048}
}

// keepMilli is how long ended orders and restock keys are kept at least, in log time.
const keepMilli = dayMilli

// New is an empty shard.
func New(shard ShardID, limits Limits) *State {
	s := &State{
		shard: shard, limits: limits, products: make(map[ProductID]*Product),
		priceSlots: make(map[Money]uint32),
	}
	s.outbox.next, s.outbox.kept = 1, 1
	s.index.keyOf = s.keyOf
	return s
}

// Clock is the log time in Unix milliseconds.
func (s *State) Clock() int64 { return s.clock }

// Advance moves the clock to a batch's time, never back, and gives up what is older than it has to
// be kept. Every batch starts with it.
func (s *State) Advance(timeUnixMilli int64) {
	s.clock = max(s.clock, min(timeUnixMilli, maxUnixMilli))
	for range dropPerBatch {
		if !s.ended.dropOldest(s.clock-keepMilli, s.forget) {
			return
		}
	}
}

// dropPerBatch bounds how many blocks of ended orders are given up at once, some hundred orders
// each: more than a batch adds, and no more than about a millisecond's work.
const dropPerBatch = 16

// forget gives up an ended order, unless its record is a dead one.
func (s *State) forget(ref uint32, o *order) {
	if alive, ok := s.index.find(o.key); ok && alive == ref {
		s.orderDigest64 -= s.orderDigest(o)
		s.index.remove(o.key)
		s.count.ended--
	}
}

func (s *State) keyOf(ref uint32) KeyHash {
	if ref&endedRef != 0 {
		return s.ended.keyAt(ref)
	}
	return s.orders.at(ref).key
}

// load gives a copy of the order that a reference means.
func (s *State) load(ref uint32) order {
	if ref&endedRef != 0 {
		return s.ended.at(ref)
	}
	return s.orders.load(ref)
}

// insert adds a new order that is not over. at is the spot of its key.
func (s *State) insert(at *spot, o *order) (ref uint32) {
	s.tally(o.status, 1)
	s.orderDigest64 += s.orderDigest(o)
	ref = s.orders.add(o)
	at.set(ref)
	return ref
}

// replace stores an order that has changed. was is what it was, at ref.
func (s *State) replace(ref uint32, was, o *order) {
	s.orderDigest64 += s.orderDigest(o) - s.orderDigest(was)
	s.tally(was.status, -1)
	if ref&endedRef == 0 && !o.over() {
		s.tally(o.status, 1)
		s.orders.change(ref, o)
		return
	}
	fresh := s.put(o)
	s.index.set(o.key, fresh) // before the old record goes: the index compares keys by it
	if ref&endedRef == 0 {
		s.orders.remove(ref)
	}
}

// put writes an order where its status says and returns the reference.
func (s *State) put(o *order) uint32 {
	s.tally(o.status, 1)
	if o.over() {
		return s.ended.append(o, s.clock)
	}
	return s.orders.add(o)
}

func (o *order) over() bool { return !o.status.Live() && !o.status.Sold() }

func (s *State) tally(status Status, n int) {
	switch {
	case status.Live():
		s.count.live += n
	case status.Sold():
		s.count.sold += n
	default:
		s.count.ended += n
	}
}

// arm makes sure that the order is looked at when its deadline comes.
func (s *State) arm(ref uint32, o *order) {
	e := deadline{unixMilli: o.expires.value(), tie: uint32(o.placed.value()), ref: ref}
	if o.basket == nil {
		s.armProduct(o.product, e)
		return
	}
	for _, it := range o.basket {
		s.armProduct(it.product, e)
	}
}

func (s *State) armProduct(product uint32, e deadline) {
	t := &s.timers[product]
	if t.n > 1024 && t.n > 4*s.count.live {
		t.compact(s.armed)
	}
	if t.push(e); t.first() == e {
		s.watch(product, e)
	}
}

// watch makes sure that a product is looked at when its earliest deadline comes. For every product
// with deadlines, due has an entry that is not later than the earliest of them.
func (s *State) watch(product uint32, earliest deadline) {
	s.due.push(deadline{unixMilli: earliest.unixMilli, tie: product, ref: product})
}

// armed says whether an entry in timers still means something.
func (s *State) armed(d deadline) bool {
	o := s.orders.at(d.ref)
	return s.awaits(o) && uint32(o.placed.value()) == d.tie && o.expires.value() == d.unixMilli
}

// awaits says that something follows when the order's deadline comes. With a halted product nothing
// ever will. It depends on the state alone, so that a restored replica sweeps the same orders.
func (s *State) awaits(o *record) bool {
	if !o.status.Live() || o.overdue == overdueHeld {
		return false
	}
	if o.basketAt == 0 {
		return !s.list[o.product].fallen
	}
	for _, it := range *s.orders.baskets.at(o.basketAt - 1) {
		if s.list[it.product].fallen {
			return false
		}
	}
	return true
}

// watched says whether an entry in due still means something. If its product has only later
// deadlines, an entry for the next of them takes its place.
func (s *State) watched(d deadline) bool {
	first, ok := s.timers[d.ref].earliest(s.armed)
	if ok && first.unixMilli > d.unixMilli {
		s.watch(d.ref, first)
	}
	return ok && first.unixMilli == d.unixMilli
}

// NextDeadline is when the earliest order is due, in Unix milliseconds; ok is false if none is.
func (s *State) NextDeadline() (unixMilli int64, ok bool) {
	first, ok := s.due.earliest(s.watched)
	return first.unixMilli, ok
}

// priceOf is the place of a product's price among all prices.
func (s *State) priceOf(p *Product) uint32 {
	if p.price == 0 {
		p.price = s.price(p.settings.Price) + 1
	}
	return p.price - 1
}

// price interns a price.
func (s *State) price(m Money) uint32 {
	slot, known := s.priceSlots[m]
	if !known {
		slot = uint32(len(s.prices))
		s.prices = append(s.prices, m)
		s.priceSlots[m] = slot
	}
	return slot
}

// answerRoom is the memory of an outcome with the common order of one number.
type answerRoom struct {
	outcome Outcome
	order   OrderView
	items   [1]ItemView
	numbers [1]uint32
}

// answer gives room for the outcome of a step: one that came back, or one of a new piece.
func (s *State) answer() *answerRoom {
	if len(s.rooms) == 0 {
		piece := new([roomsAtOnce]answerRoom)
		for i := range piece {
			s.rooms = append(s.rooms, &piece[i])
		}
	}
	last := len(s.rooms) - 1
	room := s.rooms[last]
	s.rooms = s.rooms[:last]
	*room = answerRoom{} // only now, when it has to be in the cache anyway
	room.outcome.room = room
	return room
}

// roomsAtOnce is as many as still count as a small object to the allocator.
const roomsAtOnce = 64

// Recycle takes outcomes back whose memory Finish may use again: nobody looks at them any more.
func (s *State) Recycle(outcomes []*Outcome) {
	for _, o := range outcomes {
		if room := o.room; room != nil && len(s.rooms) < mostRooms {
			o.room = nil // it is taken once
			s.rooms = append(s.rooms, room)
		}
	}
}

// mostRooms bounds the memory that waits to be used again: about 4 MB.
const mostRooms = 16384

// view is an order as others see it.
func (s *State) view(o *order, room *answerRoom) *OrderView {
	v := &room.order
	if o.basket == nil {
		p := s.list[o.product]
		room.numbers[0] = p.settings.FirstNumber + o.offset
		item := &room.items[0]
		item.Product, item.UnitPrice = p.id, s.prices[o.price]
		item.Numbers = room.numbers[:]
		v.Items = room.items[:]
	} else {
		room.outcome.room = nil // what is large is not kept
		v.Items = make([]ItemView, len(o.basket))
		for i, it := range o.basket {
			p := s.list[it.product]
			v.Items[i] = ItemView{
				Product: p.id, Numbers: p.numbers(it.offsets), UnitPrice: s.prices[it.price],
			}
		}
	}
	v.ID, v.Status, v.Overdue = s.id(&o.record), o.status, o.overdue != notOverdue
	v.Buyer, v.Payment = o.buyer, o.payment
	v.CreatedUnixMilli, v.ExpiresUnixMilli = o.created.value(), o.expires.value()
	v.Changed = o.changed.value()
	return v
}

// find looks up the order that an id means, unless it is somebody else's.
func (s *State) find(c OnOrder) (ref uint32, o order, ok bool) {
	at := s.index.look(c.Order.Key())
	return s.findAt(&at, c)
}

// findAt is find, where the spot of the order's key is known.
func (s *State) findAt(at *spot, c OnOrder) (ref uint32, o order, ok bool) {
	if !at.known {
		return 0, order{}, false
	}
	ref = at.ref()
	o = s.load(ref)
	mine := c.By == "" || o.buyer == c.By
	return ref, o, mine && s.id(&o.record) == c.Order
}

func (s *State) id(o *record) OrderID { return MakeOrderID(s.shard, o.created.value(), o.key) }

// Order reads an order; another buyer's is not found.
func (s *State) Order(c OnOrder) *Outcome {
	_, o, ok := s.find(c)
	if !ok {
		return &Outcome{Code: CodeOrderNotFound, AtUnixMilli: s.clock, Refusal: &Refusal{}}
	}
	return &Outcome{AtUnixMilli: s.clock, Order: s.view(&o, new(answerRoom))}
}

// Product finds a product, or nil. What may be done with it, and when, see Product.
func (s *State) Product(id ProductID) *Product { return s.products[id] }

// Products lists all products in the order of their creation; the list only grows.
func (s *State) Products() []*Product { return s.list }

// Halted lists the halted products, in no particular order.
func (s *State) Halted() []*Product { return s.halted }

// Digest is a sum of mixed entries of all orders and products, with the clock and the outbox's
// positions: equal on replicas at the same index. It is right between batches only.
func (s *State) Digest() uint64 {
	h := mix(uint64(s.clock), s.orderDigest64)
	h = mix(mix(h, s.productDigest64), s.outbox.next)
	for _, c := range s.outbox.consumers {
		h = mix(mixString(h, c.name), c.acknowledged)
	}
	return h
}
