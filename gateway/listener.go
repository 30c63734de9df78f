package gateway

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"numera/engine/inventory"
)

// refuseBeyond holds at most so many connections of a listener open. One more is answered that it
// is too much, without waiting for what it wants. fasthttp would answer it in plain text.
func refuseBeyond(listener net.Listener, most int) net.Listener {
	return &boundedListener{Listener: listener, most: int64(most)}
}

type boundedListener struct {
	net.Listener
	most    int64
	open    atomic.Int64
	refused atomic.Int64
}

// Accept implements net.Listener, and is called by one goroutine.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &countedConn{Conn: conn, open: &l.open}, nil
		}
		l.open.Add(-1)
		refuseConn(conn)
		if l.refused.Add(1) > closingConnections {
			l.refused.Add(-1)
			_ = conn.Close()
			continue
		}
		closing := &countedConn{Conn: conn, open: &l.refused}
		closing.leaveUnread()
		go closing.Close()
	}
}

// refuseConn says why. The write fits into the empty buffer of a new connection.
func refuseConn(conn net.Conn) {
	a := retryLater(codeOf(inventory.CodeOverloaded), 0).answer(nil, time.Now().UnixMilli())
	head := []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n")
	a.headers(requestIDOf(""), func(name, value string) {
		head = append(append(append(append(head, name...), ": "...), value...), "\r\n"...)
	})
	head = strconv.AppendInt(append(head, "Content-Length: "...), int64(len(a.body)), 10)
	head = append(append(head, "\r\n\r\n"...), a.body...)
	if conn.SetWriteDeadline(time.Now().Add(100*time.Millisecond)) == nil {
		_, _ = conn.Write(head) // whoever is gone needs no answer
	}
}

type countedConn struct {
	net.Conn
	open   *atomic.Int64
	unread atomic.Bool
	close  sync.Once
}

// leaveUnread says that the connection is closed before all that the client sends was read.
func (c *countedConn) leaveUnread() { c.unread.Store(true) }

// Close implements net.Conn. A connection with unread bytes would be reset, and a reset takes the
// answer from a client that is still sending (RFC 9112 §9.6): what comes is read for a while first.
func (c *countedConn) Close() error {
	c.close.Do(func() {
		if c.unread.Load() {
			c.discard()
		}
		c.open.Add(-1)
	})
	return c.Conn.Close()
}

// discard ends our side of the connection and reads until the client ends its own, for linger at
// most. Errors are the client's, which is gone then.
func (c *countedConn) discard() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil &&
		c.SetReadDeadline(time.Now().Add(linger)) == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
}

// linger is how long a client may go on sending what is refused unread.
const linger = time.Second
