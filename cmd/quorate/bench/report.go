package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// Report is everything that one call of bench measured.
type Report struct {
	Machine Machine  `json:"machine"`
	Options Options  `json:"options"`
	Results []Result `json:"results"`
}

// Machine describes where the figures come from.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	GoTool string `json:"go"`
}

// Sample is one run. Latencies are per frame, in microseconds.
type Sample struct {
	OpsPerSecond float64 `json:"opsPerSecond"`
	P50          float64 `json:"p50Micros"`
	P99          float64 `json:"p99Micros"`
	P999         float64 `json:"p999Micros,omitempty"`
	Max          float64 `json:"maxMicros,omitempty"`
	Errors       int64   `json:"errors"`
}

// Result is one measurement: its runs, their medians, and the ratio to the floor of
// the same call. Target is the ratio to reach: at least for throughput, at most for
// latency.
type Result struct {
	Name             string    `json:"name"`
	Nodes            int       `json:"nodes"`
	Runs             []Sample  `json:"runs,omitempty"`
	Floors           []Sample  `json:"floors,omitempty"`
	Median           Sample    `json:"median"`
	Floor            Sample    `json:"floor"`
	Ratio            float64   `json:"ratio,omitempty"`
	RatioOf          string    `json:"ratioOf,omitempty"`
	Target           float64   `json:"target,omitempty"`
	IdleCPUPercent   []float64 `json:"idleCpuPercent,omitempty"`
	IdleRSSMegabytes []float64 `json:"idleRssMegabytes,omitempty"`
}

func (m *measurement) sample() Sample {
	q := func(p float64) float64 { return float64(m.latency.ValueAtQuantile(p)) }
	return Sample{OpsPerSecond: m.rate(), P50: q(50), P99: q(99), P999: q(99.9), Max: float64(m.latency.Max()), Errors: m.errors}
}

func (r floorResult) sample() Sample {
	return Sample{OpsPerSecond: float64(r.Ops) / r.Seconds, P50: r.P50, P99: r.P99, Errors: r.Errors}
}

func summarise(m mode, loads, floors []Sample) Result {
	r := Result{Name: m.name, Nodes: m.nodes, Runs: loads, Floors: floors, Median: medianOf(loads), Floor: medianOf(floors)}
	switch {
	case len(loads) == 0 || len(floors) == 0:
	case m.kind == "latency":
		r.Ratio, r.RatioOf, r.Target = r.Median.P50/r.Floor.P50, "median latency", m.target
	default:
		r.Ratio, r.RatioOf, r.Target = r.Median.OpsPerSecond/r.Floor.OpsPerSecond, "ops/s", m.target
	}
	return r
}

// medianOf takes the median of each figure by itself; errors are added up.
func medianOf(samples []Sample) Sample {
	pick := func(f func(Sample) float64) float64 {
		var values []float64
		for _, s := range samples {
			values = append(values, f(s))
		}
		return median(values)
	}
	m := Sample{
		OpsPerSecond: pick(func(s Sample) float64 { return s.OpsPerSecond }),
		P50:          pick(func(s Sample) float64 { return s.P50 }),
		P99:          pick(func(s Sample) float64 { return s.P99 }),
		P999:         pick(func(s Sample) float64 { return s.P999 }),
		Max:          pick(func(s Sample) float64 { return s.Max }),
	}
	for _, s := range samples {
		m.Errors += s.Errors
	}
	return m
}

func writeJSON(out io.Writer, report any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

func (r *Report) writeText(out io.Writer) error {
	fmt.Fprintf(out, "%s, %d cores, %s/%s, %s\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Arch, r.Machine.GoTool)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "MEASUREMENT\tOPS/S\tP50\tP99\tFLOOR OPS/S\tFLOOR P50\tRATIO\tTARGET\tERRORS")
	for _, m := range r.Results {
		if len(m.IdleCPUPercent) > 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%.0f\t%s\t%.2f of %s\t%.2f\t%d\n", m.Name, m.Median.OpsPerSecond, micros(m.Median.P50),
			micros(m.Median.P99), m.Floor.OpsPerSecond, micros(m.Floor.P50), m.Ratio, m.RatioOf, m.Target, m.Median.Errors)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range r.Results {
		for i := range m.IdleCPUPercent {
			fmt.Fprintf(out, "%s: node %d uses %.1f %% of one core and %.0f MB\n", m.Name, i+1, m.IdleCPUPercent[i], m.IdleRSSMegabytes[i])
		}
	}
	return nil
}

func micros(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%.1fms", v/1000)
	}
	return fmt.Sprintf("%.0fµs", v)
}

func describeMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, GoTool: runtime.Version(), CPU: "unknown CPU"}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}
