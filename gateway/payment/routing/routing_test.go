package routing_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
	"numera/gateway/payment/routing"
	"numera/gateway/payment/simulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// street has two providers, both real over HTTP, each behind its gate; the first is preferred.
type street struct {
	t             *testing.T
	first, second *simulator.Server
	gates         []*routing.Gate
	payments      int
}

func open(t *testing.T, config routing.Config) *street {
	s := &street{t: t}
	provider := func(name string, server **simulator.Server) payment.Provider {
		var err error
		*server, err = simulator.New(simulator.Config{})
		require.NoError(t, err)
		front := httptest.NewServer(*server)
		client := simulator.NewClient(simulator.ClientConfig{
			Name: name, URL: front.URL, Exchange: exchange.Config{Timeout: time.Minute},
		})
		t.Cleanup(func() {
			client.Close()
			require.NoError(t, (*server).Close())
			front.Close()
		})
		return client
	}
	s.gates = []*routing.Gate{
		routing.NewGate(provider("first", &s.first), config),
		routing.NewGate(provider("second", &s.second), config),
	}
	return s
}

// choose gives a new payment to the first that takes it.
func (s *street) choose() *routing.Gate {
	for _, g := range s.gates {
		if g.TakesNew() {
			return g
		}
	}
	require.FailNow(s.t, "no provider takes a payment")
	return nil
}

// pay makes a new payment: where it went, and what came of it.
func (s *street) pay() (provider string, charge payment.Charge, err error) {
	s.payments++
	p := s.choose()
	charge, err = p.Authorise(ctx, card(fmt.Sprintf("p%d", s.payments)))
	return p.Name(), charge, err
}

func card(id string) payment.Authorisation {
	return payment.Authorisation{
		Key: id, Payment: id, Amount: payment.Money{Amount: 100, Currency: "BRL"},
		Method: payment.MethodCard, CardToken: "tok",
	}
}

func TestNewPaymentsLeaveAProviderThatKeepsFailing(t *testing.T) {
	s := open(t, routing.Config{FailureCalls: 4, Rest: time.Hour})
	require.NoError(t, s.first.Script(simulator.Fault{Kind: simulator.ErrorAfter, Times: -1}))
	for range 4 {
		went, _, err := s.pay()
		require.Equal(t, "first", went)
		require.ErrorIs(t, err, payment.ErrUnknown)
	}
	require.True(t, s.gates[0].Ill())
	for range 4 {
		went, charge, err := s.pay()
		require.NoError(t, err)
		require.Equal(t, "second", went)
		require.Equal(t, payment.StatusAuthorised, charge.Status)
	}
	require.False(t, s.gates[1].Ill())

	s.first.ClearFaults()
	p := s.gates[0]
	found, err := p.LookUp(ctx, payment.Reference{Payment: "p1"})
	require.NoError(t, err, "what it has, it keeps")
	_, err = p.Capture(ctx, payment.Capture{Key: "c", Reference: found.Reference, Amount: found.Amount})
	require.NoError(t, err)
	require.Len(t, s.first.Charges(), 4)
	require.Len(t, s.second.Charges(), 4)
	for _, c := range s.second.Charges() {
		require.Empty(t, s.first.Payment(c.Payment), "nothing is charged at both")
	}
}

func TestDeclinesAndRefusalsAreAnswers(t *testing.T) {
	s := open(t, routing.Config{FailureCalls: 2, Rest: time.Hour})
	require.NoError(t, s.first.Script(simulator.Fault{Kind: simulator.Decline, Times: 5}))
	for range 5 {
		went, charge, err := s.pay()
		require.NoError(t, err)
		require.Equal(t, "first", went)
		require.Equal(t, payment.StatusDeclined, charge.Status)
	}
	p := s.gates[0]
	for range 5 {
		_, err := p.Authorise(ctx, payment.Authorisation{Key: "k", Payment: "p"})
		require.ErrorIs(t, err, payment.ErrRejected)
	}
	require.False(t, s.gates[0].Ill())
}

func TestLookUpsThatFailCountAndThoseThatDoNotProveNothing(t *testing.T) {
	s := open(t, routing.Config{FailureCalls: 3, Rest: time.Millisecond})
	first := s.gates[0]
	_, err := first.Authorise(ctx, card("p"))
	require.NoError(t, err)
	require.NoError(t, s.first.Script(simulator.Fault{
		Kind: simulator.ErrorBefore, On: simulator.OnLookUp, Times: 2,
	}))
	for range 2 {
		_, err = first.LookUp(ctx, payment.Reference{Payment: "p"})
		require.ErrorIs(t, err, payment.ErrUnknown)
	}
	require.True(t, first.Ill())
	require.Eventually(t, first.TakesNew, 20*time.Second, time.Millisecond)
	_, err = first.LookUp(ctx, payment.Reference{Payment: "p"})
	require.NoError(t, err)
	require.True(t, first.Ill(), "to tell is not to charge")
}

