package wire

import (
	"encoding/binary"
	"encoding/hex"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

var update = flag.Bool("update", false, "write the golden files of a new version")

// TestGolden holds version 1 fast: what older binaries wrote must be read, and what this one
// writes must be what they read.
func TestGolden(t *testing.T) {
	for name, message := range sampleMessages() {
		path := filepath.Join("testdata", "v2", name+".hex")
		if *update {
			require.NoError(t, os.WriteFile(path, hexLines(message), 0o644))
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		golden, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
		require.NoError(t, err)
		require.Equal(t, golden, message, name)
	}
}

func hexLines(b []byte) []byte {
	var lines strings.Builder
	for len(b) > 0 {
		n := min(40, len(b))
		lines.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return []byte(lines.String())
}

func TestRequestsRoundTrip(t *testing.T) {
	want := sampleRequests()
	message := encodeRequests(want)
	frame, err := Open(message)
	require.NoError(t, err)
	require.Equal(t, KindRequests, frame.Kind())
	got, err := frame.Requests(nil)
	require.NoError(t, err)
	clear(message) // NATS may do so: what was decoded must not notice
	require.Equal(t, len(want), len(got))
	for i := range want {
		if q, ok := want[i].Query.(ScanQuery); ok && len(q.After) == 0 {
			q.After = nil
			want[i].Query = q
		}
		require.Equal(t, want[i], got[i])
	}
}

func TestResponsesRoundTrip(t *testing.T) {
	want := sampleResponses()
	message := encodeResponses(want)
	frame, err := Open(message)
	require.NoError(t, err)
	got, err := frame.Responses(make([]Response, 3))
	require.NoError(t, err)
	clear(message)
	require.Equal(t, encodeResponses(want), encodeResponses(got))
	for i := range want {
		require.Equal(t, want[i].Failure, got[i].Failure)
		require.Equal(t, want[i].RetryAfter, got[i].RetryAfter)
	}
	require.Equal(t, want[0].Outcome.Order.Items, got[0].Outcome.Order.Items)
	require.Equal(t, want[3].Numbers, got[3].Numbers)
	require.Equal(t, want[7].Events, got[7].Events)
}

func TestInfoRoundTrip(t *testing.T) {
	frame, err := Open(AppendInfo(nil, sampleInfo))
	require.NoError(t, err)
	info, err := frame.Info()
	require.NoError(t, err)
	require.Equal(t, sampleInfo, info)

	frame, err = Open(AppendInfo(nil, Info{Cluster: "c"}))
	require.NoError(t, err)
	_, err = frame.Info()
	require.ErrorIs(t, err, ErrMalformed, "no shards")
}

// TestTimesAreClamped: what is left is never overstated, and nothing becomes negative or huge.
func TestTimesAreClamped(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		-time.Second:           0,
		time.Millisecond - 1:   0,
		2*time.Millisecond - 1: time.Millisecond,
		MaxRemaining + 1:       MaxRemaining,
	} {
		message := encodeRequests([]Request{{Remaining: given, Query: EventsQuery{}}})
		frame, err := Open(message)
		require.NoError(t, err)
		requests, err := frame.Requests(nil)
		require.NoError(t, err)
		require.Equal(t, want, requests[0].Remaining)
	}
}

// reseal makes the checksum right again after a change.
func reseal(message []byte) []byte {
	binary.BigEndian.PutUint32(message, crc32.Checksum(message[4:], castagnoli))
	return message
}

// open decodes a message of any kind and says what its canonical encoding is.
func open(message []byte) (again []byte, err error) {
	frame, err := Open(message)
	if err != nil {
		return nil, err
	}
	switch frame.Kind() {
	case KindRequests:
		requests, err := frame.Requests(nil)
		return encoded(err, func() []byte { return encodeRequests(requests) })
	case KindResponses:
		responses, err := frame.Responses(nil)
		return encoded(err, func() []byte { return encodeResponses(responses) })
	case KindPart:
		part, err := frame.Part()
		return encoded(err, func() []byte { return AppendPart(nil, part) })
	default:
		info, err := frame.Info()
		return encoded(err, func() []byte { return AppendInfo(nil, info) })
	}
}

func encoded(err error, encode func() []byte) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return encode(), nil
}

// TestDamageIsRefused flips every bit and cuts at every byte, with the old checksum and with a
// right one: the first must always be refused, the second at least never be misread.
func TestDamageIsRefused(t *testing.T) {
	for name, message := range sampleMessages() {
		for i := range message {
			_, err := open(message[:i])
			require.ErrorIs(t, err, ErrMalformed, "%s cut at %d", name, i)
			if i >= HeaderSize && name != "part" {
				_, err = open(reseal(append([]byte(nil), message[:i]...)))
				require.ErrorIs(t, err, ErrMalformed, "%s cut at %d and resealed", name, i)
			}
			for bit := range 8 {
				damaged := append([]byte(nil), message...)
				damaged[i] ^= 1 << bit
				_, err := open(damaged)
				require.ErrorIs(t, err, ErrMalformed, "%s byte %d bit %d", name, i, bit)
				if again, err := open(reseal(damaged)); err == nil {
					require.Equal(t, damaged, again, "%s byte %d bit %d", name, i, bit)
				}
			}
		}
		trailing := reseal(append(append([]byte(nil), message...), 0))
		if _, err := open(trailing); name != "part" {
			require.ErrorIs(t, err, ErrMalformed, name)
		}
	}
}

func TestWrongKindVersionAndCount(t *testing.T) {
	message := encodeRequests(sampleRequests())
	frame, err := Open(message)
	require.NoError(t, err)
	_, err = frame.Responses(nil)
	require.ErrorIs(t, err, ErrMalformed)
	_, err = frame.Part()
	require.ErrorIs(t, err, ErrMalformed)
	_, err = frame.Info()
	require.ErrorIs(t, err, ErrMalformed)

	message[4]++
	_, err = Open(reseal(message))
	require.ErrorContains(t, err, "version 3, this is version 2")

	Seal(message, 0)
	message[4]--
	_, err = Open(reseal(message))
	require.ErrorIs(t, err, ErrMalformed)

	Seal(message, len(sampleRequests())+1)
	_, err = open(message)
	require.ErrorIs(t, err, ErrMalformed)
}

// TestForgedCountsAllocateLittle: a small message that promises much must not make its reader
// reserve memory for it.
func TestForgedCountsAllocateLittle(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<20)
	forged := map[string][]byte{
		"responses": append(Begin(nil, KindResponses), make([]byte, 40)...),
		"requests":  append(Begin(nil, KindRequests), make([]byte, 40)...),
	}
	header := append(Begin(nil, KindResponses), make([]byte, 8)...)
	for name, start := range map[string][]byte{
		"taken":  {answerNumbers, 0, 0, 0, 0},
		"orders": {answerOrders, 0, 0},
		"events": {answerEvents, 0, 0},
		"scan":   {answerScan, 0, 0},
		"next":   {answerScan, 0},
	} {
		message := append(append([]byte(nil), header...), start...)
		forged[name] = append(append(message, huge...), make([]byte, 40)...)
	}
	for name, message := range forged {
		Seal(message, 1)
		if name == "responses" || name == "requests" {
			Seal(message, MaxItems)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := open(message)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrMalformed, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<10), name)
	}
}

