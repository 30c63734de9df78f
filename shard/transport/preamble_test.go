package transport

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPreambleIsReadAsItWasWritten(t *testing.T) {
	for _, target := range []string{"", "127.0.0.1:7000", strings.Repeat("x", maxTarget)} {
		said := preamble{cluster: ClusterID{1, 15: 2}, group: 0xfffe, target: target}
		wire := said.append(nil)

		r := bytes.NewReader(append(wire, "what follows is raft's"...))
		heard, err := readPreamble(r)
		require.NoError(t, err)
		require.Equal(t, said, heard)
		require.Equal(t, len("what follows is raft's"), r.Len())

		for cut := range wire {
			_, err := readPreamble(bytes.NewReader(wire[:cut]))
			require.ErrorIs(t, err, ErrNotNumera)
		}
	}
}

func TestOtherVersionsAreToldApartByTheHead(t *testing.T) {
	wire := preamble{}.append(nil)[:headSize]
	wire[headSize-1]++
	_, err := readPreamble(bytes.NewReader(wire))
	require.Equal(t, ErrWrongVersion, err)
}

func TestAnswers(t *testing.T) {
	for _, refusal := range refusals {
		var wire bytes.Buffer
		require.NoError(t, answer(&wire, refusal))
		require.Equal(t, refusal, readAnswer(&wire))
	}
	require.ErrorIs(t, readAnswer(strings.NewReader("\xff")), ErrNotNumera)

	var wire bytes.Buffer
	require.NoError(t, answer(&wire, ErrNotNumera))
	require.Zero(t, wire.Len(), "a stranger is told nothing")
	require.ErrorIs(t, readAnswer(&wire), io.EOF)
}
