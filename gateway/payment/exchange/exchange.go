// Package exchange carries calls over HTTP to payment providers, and tells a call that certainly
// never left from one whose outcome is unknown.
//
// What failed before a connection was had (name, dial, TLS, no free connection) did not leave:
// [payment.ErrUnavailable]. Everything after that may have been read and acted upon:
// [payment.ErrUnknown]. Connections to one provider are bounded, and so is every call.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"numera/gateway/payment"
)

// Config bounds the calls to one provider.
type Config struct {
	Timeout     time.Duration // of a whole call, its answer included; 0: 10 s
	Connections int           // at once; a call above them waits within its timeout; 0: 64
}

// NewClient makes a client for one provider, for any number of goroutines. It follows no redirects.
// CloseIdleConnections releases what it holds.
func NewClient(config Config) *http.Client {
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.Connections == 0 {
		config.Connections = 64
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost = config.Connections
	transport.MaxIdleConnsPerHost = config.Connections
	transport.MaxIdleConns = config.Connections
	// One call to a connection: with HTTP/2 one that hangs would take all others with it, and their
	// number would not be bounded.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	return &http.Client{
		// Not http.Client's own Timeout, which replaces the error that says whether the call left.
		Transport: &carrier{transport, config.Timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// carrier bounds every call, and marks those that never left.
type carrier struct {
	*http.Transport
	timeout time.Duration
}

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(r.Context(), trace), c.timeout)
	response, err := c.Transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		if !connected.Load() {
			err = fmt.Errorf("%w: %w", payment.ErrUnavailable, err)
		}
		return nil, err
	}
	response.Body = &body{response.Body, cancel}
	return response, nil
}

// body ends the call's time when the answer has been read.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// Failed says what an error of a client of this package means: ErrUnavailable or ErrUnknown.
func Failed(err error) error {
	if errors.Is(err, payment.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", payment.ErrUnknown, err)
}

// Refused says what a provider's answer of status 400 and above means.
func Refused(status int) error {
	switch {
	case status == http.StatusTooManyRequests:
		return payment.ErrUnavailable
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict,
		status == http.StatusLocked, status == http.StatusFailedDependency:
		return payment.ErrUnknown // something else prevents it now: a call under way, another system
	case status == http.StatusNotFound:
		return payment.ErrNotFound
	default:
		return payment.ErrRejected
	}
}
