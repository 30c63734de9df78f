package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIdleConnectionsHurtNobody holds idleConnections that say nothing, and a hundred that never
// finish their request. The others are served meanwhile, and what is refused is refused quickly.
func TestIdleConnectionsHurtNobody(t *testing.T) {
	s := startSystem(t, t.TempDir())
	s.product("a", 1000, "")
	address := strings.TrimPrefix(s.url, "http://")
	for i := range idleConnections + 100 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err, "connection %d", i)
		t.Cleanup(func() { conn.Close() })
		if i < 100 {
			_, err := conn.Write([]byte("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"))
			require.NoError(t, err)
		}
	}
	const item = `{"product":"a","numbers":[7]}`
	require.Equal(t, 201, s.reserve("k1", "b", item).status)
	start := time.Now()
	require.Equal(t, 409, s.reserve("k2", "b", item).status)
	t.Logf("refused after %v", time.Since(start))
	s.stop()
}
