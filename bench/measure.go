package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Machine is what a measurement was made on.
type Machine struct {
	Date    time.Time `json:"date"`
	Cores   int       `json:"cores"`
	Go      string    `json:"go"`
	OS      string    `json:"os"`
	Version string    `json:"version"` // of numera: the revision it was built from
	Fsync   bool      `json:"fsync"`   // before anything is acknowledged; there is no way to turn it off
}

func thisMachine() Machine {
	m := Machine{
		Date: time.Now().UTC().Truncate(time.Second), Cores: runtime.GOMAXPROCS(0), Fsync: true,
		Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Version: "unknown",
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				m.Version = setting.Value[:min(12, len(setting.Value))]
			}
		}
	}
	return m
}

// cpuTime is what this process has used so far, in user and system.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic("bench: getrusage: " + err.Error()) // it can't fail for SELF
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// allocated is how many bytes this process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Distribution is what a histogram of the system's metrics says of one load.
type Distribution struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"` // within its bucket by interpolation, as are the others
	P99   float64 `json:"p99"`
}

// families are metrics by name.
type families map[string]*dto.MetricFamily

// sum adds up a counter or gauge over all its labels.
func (f families) sum(name string) (sum float64) {
	for _, m := range f[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	return sum
}

// bucket is one of a histogram: how many were at most bound.
type bucket struct {
	bound float64
	count uint64
}

// histogram adds up a histogram over all its labels; the buckets are cumulative.
func (f families) histogram(name string) (buckets []bucket, count uint64, sum float64) {
	for _, m := range f[name].GetMetric() {
		h := m.GetHistogram()
		count += h.GetSampleCount()
		sum += h.GetSampleSum()
		for i, b := range h.GetBucket() {
			if i == len(buckets) {
				buckets = append(buckets, bucket{bound: b.GetUpperBound()})
			}
			buckets[i].count += b.GetCumulativeCount()
		}
	}
	return buckets, count, sum
}

// distribution is what was added to a histogram between two looks.
func distribution(before, after families, name string) Distribution {
	earlier, countBefore, sumBefore := before.histogram(name)
	buckets, count, sum := after.histogram(name)
	for i := range earlier {
		buckets[i].count -= earlier[i].count
	}
	d := Distribution{Count: count - countBefore}
	if d.Count == 0 {
		return d
	}
	d.Mean = (sum - sumBefore) / float64(d.Count)
	d.P50, d.P99 = quantile(buckets, d.Count, 0.5), quantile(buckets, d.Count, 0.99)
	return d
}

func quantile(buckets []bucket, count uint64, q float64) float64 {
	rank := q * float64(count)
	low, below := 0.0, uint64(0)
	for _, b := range buckets {
		if float64(b.count) >= rank && b.count > below {
			return low + (b.bound-low)*(rank-float64(below))/float64(b.count-below)
		}
		low, below = b.bound, b.count
	}
	return low // beyond the last bound
}

// gather reads the metrics of a system in this process.
func (s *system) gather() (families, error) {
	all, err := s.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("%w: metrics: %w", ErrIncomplete, err)
	}
	f := make(families, len(all))
	for _, family := range all {
		f[family.GetName()] = family
	}
	return f, nil
}
