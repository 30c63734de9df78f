package transport_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"numera/shard/transport"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

var cluster = transport.ClusterID{15: 1}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen starts a node on loopback that is closed at the end of the test.
func listen(t testing.TB, change func(*transport.Config)) *transport.Node {
	t.Helper()
	config := transport.Config{Listen: "127.0.0.1:0", Cluster: cluster, RPCTimeout: patience}
	if change != nil {
		change(&config)
	}
	node, err := transport.Listen(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}

func open(t testing.TB, node *transport.Node, id transport.GroupID) *transport.Group {
	t.Helper()
	group, err := node.Open(id)
	require.NoError(t, err)
	return group
}

func withTLS(config *tls.Config) func(*transport.Config) {
	return func(c *transport.Config) { c.TLS = config }
}

// heartbeat is what raft's leaders send: handleCommand takes it for a heartbeat by
// these fields and the absence of the others.
func heartbeat() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, Addr: []byte("leader")},
		Term:      1,
	}
}

// send sends a heartbeat, and returns the channel of its outcome.
func send(from, to *transport.Group) <-chan error {
	outcome := make(chan error, 1)
	target := to.LocalAddr()
	go func() {
		outcome <- from.AppendEntries("to", target, heartbeat(), new(raft.AppendEntriesResponse))
	}()
	return outcome
}

// roundTrip sends a heartbeat and answers it, as raft would.
func roundTrip(t testing.TB, from, to *transport.Group) {
	t.Helper()
	outcome := send(from, to)
	select {
	case rpc := <-to.Consumer():
		rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		require.NoError(t, receive(t, outcome))
	case err := <-outcome:
		require.NoError(t, err)
	}
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// lines is a log output that can be waited on.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func (l lines) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: l, Level: hclog.Warn})
}

func (l lines) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(receive(t, l), text) {
	}
}
