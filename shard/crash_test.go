package shard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
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
	os.Exit(m.Run())
}

// sale is what the child answers a key: an order's id and numbers.
type sale struct {
	Key     string
	ID      string
	Numbers []uint32
	Replay  bool
}

// child runs a node that reserves a number for every line of its input, a key, and writes a sale for
// each that is acknowledged.
func child(dir string) {
	n, err := Open(childConfig(dir))
	if err != nil {
		log.Fatal(err)
	}
	if err := n.Ready(context.Background()); err != nil {
		log.Fatal(err)
	}
	s := n.Shard(0)
	if _, err := s.Do(context.Background(), inventory.Entry{Command: product("a", 1_000_000)}); err != nil {
		log.Fatal(err)
	}
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
	if err := n.Close(); err != nil {
		log.Fatal(err)
	}
}

func childConfig(dir string) Config {
	config := testConfig(fatal{}, dir)
	config.SnapshotEntries = 100
	return config
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
	keys  io.WriteCloser
	sales chan sale // closed at the end of its output
}

func start(t *testing.T, dir string) *process {
	p := &process{cmd: exec.Command(os.Args[0]), sales: make(chan sale, 64)}
	p.cmd.Env = append(os.Environ(), childDir+"="+dir)
	p.cmd.Stderr = os.Stderr
	keys, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.keys = keys
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

// TestCrash kills a node under load with SIGKILL, again and again. NUMERA_CRASH_CYCLES says how
// often.
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
	sold := make(map[string]sale) // what was acknowledged, by key
	open := make(map[string]bool) // keys that have no answer
	acted, replays := 0, 0        // of those that had none, when asked again
	for cycle := range cycles {
		p := start(t, dir)
		retried := make(map[string]bool)
		for key := range open {
			retried[key] = true
		}
		var again []string // keys that have an answer are asked again, too
		for key := range sold {
			if again = append(again, key); len(again) == 20 {
				break
			}
		}
		asked := make(chan string, 256)
		go func() {
			defer p.keys.Close()
			for key := range asked {
				if _, err := fmt.Fprintln(p.keys, key); err != nil {
					return // killed
				}
			}
		}()
		deadline := time.Duration(1+random.IntN(80)) * time.Millisecond
		var kill <-chan time.Time
		begin := func(key string) { open[key] = true; asked <- key }
		for key := range retried {
			begin(key)
		}
		for _, key := range again {
			begin(key)
		}
		next := 0
		for running := true; running; {
			for ; len(open) < 200 && kill != nil || next == 0; next++ {
				begin(fmt.Sprint(cycle, "-", next))
			}
			select {
			case s, more := <-p.sales:
				if running = more; !more {
					break
				}
				if kill == nil {
					kill = time.After(deadline) // from the first answer on
				}
				before, known := sold[s.Key]
				if known {
					require.True(t, s.Replay)
					require.Equal(t, before.Numbers, s.Numbers)
					require.Equal(t, before.ID, s.ID)
				} else if retried[s.Key] {
					acted++
					if s.Replay {
						replays++
					}
				} else {
					require.False(t, s.Replay)
				}
				sold[s.Key] = s
				delete(open, s.Key)
			case <-kill:
				require.NoError(t, p.cmd.Process.Kill())
				kill = make(chan time.Time)
			}
		}
		close(asked)
		require.Error(t, p.cmd.Wait(), "killed")
	}

	n := openNode(t, testConfig(t, dir))
	defer n.Close()
	acknowledged := make(map[inventory.OrderID][]inventory.ItemView)
	for _, s := range sold {
		id, ok := inventory.ParseOrderID(s.ID)
		require.True(t, ok)
		acknowledged[id] = []inventory.ItemView{{
			Product: "a", Numbers: s.Numbers, UnitPrice: inventory.Money{Amount: 100, Currency: "BRL"},
		}}
	}
	requireOrders(t, n.Shard(0), acknowledged)
	t.Logf("%d kills, %d orders; of %d unanswered requests %d had acted",
		cycles, len(sold), acted, replays)
}
