package exchange_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/gateway/payment"
	"numera/gateway/payment/exchange"
)

func failure(t *testing.T, client *http.Client, url string) error {
	response, err := client.Post(url, "application/json", nil)
	if err == nil {
		_ = response.Body.Close()
	}
	require.Error(t, err)
	return exchange.Failed(err)
}

func TestWhatNeverLeftIsUnavailable(t *testing.T) {
	client := exchange.NewClient(exchange.Config{Timeout: 200 * time.Millisecond, Connections: 1})
	defer client.CloseIdleConnections()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	require.ErrorIs(t, failure(t, client, nobody), payment.ErrUnavailable, "connection refused")
	require.ErrorIs(t, failure(t, client, "http://nowhere.invalid"), payment.ErrUnavailable, "name")

	arrived := make(chan struct{}, 1)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	defer server.Close()
	defer close(release)
	unbounded := &http.Client{Transport: client.Transport}
	hanging, give := context.WithCancel(context.Background())
	held := make(chan error, 1)
	go func() {
		request, _ := http.NewRequestWithContext(hanging, http.MethodPost, server.URL, nil)
		_, err := unbounded.Do(request)
		held <- exchange.Failed(err)
	}()
	<-arrived
	require.ErrorIs(t, failure(t, client, server.URL), payment.ErrUnavailable, "no free connection")
	give()
	require.ErrorIs(t, <-held, payment.ErrUnknown, "given up after it was sent")
}

func TestWhatMayHaveArrivedIsUnknown(t *testing.T) {
	client := exchange.NewClient(exchange.Config{Timeout: 100 * time.Millisecond})
	defer client.CloseIdleConnections()
	mux := http.NewServeMux()
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := httptest.NewServer(mux)
	defer server.Close()
	require.ErrorIs(t, failure(t, client, server.URL+"/cut"), payment.ErrUnknown)
	require.ErrorIs(t, failure(t, client, server.URL+"/hang"), payment.ErrUnknown)
}

func TestRefused(t *testing.T) {
	for status, meaning := range map[int]error{
		400: payment.ErrRejected, 401: payment.ErrRejected, 404: payment.ErrNotFound,
		408: payment.ErrUnknown, 409: payment.ErrUnknown, 422: payment.ErrRejected,
		429: payment.ErrUnavailable, 500: payment.ErrUnknown, 503: payment.ErrUnknown,
	} {
		require.ErrorIs(t, exchange.Refused(status), meaning, "%d", status)
	}
}
