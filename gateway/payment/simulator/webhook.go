package simulator

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"time"

	"github.com/go-json-experiment/json/v1"
	"github.com/valyala/fasthttp"

	"numera/gateway/payment"
)

// notice is the body of a webhook: the charge as it was when the event happened.
type notice struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Account string    `json:"account"`
	At      time.Time `json:"at"`
	Charge  *Charge   `json:"charge"`
}

// event is a webhook that waits to be sent.
type event struct {
	payment  string
	body     []byte
	forged   bool
	due      time.Time
	number   uint64 // of its lane: the order of those that are due together
	attempts int
}

// announce sends what happened, as the script has it. The charge is read before it returns.
func (s *Server) announce(l *ledger, kind string, c *Charge) {
	if s.config.WebhookURL == "" {
		return
	}
	fault, slow := s.script.take(OnWebhook, l)
	e := s.event(l, kind, c)
	e.due = e.due.Add(slow)
	var events []event
	switch fault.Kind {
	case WebhookNone:
	case WebhookReorder:
		l.held = append(l.held, e)
		return
	case WebhookDuplicate:
		events = []event{e, e}
	case WebhookLate:
		e.due = e.due.Add(fault.delay())
		events = []event{e}
	case WebhookForged:
		claim := c.copy()
		claim.Status, claim.Captured = payment.StatusCaptured, claim.Amount
		forged := s.event(l, "charge.captured", &claim)
		forged.forged, forged.due = true, e.due
		events = []event{forged, e}
	default:
		events = []event{e}
	}
	for _, held := range l.held {
		held.due = e.due // those that are due together keep this order
		events = append(events, held)
	}
	l.held = nil
	for _, e := range events {
		s.webhooks.send(e)
	}
}

func (s *Server) event(l *ledger, kind string, c *Charge) event {
	n := notice{s.newID("evt"), kind, s.config.Account, s.now(), c}
	body, err := json.Marshal(n)
	if err != nil {
		panic(fmt.Sprintf("simulator: an event cannot be written: %v", err))
	}
	return event{payment: l.payment, body: body, due: time.Now()}
}

// Claim is a webhook made by hand: that a charge is, or was, in a status.
type Claim struct {
	Status payment.Status `json:"status"`
	Times  int            `json:"times,omitempty"` // the same event so often; 0: once
	Forged bool           `json:"forged,omitempty"`
}

// Announce sends a webhook that the charge's history does not call for.
func (s *Server) Announce(id string, claim Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, c := s.find(id)
	if c == nil {
		return ErrNoCharge
	}
	as := c.copy()
	as.Status = claim.Status
	e := s.event(l, "charge."+string(claim.Status), &as)
	e.forged = claim.Forged
	for range max(claim.Times, 1) {
		s.webhooks.send(e)
	}
	return nil
}

// Deliveries counts webhooks.
type Deliveries struct {
	Waiting   int `json:"waiting"`   // to be sent, again or for the first time
	Delivered int `json:"delivered"` // answered with 2xx
	Refused   int `json:"refused"`   // attempts that were answered otherwise, or not at all
	Dropped   int `json:"dropped"`   // given up after 12 attempts, or more than 100,000 waiting
}

// Deliveries is how the webhooks are doing.
func (s *Server) Deliveries() Deliveries { return s.webhooks.count() }

const (
	maxAttempts = 12 // over a minute and a half
	maxWaiting  = 100_000
)

// sender delivers webhooks on lanes: those of one payment in the order in which they are due.
type sender struct {
	config  Config
	client  *fasthttp.Client
	lanes   []*lane
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	counts Deliveries
}

// lane is the queue of one goroutine.
type lane struct {
	mu    sync.Mutex
	queue queue
	last  uint64
	wake  chan struct{} // has room for one
}

func newSender(config Config) *sender {
	ctx, stop := context.WithCancel(context.Background())
	s := &sender{config: config, ctx: ctx, stop: stop}
	s.client = &fasthttp.Client{
		Dial: s.dial, MaxConnsPerHost: config.WebhookLanes, MaxResponseBodySize: 64 << 10,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}
	if config.WebhookURL == "" {
		return s
	}
	for range config.WebhookLanes {
		l := &lane{wake: make(chan struct{}, 1)}
		s.lanes = append(s.lanes, l)
		s.running.Go(func() { s.run(l) })
	}
	return s
}

func (s *sender) close() {
	s.stop()
	s.running.Wait()
}

// dial connects until the sender is closed, which also ends what it waits for.
func (s *sender) dial(address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(s.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	return conn, nil
}

func (s *sender) count() Deliveries {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// send queues an event; a full queue drops it, as a real provider gives up.
func (s *sender) send(e event) {
	if len(s.lanes) == 0 {
		return
	}
	s.mu.Lock()
	full := s.counts.Waiting >= maxWaiting
	if full {
		s.counts.Dropped++
	} else {
		s.counts.Waiting++
	}
	s.mu.Unlock()
	if full {
		return
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(e.payment))
	s.lanes[hash.Sum32()%uint32(len(s.lanes))].push(e)
}

func (l *lane) push(e event) {
	l.mu.Lock()
	l.last++
	e.number = l.last
	heap.Push(&l.queue, e)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pop takes what is due, or says how long to wait for it.
func (l *lane) pop(now time.Time) (e event, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return event{}, time.Hour
	}
	if wait := l.queue[0].due.Sub(now); wait > 0 {
		return event{}, wait
	}
	return heap.Pop(&l.queue).(event), 0
}

func (s *sender) run(l *lane) {
	for s.ctx.Err() == nil {
		e, wait := l.pop(time.Now())
		if wait == 0 {
			s.attempt(l, e)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}

// attempt delivers an event or queues it again, later every time. A forged one is sent once.
func (s *sender) attempt(l *lane, e event) {
	err := s.deliver(e)
	e.attempts++
	again := err != nil && !e.forged && e.attempts < maxAttempts
	s.mu.Lock()
	switch {
	case err == nil:
		s.counts.Delivered++
	case again || e.forged:
		s.counts.Refused++
	default:
		s.counts.Refused++
		s.counts.Dropped++
	}
	if !again {
		s.counts.Waiting--
	}
	s.mu.Unlock()
	if again {
		e.due = time.Now().Add(min(50*time.Millisecond<<e.attempts, 15*time.Second))
		l.push(e)
	}
}

func (s *sender) deliver(e event) error {
	secrets := s.config.WebhookSecrets
	if e.forged {
		secrets = []string{"forged"}
	}
	r, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(r)
	defer fasthttp.ReleaseResponse(response)
	r.Header.SetMethod(fasthttp.MethodPost)
	r.SetRequestURI(s.config.WebhookURL)
	r.Header.SetContentType("application/json")
	r.Header.Set(SignatureHeader, Sign(secrets, s.config.Now(), e.body))
	r.SetBodyRaw(e.body)
	if err := s.client.DoTimeout(r, response, 10*time.Second); err != nil {
		return err
	}
	if response.StatusCode()/100 != 2 {
		return fmt.Errorf("simulator: webhook answered with %d", response.StatusCode())
	}
	return nil
}

// queue is a heap of events by the time they are due.
type queue []event

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(event)) }
func (q queue) Less(i, j int) bool {
	if q[i].due.Equal(q[j].due) {
		return q[i].number < q[j].number
	}
	return q[i].due.Before(q[j].due)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}
