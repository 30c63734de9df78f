package mercadopago

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
)

// requester carries the SDK's calls, each of them once, with our idempotency key.
type requester struct {
	http      *http.Client
	elsewhere *url.URL // nil: Mercado Pago
}

// call travels in the context of one, since the SDK has no place for it.
type call struct {
	key string
	raw []byte // of the answer
}

type callKey struct{}

var errNoAnswer = errors.New("not an answer of the API")

// begin prepares the context of one call. The key is "" where the call only reads.
func begin(ctx context.Context, key string) (context.Context, *call) {
	c := &call{key: key}
	return context.WithValue(ctx, callKey{}, c), c
}

// Do sends a request that begin has prepared.
func (r *requester) Do(request *http.Request) (*http.Response, error) {
	c := request.Context().Value(callKey{}).(*call)
	if c.key != "" {
		request.Header.Set("X-Idempotency-Key", c.key)
	}
	if r.elsewhere != nil {
		request.URL.Scheme, request.URL.Host = r.elsewhere.Scheme, r.elsewhere.Host
	}
	response, err := r.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	// Read here, since the SDK takes a broken answer for one of its status, and none for nil.
	if c.raw, err = io.ReadAll(io.LimitReader(response.Body, 1<<20)); err != nil {
		return nil, err
	}
	if response.StatusCode < 400 && !bytes.HasPrefix(bytes.TrimSpace(c.raw), []byte("{")) {
		return nil, errNoAnswer
	}
	response.Body = io.NopCloser(bytes.NewReader(c.raw))
	return response, nil
}
