package transport_test

import (
	"bytes"
	"io"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"numera/shard/transport"
)

func TestHeartbeatsHaveNoFastPath(t *testing.T) {
	from, to := open(t, listen(t, nil), 7), open(t, listen(t, nil), 7)
	fast := make(chan raft.RPC, 1)
	to.SetHeartbeatHandler(func(rpc raft.RPC) { // as raft.NewRaft does
		fast <- rpc
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	})

	outcome := send(from, to)
	select {
	case rpc := <-to.Consumer():
		require.Equal(t, heartbeat(), rpc.Command)
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	case <-fast:
		require.Fail(t, "raft's heartbeat handler was called from a connection's goroutine")
	}
	require.NoError(t, receive(t, outcome))
}

func TestGroupHasWhateverNetworkTransportHas(t *testing.T) {
	group := reflect.TypeFor[*transport.Group]()
	for method := range reflect.TypeFor[*raft.NetworkTransport]().Methods() {
		_, ok := group.MethodByName(method.Name)
		require.True(t, ok, method.Name)
	}
}

func TestRaftUsesPreVote(t *testing.T) {
	here, there := listen(t, nil), listen(t, nil)
	voter := open(t, there, 7)
	start(t, open(t, here, 7), "here", raft.Configuration{Servers: []raft.Server{
		{ID: "here", Address: here.Addr()}, {ID: "there", Address: there.Addr()},
	}})
	rpc := receive(t, voter.Consumer())
	require.IsType(t, new(raft.RequestPreVoteRequest), rpc.Command)
	rpc.Respond(&raft.RequestPreVoteResponse{}, nil)
}

// install sends a snapshot of 4 MiB that ends at last, and returns the channel of
// its outcome, and one that is closed when the request is written.
func install(from, to *transport.Group, last uint64) (outcome <-chan error, asked <-chan struct{}) {
	data := &snapshot{Reader: bytes.NewReader(make([]byte, 4<<20)), read: make(chan struct{})}
	request := &raft.InstallSnapshotRequest{
		SnapshotVersion: 1, Term: 1, LastLogIndex: last, LastLogTerm: 1, Size: 4 << 20,
	}
	done := make(chan error, 1)
	target := to.LocalAddr()
	go func() {
		done <- from.InstallSnapshot("to", target, request, new(raft.InstallSnapshotResponse), data)
	}()
	return done, data.read
}

// snapshot is a reader that tells when it is first read.
type snapshot struct {
	io.Reader
	read chan struct{} // closed then
	once sync.Once
}

func (s *snapshot) Read(p []byte) (int, error) {
	s.once.Do(func() { close(s.read) })
	return s.Reader.Read(p)
}

func TestStaleSnapshotsAreRefused(t *testing.T) {
	from, to := open(t, listen(t, nil), 7), open(t, listen(t, nil), 7)
	refused := uint64(0)
	requireRefused := func(last uint64, reason error) {
		t.Helper()
		outcome, _ := install(from, to, last)
		select {
		case err := <-outcome:
			require.ErrorContains(t, err, reason.Error())
		case <-to.Consumer():
			require.Fail(t, "raft was given the snapshot")
		}
		refused++
		require.Equal(t, refused, to.RefusedSnapshots())
		roundTrip(t, from, to)
	}

	requireRefused(1000, transport.ErrProgressUnknown)
	to.SetProgress(func() (commit, applied uint64) { return 100, 90 })
	requireRefused(99, transport.ErrStaleSnapshot)
	requireRefused(100, transport.ErrStaleSnapshot)
	to.SetProgress(func() (commit, applied uint64) { return 0, 100 })
	requireRefused(100, transport.ErrStaleSnapshot)

	outcome, _ := install(from, to, 101)
	rpc := receive(t, to.Consumer())
	data, err := io.ReadAll(rpc.Reader)
	require.NoError(t, err)
	require.Len(t, data, 4<<20)
	rpc.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
	require.NoError(t, receive(t, outcome))
	require.Equal(t, refused, to.RefusedSnapshots())
}

func TestASnapshotIsJudgedWhenRaftIsDoneWithTheRPCBefore(t *testing.T) {
	a, b := listen(t, nil), listen(t, nil)
	from, to := open(t, a, 7), open(t, b, 7)
	beside, alongside := open(t, a, 8), open(t, b, 8)
	var commit atomic.Uint64
	to.SetProgress(func() (uint64, uint64) { return commit.Load(), 0 })

	before := send(from, to)
	rpc := receive(t, to.Consumer())
	outcome, asked := install(from, to, 100)
	receive(t, asked)
	for range 20 { // time enough for the snapshot to arrive
		roundTrip(t, beside, alongside)
	}
	commit.Store(100) // by the entries of the RPC before
	rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)

	require.NoError(t, receive(t, before))
	select {
	case err := <-outcome:
		require.ErrorContains(t, err, transport.ErrStaleSnapshot.Error())
	case <-to.Consumer():
		require.Fail(t, "raft was given a snapshot that was stale when it came to it")
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	from, to := open(b, listen(b, nil), 7), open(b, listen(b, nil), 7)
	measure(b, from, to)
}

func BenchmarkHeartbeatOfNetworkTransport(b *testing.B) {
	from, err := raft.NewTCPTransport("127.0.0.1:0", nil, 2, patience, io.Discard)
	require.NoError(b, err)
	defer from.Close()
	to, err := raft.NewTCPTransport("127.0.0.1:0", nil, 2, patience, io.Discard)
	require.NoError(b, err)
	defer to.Close()
	defer from.CloseStreams()
	measure(b, from, to)
}

func measure(b *testing.B, from, to raft.Transport) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case rpc := <-to.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			case <-done:
				return
			}
		}
	}()
	for b.Loop() {
		err := from.AppendEntries("to", to.LocalAddr(), heartbeat(), new(raft.AppendEntriesResponse))
		require.NoError(b, err)
	}
}
