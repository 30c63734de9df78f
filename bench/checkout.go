package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/go-json-experiment/json"
	"github.com/valyala/fasthttp"

	"numera/engine/inventory"
)

// CheckoutConfig is a load of whole sales on a server that runs already, on loopback: each buyer
// reserves a number and pays it by card. Zero members take the default.
type CheckoutConfig struct {
	Target       string // URL
	ServiceToken string
	AdminToken   string

	Rate     float64       // checkouts a second meant to start; default 900
	Beside   float64       // reservations a second of others who do not pay; default 500
	Duration time.Duration // default 60 s
	InFlight int           // checkouts, and others, under way at most; default 1024 each
	Seed     uint64

	// Stall, where set, holds Postgres up for StallFor, once every StallEvery.
	Stall      func(ctx context.Context, d time.Duration) error
	StallFor   time.Duration
	StallEvery time.Duration

	// Lag is how old the oldest event is that the rows of orders do not contain yet, in seconds.
	Lag func() float64
	// Charged counts what the provider has taken for a payment.
	Charged func() map[string]int
	// Webhooks counts those that the provider has delivered, and those that wait to be.
	Webhooks func() (delivered, waiting int)

	Progress io.Writer
}

func (c CheckoutConfig) withDefaults() CheckoutConfig {
	c.Rate, c.Beside = cmp.Or(c.Rate, 900), cmp.Or(c.Beside, 500)
	c.Duration, c.InFlight = cmp.Or(c.Duration, time.Minute), cmp.Or(c.InFlight, 1024)
	c.StallFor = cmp.Or(c.StallFor, 5*time.Second)
	c.StallEvery = cmp.Or(c.StallEvery, 20*time.Second)
	return c
}

// CheckoutReport is what came of it.
type CheckoutReport struct {
	Machine   Machine        `json:"machine"`
	Rate      float64        `json:"rate"`
	Seconds   float64        `json:"seconds"`
	Started   int64          `json:"started"`
	Paid      int64          `json:"paid"`
	PerSecond float64        `json:"paid_per_second"`
	Codes     map[string]int `json:"codes"`
	Latency   Latency        `json:"latency"` // of hold and payment together, from the intended start
	Payment   Latency        `json:"payment"` // of the payment's request alone
	Beside    Latency        `json:"beside"`  // of the others' reservations, from the intended start
	Others    int64          `json:"others"`
	Lag       Latency        `json:"outbox_lag"`
	Webhooks  [2]int         `json:"webhooks"` // delivered by the end, and waiting then
	Stalls    int            `json:"stalls"`
	CPU       float64        `json:"cpu_microseconds_per_checkout"`
	Oracle    Oracle         `json:"oracle"`
}

// WriteTable writes the report for people.
func (r *CheckoutReport) WriteTable(w io.Writer) error {
	t := newTable(w)
	t.row("hold to paid over HTTP, card, with Postgres and the provider's simulator")
	t.row("machine\t%s", r.Machine)
	t.row("load\t%.0f checkouts/s by schedule for %.1f s, and reservations beside", r.Rate, r.Seconds)
	t.row("paid\t%d of %d, %.0f/s %v", r.Paid, r.Started, r.PerSecond, r.Codes)
	t.row("hold to paid\t%s", r.Latency)
	t.row("  of it, the payment\t%s", r.Payment)
	t.row("reservations beside\t%s (%d)", r.Beside, r.Others)
	t.row("outbox lag\t%s", r.Lag)
	t.row("webhooks\t%d delivered by the end, %d waiting", r.Webhooks[0], r.Webhooks[1])
	t.row("stalls\t%d of Postgres", r.Stalls)
	t.row("a checkout\t%.0f µs CPU, everything included", r.CPU)
	t.row("oracle\t%s", &r.Oracle)
	return t.flush()
}

// checkoutLoad is one run.
type checkoutLoad struct {
	config CheckoutConfig
	peer   *httpPeer
	began  time.Time

	mu       sync.Mutex
	latency  *hdrhistogram.Histogram
	payment  *hdrhistogram.Histogram
	beside   *hdrhistogram.Histogram
	lag      *hdrhistogram.Histogram
	codes    map[string]int
	started  int64
	payments map[string]string // of paid ones, by order
	stalls   int
	warmed   int // of payments: before the clock started
}

const checkoutProduct = inventory.ProductID("checkout")

