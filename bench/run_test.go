package bench

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEveryWorkload runs each on the shard path, small, with the oracle.
func TestEveryWorkload(t *testing.T) {
	for _, workload := range Workloads() {
		t.Run(string(workload), func(t *testing.T) {
			r, err := Run(t.Context(), Config{
				Path: PathShard, Workload: workload, Requests: 3000, Duration: time.Second,
				Products: 5, Numbers: 2000, Shards: 2, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			require.NoError(t, r.WriteTable(os.Stderr))
		})
	}
}

func TestShardAgainstItsFloor(t *testing.T) {
	r, err := RunFloor(t.Context(), CompareConfig{
		Rounds: 3, Turn: 200 * time.Millisecond, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	require.NoError(t, r.WriteTable(os.Stderr))
}

func TestHTTPAgainstItsFloor(t *testing.T) {
	r, err := RunFloor(t.Context(), CompareConfig{
		Path: PathHTTP, Rounds: 3, Turn: 200 * time.Millisecond, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	require.NoError(t, r.WriteTable(os.Stderr))
}

func TestEveryPath(t *testing.T) {
	for _, path := range []Path{PathShard, PathNATS, PathHTTP} {
		for _, workload := range []Workload{WorkloadRetries, WorkloadLifecycle} {
			t.Run(string(path)+" "+string(workload), func(t *testing.T) {
				r, err := Run(t.Context(), Config{
					Path: path, Workload: workload, Requests: 2000, Rate: 4000, InFlight: 64,
					Shards: 2, Dir: t.TempDir(),
				})
				require.NoError(t, err)
				require.NoError(t, r.WriteTable(os.Stderr))
			})
		}
	}
}
