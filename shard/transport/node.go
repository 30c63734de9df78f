package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// ClusterID tells the nodes of one cluster from those of others. It is fixed at
// bootstrap and not a secret.
type ClusterID [16]byte

// GroupID is the number of a raft group, the same on every node.
type GroupID uint16

// Node is the one listener of a node, shared by its raft groups. Its methods may be
// called from any goroutine.
type Node struct {
	config   Config
	listener net.Listener
	address  string
	closing  context.Context
	close    context.CancelFunc
	running  sync.WaitGroup // accept and admit

	mu         sync.Mutex
	groups     map[GroupID]*Group
	handshakes []net.Conn // oldest first, at most config.MaxHandshakes
}

// keepAlive finds a peer that has vanished without a word within 25 s.
var keepAlive = net.KeepAliveConfig{
	Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
}

// Listen starts to serve peers. Close the node when it is no longer wanted.
func Listen(config Config) (*Node, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	listen := net.ListenConfig{KeepAliveConfig: keepAlive}
	listener, err := listen.Listen(context.Background(), "tcp", config.Listen)
	if err != nil {
		return nil, fmt.Errorf("transport: listen on %q: %w", config.Listen, err)
	}
	address, err := config.advertised(listener.Addr().(*net.TCPAddr))
	if err != nil {
		listener.Close()
		return nil, err
	}
	n := &Node{
		config: config, listener: listener, address: address, groups: make(map[GroupID]*Group),
	}
	n.closing, n.close = context.WithCancel(context.Background())
	n.running.Go(n.accept)
	return n, nil
}

// Addr returns the address that peers know this node by, in every group.
func (n *Node) Addr() raft.ServerAddress { return raft.ServerAddress(n.address) }

// Close closes the listener and all groups, and returns when every goroutine of
// theirs has ended. Shut the rafts down first, unless they are to lose their peers.
func (n *Node) Close() error {
	n.mu.Lock()
	n.close()
	groups := make([]*Group, 0, len(n.groups))
	for _, g := range n.groups {
		groups = append(groups, g)
	}
	for _, conn := range n.handshakes {
		conn.Close()
	}
	n.mu.Unlock()

	err := n.listener.Close()
	for _, g := range groups {
		g.Close()
	}
	n.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("transport: close %s: %w", n.address, err)
	}
	return nil
}

// accept takes connections until the node is closed.
func (n *Node) accept() {
	const pause = 100 * time.Millisecond // most likely out of descriptors
	for {
		conn, err := n.listener.Accept()
		switch {
		case err == nil:
			n.begin(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			n.config.Logger.Error("failed to accept a connection", "error", err)
			select {
			case <-n.closing.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// begin gives conn a place among the handshakes. A peer's handshake takes
// milliseconds, so the oldest of too many is not a peer's: it makes room, where
// refusing the new one would let a few idle strangers shut the peers out.
func (n *Node) begin(conn net.Conn) {
	oldest := n.enter(conn)
	if oldest == nil {
		return
	}
	oldest.Close()
	n.config.Logger.Warn("closed the oldest of too many handshakes", "remote", oldest.RemoteAddr())
}

func (n *Node) enter(conn net.Conn) (pushedOut net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing.Err() != nil {
		conn.Close()
		return nil
	}
	if len(n.handshakes) >= n.config.MaxHandshakes {
		pushedOut = n.handshakes[0]
		n.handshakes = slices.Delete(n.handshakes, 0, 1)
	}
	n.handshakes = append(n.handshakes, conn)
	n.running.Go(func() { n.admit(conn) })
	return pushedOut
}

// admit hands conn to its group, or closes it and says why.
func (n *Node) admit(raw net.Conn) {
	conn, err := n.handshake(raw)
	n.mu.Lock()
	n.handshakes = slices.DeleteFunc(n.handshakes, func(c net.Conn) bool { return c == raw })
	n.mu.Unlock()
	if err != nil {
		raw.Close()
		if n.closing.Err() == nil {
			n.config.Logger.Warn("refused a connection", "remote", raw.RemoteAddr(), "reason", err)
		}
		return
	}
	conn.stream.deliver(conn)
}

// handshake returns the connection as one of its group's, or why there is none.
func (n *Node) handshake(raw net.Conn) (*streamConn, error) {
	if err := raw.SetDeadline(time.Now().Add(n.config.HandshakeTimeout)); err != nil {
		return nil, err
	}
	secured := raw
	if n.config.TLS != nil {
		secured = tls.Server(raw, n.config.TLS)
	}
	conn, refusal := n.match(raw, secured)
	if err := answer(secured, refusal); refusal == nil && err != nil {
		refusal = err
	} else if refusal == nil {
		refusal = raw.SetDeadline(time.Time{})
	}
	if refusal != nil && conn != nil {
		conn.Close()
	}
	return conn, refusal
}

// match reads the preamble and takes the connection into the group that it names.
func (n *Node) match(raw, secured net.Conn) (*streamConn, error) {
	asked, err := readPreamble(secured)
	switch {
	case err != nil:
		return nil, err
	case asked.cluster != n.config.Cluster:
		return nil, ErrWrongCluster
	case asked.target != n.address:
		return nil, ErrWrongNode
	}
	n.mu.Lock()
	group := n.groups[asked.group]
	n.mu.Unlock()
	if group == nil {
		return nil, ErrUnknownGroup
	}
	return group.stream.take(raw, secured, incoming)
}
