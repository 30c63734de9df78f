package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// stream is the raft.StreamLayer of one group: its share of the node's listener and
// the connections that it has dialled.
type stream struct {
	node  *Node
	group GroupID

	closing context.Context
	close   context.CancelFunc
	offered chan net.Conn
	// raft's transport has two kinds of goroutines that it does not wait for:
	// one listens, and each incoming connection has a handler, which closes it.
	listening sync.WaitGroup
	heard     sync.Once // by whoever listens: that it is over
	handlers  sync.WaitGroup

	mu       sync.Mutex
	conns    map[*streamConn]struct{}
	incoming int // of conns
}

var _ raft.StreamLayer = (*stream)(nil)

// direction is who opened a connection.
type direction uint8

const (
	incoming direction = iota
	outgoing
)

func newStream(node *Node, group GroupID) *stream {
	s := &stream{
		node: node, group: group, offered: make(chan net.Conn), conns: make(map[*streamConn]struct{}),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.listening.Add(1)
	return s
}

// Accept implements net.Listener for raft's listening goroutine, which ends when it
// has got an error after Close. On a busy machine it may ask once more before it does.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case conn := <-s.offered:
		return conn, nil
	case <-s.closing.Done():
		s.heard.Do(s.listening.Done)
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *stream) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.dial(string(target), timeout)
	if err != nil {
		return nil, fmt.Errorf("transport: dial %s for group %d: %w", target, s.group, err)
	}
	return conn, nil
}

func (s *stream) dial(target string, timeout time.Duration) (*streamConn, error) {
	if len(target) > maxTarget {
		return nil, errors.New("address too long")
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(timeout)
	dialer := net.Dialer{Deadline: deadline, KeepAliveConfig: keepAlive}
	raw, err := dialer.DialContext(s.closing, "tcp", target)
	if err != nil {
		return nil, err
	}
	secured := raw
	if config := s.node.config.TLS; config != nil {
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName = host
		}
		secured = tls.Client(raw, config)
	}
	conn, err := s.take(raw, secured, outgoing)
	if err != nil {
		raw.Close()
		return nil, err
	}
	if err := s.greet(conn, target, deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// greet says the preamble and waits to be accepted.
func (s *stream) greet(conn *streamConn, target string, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	hello := preamble{cluster: s.node.config.Cluster, group: s.group, target: target}
	if _, err := conn.Write(hello.append(nil)); err != nil {
		return err
	}
	if err := readAnswer(conn); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// take makes a connection one of the stream's, which Close closes. An incoming one
// counts as handled until its Close.
func (s *stream) take(raw, secured net.Conn, from direction) (*streamConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing.Err() != nil:
		return nil, ErrClosed
	case from == incoming && s.incoming >= s.node.config.MaxConnsPerGroup:
		return nil, ErrTooManyConns
	}
	conn := &streamConn{Conn: secured, raw: raw, stream: s, from: from}
	s.conns[conn] = struct{}{}
	if from == incoming {
		s.incoming++
		s.handlers.Add(1)
	}
	return conn, nil
}

// deliver gives an incoming connection to raft, which listens until Close.
func (s *stream) deliver(conn *streamConn) {
	select {
	case s.offered <- conn:
	case <-s.closing.Done():
		conn.Close()
	}
}

func (s *stream) forget(conn *streamConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	if conn.from == incoming {
		s.incoming--
		s.handlers.Done()
	}
}

// Close implements net.Listener. It does not wait: raft's transport calls it with a
// lock held that the goroutines to wait for may want.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
	for conn := range s.conns {
		conn.raw.Close()
	}
	return nil
}

// wait returns when raft's goroutines on this stream have ended.
func (s *stream) wait() {
	s.listening.Wait()
	s.handlers.Wait()
}

// Addr implements net.Listener with the advertised address, which raft takes for
// its own.
func (s *stream) Addr() net.Addr { return advertised(s.node.address) }

type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// streamConn is a connection of one group with one peer.
type streamConn struct {
	net.Conn // TLS, or raw
	raw      net.Conn
	stream   *stream
	from     direction
	once     sync.Once
}

// Read returns io.EOF after the stream is closed, which raft's handlers take for a
// peer that is done, where other errors are logged.
func (c *streamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.stream.closing.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// Close is called by whoever uses the connection, when done with it.
func (c *streamConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.stream.forget(c) })
	return err
}
