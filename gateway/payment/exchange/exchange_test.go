package exchange_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
)

func failure(t *testing.T, ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	require.Error(t, err)
	return exchange.Failed(err)
}

func TestWhatNeverLeftIsUnavailable(t *testing.T) {
	ctx := context.Background()
	client := exchange.NewClient(exchange.Config{Connections: 1})
	defer client.CloseIdleConnections()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	require.ErrorIs(t, failure(t, ctx, client, nobody), payment.ErrUnavailable, "refused")
	require.ErrorIs(t, failure(t, ctx, client, "http://no.invalid"), payment.ErrUnavailable, "name")

	arrived := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	hanging, give := context.WithCancel(ctx)
	defer give()
	held := make(chan error, 1)
	go func() { held <- failure(t, hanging, client, server.URL) }()
	<-arrived
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	require.ErrorIs(t, failure(t, short, client, server.URL), payment.ErrUnavailable, "none free")
	give()
	require.ErrorIs(t, <-held, payment.ErrUnknown, "given up after it was sent")
}

func TestWhatMayHaveArrivedIsUnknown(t *testing.T) {
	ctx := context.Background()
	client := exchange.NewClient(exchange.Config{Timeout: time.Second})
	defer client.CloseIdleConnections()
	mux := http.NewServeMux()
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/half", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	require.ErrorIs(t, failure(t, ctx, client, server.URL+"/cut"), payment.ErrUnknown)
	require.ErrorIs(t, failure(t, ctx, client, server.URL+"/hang"), payment.ErrUnknown)

	response, err := client.Get(server.URL + "/half")
	require.NoError(t, err)
	_, err = io.ReadAll(response.Body)
	require.ErrorIs(t, exchange.Failed(err), payment.ErrUnknown, "the answer counts as well")
	require.NoError(t, response.Body.Close())
}

func TestRefused(t *testing.T) {
	for status, meaning := range map[int]error{
		400: payment.ErrRejected, 401: payment.ErrRejected, 404: payment.ErrNotFound,
		408: payment.ErrUnknown, 409: payment.ErrUnknown, 422: payment.ErrRejected,
		423: payment.ErrUnknown, 424: payment.ErrUnknown,
		429: payment.ErrUnavailable, 500: payment.ErrUnknown, 503: payment.ErrUnknown,
	} {
		require.ErrorIs(t, exchange.Refused(status), meaning, "%d", status)
	}
}
