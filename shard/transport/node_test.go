package transport_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"numera/shard/transport"
)

// knock connects to a node and says what is given.
func knock(t *testing.T, node *transport.Node, says string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", string(node.Addr()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Write([]byte(says))
	require.NoError(t, err)
	return conn
}

func hello(version uint16, id transport.ClusterID, group uint16, target string) string {
	b := binary.BigEndian.AppendUint16([]byte("numera"), version)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint16(b, group)
	return string(append(b, byte(len(target)))) + target
}

func requireClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	var timeout net.Error
	if errors.As(err, &timeout) {
		require.False(t, timeout.Timeout(), "still open")
	}
}

func TestStrangersAreRefusedWhilePeersAreServed(t *testing.T) {
	log := make(lines, 100)
	node := listen(t, func(c *transport.Config) { c.Logger = log.logger() })
	here := string(node.Addr())
	from, to := open(t, listen(t, nil), 7), open(t, node, 7)

	for name, stranger := range map[string]struct {
		says   string
		reason error
		answer byte // 0: none
	}{
		"version": {hello(2, cluster, 7, here), transport.ErrWrongVersion, 1},
		"cluster": {hello(1, transport.ClusterID{9}, 7, here), transport.ErrWrongCluster, 2},
		"node":    {hello(1, cluster, 7, "10.0.0.1:7000"), transport.ErrWrongNode, 3},
		"group":   {hello(1, cluster, 8, here), transport.ErrUnknownGroup, 4},
		"http":    {"GET / HTTP/1.1\r\n\r\n", transport.ErrNotNumera, 0},
		"zeros":   {string(make([]byte, 300)), transport.ErrNotNumera, 0},
	} {
		t.Run(name, func(t *testing.T) {
			conn := knock(t, node, stranger.says)
			if stranger.answer != 0 {
				var code [1]byte
				_, err := io.ReadFull(conn, code[:])
				require.NoError(t, err)
				require.Equal(t, stranger.answer, code[0])
			}
			requireClosed(t, conn)
			log.await(t, stranger.reason.Error())
			roundTrip(t, from, to)
		})
	}
}

func TestTheRefusedSideIsToldWhy(t *testing.T) {
	node := listen(t, nil)
	open(t, node, 7)
	other := listen(t, func(c *transport.Config) { c.Cluster = transport.ClusterID{9} })
	elsewhere := listen(t, func(c *transport.Config) { c.Advertise = "10.0.0.1:7000" })

	for name, wrong := range map[string]struct {
		from   *transport.Group
		target raft.ServerAddress
		reason error
	}{
		"cluster": {open(t, other, 7), node.Addr(), transport.ErrWrongCluster},
		"group":   {open(t, elsewhere, 8), node.Addr(), transport.ErrUnknownGroup},
	} {
		t.Run(name, func(t *testing.T) {
			err := wrong.from.AppendEntries("to", wrong.target, heartbeat(),
				new(raft.AppendEntriesResponse))
			require.ErrorIs(t, err, wrong.reason)
		})
	}
}

func TestSlowPreambleIsClosedAtItsDeadline(t *testing.T) {
	log := make(lines, 100)
	node := listen(t, func(c *transport.Config) {
		c.HandshakeTimeout = time.Second // a peer has to be done within it
		c.Logger = log.logger()
	})
	from, to := open(t, listen(t, nil), 7), open(t, node, 7)
	slow := knock(t, node, "num")
	roundTrip(t, from, to)
	requireClosed(t, slow)
	log.await(t, "i/o timeout")
	roundTrip(t, from, to) // its own deadline is gone
}

func TestIdleStrangersMakeRoomForPeers(t *testing.T) {
	node := listen(t, func(c *transport.Config) {
		c.MaxHandshakes = 3
		c.HandshakeTimeout = time.Hour
	})
	var idle []net.Conn
	for range 10 {
		idle = append(idle, knock(t, node, ""))
	}
	from, to := open(t, listen(t, nil), 7), open(t, node, 7)
	roundTrip(t, from, to)
	for _, conn := range idle[:7] {
		requireClosed(t, conn)
	}
}

func TestAGroupHasSoManyConnectionsAndNoMore(t *testing.T) {
	node := listen(t, func(c *transport.Config) { c.MaxConnsPerGroup = 2 })
	open(t, node, 7)
	says := hello(1, cluster, 7, string(node.Addr()))
	answer := func() byte {
		var code [1]byte
		_, err := io.ReadFull(knock(t, node, says), code[:])
		require.NoError(t, err)
		return code[0]
	}
	require.Equal(t, []byte{0, 0, 5}, []byte{answer(), answer(), answer()})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	node := listen(t, func(c *transport.Config) { c.HandshakeTimeout = time.Hour })
	from, to := open(t, listen(t, nil), 7), open(t, node, 7)
	knock(t, node, "num")
	roundTrip(t, from, to)                       // accepted after it
	roundTrip(t, open(t, listen(t, nil), 7), to) // and left idle
	unanswered := send(from, to)
	receive(t, to.Consumer())

	require.NoError(t, node.Close())
	require.Error(t, receive(t, unanswered))
	require.NoError(t, node.Close())
	require.NoError(t, to.Close())
	_, err := node.Open(8)
	require.ErrorIs(t, err, transport.ErrClosed)
}

func TestAGroupIsOpenedOnceAtATime(t *testing.T) {
	node := listen(t, nil)
	first := open(t, node, 7)
	_, err := node.Open(7)
	require.ErrorIs(t, err, transport.ErrGroupOpen)
	require.NoError(t, first.Close())

	again, from := open(t, node, 7), open(t, listen(t, nil), 7)
	roundTrip(t, from, again)
}

func TestConfigsThatCannotWork(t *testing.T) {
	for name, change := range map[string]func(*transport.Config){
		"no cluster":            func(c *transport.Config) { c.Cluster = transport.ClusterID{} },
		"plain beyond loopback": func(c *transport.Config) { c.Listen = "0.0.0.0:0" },
		"nothing to advertise": func(c *transport.Config) {
			c.Listen, c.AllowPlain = "0.0.0.0:0", true
		},
		"advertised anywhere": func(c *transport.Config) { c.Advertise = "0.0.0.0:7000" },
		"advertised port 0":   func(c *transport.Config) { c.Advertise = "10.0.0.1:0" },
		"advertised no port":  func(c *transport.Config) { c.Advertise = "10.0.0.1" },
		"unverified peers":    func(c *transport.Config) { c.TLS = &tls.Config{} },
		"negative number":     func(c *transport.Config) { c.MaxHandshakes = -1 },
		"negative time":       func(c *transport.Config) { c.RPCTimeout = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			config := transport.Config{Listen: "127.0.0.1:0", Cluster: cluster}
			change(&config)
			_, err := transport.Listen(config)
			require.ErrorIs(t, err, transport.ErrConfig)
		})
	}
}

func TestAdvertisedAddressIsRaftsOwn(t *testing.T) {
	node := listen(t, func(c *transport.Config) { c.Advertise = "numera-0.numera:7000" })
	require.EqualValues(t, "numera-0.numera:7000", node.Addr())
	require.Equal(t, node.Addr(), open(t, node, 7).LocalAddr())
}