// RunCheckout carries out the load and has the oracle read everything back.
func RunCheckout(ctx context.Context, config CheckoutConfig) (*CheckoutReport, error) {
	config = config.withDefaults()
	u, err := url.Parse(config.Target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	newHistogram := func() *hdrhistogram.Histogram {
		return hdrhistogram.New(1, mostLatency.Microseconds(), 3)
	}
	l := &checkoutLoad{
		config: config, peer: newHTTPPeer(u.Host, config.ServiceToken, 2*config.InFlight),
		latency: newHistogram(), payment: newHistogram(), beside: newHistogram(), lag: newHistogram(),
		codes: make(map[string]int), payments: make(map[string]string),
	}
	defer l.peer.client.CloseIdleConnections()
	admin := &httpAdmin{client: newHTTPClient(u.Host, readers), bearer: "Bearer " + config.AdminToken}
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count = "Checkout", 10_000_000
	settings.Price = inventory.Money{Amount: 1990, Currency: "BRL"}
	if err := admin.put(ctx, &inventory.PutProduct{Product: checkoutProduct, Settings: settings}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	l.warm(ctx)
	cpu := cpuTime()
	l.began = time.Now()
	l.run(ctx)
	seconds := time.Since(l.began).Seconds()
	r := l.report(seconds, cpuTime()-cpu)
	if config.Webhooks != nil {
		r.Webhooks[0], r.Webhooks[1] = config.Webhooks()
	}
	if err := l.audit(ctx, admin, &r.Oracle); err != nil {
		return r, err
	}
	return r, r.Oracle.err()
}

// warm pays some orders before the clock starts: a system that has just been started has its
// connections, plans and caches to make.
func (l *checkoutLoad) warm(ctx context.Context) {
	const few, each = 32, 20
	var running sync.WaitGroup
	for i := range few {
		running.Go(func() {
			for n := 0; n < each && ctx.Err() == nil; n++ {
				l.checkout(fmt.Sprintf("warm-%d-%d", i, n), time.Now())
			}
		})
	}
	running.Wait()
	l.latency.Reset()
	l.payment.Reset()
	l.warmed, l.started = len(l.payments), 0
}

// run lets buyers and others come by their schedules, and waits for all.
func (l *checkoutLoad) run(ctx context.Context) {
	c := &l.config
	const endless = 1 << 40
	buyers := newSchedule(ArrivalsPoisson, c.Rate, endless, c.Duration, c.Seed)
	others := newSchedule(ArrivalsPoisson, c.Beside, endless, c.Duration, c.Seed+1)
	sampling, cancel := context.WithCancel(ctx)
	var running, sampler sync.WaitGroup
	for i := range c.InFlight {
		running.Go(func() { l.come(ctx, buyers, fmt.Sprintf("buyer-%d", i), l.checkout) })
		running.Go(func() { l.come(ctx, others, fmt.Sprintf("other-%d", i), l.reserveOnly) })
	}
	sampler.Go(func() { l.sample(sampling) })
	sampler.Go(func() { l.stall(sampling) })
	running.Wait()
	cancel()
	sampler.Wait()
}

// come does something at every intended start that it gets.
func (l *checkoutLoad) come(
	ctx context.Context, s *schedule, name string, do func(buyer string, intended time.Time),
) {
	for n := 0; ctx.Err() == nil; n++ {
		at, ok := s.next(time.Since(l.began))
		if !ok {
			return
		}
		pause(ctx, at-time.Since(l.began))
		do(fmt.Sprintf("%s-%d", name, n), l.began.Add(at))
	}
}

// sample records the lag, and says each second how it goes.
func (l *checkoutLoad) sample(ctx context.Context) {
	const every = 50 * time.Millisecond
	for n := 1; ctx.Err() == nil; n++ {
		pause(ctx, every)
		lag := 0.0
		if l.config.Lag != nil {
			lag = l.config.Lag()
		}
		l.mu.Lock()
		recordLatency(l.lag, time.Duration(lag*float64(time.Second)))
		if n%int(time.Second/every) == 0 && l.config.Progress != nil {
			fmt.Fprintf(l.config.Progress, "%3.0f s  %d paid of %d  p99 %.0f ms  lag %.1f s\n",
				time.Since(l.began).Seconds(), len(l.payments), l.started,
				float64(l.latency.ValueAtQuantile(99))/1000, lag)
		}
		l.mu.Unlock()
	}
}

func (l *checkoutLoad) stall(ctx context.Context) {
	if l.config.Stall == nil {
		return
	}
	for {
		if pause(ctx, l.config.StallEvery); ctx.Err() != nil {
			return
		}
		if err := l.config.Stall(ctx, l.config.StallFor); err == nil {
			l.mu.Lock()
			l.stalls++
			l.mu.Unlock()
		}
	}
}

func (l *checkoutLoad) reserveOnly(buyer string, intended time.Time) {
	_, code := l.hold(buyer)
	l.mu.Lock()
	defer l.mu.Unlock()
	recordLatency(l.beside, time.Since(intended))
	if code != "" {
		l.codes["beside "+code]++
	}
}

// checkout reserves and pays. What a buyer would ask again, he asks again.
func (l *checkoutLoad) checkout(buyer string, intended time.Time) {
	l.mu.Lock()
	l.started++
	l.mu.Unlock()
	order, code := l.hold(buyer)
	began := time.Now()
	payment, begun := "", false
	for code == "" && payment == "" {
		payment, code = l.pay(order, buyer)
		// What is under way stays so, also when it cannot be asked for just now.
		begun = begun || code == inProgress
		if (code == inProgress || begun && code == "overloaded") && time.Since(began) < mostLatency {
			code = ""
			time.Sleep(200 * time.Millisecond) // as a page does that waits for its payment
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if code != "" {
		l.codes[code]++
		return
	}
	recordLatency(l.latency, time.Since(intended))
	recordLatency(l.payment, time.Since(began))
	l.payments[order] = payment
}

// hold reserves one number; code is "" if it did.
func (l *checkoutLoad) hold(buyer string) (order, code string) {
	var answer struct {
		Order struct{ ID string } `json:"order"`
		Code  string              `json:"code"`
	}
	op := operation{product: checkoutProduct, quantity: 1}
	if !l.post("/v1/orders", buyer, appendReserve(nil, &op, buyer), &answer) {
		return "", "no_answer"
	}
	return answer.Order.ID, answer.Code
}

// inProgress is a payment of which nobody knows yet.
const inProgress = "in_progress"

// pay pays an order; code is inProgress while nobody knows, and "" when it is paid.
func (l *checkoutLoad) pay(order, buyer string) (payment, code string) {
	var answer struct {
		Payment struct{ ID, Status string } `json:"payment"`
		Code    string                      `json:"code"`
	}
	if !l.post("/v1/orders/"+order+"/payments", buyer,
		[]byte(`{"method":"card","card":{"token":"tok_bench"}}`), &answer) {
		return "", "no_answer"
	}
	switch {
	case answer.Code == "outcome_unknown", answer.Code == "idempotency_in_progress",
		answer.Code == "unavailable":
		return "", inProgress
	case answer.Code != "":
		return "", answer.Code
	case answer.Payment.Status == "captured":
		return answer.Payment.ID, ""
	}
	return "", inProgress
}

func (l *checkoutLoad) post(path, key string, body []byte, answer any) (ok bool) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.Header.SetMethod(http.MethodPost)
	request.Header.Set("Authorization", l.peer.bearer)
	request.Header.Set("Idempotency-Key", key)
	request.Header.SetContentType("application/json")
	request.SetHost(l.peer.client.Addr)
	request.URI().SetPath(path)
	request.SetBodyRaw(body)
	return l.peer.client.Do(request, response) == nil &&
		json.Unmarshal(response.Body(), answer, json.MatchCaseInsensitiveNames(true)) == nil
}

func (l *checkoutLoad) report(seconds float64, cpu time.Duration) *CheckoutReport {
	paid := int64(len(l.payments) - l.warmed)
	return &CheckoutReport{
		Machine: thisMachine(), Rate: l.config.Rate, Seconds: seconds, Started: l.started, Paid: paid,
		PerSecond: float64(paid) / seconds, Codes: l.codes, Latency: latencyOf(l.latency),
		Payment: latencyOf(l.payment), Beside: latencyOf(l.beside), Others: l.beside.TotalCount(),
		Lag: latencyOf(l.lag), Stalls: l.stalls,
		CPU: float64(cpu.Microseconds()) / float64(max(paid, 1)),
	}
}

// audit holds the answers against the product and the provider: as many numbers are sold as were
// paid for, and every payment was charged once.
func (l *checkoutLoad) audit(ctx context.Context, admin *httpAdmin, o *Oracle) error {
	p, err := admin.product(ctx, checkoutProduct)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	o.Products, o.Orders = 1, len(l.payments)
	o.Statuses = map[string]int{"sold": int(p.Counters.Sold), "reserved": int(p.Counters.Reserved)}
	violate := func(format string, args ...any) {
		o.Violated++
		o.Violations = append(o.Violations, fmt.Sprintf(format, args...))
	}
	if unsure := l.codes[inProgress] + l.codes["no_answer"]; int(p.Counters.Sold) < len(l.payments) ||
		int(p.Counters.Sold) > len(l.payments)+unsure {
		violate("%d numbers are sold, and %d were paid for", p.Counters.Sold, len(l.payments))
	}
	if l.config.Charged == nil {
		return nil
	}
	charged := l.config.Charged()
	for order, payment := range l.payments {
		if charged[payment] != 1 && len(o.Violations) < 10 {
			violate("payment %s of order %s was charged %d times", payment, order, charged[payment])
		}
	}
	return nil
}
