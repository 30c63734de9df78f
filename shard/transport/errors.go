package transport

import "errors"

var (
	// ErrClosed is returned when the node or the group has been closed.
	ErrClosed = errors.New("transport: closed")

	// ErrConfig is returned when a Config cannot be used; the text says why.
	ErrConfig = errors.New("transport: unusable config")

	// ErrGroupOpen is returned when a group is opened that is open already.
	ErrGroupOpen = errors.New("transport: group is already open")

	// ErrStaleSnapshot is what a leader is answered when the snapshot that it
	// wants to install ends at or below what the follower has committed or applied.
	ErrStaleSnapshot = errors.New("transport: stale snapshot refused")

	// ErrProgressUnknown is what a leader is answered when it wants to install a
	// snapshot on a group whose owner has not called SetProgress.
	ErrProgressUnknown = errors.New("transport: progress unknown, snapshot refused")
)

// What a connection is refused with. The refused side is told, and its dial returns
// the same error; only what does not speak the protocol at all is closed in silence.
var (
	// ErrNotNumera is returned when a connection does not open with our preamble.
	ErrNotNumera = errors.New("transport: not a numera peer")

	// ErrWrongVersion is returned when the peer speaks another protocol version.
	ErrWrongVersion = errors.New("transport: wrong protocol version")

	// ErrWrongCluster is returned when the peer belongs to another cluster.
	ErrWrongCluster = errors.New("transport: wrong cluster")

	// ErrWrongNode is returned when the dialled address has led to a node that
	// advertises another one.
	ErrWrongNode = errors.New("transport: wrong node")

	// ErrUnknownGroup is returned when the node has not opened the group.
	ErrUnknownGroup = errors.New("transport: unknown group")

	// ErrTooManyConns is returned when the group has as many connections as it may.
	ErrTooManyConns = errors.New("transport: too many connections")
)
