package shard

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// The test binary runs itself as the process to be killed.
const childDir = "NUMERA_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait, for elections and disks
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// sale is what the child answers a key: an order's id and numbers.
type sale struct {
	Key     string
	ID      string
	Numbers []uint32
	Replay  bool
}

// child runs a node that reserves a number for every line of its input, a key, and writes a sale
// for each that is acknowledged.
func child(dir string) {
	config := testConfig(fatal{}, dir)
	config.SnapshotEntries = 100
	n := openNode(fatal{}, config)
	s := n.Shard(0)
	do(fatal{}, s, product("a", 1_000_000))
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		key := lines.Text()
		s.Propose(&Proposal{
			Entry: inventory.Entry{Command: reserve(key, "b")},
			Done: func(o *inventory.Outcome, err error) {
				if err != nil || o.Code != inventory.CodeOK {
					log.Fatal(err, o)
				}
				mu.Lock()
				defer mu.Unlock()
				_ = out.Encode(sale{key, o.Order.ID.String(), o.Order.Items[0].Numbers, o.Replay})
			},
		})
	}
	select {} // until it is killed
}

// fatal is a testing.TB of a process that is no test.
type fatal struct{ testing.TB }

func (fatal) Helper()                   {}
func (fatal) Cleanup(func())            {}
func (fatal) FailNow()                  { os.Exit(1) }
func (fatal) Errorf(f string, a ...any) { log.Printf(f, a...) }

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	keys  chan string // closed by the test
	sales chan sale   // closed at the end of its output
}

func startChild(t *testing.T, dir string) *process {
	p := &process{
		cmd:  exec.Command(os.Args[0]),
		keys: make(chan string, 512), sales: make(chan sale, 64),
	}
	p.cmd.Env = append(os.Environ(), childDir+"="+dir)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for key := range p.keys {
			_, _ = fmt.Fprintln(in, key) // it fails when the child has been killed
		}
	}()
	go func() {
		defer close(p.sales)
		for lines := json.NewDecoder(out); ; {
			var s sale
			if lines.Decode(&s) != nil { // the last line may be cut
				return
			}
			p.sales <- s
		}
	}()
	return p
}

// crashes is what a test that kills a node knows of it.
type crashes struct {
	t       *testing.T
	sold    map[string]sale // what was acknowledged, by key
	open    map[string]bool // keys that have no answer
	retried map[string]bool // those that had none when the node was killed, and were asked again
	acted   int             // of them, how many had acted
	settled int             // of them, how many have an answer
}

// cycle runs a node under load for a while from its first answer on, and kills it. First it asks
// again what was not answered, and some of what was.
func (c *crashes) cycle(number int, dir string, lasts time.Duration) {
	p := startChild(c.t, dir)
	ask := func(key string) { c.open[key] = true; p.keys <- key }
	c.retried = maps.Clone(c.open)
	for key := range c.retried {
		ask(key)
	}
	for key := range c.sold {
		if len(c.open) >= len(c.retried)+20 {
			break
		}
		ask(key)
	}
	ask(fmt.Sprint(number, "-first"))
	var kill <-chan time.Time
	for i := 0; ; {
		select {
		case s, more := <-p.sales:
			if !more {
				close(p.keys)
				require.Error(c.t, p.cmd.Wait(), "killed")
				return
			}
			c.answered(s)
			if kill == nil {
				kill = time.After(lasts)
			}
		case <-kill:
			require.NoError(c.t, p.cmd.Process.Kill())
			kill = make(chan time.Time)
		}
		for ; len(c.open) < 200; i++ {
			ask(fmt.Sprint(number, "-", i))
		}
	}
}

// answered compares an answer with the one before, if there was one.
func (c *crashes) answered(s sale) {
	before, known := c.sold[s.Key]
	switch {
	case known:
		require.Equal(c.t, sale{s.Key, before.ID, before.Numbers, true}, s)
	case c.retried[s.Key]:
		c.settled++
		if s.Replay {
			c.acted++
		}
	default:
		require.False(c.t, s.Replay)
	}
	c.sold[s.Key] = s
	delete(c.open, s.Key)
}

// TestCrash kills a node under load with SIGKILL, again and again: every order that was acknowledged
// is there with its numbers, and what was not has acted once or not at all. NUMERA_CRASH_CYCLES says
// how often.
func TestCrash(t *testing.T) {
	t.Parallel()
	cycles := 10
	if text := os.Getenv("NUMERA_CRASH_CYCLES"); text != "" {
		var err error
		cycles, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	c := &crashes{t: t, sold: make(map[string]sale), open: make(map[string]bool)}
	for number := range cycles {
		c.cycle(number, dir, time.Duration(1+random.IntN(80))*time.Millisecond)
	}

	n := openNode(t, testConfig(t, dir))
	defer n.Close()
	price := inventory.Money{Amount: 100, Currency: "BRL"}
	acknowledged := make(map[inventory.OrderID][]inventory.ItemView)
	for _, s := range c.sold {
		id, ok := inventory.ParseOrderID(s.ID)
		require.True(t, ok)
		acknowledged[id] = []inventory.ItemView{{Product: "a", Numbers: s.Numbers, UnitPrice: price}}
	}
	requireOrders(t, n.Shard(0), acknowledged)
	t.Logf("%d kills, %d orders; of %d requests without an answer %d had acted",
		cycles, len(c.sold), c.settled, c.acted)
}
