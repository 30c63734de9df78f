package shards

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/nats-io/nats.go"

	"numera/shard/wire"
)

// send is the goroutine that sends for one lane. A batch is what gathered in the queue while the
// one before was published, and while the goroutines that are ready to run had their turn: a lone
// call waits for nothing. DESIGN.md has the measurements.
func (c *Client) send(l *lane) {
	subject := wire.Subject(l.shard)
	message := make([]byte, 0, c.config.BatchBytes)
	for {
		runtime.Gosched() // most callers are answered together and ask again together
		l.mu.Lock()
		var batch uint64
		var count int
		message, batch, count = l.take(wire.Begin(message[:0], wire.KindRequests), c.now())
		l.mu.Unlock()
		if count == 0 {
			select {
			case <-l.wake:
				continue
			case <-c.closing:
				return
			}
		}
		wire.Seal(message, count)
		err := c.nc.PublishRequest(subject, c.replySubject(l, batch), message)
		if err == nil {
			continue
		}
		l.mu.Lock()
		if neverSent(err) {
			l.notSent(batch, c.now())
		} else {
			l.lost(batch)
		}
		l.mu.Unlock()
	}
}

// replySubject names a batch: the inbox, and a number that no other batch of the Client has.
func (c *Client) replySubject(l *lane, batch uint64) string {
	var room [64]byte
	number := batch*uint64(len(c.lanes)) + uint64(l.shard)
	return string(strconv.AppendUint(append(room[:0], c.inbox...), number, 36))
}

// batchOf is the inverse of replySubject.
func (c *Client) batchOf(subject string) (l *lane, batch uint64, ok bool) {
	if len(subject) < len(c.inbox) {
		return nil, 0, false
	}
	number, err := strconv.ParseUint(subject[len(c.inbox):], 36, 64)
	if err != nil {
		return nil, 0, false
	}
	shards := uint64(len(c.lanes))
	return c.lanes[number%shards], number / shards, true
}

// neverSent says that a publish failed before anything was written. After an error of the
// connection itself part of what it was given may have arrived.
func neverSent(err error) bool {
	for _, before := range [...]error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded,
		nats.ErrMaxPayload,
	} {
		if errors.Is(err, before) {
			return true
		}
	}
	return false
}

// What the subscription holds back when its goroutine is slow. NATS drops what comes on top, and
// the calls it was for ask again.
const (
	pendingMessages = 1 << 16
	pendingBytes    = 128 << 20
)

func (c *Client) subscribe() error {
	var err error
	if c.subscription, err = c.nc.Subscribe(c.inbox+"*", c.receive); err != nil {
		return fmt.Errorf("shards: subscribe the inbox: %w", err)
	}
	c.subscription.SetClosedHandler(func(string) { close(c.drained) })
	if err = c.subscription.SetPendingLimits(pendingMessages, pendingBytes); err != nil {
		return fmt.Errorf("shards: limit the inbox: %w", err)
	}
	return nil
}

const (
	statusHeader = "Status"
	noResponders = "503"
)

// receive takes one message for a batch, in the goroutine of the subscription.
func (c *Client) receive(m *nats.Msg) {
	l, batch, ok := c.batchOf(m.Subject)
	if !ok {
		c.malformed.Add(1)
		return
	}
	if len(m.Data) == 0 && m.Header.Get(statusHeader) == noResponders {
		l.mu.Lock()
		l.stats.NoResponders++
		l.notSent(batch, c.now())
		l.mu.Unlock()
		return
	}
	frame, err := wire.Open(m.Data)
	if err == nil {
		switch frame.Kind() {
		case wire.KindPart:
			err = c.receivePart(l, batch, frame)
		default:
			err = c.receiveResponses(l, batch, frame)
		}
	}
	if err != nil {
		c.malformed.Add(1)
	}
}

func (c *Client) receiveResponses(l *lane, batch uint64, frame wire.Frame) error {
	responses, err := frame.Responses(c.responses)
	if err != nil {
		return err
	}
	c.deliver(l, batch, responses)
	clear(responses) // what was answered is the caller's now
	c.responses = responses
	return nil
}

func (c *Client) receivePart(l *lane, batch uint64, frame wire.Frame) error {
	part, err := frame.Part()
	if err != nil {
		return err
	}
	l.mu.Lock()
	whole := l.join(batch, part)
	l.mu.Unlock()
	if whole == nil {
		return nil
	}
	response, err := whole.Response()
	if err != nil {
		return err
	}
	c.deliver(l, batch, []wire.Response{response})
	return nil
}

func (c *Client) deliver(l *lane, batch uint64, responses []wire.Response) {
	now := c.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range responses {
		l.answer(batch, &responses[i], now)
	}
}
