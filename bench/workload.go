package bench

import (
	"fmt"
	"slices"
	"strings"

	"numera/engine/inventory"
)

// Workload names what buyers do.
type Workload string

// The workloads; About says more of each.
const (
	WorkloadChosen    Workload = "chosen"
	WorkloadAny       Workload = "any"
	WorkloadProducts  Workload = "products"
	WorkloadSellOut   Workload = "sell-out"
	WorkloadRetries   Workload = "retries"
	WorkloadExpiry    Workload = "expiry"
	WorkloadLifecycle Workload = "lifecycle"
)

// workloadRow is a workload, in words and in deeds.
type workloadRow struct {
	name  Workload
	about string
	// plan completes a plan that has its prefix, quantity, products and numbers; those that are 0
	// were not asked for.
	plan func(*plan)
}

// workloads is the one table of them.
var workloads = []workloadRow{
	{WorkloadChosen, "chosen random numbers of one hot product", (*plan).chosen},
	{WorkloadAny, "any n numbers of one hot product", (*plan).any},
	{WorkloadProducts, "any n numbers of one of many products", (*plan).many},
	{WorkloadSellOut, "more buyers than numbers; ends when all are sold", (*plan).sellOut},
	{WorkloadRetries, "every fourth request again with its key, half of them at once", (*plan).retries},
	{WorkloadExpiry, "holds of a second that nobody pays, and the numbers sold anew", (*plan).expiry},
	{WorkloadLifecycle, "reserve, then pay, refuse or release", (*plan).lifecycle},
}

