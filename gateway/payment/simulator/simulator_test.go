package simulator_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/gateway/payment"
	"numera/gateway/payment/pix"
	"numera/gateway/payment/simulator"
)

var ctx = context.Background()

func TestCardIsAuthorisedCapturedAndRefundedInParts(t *testing.T) {
	w := newWorld(t, simulator.Config{Account: "acct_7"})
	c := w.authorised(card("p1"))
	require.Equal(t, payment.StatusAuthorised, c.Status)
	require.Equal(t, "acct_7", c.Account)
	require.Equal(t, reais(1990), c.Amount)
	require.Zero(t, c.Captured.Amount)
	require.WithinDuration(t, time.Now().Add(7*24*time.Hour), c.LapsesAt, time.Minute)

	for _, key := range []string{"a", "a", "b"} { // three captures are one
		capture := captureOf(c)
		capture.Key = key
		captured, err := w.Capture(ctx, capture)
		require.NoError(t, err)
		require.Equal(t, payment.StatusCaptured, captured.Status)
		require.Equal(t, reais(1990), captured.Captured)
	}
	for _, step := range []struct {
		id     string
		cents  int64
		refuse bool
	}{
		{"r1", 1000, false},
		{"r1", 1000, false}, // the same again
		{"r2", 991, true},   // more than is left
		{"r2", 990, false},
		{"r3", 1, true},
	} {
		r, err := w.Refund(ctx, refundOf(c, step.id, step.cents))
		if step.refuse {
			require.ErrorIs(t, err, payment.ErrRejected, step.id)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, payment.RefundDone, r.Status)
		require.Equal(t, step.id, r.ID)
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	first := w.authorised(card("p1"))
	require.Equal(t, first, w.authorised(card("p1")), "the stored answer")
	other := card("p1")
	other.Amount.Amount++
	_, err := w.Authorise(ctx, other)
	require.ErrorIs(t, err, payment.ErrRejected, "other parameters")
	require.Len(t, w.server.Payment("p1"), 1)

	forgetful := card("p1")
	forgetful.Key = "another"
	w.authorised(forgetful)
	require.Len(t, w.server.Payment("p1"), 2, "another key charges again, and the oracle sees it")
}

func TestKeyIsBoundWhileItsFirstCallIsUnderWay(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	w.script(simulator.Fault{Kind: simulator.Slow, DelayMilli: 100})
	var callers sync.WaitGroup
	ids := make(chan string, 20)
	for range cap(ids) {
		callers.Go(func() {
			c, err := w.Authorise(ctx, card("p1"))
			if err == nil {
				ids <- c.Provider
			}
		})
	}
	callers.Wait()
	require.Len(t, ids, cap(ids))
	first := <-ids
	for range cap(ids) - 1 {
		require.Equal(t, first, <-ids)
	}
	require.Len(t, w.server.Charges(), 1)
	require.Len(t, w.server.Calls("p1"), 20)
}

// TestFaults has every fault of a call befall an authorisation, then asks as a careful caller does:
// what became of it, and again with the same key. One charge comes of it all.
func TestFaults(t *testing.T) {
	for _, row := range []struct {
		kind   simulator.FaultKind
		fails  error
		effect bool
	}{
		{simulator.TimeoutBefore, payment.ErrUnknown, false},
		{simulator.TimeoutAfter, payment.ErrUnknown, true},
		{simulator.CutBefore, payment.ErrUnknown, false},
		{simulator.CutAfter, payment.ErrUnknown, true},
		{simulator.ErrorBefore, payment.ErrUnknown, false},
		{simulator.ErrorAfter, payment.ErrUnknown, true},
		{simulator.Busy, payment.ErrUnavailable, false},
	} {
		t.Run(string(row.kind), func(t *testing.T) {
			w := newWorld(t, simulator.Config{})
			w.authorised(card("before")) // so that the connection is an old one
			w.script(simulator.Fault{Kind: row.kind, On: simulator.OnAuthorise, Times: 2})
			client := w.Client
			if row.kind == simulator.TimeoutBefore || row.kind == simulator.TimeoutAfter {
				client = w.hasty
			}
			for range 2 {
				_, err := client.Authorise(ctx, card("p1"))
				require.ErrorIs(t, err, row.fails)
			}
			found, err := w.LookUp(ctx, payment.Reference{Payment: "p1"})
			if row.effect {
				require.NoError(t, err)
				require.Equal(t, payment.StatusAuthorised, found.Status)
			} else {
				require.ErrorIs(t, err, payment.ErrNotFound)
			}
			c := w.authorised(card("p1"))
			if row.effect {
				require.Equal(t, found.Provider, c.Provider)
			}
			require.Len(t, w.server.Payment("p1"), 1)
			require.Empty(t, w.server.Faults())
			calls := w.server.Calls("p1")
			require.Len(t, calls, 4)
			require.Equal(t, row.kind, calls[1].Fault)
			require.Equal(t, "key-p1", calls[1].Key)
		})
	}
}

func TestStoredErrorIsAnsweredForEver(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	w.script(simulator.Fault{Kind: simulator.ErrorStored})
	for range 3 {
		_, err := w.Authorise(ctx, card("p1"))
		require.ErrorIs(t, err, payment.ErrUnknown)
	}
	_, err := w.LookUp(ctx, payment.Reference{Payment: "p1"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	require.Empty(t, w.server.Charges())
}

// TestEffectComesAlsoWhenNobodyWaits: a look-up meanwhile does not say that nothing will come.
func TestEffectComesAlsoWhenNobodyWaits(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	w.script(simulator.Fault{
		Kind: simulator.Slow, On: simulator.OnAuthorise, DelayMilli: 3 * impatience.Milliseconds(),
	})
	_, err := w.hasty.Authorise(ctx, card("p1"))
	require.ErrorIs(t, err, payment.ErrUnknown)
	_, err = w.LookUp(ctx, payment.Reference{Payment: "p1"})
	require.ErrorIs(t, err, payment.ErrUnknown)
	require.Eventually(t, func() bool {
		c, err := w.LookUp(ctx, payment.Reference{Payment: "p1"})
		return err == nil && c.Status == payment.StatusAuthorised
	}, patience, 10*time.Millisecond)
}

func TestFaultsOfOnePaymentLeaveOthersAlone(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	w.script(simulator.Fault{Kind: simulator.Decline, Payment: "p1"})
	w.script(simulator.Fault{Kind: simulator.Decline, Order: "order-p2"})
	require.Equal(t, payment.StatusAuthorised, w.authorised(card("p0")).Status)
	declined := w.authorised(card("p1"))
	require.Equal(t, payment.StatusDeclined, declined.Status)
	require.NotEmpty(t, declined.DeclinedBy)
	require.Equal(t, payment.StatusDeclined, w.authorised(card("p2")).Status)

	marked := card("p3")
	marked.CardToken = "tok sim:error_before*2@capture"
	marked.Description = "Rifa [sim:slow+1]"
	c := w.authorised(marked)
	for range 2 {
		_, err := w.Capture(ctx, captureOf(c))
		require.ErrorIs(t, err, payment.ErrUnknown)
	}
	_, err := w.Capture(ctx, captureOf(c))
	require.NoError(t, err)

	misspelt := card("p4")
	misspelt.CardToken = "sim:declined"
	_, err = w.Authorise(ctx, misspelt)
	require.ErrorIs(t, err, payment.ErrRejected)
}

func TestActionRequired(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	w.script(simulator.Fault{Kind: simulator.ActionRequired, Times: -1})
	c := w.authorised(card("p1"))
	require.Equal(t, payment.StatusPending, c.Status)
	require.Equal(t, payment.ActionRedirect, c.Action.Kind)
	require.Contains(t, c.Action.URL, w.url)
	_, err := w.Capture(ctx, captureOf(c))
	require.ErrorIs(t, err, payment.ErrRejected)
	_, err = w.server.Pay("p1")
	require.NoError(t, err)
	c, err = w.LookUp(ctx, c.Reference)
	require.NoError(t, err)
	require.Equal(t, payment.StatusAuthorised, c.Status)

	w.authorised(card("p2"))
	_, err = w.server.Decline("p2")
	require.NoError(t, err)
	_, err = w.server.Pay("p2")
	require.ErrorIs(t, err, simulator.ErrNotNow)
}

func TestPixIsPaidOnceAndAlsoTooLate(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	inTime, late, voided := pixOf("p1"), pixOf("p2"), pixOf("p3")
	late.ExpiresAt = w.clock().Add(time.Minute)
	c := w.authorised(inTime)
	require.Equal(t, payment.StatusPending, c.Status)
	code, err := pix.Parse(c.Action.PixCode)
	require.NoError(t, err)
	require.Equal(t, int64(1990), code.AmountCents)

	paid, err := w.server.Pay("p1")
	require.NoError(t, err)
	require.False(t, paid.PaidLate)
	_, err = w.server.Pay("p1")
	require.ErrorIs(t, err, simulator.ErrNotNow)
	c, err = w.Void(ctx, payment.Void{Key: "v1", Reference: c.Reference})
	require.NoError(t, err)
	require.Equal(t, payment.StatusCaptured, c.Status, "money that came in is never voided")

	c = w.authorised(late)
	require.WithinDuration(t, late.ExpiresAt, c.Action.ExpiresAt, 0)
	w.now.Store(int64(2 * time.Minute))
	c, err = w.LookUp(ctx, payment.Reference{Payment: "p2"})
	require.NoError(t, err)
	require.Equal(t, payment.StatusVoided, c.Status)
	second, err := w.server.Pay("p2")
	require.NoError(t, err)
	require.True(t, second.PaidLate)
	require.NotEqual(t, paid.EndToEnd, second.EndToEnd)

	w.script(simulator.Fault{Kind: simulator.SettleLate, DelayMilli: 5})
	c = w.authorised(voided)
	c, err = w.Void(ctx, payment.Void{Key: "v3", Reference: c.Reference})
	require.NoError(t, err)
	require.Equal(t, payment.StatusVoided, c.Status)
	require.Eventually(t, func() bool {
		c, err := w.LookUp(ctx, c.Reference)
		return err == nil && c.Status == payment.StatusCaptured && c.Captured == reais(1990)
	}, patience, 5*time.Millisecond)
}

func TestAuthorisationLapses(t *testing.T) {
	w := newWorld(t, simulator.Config{AuthorisationLife: time.Hour})
	c := w.authorised(card("p1"))
	w.now.Store(int64(time.Hour))
	lapsed, err := w.Capture(ctx, captureOf(c))
	require.NoError(t, err)
	require.Equal(t, payment.StatusLapsed, lapsed.Status)
	require.Zero(t, lapsed.Captured.Amount)

	w.script(simulator.Fault{Kind: simulator.Lapsed})
	lapsed, err = w.Capture(ctx, captureOf(w.authorised(card("p2"))))
	require.NoError(t, err)
	require.Equal(t, payment.StatusLapsed, lapsed.Status)
}

func TestRefundFails(t *testing.T) {
	w := newWorld(t, simulator.Config{})
	c := w.captured(card("p1"))
	w.script(simulator.Fault{Kind: simulator.RefundFailed})
	w.script(simulator.Fault{Kind: simulator.RefundPending})
	w.script(simulator.Fault{Kind: simulator.RefundPending, DelayMilli: 5})
	r, err := w.Refund(ctx, refundOf(c, "r1", 1990))
	require.NoError(t, err)
	require.Equal(t, payment.RefundFailed, r.Status)

	r, err = w.Refund(ctx, refundOf(c, "r2", 1000))
	require.NoError(t, err)
	require.Equal(t, payment.RefundPending, r.Status)
	_, err = w.Refund(ctx, refundOf(c, "too-much", 991))
	require.ErrorIs(t, err, payment.ErrRejected, "a pending refund holds its money")
	_, err = w.server.FinishRefund("p1", "r2", payment.RefundDone)
	require.NoError(t, err)
	_, err = w.server.FinishRefund("p1", "r2", payment.RefundFailed)
	require.ErrorIs(t, err, simulator.ErrNotNow)

	_, err = w.Refund(ctx, refundOf(c, "r3", 990))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		c, err := w.LookUp(ctx, c.Reference)
		return err == nil && c.Refunded == reais(1990) && len(c.Refunds) == 3
	}, patience, 5*time.Millisecond)
}

func TestItRemembersInItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "psp")
	before := newWorld(t, simulator.Config{File: file})
	c := before.captured(card("p1"))
	before.script(simulator.Fault{Kind: simulator.CutAfter})
	_, err := before.Authorise(ctx, pixOf("p2"))
	require.ErrorIs(t, err, payment.ErrUnknown)
	_, err = before.Refund(ctx, refundOf(c, "r1", 90))
	require.NoError(t, err)
	statements := before.server.Charges()

	torn, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = torn.WriteString(`{"payment":"p9` + strings.Repeat(" ", 10_000))
	require.NoError(t, err)
	require.NoError(t, torn.Close())

	after := newWorld(t, simulator.Config{File: file})
	require.Equal(t, statements, after.server.Charges())
	found, err := after.LookUp(ctx, c.Reference)
	require.NoError(t, err)
	require.Equal(t, reais(90), found.Refunded)
	require.Equal(t, statements[1].ID, after.authorised(pixOf("p2")).Provider, "the stored answer")
	_, err = after.server.Pay("p2")
	require.NoError(t, err)
	again := newWorld(t, simulator.Config{File: file})
	require.Equal(t, after.server.Payment("p2")[0].Charge, again.server.Payment("p2")[0].Charge)

	require.NoError(t, os.WriteFile(file, []byte("{\"payment\":\n{}\n"), 0o600))
	_, err = simulator.New(simulator.Config{File: file})
	require.Error(t, err)
}

