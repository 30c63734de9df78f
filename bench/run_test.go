package bench

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"numera/engine/inventory"
)

// TestEveryWorkload runs each on the shard path, small, with the oracle.
func TestEveryWorkload(t *testing.T) {
	for _, workload := range Workloads() {
		t.Run(string(workload), func(t *testing.T) {
			t.Parallel()
			c := Config{
				Workload: workload, Requests: 3000, Numbers: 2000, Shards: 2, Dir: t.TempDir(),
			}
			switch workload {
			case WorkloadProducts:
				c.Products = 50
			case WorkloadSellOut:
				c.Requests = 100_000
			}
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			require.Zero(t, r.Oracle.Violated)
			require.Positive(t, r.Accepted)
			require.Positive(t, r.Events+r.Backlog, "a consumer is attached")
			switch workload {
			case WorkloadSellOut:
				require.Equal(t, map[string]int{"paid": 2000}, r.Oracle.Statuses)
				require.Less(t, r.Requests, int64(c.Requests), "it ended when all were sold")
			case WorkloadRetries:
				require.Positive(t, r.Replays)
			case WorkloadExpiry:
				require.Equal(t, []string{"expired"}, byCount(r.Oracle.Statuses))
			case WorkloadLifecycle:
				require.Subset(t, byCount(r.Oracle.Statuses), []string{"paid", "refused", "released"})
			}
			require.NoError(t, r.WriteTable(io.Discard))
		})
	}
}

// TestEveryPath runs an open loop on each.
func TestEveryPath(t *testing.T) {
	for _, path := range []Path{PathShard, PathNATS, PathHTTP} {
		t.Run(string(path), func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), Config{
				Path: path, Workload: WorkloadLifecycle, Requests: 1000, Rate: 2000, InFlight: 64,
				Quantity: 3, Shards: 2, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			require.EqualValues(t, 1000, r.Requests)
			require.EqualValues(t, 1000, r.Accepted)
			require.Positive(t, r.Batch.Count)
			require.Positive(t, r.Commit.Mean)
		})
	}
}

