package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// receive does what a gateway does with the messages for one reply subject.
func receive(t testing.TB, messages [][]byte) (responses []Response) {
	parts := map[uint64]*Reassembler{}
	for _, message := range messages {
		require.LessOrEqual(t, len(message), MaxMessage)
		frame, err := Open(message)
		require.NoError(t, err)
		if frame.Kind() == KindResponses {
			several, err := frame.Responses(nil)
			require.NoError(t, err)
			responses = append(responses, several...)
			continue
		}
		part, err := frame.Part()
		require.NoError(t, err)
		if parts[part.ID] == nil {
			parts[part.ID] = &Reassembler{}
		}
		complete, err := parts[part.ID].Add(1, part)
		require.NoError(t, err)
		if complete {
			response, err := parts[part.ID].Response()
			require.NoError(t, err)
			responses = append(responses, response)
		}
	}
	return responses
}

func collect(messages *[][]byte) func([]byte) error {
	return func(message []byte) error {
		*messages = append(*messages, append([]byte(nil), message...))
		return nil
	}
}

func numbersOf(id uint64, size int) Response {
	taken := make([]byte, size)
	for i := 0; i < size; i += 1000 {
		taken[i] = byte(i / 1000)
	}
	return Response{ID: id, Numbers: &Numbers{Taken: taken}}
}

func outcomeOf(id uint64) Response { return Response{ID: id, Outcome: sampleRefusal()} }

// TestPackKeepsAllResponses packs small and large ones, at and around the bounds, in one go.
// pack gives a Packer all responses to one message.
func pack(p *Packer, responses []Response, send func([]byte) error) error {
	for i := range responses {
		if err := p.Add(&responses[i], send); err != nil && !errors.Is(err, ErrTooLarge) {
			return err
		}
	}
	return p.Flush(send)
}

func TestPackKeepsAllResponses(t *testing.T) {
	overhead := len(encodeResponses([]Response{numbersOf(0, MaxMessage/2)})) - MaxMessage/2
	sizes := []int{
		100, MaxMessage - overhead, 1, MaxMessage - overhead + 1, MaxMessage - overhead - 1,
		3 * MaxMessage, 7, 300 << 10, 300 << 10,
	}
	var p Packer
	for range 2 { // the second time with used buffers
		var want []Response
		for _, size := range sizes {
			want = append(want, numbersOf(uint64(len(want)), size), outcomeOf(1000+uint64(len(want))))
		}
		var messages [][]byte
		require.NoError(t, pack(&p, want, collect(&messages)))
		got := receive(t, messages)
		require.Equal(t, len(want), len(got))
		for i := range want {
			require.Equal(t, want[i].ID, got[i].ID)
			require.Equal(t, want[i].Outcome, got[i].Outcome)
			if want[i].Numbers != nil {
				require.True(t, bytes.Equal(want[i].Numbers.Taken, got[i].Numbers.Taken))
			}
		}
		require.LessOrEqual(t, cap(p.message), kept)
		require.LessOrEqual(t, cap(p.item), kept)
	}
	var messages [][]byte
	require.NoError(t, pack(&p, []Response{numbersOf(0, MaxMessage-overhead)}, collect(&messages)))
	require.Len(t, messages, 1)
	require.Len(t, messages[0], MaxMessage)
}

func TestPackSmallResponsesTogether(t *testing.T) {
	many := make([]Response, MaxItems+10)
	for i := range many {
		many[i] = Response{ID: uint64(i), Failure: NotLeader}
	}
	var p Packer
	var messages [][]byte
	require.NoError(t, pack(&p, many, collect(&messages)))
	require.Len(t, receive(t, messages), len(many))
	// 11 bytes each: the bound on bytes comes before the bound on items.
	require.Len(t, messages, 2)

	require.NoError(t, pack(&p, nil, func([]byte) error { panic("nothing to send") }))
}

func TestPackTooLarge(t *testing.T) {
	var p Packer
	var messages [][]byte
	responses := []Response{outcomeOf(1), numbersOf(2, MaxBody), outcomeOf(3)}
	require.NoError(t, p.Add(&responses[0], collect(&messages)))
	require.ErrorIs(t, p.Add(&responses[1], collect(&messages)), ErrTooLarge)
	require.NoError(t, p.Add(&responses[2], collect(&messages)))
	require.NoError(t, p.Flush(collect(&messages)))
	require.Equal(t,
		[]Response{outcomeOf(1), {ID: 2, Failure: Malformed}, outcomeOf(3)}, receive(t, messages))
}