// TestNothingIsDoneThatWouldBeForgotten closes the provider while a call is under way.
func TestNothingIsDoneThatWouldBeForgotten(t *testing.T) {
	server, err := simulator.New(simulator.Config{File: filepath.Join(t.TempDir(), "psp")})
	require.NoError(t, err)
	front := httptest.NewServer(server)
	defer front.Close()
	client := simulator.NewClient(simulator.ClientConfig{URL: front.URL})
	defer client.Close()
	require.NoError(t, server.Script(simulator.Fault{Kind: simulator.Slow, DelayMilli: 60_000}))
	answered := make(chan error, 1)
	go func() {
		_, err := client.Authorise(ctx, card("p1"))
		answered <- err
	}()
	require.Eventually(t, func() bool { return len(server.Calls("p1")) == 1 }, patience,
		time.Millisecond)
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-answered, payment.ErrUnknown)
	require.Empty(t, server.Charges())
	_, err = server.Pay("p1")
	require.ErrorIs(t, err, simulator.ErrNotNow)
}

// TestManyAtOnce has every call of 800 payments done twice at once; each is charged once.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, simulator.Config{WebhookSecrets: []string{"new"}})
	go func() {
		for range w.inbox { // let them come
		}
	}()
	defer close(w.inbox)
	var workers sync.WaitGroup
	failures := make(chan error, 16)
	for worker := range cap(failures) {
		workers.Go(func() {
			for i := range 100 {
				if err := w.buy(strconv.Itoa(worker/2*100 + i)); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	workers.Wait()
	require.Empty(t, failures)
	require.Len(t, w.server.Charges(), 800)
	for _, s := range w.server.Charges() {
		require.Equal(t, int64(1990), s.Captured)
	}
	require.Eventually(t, func() bool { return w.server.Deliveries().Waiting == 0 },
		patience, 10*time.Millisecond)
}

func (w *world) buy(id string) error {
	patient, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		c, err := w.Authorise(patient, card(id))
		if err == nil {
			_, err = w.Capture(patient, captureOf(c))
		}
		if !errors.Is(err, payment.ErrUnknown) && !errors.Is(err, payment.ErrUnavailable) {
			return err
		}
	}
}

func BenchmarkAuthorise(b *testing.B) {
	w := newWorld(b, simulator.Config{})
	var mu sync.Mutex
	last := 0
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			last++
			id := strconv.Itoa(last)
			mu.Unlock()
			if _, err := w.Authorise(ctx, card(id)); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "authorise/s")
}