func TestCallersWhoGiveUpSayNothingButEndTheirTrial(t *testing.T) {
	s := open(t, routing.Config{FailureCalls: 2, Rest: time.Millisecond})
	gaveUp, give := context.WithCancel(ctx)
	give()
	first := s.gates[0]
	for range 5 {
		_, err := first.Authorise(gaveUp, card("p"))
		require.ErrorIs(t, err, payment.ErrUnavailable)
	}
	require.False(t, first.Ill())
	require.NoError(t, s.first.Script(simulator.Fault{Kind: simulator.Busy, Times: 2}))
	for range 2 {
		_, err := first.Authorise(ctx, card("p"))
		require.ErrorIs(t, err, payment.ErrUnavailable)
	}
	require.True(t, first.Ill())
	require.Eventually(t, first.TakesNew, 20*time.Second, time.Millisecond)
	_, err := first.Authorise(gaveUp, card("p"))
	require.Error(t, err)
	require.Eventually(t, first.TakesNew, 20*time.Second, time.Millisecond)
	_, err = first.Authorise(ctx, card("p"))
	require.NoError(t, err)
	require.False(t, first.Ill())
}

// TestOneTrialPerRest: an ill provider gets one new payment when it is due, not all that come while
// its answer is awaited; and gets all again when that one went well.
func TestOneTrialPerRest(t *testing.T) {
	const rest = 100 * time.Millisecond
	s := open(t, routing.Config{FailureCalls: 1, Rest: rest})
	require.NoError(t, s.first.Script(simulator.Fault{Kind: simulator.ErrorBefore, Times: 2}))
	begun := time.Now()
	_, _, err := s.pay()
	require.ErrorIs(t, err, payment.ErrUnknown)

	trials := 0
	for s.gates[0].Ill() {
		asked := time.Now()
		p := s.choose()
		if p.Name() == "second" {
			continue
		}
		trials++
		require.GreaterOrEqual(t, time.Since(begun), rest)
		for range 100 { // it has not answered yet
			if s.choose().Name() == "first" {
				require.GreaterOrEqual(t, time.Since(asked), rest)
				asked = time.Now()
			}
		}
		begun = time.Now()
		_, err = p.Authorise(ctx, card(fmt.Sprintf("trial%d", trials)))
		require.Equal(t, trials == 1, err != nil)
	}
	require.Equal(t, 2, trials)
	went, _, err := s.pay()
	require.NoError(t, err)
	require.Equal(t, "first", went)
}

// TestSlowProviderHoldsNoMoreThanItsRoom: everybody else is told at once, nothing is sent for them,
// and new payments go elsewhere.
func TestSlowProviderHoldsNoMoreThanItsRoom(t *testing.T) {
	const calls = 3
	s := open(t, routing.Config{Calls: calls, Wait: time.Millisecond, FailureCalls: 5, Rest: time.Hour})
	require.NoError(t, s.first.Script(simulator.Fault{
		Kind: simulator.TimeoutBefore, On: simulator.OnAuthorise, Times: -1,
	}))
	p := s.gates[0]
	patience, give := context.WithCancel(ctx)
	var stuck sync.WaitGroup
	for i := range calls {
		stuck.Go(func() { _, _ = p.Authorise(patience, card(fmt.Sprintf("stuck%d", i))) })
	}
	arrived := func() (n int) {
		for i := range calls {
			n += len(s.first.Calls(fmt.Sprintf("stuck%d", i)))
		}
		return n
	}
	require.Eventually(t, func() bool { return arrived() == calls }, 20*time.Second,
		time.Millisecond)
	for range 5 { // while those are stuck
		_, _, err := s.pay()
		require.ErrorIs(t, err, payment.ErrUnavailable)
	}
	_, err := p.LookUp(ctx, payment.Reference{Payment: "stuck0"})
	require.ErrorIs(t, err, payment.ErrUnavailable)
	require.Equal(t, calls, arrived())
	require.Empty(t, s.first.Calls("p1"))
	went, _, err := s.pay()
	require.NoError(t, err)
	require.Equal(t, "second", went)

	give()
	stuck.Wait()
	_, err = p.LookUp(ctx, payment.Reference{Payment: "stuck0"})
	require.ErrorIs(t, err, payment.ErrNotFound, "the room is free again")
}