// Workloads lists the names.
func Workloads() []Workload {
	var names []Workload
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// About says in a few words what a workload does, or "" if there is no such workload.
func (w Workload) About() string {
	for _, known := range workloads {
		if known.name == w {
			return known.about
		}
	}
	return ""
}

// plan is a workload with its sizes. Its functions are called by the lanes' goroutines.
type plan struct {
	prefix   string // of the products' ids, this run's own
	products int
	numbers  int // of each product
	quantity int // numbers of each order
	hold     int64
	ids      []inventory.ProductID

	// next says what a lane does next.
	next func(n *lane, op *operation)
	// answered, where set, learns what came of it.
	answered func(n *lane, op *operation, a *answer)
	// drains says that every order ends by itself soon after the load.
	drains bool
}

func newPlan(c *Config) (*plan, error) {
	p := &plan{
		prefix: c.prefix, products: c.Products, numbers: c.Numbers, quantity: c.Quantity, hold: 3600,
	}
	i := slices.IndexFunc(workloads, func(w workloadRow) bool { return w.name == c.Workload })
	if i < 0 {
		var names []string
		for _, name := range Workloads() {
			names = append(names, string(name))
		}
		return nil, fmt.Errorf("%w: no workload %q; there are %s",
			ErrConfig, c.Workload, strings.Join(names, ", "))
	}
	workloads[i].plan(p)
	p.products = max(p.products, 1)
	for k := range p.products {
		p.ids = append(p.ids, inventory.ProductID(fmt.Sprintf("%s-%d", p.prefix, k)))
	}
	return p, nil
}

// put is the command that puts a product of the plan on sale.
func (p *plan) put(id inventory.ProductID) *inventory.PutProduct {
	s := inventory.DefaultSettings()
	s.Name, s.Price = "bench", inventory.Money{Amount: 1990, Currency: "BRL"}
	s.Count = uint32(p.numbers)
	s.HoldSeconds, s.HoldMaxSeconds = p.hold, max(p.hold, s.HoldMaxSeconds)
	s.MaxPerOrder = inventory.MaxNumbersInOrder
	return &inventory.PutProduct{Product: id, Settings: s}
}

// orDefault is n, or what it is when it was not asked for.
func orDefault(n *int, otherwise int) {
	if *n == 0 {
		*n = otherwise
	}
}

const hotNumbers = 10_000_000

func (p *plan) chosen() {
	orDefault(&p.numbers, hotNumbers)
	p.next = func(n *lane, op *operation) {
		numbers := make([]uint32, 0, p.quantity)
		for len(numbers) < p.quantity {
			number := 1 + n.random.Uint32N(uint32(p.numbers))
			if !slices.Contains(numbers, number) {
				numbers = append(numbers, number)
			}
		}
		*op = n.reserve(p.ids[0], numbers, 0)
	}
}

func (p *plan) any() {
	orDefault(&p.numbers, hotNumbers)
	p.next = func(n *lane, op *operation) { *op = n.reserve(p.ids[0], nil, uint32(p.quantity)) }
}

func (p *plan) many() {
	orDefault(&p.products, 100_000)
	orDefault(&p.numbers, 1000)
	p.next = func(n *lane, op *operation) {
		*op = n.reserve(p.ids[n.random.IntN(p.products)], nil, uint32(p.quantity))
	}
}

// sellOut reserves until nothing is left and confirms what was reserved. Buyers who come too late
// are refused; it ends when every number is sold.
func (p *plan) sellOut() {
	orDefault(&p.numbers, 100_000)
	p.next = func(n *lane, op *operation) {
		if h, ok := n.take(); ok {
			*op = h.step(inventory.KindConfirm)
			return
		}
		*op = n.reserve(p.ids[0], nil, uint32(p.quantity))
	}
	p.answered = func(n *lane, op *operation, a *answer) {
		if a.verdict != acknowledged || a.order == nil {
			n.holdAgain(op, a, inventory.StatusReserved)
			return
		}
		_, count := fingerprint(a.order.Items)
		if op.kind == inventory.KindReserve {
			n.hold(held{op.buyer, a.order.ID, inventory.StatusReserved})
			return
		}
		left := p.numbers % p.quantity // too few for an order
		if n.load.sold.Add(int64(count)) >= int64(p.numbers-left) {
			n.load.over.Store(true)
		}
	}
}

const repeatEvery = 4

// retries asks for every fourth reservation twice: every eighth at once, by whichever lane comes
// first, and every other eighth after its answer.
func (p *plan) retries() {
	orDefault(&p.numbers, hotNumbers)
	repeat := func(l *load, op operation) {
		op.repeat = true
		select {
		case l.repeats <- op:
		default: // enough of them wait
		}
	}
	p.next = func(n *lane, op *operation) {
		select {
		case *op = <-n.load.repeats:
			return
		default:
		}
		*op = n.reserve(p.ids[0], nil, uint32(p.quantity))
		if op.buyer.record()%(2*repeatEvery) == 0 {
			repeat(n.load, *op)
		}
	}
	p.answered = func(n *lane, op *operation, _ *answer) {
		if !op.repeat && op.buyer.record()%(2*repeatEvery) == repeatEvery {
			repeat(n.load, *op)
		}
	}
}

func (p *plan) expiry() {
	orDefault(&p.numbers, 50_000)
	p.hold, p.drains = 1, true
	p.any()
}

// lifecycle gives every order one of five ends: three are paid, one is refused, one is released.
func (p *plan) lifecycle() {
	orDefault(&p.numbers, hotNumbers)
	p.next = func(n *lane, op *operation) {
		h, ok := n.take()
		switch {
		case !ok:
			*op = n.reserve(p.ids[0], nil, uint32(p.quantity))
		case h.status == inventory.StatusReserved && h.buyer.record()%5 == 0:
			*op = h.step(inventory.KindRelease)
		case h.status == inventory.StatusReserved:
			*op = h.step(inventory.KindBeginPayment)
		case h.buyer.record()%5 == 1:
			*op = h.step(inventory.KindRefuse)
		default:
			*op = h.step(inventory.KindConfirm)
		}
	}
	p.answered = func(n *lane, op *operation, a *answer) {
		if a.verdict == acknowledged && a.order != nil && a.order.Status.Live() {
			n.hold(held{op.buyer, a.order.ID, a.order.Status})
			return
		}
		status := inventory.StatusPaying
		if op.kind == inventory.KindBeginPayment || op.kind == inventory.KindRelease {
			status = inventory.StatusReserved
		}
		n.holdAgain(op, a, status)
	}
}

// holdAgain keeps an order whose step, from this status, was not decided.
func (n *lane) holdAgain(op *operation, a *answer, status inventory.Status) {
	if op.kind != inventory.KindReserve && (a.verdict == turnedAway || a.verdict == unanswered) {
		n.hold(held{op.buyer, op.order, status})
	}
}

// step is the next operation on an order.
func (h held) step(kind inventory.Kind) operation {
	return operation{kind: kind, buyer: h.buyer, order: h.order}
}
