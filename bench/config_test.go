package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigsThatCannotBeRun(t *testing.T) {
	for name, c := range map[string]Config{
		"path":       {Path: "pigeon"},
		"workload":   {Workload: "nothing"},
		"arrivals":   {Arrivals: "late"},
		"rate":       {Rate: -1},
		"in flight":  {InFlight: mostInFlight + 1},
		"requests":   {Requests: mostRequests + 1},
		"duration":   {Duration: mostDuration + time.Second},
		"numbers":    {Numbers: 100_000_001},
		"quantity":   {Numbers: 5, Quantity: 6},
		"wrong path": {Target: "http://127.0.0.1:8080", ServiceToken: "s", AdminToken: "a"},
		"no tokens":  {Path: PathHTTP, Target: "http://127.0.0.1:8080"},
		"no port":    {Path: PathHTTP, Target: "http://127.0.0.1", ServiceToken: "s", AdminToken: "a"},
		"abroad": {
			Path: PathHTTP, Target: "http://192.0.2.1:80", ServiceToken: "s", AdminToken: "a",
		},
		"a name": {
			Path: PathHTTP, Target: "http://example.com:80", ServiceToken: "s", AdminToken: "a",
		},
		"too much to list": {
			Path: PathHTTP, Workload: WorkloadProducts, Target: "http://127.0.0.1:9",
			ServiceToken: "s", AdminToken: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(t.Context(), c)
			require.ErrorIs(t, err, ErrConfig)
		})
	}
	for _, c := range []CompareConfig{{Path: PathNATS}, {Rounds: 2}, {InFlight: -1}} {
		_, err := RunFloor(t.Context(), c)
		require.ErrorIs(t, err, ErrConfig)
	}
	for _, c := range []CostConfig{{Few: 4}, {InFlight: 1000}, {Numbers: 10}, {Rounds: 1}} {
		_, err := RunCost(t.Context(), c)
		require.ErrorIs(t, err, ErrConfig)
	}
}

func TestDefaultsCanBeRun(t *testing.T) {
	load := Config{}.withDefaults()
	require.NoError(t, load.validate())
	_, err := (&CompareConfig{}).load()
	require.NoError(t, err)
	cost := CostConfig{}.withDefaults()
	require.NoError(t, cost.validate())
}

func TestWorkloadsSayWhatTheyDo(t *testing.T) {
	require.Len(t, Workloads(), len(workloads))
	for _, w := range Workloads() {
		require.NotEmpty(t, w.About())
	}
	require.Empty(t, Workload("nothing").About())
}
