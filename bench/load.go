package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"numera/engine/inventory"
	"numera/shard"
)

// peer is a way to the shards.
type peer interface {
	// start carries out c.op and calls c.finish once, from any goroutine, maybe before it returns.
	start(c *call)
}

// load is one run of a plan over a peer.
type load struct {
	plan     *plan
	peer     peer
	schedule *schedule
	began    time.Time
	lanes    []*lane
	tallies  []*tally // each for some of the lanes
	blind    bool     // the answers are those of others: no ledger is kept

	repeats chan operation // reservations that another lane asks for again
	sold    atomic.Int64   // numbers of confirmed orders
	over    atomic.Bool    // the plan has reached its end

	mu         sync.Mutex
	violations []error
	violated   int
}

// shape is how many requests are under way: each lane is a goroutine with a window of requests.
// A peer that blocks gets lanes with a window of 1. Lanes are numbered from first, so that the
// buyers of two loads on one system are not the same.
type shape struct{ lanes, window, first int }

const tallies = 8

func newLoad(p *plan, to peer, s *schedule, as shape, seed uint64) *load {
	l := &load{plan: p, peer: to, schedule: s, repeats: make(chan operation, 1024)}
	for range min(tallies, as.lanes) {
		l.tallies = append(l.tallies, newTally())
	}
	for id := range as.lanes {
		l.lanes = append(l.lanes, newLane(l, as.first+id, as.window, seed))
	}
	return l
}

// owner is the lane of a buyer, or nil if it is not one of this load.
func (l *load) owner(b buyer) *lane {
	if i := b.lane() - l.lanes[0].id; i >= 0 && i < len(l.lanes) {
		return l.lanes[i]
	}
	return nil
}

// patience is how long the answers to the last requests are waited for.
const patience = 30 * time.Second

// run starts requests until the schedule or the plan ends, or ctx, and waits for their answers. It
// may be called again with another schedule.
func (l *load) run(ctx context.Context) (elapsed time.Duration, err error) {
	l.began = time.Now()
	var running sync.WaitGroup
	for _, lane := range l.lanes {
		running.Go(func() { lane.run(ctx) })
	}
	running.Wait()
	deadline := time.After(patience)
	for _, lane := range l.lanes {
		var idle []*call
		for range cap(lane.free) {
			select {
			case c := <-lane.free:
				idle = append(idle, c)
			case <-deadline:
				return l.now(), fmt.Errorf("%w: requests without an answer after %v",
					ErrIncomplete, patience)
			}
		}
		for _, c := range idle {
			lane.free <- c
		}
	}
	return l.now(), nil
}

func (l *load) now() time.Duration { return time.Since(l.began) }

// total is what all lanes have counted so far.
func (l *load) total() *tally {
	total := newTally()
	for _, t := range l.tallies {
		total.merge(t)
	}
	return total
}

// mostViolations bounds how many are told; all are counted.
const mostViolations = 20

func (l *load) violate(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violated++
	if len(l.violations) < mostViolations {
		l.violations = append(l.violations, err)
	}
}

// lane makes requests one after the other and keeps what is known of its buyers.
type lane struct {
	load   *load
	id     int
	random *rand.Rand // of the lane's goroutine
	free   chan *call // those that are not under way

	mu      sync.Mutex
	records ledger
	orders  []held      // reserved or paying, for the plan to go on with
	doubts  []operation // without an answer
}

// held is an order that waits for its next step.
type held struct {
	buyer  buyer
	order  inventory.OrderID
	status inventory.Status
}

func newLane(l *load, id, window int, seed uint64) *lane {
	n := &lane{
		load: l, id: id, free: make(chan *call, window),
		random: rand.New(rand.NewPCG(seed, uint64(id)+1)),
	}
	for range window {
		c := &call{lane: n}
		c.proposal.Done = c.proposed
		n.free <- c
	}
	return n
}

// longestSleep is how late a lane may see that its context has ended.
const longestSleep = 50 * time.Millisecond

func (n *lane) run(ctx context.Context) {
	l := n.load
	for ctx.Err() == nil && !l.over.Load() {
		at, ok := l.schedule.next(l.now())
		if !ok {
			return
		}
		for wait := at - l.now(); wait > 0; wait = at - l.now() {
			time.Sleep(min(wait, longestSleep))
			if ctx.Err() != nil {
				return
			}
		}
		c := <-n.free
		l.plan.next(n, &c.op)
		c.started = l.now()
		if c.intended = at; l.schedule.mean == 0 {
			c.intended = c.started
		}
		l.peer.start(c)
	}
}

// reserve makes a reservation of a buyer of its own.
func (n *lane) reserve(product inventory.ProductID, numbers []uint32, quantity uint32) operation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return operation{
		kind: inventory.KindReserve, buyer: makeBuyer(n.id, n.records.add()),
		product: product, numbers: numbers, quantity: quantity,
	}
}

// hold keeps an order for take.
func (n *lane) hold(h held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.orders = append(n.orders, h)
}

// take gives an order that was held, the oldest of them.
func (n *lane) take() (h held, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.orders) == 0 {
		return held{}, false
	}
	h = n.orders[0]
	n.orders = n.orders[1:]
	return h, true
}

// note takes an answer into the ledger.
func (n *lane) note(op *operation, a *answer) {
	owner := n.load.owner(op.buyer)
	owner.mu.Lock()
	err := owner.records.at(op.buyer.record()).note(op, a)
	if a.verdict == unanswered {
		owner.doubts = append(owner.doubts, *op)
	}
	owner.mu.Unlock()
	if err != nil {
		n.load.violate(err)
	}
}

// call is one request under way. It is used again and again by its lane.
type call struct {
	lane     *lane
	op       operation
	intended time.Duration
	started  time.Duration
	verdict  verdict // of the last answer

	// For peers that take commands, to use their memory again.
	reserve  inventory.Reserve
	proposal shard.Proposal
	encoded  []byte
	order    inventory.OrderView
}

// finish takes the answer and gives the call back to its lane.
func (c *call) finish(a answer) {
	n := c.lane
	l := n.load
	c.verdict = a.verdict
	l.tallies[n.id%len(l.tallies)].add(&a, l.now()-c.intended, c.started-c.intended)
	if !l.blind {
		n.note(&c.op, &a)
		if l.plan.answered != nil {
			l.plan.answered(n, &c.op, &a)
		}
	}
	n.free <- c
}

// proposed is what the shard calls with the outcome of c.proposal.
func (c *call) proposed(o *inventory.Outcome, err error) { c.finish(proposalAnswer(o, err)) }
