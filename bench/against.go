package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// CompareConfig says how a path is compared with its floor. Zero values mean the defaults named
// beside them.
type CompareConfig struct {
	Path Path // PathShard (default) or PathHTTP

	InFlight int           // as in Config
	Rounds   int           // that count, at least 3; default 7
	Turn     time.Duration // of each side in each round; default 2 s
	Numbers  int           // of the hot product; default 100 million, so that it is never sold out

	// Bare makes the shard's floor one of bytes without a meaning: no command is made, checked,
	// hashed or encoded. It says how far the whole is from raft and Pebble alone.
	Bare bool

	NoConsumer bool
	Dir        string
	Seed       uint64    // default 1
	Progress   io.Writer // where set, gets a line for each round
}

// The targets of the ratios of rates.
const (
	shardTarget = "rate at least 0.60"
	httpTarget  = "rate at least 0.50"
)

// endlessOutbox is room for the events of all turns: a full outbox refuses, and a refusal is cheap.
const endlessOutbox = 1 << 30

// mostTurn bounds the requests of one turn.
const mostTurn = 5_000_000

func (c *CompareConfig) load() (Config, error) {
	c.Rounds = cmp.Or(c.Rounds, 7)
	c.Turn = cmp.Or(c.Turn, 2*time.Second)
	c.Numbers = cmp.Or(c.Numbers, 100_000_000)
	load := Config{
		Path: c.Path, Workload: WorkloadAny, InFlight: c.InFlight, Numbers: c.Numbers, Shards: 1,
		NoConsumer: c.NoConsumer, Dir: c.Dir, Seed: c.Seed, Duration: c.Turn, Requests: mostTurn,
		outbox: endlessOutbox,
	}.withDefaults()
	if c.Rounds < 3 || c.Rounds > 100 || load.Path == PathNATS || c.Bare && load.Path != PathShard {
		return load, fmt.Errorf("%w: %d rounds of the %s path against its floor",
			ErrConfig, c.Rounds, load.Path)
	}
	return load, load.validate()
}

// RunFloor lets a path and its floor take turns. It returns ErrConfig, ErrIncomplete, or, with the
// report, ErrViolated: the oracle checks the path's orders.
func RunFloor(ctx context.Context, config CompareConfig) (_ *ComparisonReport, err error) {
	c, err := config.load()
	if err != nil {
		return nil, err
	}
	p, err := newPlan(&c)
	if err != nil {
		return nil, err
	}
	v, err := openVenue(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	if err := v.setUp(ctx, p); err != nil {
		return nil, err
	}
	turns := func() *schedule {
		return newSchedule(c.Arrivals, 0, c.Requests, c.Duration, c.Seed)
	}
	subject := &side{load: newLoad(p, v.peer, turns(), c.shape(), c.Seed), next: turns, rest: v.rest}
	floor, note, err := v.openFloor(ctx, &c, subject, config.Bare)
	if err != nil {
		return nil, err
	}
	baseline := &side{load: newLoad(p, floor, turns(), c.shape(), c.Seed), next: turns}
	baseline.load.blind = c.Path == PathHTTP || config.Bare
	r := &ComparisonReport{Machine: thisMachine(), Notes: []string{note, v.consumerNote()}}
	comparison := Comparison{
		Name:    fmt.Sprintf("%s path, any-1 of one hot product, %d in flight", c.Path, c.InFlight),
		Subject: string(c.Path) + " path", Baseline: "floor", Target: shardTarget,
	}
	if c.Path == PathHTTP {
		comparison.Target = httpTarget
	}
	if err := comparison.compare(ctx, subject, baseline, config.Rounds, config.Progress); err != nil {
		return r, err
	}
	if err := errors.Join(baseline.load.violations...); err != nil {
		return r, fmt.Errorf("%w: answers of the floor: %w", ErrIncomplete, err)
	}
	r.Comparisons = []Comparison{comparison}
	r.Oracles = make([]Oracle, 1)
	if err := v.examine(ctx, subject.load, &r.Oracles[0]); err != nil {
		return r, err
	}
	return r, r.err()
}

// openFloor makes the floor of a path, and says in a note what it is. For a bare one the subject
// takes a turn, to show how large its commands are.
func (v *venue) openFloor(
	ctx context.Context, c *Config, subject *side, bare bool,
) (peer, string, error) {
	if c.Path == PathHTTP {
		return v.openHTTPFloor(c, subject.load.plan)
	}
	bytes, note := 0, "the floor checks, seals and encodes the same commands, and has raft and "+
		"Pebble around an empty state machine"
	if bare {
		_, before := v.logs()
		t, err := subject.take(ctx)
		if err != nil {
			return nil, "", err
		}
		_, after := v.logs()
		bytes = int(int64(after-before) / t.Accepted)
		note = fmt.Sprintf("the floor is raft and Pebble around an empty state machine, and "+
			"nothing else: %d bytes a command, as on the path", bytes)
	}
	f, err := openFloor(ctx, c.Dir, bytes)
	if err != nil {
		return nil, "", err
	}
	v.onClose(f.close)
	return f, note, nil
}

func (v *venue) consumerNote() string { return "outbox consumer: " + v.consumer }

// longestRest is how long a side waits for the consumer after a turn.
const longestRest = time.Minute

// rest waits until the consumer has caught up, so that it does not work during the other's turn.
func (v *venue) rest(ctx context.Context) {
	if v.consumed == nil {
		return
	}
	for deadline := time.Now().Add(longestRest); time.Now().Before(deadline); {
		f, err := v.gather(ctx)
		if err != nil || f.sum("numera_outbox_length") == 0 || ctx.Err() != nil {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}
