package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"numera/engine/inventory"
	"numera/gateway/order"
)

// Desk is what a person sees and does about payments that need one.
type Desk interface {
	// InStatus lists payments by id, those after one, at most limit.
	InStatus(
		ctx context.Context, s order.Status, after inventory.PaymentID, limit int,
	) ([]order.Payment, error)
	// Findings lists what nobody has resolved yet, oldest first, at most limit.
	Findings(ctx context.Context, limit int) ([]Finding, error)
	// DeadLetters lists jobs that have failed for good, of a queue or all (""), by id.
	DeadLetters(ctx context.Context, q order.Queue, after int64, limit int) ([]DeadLetter, error)
	// Replay has a dead letter done again, or is ErrNoDeadLetter; ReplayAll has all of a queue.
	Replay(ctx context.Context, id int64) error
	ReplayAll(ctx context.Context, q order.Queue) (replayed int, err error)
}

// ErrNoDeadLetter is returned by a Desk when there is no dead letter of this id.
var ErrNoDeadLetter = errors.New("gateway: no such dead letter")

// Finding is what somebody has to look at.
type Finding struct {
	order.Finding
	FoundAt time.Time
	SeenAt  time.Time // last
}

// DeadLetter is a job that has failed for good.
type DeadLetter struct {
	ID       int64
	Queue    order.Queue
	Kind     string
	About    json.RawMessage // an object
	Error    string
	Attempts int
	Created  time.Time
	Died     time.Time
}

// deskLimit is how much a listing of the desk answers with unless told otherwise.
const deskLimit = 100

func (in *input) pageLimit() int {
	if in.limit == 0 {
		return deskLimit
	}
	return int(in.limit)
}

func searchPayments(ctx context.Context, g *Gateway, c *call) error {
	limit := c.in.pageLimit()
	status := cmp.Or(c.in.status, order.StatusReview)
	found, err := g.config.Desk.InStatus(ctx, status, inventory.PaymentID(c.in.after), limit)
	if err != nil {
		return err
	}
	next := ""
	if len(found) == limit {
		next = string(found[limit-1].ID)
	}
	answerList(g, c, "payments", found, next, appendPayment)
	return nil
}

func listFindings(ctx context.Context, g *Gateway, c *call) error {
	found, err := g.config.Desk.Findings(ctx, c.in.pageLimit())
	if err != nil {
		return err
	}
	answerList(g, c, "findings", found, "", appendFinding)
	return nil
}

func listDeadLetters(ctx context.Context, g *Gateway, c *call) error {
	after, err := strconv.ParseInt(c.in.after, 10, 64)
	if err != nil && c.in.after != "" {
		c.refuse(wrongValue("/after", "must be the next of a page before"), g.now())
		return nil
	}
	limit := c.in.pageLimit()
	found, err := g.config.Desk.DeadLetters(ctx, c.in.queue, after, limit)
	if err != nil {
		return err
	}
	next := ""
	if len(found) == limit {
		next = strconv.FormatInt(found[limit-1].ID, 10)
	}
	answerList(g, c, "dead_letters", found, next, appendDeadLetter)
	return nil
}

func replayDeadLetter(ctx context.Context, g *Gateway, c *call) error {
	err := g.config.Desk.Replay(ctx, c.in.letter)
	return g.answerReplayed(c, 1, err)
}

func replayDeadLetters(ctx context.Context, g *Gateway, c *call) error {
	n, err := g.config.Desk.ReplayAll(ctx, c.in.queue)
	return g.answerReplayed(c, n, err)
}

func (g *Gateway) answerReplayed(c *call, n int, err error) error {
	if err != nil {
		return err
	}
	c.atUnixMilli = g.now()
	c.body = strconv.AppendInt(append(c.body, `{"replayed":`...), int64(n), 10)
	c.body = append(c.body, '}')
	return nil
}

// answerList answers with a page of a list, and what to give as after for the one that follows.
func answerList[T any](
	g *Gateway, c *call, name string, all []T, next string, write func([]byte, *T) []byte,
) {
	c.atUnixMilli = g.now()
	c.body = append(appendText(append(c.body, '{'), name), `:[`...)
	for i := range all {
		if i > 0 {
			c.body = append(c.body, ',')
		}
		c.body = write(c.body, &all[i])
	}
	c.body = append(c.body, `],"next":`...)
	if next == "" {
		c.body = append(c.body, "null}"...)
		return
	}
	c.body = append(appendText(c.body, next), '}')
}

func appendFinding(buf []byte, f *Finding) []byte {
	buf = appendText(append(buf, `{"kind":`...), f.Kind)
	buf = appendText(append(buf, `,"subject":`...), f.Subject)
	buf = appendText(append(buf, `,"detail":`...), f.Detail)
	buf = appendTime(append(buf, `,"found_at":`...), f.FoundAt.UnixMilli())
	buf = appendTime(append(buf, `,"seen_at":`...), f.SeenAt.UnixMilli())
	return append(buf, '}')
}

func appendDeadLetter(buf []byte, d *DeadLetter) []byte {
	buf = appendText(append(buf, `{"id":`...), strconv.FormatInt(d.ID, 10))
	buf = appendText(append(buf, `,"queue":`...), string(d.Queue))
	buf = appendText(append(buf, `,"kind":`...), d.Kind)
	buf = append(append(buf, `,"about":`...), d.About...)
	buf = appendText(append(buf, `,"error":`...), d.Error)
	buf = strconv.AppendInt(append(buf, `,"attempts":`...), int64(d.Attempts), 10)
	buf = appendTime(append(buf, `,"created_at":`...), d.Created.UnixMilli())
	buf = appendTime(append(buf, `,"died_at":`...), d.Died.UnixMilli())
	return append(buf, '}')
}
