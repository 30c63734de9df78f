package exchange

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneCallToAConnection speaks to a server that would rather have HTTP/2.
func TestOneCallToAConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := NewClient(Config{})
	defer client.CloseIdleConnections()
	client.Transport.(*carrier).TLSClientConfig = &tls.Config{
		RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
	}
	response, err := client.Get(server.URL)
	require.NoError(t, err)
	said, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "HTTP/1.1", string(said))
}
