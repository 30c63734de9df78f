package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzMessage: whatever decodes is the one encoding of what it decodes to. The checksum is made
// right first, since nothing would get past it.
func FuzzMessage(f *testing.F) {
	for _, message := range sampleMessages() {
		f.Add(message)
	}
	for _, request := range sampleRequests() {
		f.Add(encodeRequests([]Request{request}))
	}
	for _, response := range sampleResponses() {
		f.Add(encodeResponses([]Response{response}))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) < HeaderSize {
			_, err := Open(message)
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		message = reseal(append([]byte(nil), message...))
		again, err := open(message)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		require.Equal(t, message, again)
	})
}