func TestUnknownFailureIsRefused(t *testing.T) {
	_, err := open(encodeResponses([]Response{{Failure: failureCount - 1}}))
	require.NoError(t, err)
	_, err = open(encodeResponses([]Response{{Failure: failureCount}}))
	require.ErrorIs(t, err, ErrMalformed)
}

func TestSubject(t *testing.T) {
	require.Equal(t, "numera.shard.0", Subject(0))
	require.Equal(t, "numera.shard.65535", Subject(math.MaxUint16))
}

func TestEmptyResponsePanics(t *testing.T) {
	require.Panics(t, func() { AppendResponse(nil, &Response{ID: 1}) })
}

func BenchmarkRequests(b *testing.B) {
	command := sampleCommands()[0]
	requests := make([]Request, 100)
	for i := range requests {
		requests[i] = Request{
			ID: uint64(i), Remaining: time.Second,
			Entry: &inventory.Entry{Correlation: "c-1", Command: command},
		}
	}
	message := encodeRequests(requests)
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		frame, err := Open(message)
		if err != nil {
			b.Fatal(err)
		}
		if requests, err = frame.Requests(requests); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResponses(b *testing.B) {
	responses := make([]Response, 100)
	for i := range responses {
		responses[i] = Response{ID: uint64(i), Outcome: &inventory.Outcome{Order: sampleOrder()}}
	}
	message := encodeResponses(responses)
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		frame, err := Open(message)
		if err != nil {
			b.Fatal(err)
		}
		if responses, err = frame.Responses(responses); err != nil {
			b.Fatal(err)
		}
	}
}