// TestTarget loads a server that runs already, as a process of its own does.
func TestTarget(t *testing.T) {
	s, err := openSystem(t.Context(), t.TempDir(), 2, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	v := &venue{}
	require.NoError(t, v.serve(s, &Config{InFlight: 1}))
	defer func() { require.NoError(t, v.close()) }()
	r, err := Run(t.Context(), Config{
		Path: PathHTTP, Workload: WorkloadChosen, Requests: 1500, InFlight: 16, Numbers: 2000,
		Target:       "http://" + v.peer.(*httpPeer).client.Addr,
		ServiceToken: ownServiceToken, AdminToken: ownAdminToken,
	})
	require.NoError(t, err)
	require.Positive(t, r.Accepted)
	require.Positive(t, r.Codes["numbers_taken"])
	require.EqualValues(t, r.Accepted, r.Oracle.Orders)
	require.Positive(t, r.Batch.Count, "read from /metrics")
}

func TestComparisons(t *testing.T) {
	for _, path := range []Path{PathShard, PathHTTP} {
		t.Run("floor of "+string(path), func(t *testing.T) {
			t.Parallel()
			r, err := RunFloor(t.Context(), CompareConfig{
				Path: path, Rounds: 3, Turn: 50 * time.Millisecond, InFlight: 32, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			require.Len(t, r.Comparisons[0].Rounds, 3)
			require.Positive(t, r.Comparisons[0].RateRatio)
			require.Positive(t, r.Oracles[0].Orders)
			require.NoError(t, r.WriteTable(io.Discard))
		})
	}
	t.Run("cost", func(t *testing.T) {
		t.Parallel()
		r, err := RunCost(t.Context(), CostConfig{
			Few: 100, Numbers: 5000, Orders: 500, Products: 200, InFlight: 16, Rounds: 3,
			Requests: 200, Dir: t.TempDir(),
		})
		require.NoError(t, err)
		require.Len(t, r.Comparisons, 3)
		require.Len(t, r.Oracles, 6)
	})
}

// forgetfulPeer loses every fifth answer, after the shard has acted on it.
type forgetfulPeer struct {
	peer
	lost int
}

func (p *forgetfulPeer) start(c *call) {
	if c.op.repeat || p.lost == 0 || c.op.buyer.record()%5 != 0 {
		p.peer.start(c)
		return
	}
	p.lost--
	own := *c
	shadow := &call{lane: &lane{load: c.lane.load, free: make(chan *call, 1)}, op: own.op}
	done := make(chan struct{})
	shadow.proposal.Done = func(*inventory.Outcome, error) { close(done) }
	p.peer.start(shadow)
	<-done
	c.finish(answer{verdict: unanswered, code: "lost"})
}

// TestLostAnswersAreResolved lets requests act without an answer: the oracle asks again and finds
// that each has acted once.
func TestLostAnswersAreResolved(t *testing.T) {
	c := Config{Requests: 500, InFlight: 8, Shards: 1, Dir: t.TempDir()}.withDefaults()
	p, err := newPlan(&c)
	require.NoError(t, err)
	v, err := openVenue(t.Context(), &c)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.close()) }()
	require.NoError(t, v.setUp(t.Context(), p))
	l := newLoad(p, &forgetfulPeer{v.peer, 50},
		newSchedule(ArrivalsPoisson, 0, c.Requests, time.Minute, 1), c.shape(), 1)
	_, err = l.run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 50, l.total().codes["lost"])
	var o Oracle
	require.NoError(t, v.examine(t.Context(), l, &o))
	require.Equal(t, 50, o.Resolved)
	require.Equal(t, 500, o.Orders)
	require.NoError(t, o.err())
	for i := range l.lanes[0].records.len {
		require.Zero(t, l.lanes[0].records.at(i).doubts, "an outcome ends the doubt")
	}
}

// TestHTTPAnswers gives HTTP answers that the contract has for bad times, and some that
// it has not.
func TestHTTPAnswers(t *testing.T) {
	for _, a := range []struct {
		status  int
		body    string
		verdict verdict
	}{
		{503, `{"code":"overloaded"}`, turnedAway},
		{503, `{"code":"outcome_unknown"}`, unanswered},
		{429, `{"code":"rate_limited"}`, turnedAway},
		{409, `{"code":"numbers_taken"}`, refused},
		{422, `{"code":"buyer_limit"}`, refused},
		{400, `{"code":"malformed"}`, garbled},
		{401, `{"code":"unauthenticated"}`, garbled},
		{500, `{"code":"internal"}`, garbled},
		{409, `conflict`, garbled},
		{201, `{"order":{"id":"x","status":"reserved"}}`, garbled},
		{201, `{"order":`, garbled},
	} {
		r := fasthttp.AcquireResponse()
		r.SetStatusCode(a.status)
		r.SetBodyString(a.body)
		got := readAnswer(r)
		require.Equal(t, a.verdict, got.verdict, "%d %s", a.status, a.body)
		require.Equal(t, a.verdict == garbled, got.err != nil)
		fasthttp.ReleaseResponse(r)
	}
}

// TestServerThatHangsUp answers nothing: every request is in doubt, and the run is incomplete.
func TestServerThatHangsUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	p := newHTTPPeer(listener.Addr().String(), "t", 1)
	plan := &plan{quantity: 1, numbers: 10, ids: []inventory.ProductID{"a"}}
	plan.any()
	l := newLoad(plan, p, newSchedule(ArrivalsPoisson, 0, 5, time.Minute, 1),
		shape{lanes: 1, window: 1}, 1)
	_, err = l.run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, l.total().codes["no_answer"])
	require.Len(t, l.lanes[0].doubts, 5)
}
