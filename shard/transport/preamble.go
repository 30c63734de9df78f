package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// The preamble, which opens every connection (integers are big-endian):
//
//	magic "numera"  version u16  cluster [16]  group u16  length u8  target […]
//
// It is answered by one byte, an index into refusals. What follows is raft's. The
// answer and the layout up to version never change, so that any two versions can
// tell each other that they differ.
const (
	magic           = "numera"
	protocolVersion = 1

	headSize  = len(magic) + 2
	bodySize  = len(ClusterID{}) + 2 + 1
	maxTarget = 255
)

// preamble is what a dialling node says.
type preamble struct {
	cluster ClusterID
	group   GroupID
	target  string // the address that was dialled, at most maxTarget bytes
}

// refusals are the answers: a peer is told the index. Append only.
var refusals = []error{
	nil, ErrWrongVersion, ErrWrongCluster, ErrWrongNode, ErrUnknownGroup, ErrTooManyConns, ErrClosed,
}

func (p preamble) append(b []byte) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, protocolVersion)
	b = append(b, p.cluster[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(p.group))
	b = append(b, byte(len(p.target)))
	return append(b, p.target...)
}

// readPreamble reads no further than it must to refuse.
func readPreamble(r io.Reader) (preamble, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return preamble{}, fmt.Errorf("%w: %w", ErrNotNumera, err)
	}
	if string(head[:len(magic)]) != magic {
		return preamble{}, ErrNotNumera
	}
	if binary.BigEndian.Uint16(head[len(magic):]) != protocolVersion {
		return preamble{}, ErrWrongVersion
	}

	var body [bodySize]byte
	if _, err := io.ReadFull(r, body[:]); err != nil {
		return preamble{}, fmt.Errorf("%w: %w", ErrNotNumera, err)
	}
	p := preamble{cluster: ClusterID(body[:16]), group: GroupID(binary.BigEndian.Uint16(body[16:]))}
	target := make([]byte, body[18])
	if _, err := io.ReadFull(r, target); err != nil {
		return preamble{}, fmt.Errorf("%w: %w", ErrNotNumera, err)
	}
	p.target = string(target)
	return p, nil
}

// answer tells the peer what its preamble came to: nil, or one of refusals.
func answer(w io.Writer, refusal error) error {
	code := slices.Index(refusals, refusal)
	if code < 0 {
		return nil
	}
	_, err := w.Write([]byte{byte(code)})
	return err
}

// readAnswer returns the refusal of the peer, nil when it has accepted.
func readAnswer(r io.Reader) error {
	var code [1]byte
	if _, err := io.ReadFull(r, code[:]); err != nil {
		return err
	}
	if int(code[0]) >= len(refusals) {
		return fmt.Errorf("%w: answer %d", ErrNotNumera, code[0])
	}
	return refusals[code[0]]
}
