package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

func sampleReport() *Report {
	t := newTally()
	for i := range 1000 {
		a := answer{code: "ok"}
		if i%10 == 0 {
			a = answer{verdict: refused, code: "numbers_taken"}
		}
		t.add(&a, time.Duration(i+1)*time.Millisecond, time.Millisecond)
	}
	r := &Report{
		Machine: thisMachine(), Path: PathShard, Workload: WorkloadAny, InFlight: 8, Products: 1,
		Numbers: 100, Quantity: 1, Backlog: 12, Consumer: "in this process",
		Oracle: Oracle{Orders: 900, Products: 1, Statuses: map[string]int{"reserved": 900}},
	}
	r.count(t, 2*time.Second)
	return r
}

func TestReportSaysWhatHappened(t *testing.T) {
	r := sampleReport()
	require.EqualValues(t, 1000, r.Requests)
	require.InDelta(t, 500, r.PerSecond, 0.1)
	require.EqualValues(t, 900, r.Accepted)
	require.EqualValues(t, 100, r.Refused)
	require.InEpsilon(t, 500, r.Latency.P50, 0.01)
	require.InEpsilon(t, 990, r.Latency.P99, 0.01)
	require.InEpsilon(t, 1000, r.Latency.Max, 0.01)

	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	for _, text := range []string{
		"500 requests/s", "numbers_taken 100", "12 left", "900 reserved", "every promise kept", "fsync on",
	} {
		require.Contains(t, table.String(), text)
	}
	r.Oracle.Violated, r.Oracle.Violations = 1, []string{"number 7 has two live owners"}
	require.NoError(t, r.WriteTable(&table))
	require.Contains(t, table.String(), "1 PROMISES BROKEN\n")
	require.Contains(t, table.String(), "number 7 has two live owners")
}

func TestReportSurvivesJSON(t *testing.T) {
	r := sampleReport()
	var text bytes.Buffer
	require.NoError(t, WriteJSON(&text, r))
	var read Report
	require.NoError(t, json.Unmarshal(text.Bytes(), &read))
	require.Equal(t, *r, read)
	require.Contains(t, text.String(), `"outbox_backlog_left": 12`)
}

var errFull = errors.New("the disk is full")

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }

func TestReportSaysWhenItCannotBeWritten(t *testing.T) {
	require.ErrorIs(t, sampleReport().WriteTable(fullWriter{}), errFull)
	require.ErrorIs(t, WriteJSON(fullWriter{}, sampleReport()), errFull)
	require.NoError(t, sampleReport().WriteTable(io.Discard))
}

const metricsBefore = `
# TYPE numera_shard_batch_commands histogram
numera_shard_batch_commands_bucket{shard="0",le="1"} 10
numera_shard_batch_commands_bucket{shard="0",le="2"} 10
numera_shard_batch_commands_bucket{shard="0",le="4"} 10
numera_shard_batch_commands_bucket{shard="0",le="+Inf"} 10
numera_shard_batch_commands_sum{shard="0"} 10
numera_shard_batch_commands_count{shard="0"} 10
# TYPE numera_outbox_length gauge
numera_outbox_length{shard="0"} 3
numera_outbox_length{shard="1"} 4
`

const metricsAfter = `
# TYPE numera_shard_batch_commands histogram
numera_shard_batch_commands_bucket{shard="0",le="1"} 10
numera_shard_batch_commands_bucket{shard="0",le="2"} 60
numera_shard_batch_commands_bucket{shard="0",le="4"} 110
numera_shard_batch_commands_bucket{shard="0",le="+Inf"} 110
numera_shard_batch_commands_sum{shard="0"} 310
numera_shard_batch_commands_count{shard="0"} 110
`

func parseMetrics(t *testing.T, text string) families {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	f, err := parser.TextToMetricFamilies(bytes.NewBufferString(text))
	require.NoError(t, err)
	return f
}

func TestDistributionIsOfTheLoadAlone(t *testing.T) {
	before, after := parseMetrics(t, metricsBefore), parseMetrics(t, metricsAfter)
	d := distribution(before, after, "numera_shard_batch_commands")
	require.EqualValues(t, 100, d.Count)
	require.InDelta(t, 3, d.Mean, 1e-9)
	require.InDelta(t, 2, d.P50, 1e-9)
	require.InDelta(t, 3.96, d.P99, 1e-9)
	require.InDelta(t, 7, before.sum("numera_outbox_length"), 0)
	require.Equal(t, Distribution{}, distribution(before, before, "numera_shard_batch_commands"))
	require.Equal(t, Distribution{}, distribution(before, after, "no_such_metric"))
}

func TestComparisonTakesMediansOfRounds(t *testing.T) {
	c := Comparison{}
	for _, rates := range [][2]float64{{60, 100}, {10, 100}, {90, 100}} {
		c.Rounds = append(c.Rounds, Round{
			Subject:  Turn{PerSecond: rates[0], CPUMicro: 3},
			Baseline: Turn{PerSecond: rates[1], CPUMicro: 2},
		})
	}
	c.summarise()
	require.InDelta(t, 0.6, c.RateRatio, 1e-9)
	require.InDelta(t, 1.5, c.CPURatio, 1e-9)
	require.InDelta(t, 60, c.SubjectPerSecond, 1e-9)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 1e-9)
	require.InDelta(t, 3, c.Rounds[0].Subject.CPUMicro, 0, "summing up does not reorder the rounds")
}
