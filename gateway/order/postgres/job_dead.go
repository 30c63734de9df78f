package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"numera/gateway/order"
)

// DeadLetter is a job that has failed for good.
type DeadLetter struct {
	ID       int64
	Queue    order.Queue
	Kind     string
	About    json.RawMessage // which payment, refund or webhook
	Error    string          // the last one
	Attempts int
	Created  time.Time
	Died     time.Time
}

// DeadFilter says which. Zero members do not restrict.
type DeadFilter struct {
	IDs     []int64
	Queue   order.Queue
	Kind    string
	Payment string
	After   int64 // only those with a higher id: the last one of the page before
	Limit   int   // 1 to 1000; zero: 100
}

// ErrNoDeadLetter is returned when there is no dead letter of this id.
var ErrNoDeadLetter = errors.New("postgres: no such dead letter")

const mostDeadLetters = 1000

// DeadLetters lists them by id.
func (j *Jobs) DeadLetters(ctx context.Context, f DeadFilter) ([]DeadLetter, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	params := river.NewJobListParams().States(rivertype.JobStateDiscarded).
		OrderBy(river.JobListOrderByID, river.SortOrderAsc).First(min(limit, mostDeadLetters)).
		Where("id > @after", river.NamedArgs{"after": f.After})
	if len(f.IDs) > 0 {
		params = params.IDs(f.IDs...)
	}
	if f.Queue != "" {
		params = params.Queues(string(f.Queue))
	}
	if f.Kind != "" {
		params = params.Kinds(f.Kind)
	}
	if f.Payment != "" {
		params = params.Where("args->>'payment' = @payment", river.NamedArgs{"payment": f.Payment})
	}
	found, err := j.client.JobList(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("postgres: dead letters: %w", err)
	}
	letters := make([]DeadLetter, len(found.Jobs))
	for i, row := range found.Jobs {
		letters[i] = DeadLetter{
			ID: row.ID, Queue: order.Queue(row.Queue), Kind: row.Kind, About: row.EncodedArgs,
			Attempts: row.Attempt, Created: row.CreatedAt, Died: valueOf(row.FinalizedAt),
		}
		if n := len(row.Errors); n > 0 {
			letters[i].Error = row.Errors[n-1].Error
		}
	}
	return letters, nil
}

// Replay has one dead letter done again, with one more attempt.
func (j *Jobs) Replay(ctx context.Context, id int64) error {
	letters, err := j.DeadLetters(ctx, DeadFilter{IDs: []int64{id}})
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		return ErrNoDeadLetter
	}
	if _, err := j.client.JobRetry(ctx, id); err != nil {
		return fmt.Errorf("postgres: replay: %w", err)
	}
	return nil
}

// ReplayAll has all that the filter finds done again, whatever its After and Limit, and says how
// many.
func (j *Jobs) ReplayAll(ctx context.Context, f DeadFilter) (replayed int, err error) {
	f.After, f.Limit = 0, mostDeadLetters
	for {
		letters, err := j.DeadLetters(ctx, f)
		if err != nil || len(letters) == 0 {
			return replayed, err
		}
		for _, letter := range letters {
			f.After = letter.ID
			if _, err := j.client.JobRetry(ctx, letter.ID); err != nil {
				return replayed, fmt.Errorf("postgres: replay %d: %w", letter.ID, err)
			}
			replayed++
		}
	}
}
