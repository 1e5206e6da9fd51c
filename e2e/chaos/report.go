package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Report says what a run did.
type Report struct {
	Seed      int64    `json:"seed"`
	Nodes     int      `json:"nodes"`
	Workloads []string `json:"workloads"`
	Seconds   float64  `json:"seconds"`
	Rounds    int      `json:"rounds"`
	// Operations counts what clients asked, Unknown those whose outcome they never learned.
	Operations int `json:"operations"`
	Unknown    int `json:"unknown"`
	// Faults are counted by kind.
	Faults     map[string]int `json:"faults"`
	Violations []Violation    `json:"violations"`
}

// Violation is a round in which something was wrong.
type Violation struct {
	Round    int      `json:"round"`
	Seed     int64    `json:"seed"`
	Repeat   string   `json:"repeat"`
	Dir      string   `json:"dir"`
	Problems []string `json:"problems"`
}

func newReport(cfg *Config) *Report {
	return &Report{Seed: cfg.Seed, Nodes: cfg.Nodes, Workloads: cfg.Workloads, Faults: map[string]int{}, Violations: []Violation{}}
}

func (r *Report) add(d *round) {
	total, unknown := d.ops()
	r.Rounds++
	r.Operations += total
	r.Unknown += unknown
	for name, n := range d.storm.counts() {
		r.Faults[name] += n
	}
	if len(d.problems) > 0 {
		r.Violations = append(r.Violations, Violation{Round: d.number, Seed: d.seed, Repeat: d.repeat(), Dir: d.dir, Problems: d.problems})
	}
}

func (r *Report) write(path string, nanos int64) error {
	r.Seconds = time.Duration(nanos).Seconds()
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
