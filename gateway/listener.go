package gateway

import (
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
	most int64
	open atomic.Int64
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
	}
}

// refuseConn says why and closes. The write fits into the empty buffer of a new connection.
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
	_ = conn.Close()
}

type countedConn struct {
	net.Conn
	open  *atomic.Int64
	close sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.close.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
