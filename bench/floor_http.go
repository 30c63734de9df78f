package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/valyala/fasthttp"

	"numera/engine/inventory"
)

// openHTTPFloor serves a constant: the answer that the path gives to a reservation, byte for byte,
// taken from a real one.
func (v *venue) openHTTPFloor(c *Config, p *plan) (peer, string, error) {
	constant, err := v.sampleAnswer(p)
	if err != nil {
		return nil, "", fmt.Errorf("%w: sample an answer: %w", ErrIncomplete, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	server := &fasthttp.Server{
		NoDefaultServerHeader: true,
		Handler: func(ctx *fasthttp.RequestCtx) {
			constant.CopyTo(&ctx.Response)
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	v.onClose(func() error { return errors.Join(server.Shutdown(), <-served) })
	floor := newHTTPPeer(listener.Addr().String(), ownServiceToken, c.InFlight)
	v.onClose(func() error { floor.client.CloseIdleConnections(); return nil })
	var size bytes.Buffer
	if _, err := constant.WriteTo(&size); err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	return floor, fmt.Sprintf("the floor is a fasthttp handler that answers a constant of %d bytes",
		size.Len()), nil
}

// sampleAnswer makes one reservation, of a buyer that no load has, and returns its answer.
func (v *venue) sampleAnswer(p *plan) (*fasthttp.Response, error) {
	path, ok := v.peer.(*httpPeer)
	if !ok {
		return nil, fmt.Errorf("%w: not the http path", ErrConfig)
	}
	request, response := fasthttp.AcquireRequest(), &fasthttp.Response{}
	defer fasthttp.ReleaseRequest(request)
	path.write(request, &operation{
		kind: inventory.KindReserve, buyer: makeBuyer(mostInFlight, 0),
		product: p.ids[0], quantity: uint32(p.quantity),
	})
	if err := path.client.Do(request, response); err != nil {
		return nil, err
	}
	if response.StatusCode() != http.StatusCreated {
		return nil, fmt.Errorf("status %d: %s", response.StatusCode(), response.Body())
	}
	return response, nil
}
