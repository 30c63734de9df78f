package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"numera/gateway/order"
)

// JobsConfig is what Jobs work with. Zero members take the default.
type JobsConfig struct {
	Pool     *pgxpool.Pool   // required
	Checkout *order.Checkout // required

	Workers  map[order.Queue]int // how many jobs of a queue run at once; default 8 of each
	Attempts int                 // after so many that need a person, a job is dead; default 10
	Sweep    time.Duration       // how often is looked for what stands still; default 1 s
	Logger   *slog.Logger        // default slog.Default()

	Registerer prometheus.Registerer // takes the metrics; nil: they are kept and not shown
}

const (
	defaultWorkers  = 8
	defaultAttempts = 10
	// jobTimeout is room for three calls to a provider that takes its time: so every job of one that
	// answers at all gets somewhere.
	jobTimeout = 30 * time.Second
	// rescueAfter is when the job of a process that was killed is taken up by another: see DESIGN.md.
	rescueAfter = jobTimeout + 10*time.Second
	// longestSnooze bounds how long a job waits that fails for a reason which will end by itself.
	longestSnooze = time.Minute
	stopPatience  = 20 * time.Second
)

// Jobs look after payments, refunds and webhooks that stand still: those whose worker was killed,
// or whose provider does not answer, or whose time has come. What moves on its own never becomes a
// job.
//
// A job is a name: what has to be done is in the row, and doing it twice is doing it once. There is
// one job alive for a row. A failure that ends by itself, like a provider that is down, is repeated
// without end; others are repeated Attempts times, and then the job is dead, until it is replayed.
type Jobs struct {
	config JobsConfig
	client *river.Client[pgx.Tx]
	ended  *prometheus.CounterVec
}

// NewJobs makes Jobs. It starts nothing: see Run.
func NewJobs(config JobsConfig) (*Jobs, error) {
	if config.Attempts <= 0 {
		config.Attempts = defaultAttempts
	}
	if config.Sweep <= 0 {
		config.Sweep = time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	queues := make(map[string]river.QueueConfig)
	for _, queue := range order.Queues() {
		workers := config.Workers[queue]
		if workers <= 0 {
			workers = defaultWorkers
		}
		queues[string(queue)] = river.QueueConfig{MaxWorkers: workers}
	}
	j := &Jobs{config: config, ended: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "numera_payments_jobs_total",
		Help: "Jobs that were worked on, by queue and what came of it.",
	}, []string{"queue", "result"})}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker[paymentJob]{jobs: j})
	river.AddWorker(workers, &worker[refundJob]{jobs: j})
	river.AddWorker(workers, &worker[webhookJob]{jobs: j})
	client, err := river.NewClient(riverpgxv5.New(config.Pool), &river.Config{
		Queues: queues, Workers: workers, MaxAttempts: config.Attempts,
		JobTimeout: jobTimeout, RescueStuckJobsAfter: rescueAfter,
		// A dead job is kept until somebody has dealt with it, within reason.
		DiscardedJobRetentionPeriod: 90 * 24 * time.Hour,
		CompletedJobRetentionPeriod: time.Hour,
		Logger:                      slog.New(slog.DiscardHandler), // one line per job is ours
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: jobs: %w", err)
	}
	j.client = client
	if config.Registerer != nil {
		config.Registerer.MustRegister(j.ended)
	}
	return j, nil
}

// versionOfJobs is where the tables of jobs stand among the migrations. A later version of the
// library that needs others takes a later one.
const versionOfJobs = 3

// migrateJobs brings the tables of jobs to the version that this program was built with.
func migrateJobs(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Run works and sweeps until ctx ends, and then waits for the jobs under way, whose contexts end.
// It returns an error only if those do not.
func (j *Jobs) Run(ctx context.Context) error {
	working := false
	ticker := time.NewTicker(j.config.Sweep)
	defer ticker.Stop()
	for {
		if !working {
			// Its own context: it would drop the jobs under way when ctx ends.
			if err := j.client.Start(context.WithoutCancel(ctx)); err == nil {
				working = true
			} else if ctx.Err() == nil {
				j.config.Logger.WarnContext(ctx, "jobs do not start", "error", err)
			}
		}
		if working {
			if _, err := j.Sweep(ctx); err != nil && ctx.Err() == nil {
				j.config.Logger.WarnContext(ctx, "sweep failed", "error", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if !working {
				return nil
			}
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
			defer cancel()
			return j.client.StopAndCancel(stop)
		}
	}
}

// The jobs. Their JSON is stored: members are added, never renamed.
type (
	paymentJob struct {
		Payment string `json:"payment"`
	}
	refundJob struct {
		Refund  string `json:"refund"`
		Payment string `json:"payment"`
	}
	webhookJob struct {
		Tenant   string `json:"tenant"`
		Provider string `json:"provider"`
		Event    string `json:"event"`
		Payment  string `json:"payment"` // as the event names it
	}
)

func (paymentJob) Kind() string { return "payment.advance" }
func (refundJob) Kind() string  { return "refund.advance" }
func (webhookJob) Kind() string { return "webhook.act" }

// errand is a job with what it does.
type errand interface {
	river.JobArgs
	do(ctx context.Context, c *order.Checkout) error
	about() string
}

// worker does the jobs of one kind.
type worker[T errand] struct {
	river.WorkerDefaults[T]
	jobs *Jobs
}

// Work implements river.Worker.
func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	began := time.Now()
	err := job.Args.do(ctx, w.jobs.config.Checkout)
	stopped := errors.Is(context.Cause(ctx), context.Canceled)
	level, result := slog.LevelInfo, "done"
	switch {
	case err == nil:
	case !stopped && !order.Temporary(err) && job.Attempt >= job.MaxAttempts:
		level, result = slog.LevelError, "dead"
	default:
		level, result = slog.LevelWarn, "retried"
	}
	w.jobs.ended.WithLabelValues(job.Queue, result).Inc()
	w.jobs.config.Logger.Log(ctx, level, "job", "queue", job.Queue, "kind", job.Kind, "job", job.ID,
		"about", job.Args.about(), "attempt", job.Attempt, "result", result, "error", err,
		"took_ms", time.Since(began).Milliseconds())
	switch {
	case err == nil:
		return nil
	case stopped:
		return river.JobSnooze(0)
	case order.Temporary(err):
		return river.JobSnooze(snooze(time.Since(job.CreatedAt)))
	}
	return err
}

// snooze is how long to wait after a failure that ends by itself: longer the longer it has lasted.
func snooze(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), longestSnooze)
}

func (j paymentJob) do(ctx context.Context, c *order.Checkout) error {
	return c.Advance(ctx, paymentID(j.Payment))
}
func (j paymentJob) about() string { return j.Payment }

func (j refundJob) do(ctx context.Context, c *order.Checkout) error {
	return c.AdvanceRefund(ctx, j.Refund)
}
func (j refundJob) about() string { return j.Refund }

func (j webhookJob) do(ctx context.Context, c *order.Checkout) error {
	return c.Act(ctx, order.WebhookID{Tenant: j.Tenant, Provider: j.Provider, Event: j.Event})
}
func (j webhookJob) about() string { return j.Event }

// alive are the states of a job that has still something to do.
var alive = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
	rivertype.JobStateRetryable, rivertype.JobStateScheduled,
}

// insertion is how a job is put into a queue: unless it is in one.
func insertion(queue order.Queue, args river.JobArgs) river.InsertManyParams {
	return river.InsertManyParams{Args: args, InsertOpts: &river.InsertOpts{
		Queue: string(queue), UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: alive},
	}}
}
