package gateway

import "errors"

var (
	// ErrConfig is returned by New when a Config makes no sense.
	ErrConfig = errors.New("gateway: invalid configuration")

	// ErrClosed is returned by Serve and ServeNATS when the gateway has been closed.
	ErrClosed = errors.New("gateway: closed")

	// errPage is returned when a page of a listing failed after the answer had begun.
	errPage = errors.New("gateway: the listing broke off")
)