func TestPackStopsWhenSendFails(t *testing.T) {
	lost := errors.New("connection lost")
	for _, response := range []Response{outcomeOf(1), numbersOf(1, 3*MaxMessage)} {
		var p Packer
		sent := 0
		err := pack(&p, []Response{outcomeOf(0), response}, func([]byte) error {
			sent++
			return lost
		})
		require.ErrorIs(t, err, lost)
		require.Equal(t, 1, sent)
	}
}

func TestReassemblerRefusesDisorder(t *testing.T) {
	piece := func(number uint32, more bool) Part {
		return Part{ID: 1, Number: number, More: more, Bytes: []byte{answerFailure}}
	}
	var a Reassembler
	_, err := a.Add(1, piece(1, true))
	require.ErrorIs(t, err, ErrMalformed, "does not begin at 0")

	_, err = a.Add(1, piece(0, true))
	require.NoError(t, err)
	_, err = a.Add(1, piece(2, true))
	require.ErrorIs(t, err, ErrMalformed, "a part is missing")
	_, err = a.Add(1, piece(1, true))
	require.ErrorIs(t, err, ErrMalformed, "what was gathered is dropped")

	complete, err := a.Add(1, piece(0, false))
	require.NoError(t, err)
	require.True(t, complete)
	_, err = a.Add(1, piece(1, false))
	require.ErrorIs(t, err, ErrMalformed, "behind the last part")

	_, err = a.Response()
	require.ErrorIs(t, err, ErrMalformed, "nothing is complete")
}

// TestReassemblerTellsSourcesApart: the answers to two attempts of one request come interleaved.
func TestReassemblerTellsSourcesApart(t *testing.T) {
	var p Packer
	var messages [][]byte
	want := numbersOf(7, 2*MaxMessage)
	require.NoError(t, pack(&p, []Response{want}, collect(&messages)))
	require.Len(t, messages, 3)
	parts := make([]Part, 3)
	for i := range parts {
		frame, err := Open(messages[i])
		require.NoError(t, err)
		parts[i], err = frame.Part()
		require.NoError(t, err)
	}
	var a Reassembler
	_, err := a.Add(1, parts[0])
	require.NoError(t, err)
	_, err = a.Add(2, parts[0])
	require.NoError(t, err)
	_, err = a.Add(1, parts[1])
	require.ErrorIs(t, err, ErrMalformed)
	_, err = a.Add(2, parts[1])
	require.NoError(t, err)
	complete, err := a.Add(2, parts[2])
	require.NoError(t, err)
	require.True(t, complete)
	got, err := a.Response()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestReassemblerIsBounded(t *testing.T) {
	var a Reassembler
	piece := make([]byte, MaxMessage)
	var err error
	for number := uint32(0); err == nil; number++ {
		require.LessOrEqual(t, a.Held(), MaxBody)
		_, err = a.Add(1, Part{ID: 1, Number: number, More: true, Bytes: piece})
	}
	require.ErrorIs(t, err, ErrMalformed)
	require.Zero(t, a.Held())
}

func FuzzReassembler(f *testing.F) {
	answer := appendAnswer(nil, &Response{Events: &Events{Events: []inventory.Event{
		{Kind: inventory.EventOrderCreated, Order: sampleOrder()},
	}}})
	f.Add(answer, []byte{10, 0, 200, 1})
	f.Add(answer, []byte{255})
	f.Fuzz(func(t *testing.T, answer, cuts []byte) {
		var a Reassembler
		number := uint32(0)
		for rest := answer; len(rest) > 0; number++ {
			n := len(rest)
			if int(number) < len(cuts) {
				n = min(n, int(cuts[number])+1)
			}
			part := Part{ID: 5, Number: number, More: n < len(rest), Bytes: rest[:n]}
			frame, err := Open(AppendPart(nil, part))
			require.NoError(t, err)
			part, err = frame.Part()
			require.NoError(t, err)
			complete, err := a.Add(9, part)
			require.NoError(t, err)
			require.Equal(t, n == len(rest), complete)
			rest = rest[n:]
		}
		if response, err := a.Response(); err == nil {
			require.Equal(t, uint64(5), response.ID)
			require.Equal(t, answer, appendAnswer(nil, &response))
		}
	})
}
