package chaos

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Config says what a run does. Zero fields take the defaults named.
type Config struct {
	// Binary is the server. Required.
	Binary string
	// Dir takes the nodes' directories, the histories and the report. It is kept. Required.
	Dir string
	// Seed is that of the first round; each further round has the next. Required.
	Seed int64
	// Time is how long the run lasts; the round under way is completed. Rounds bounds their
	// number. At least one must be set.
	Time   time.Duration
	Rounds int
	// Round is how long faults strike in a round, 30 s by default.
	Round time.Duration
	// Pause is the longest wait of a client between two operations, 40 ms by default.
	Pause time.Duration
	// Nodes is the size of the cluster, 3 or 5; 3 by default.
	Nodes int
	// Workloads and Nemeses are names; all of them by default, as far as the server has
	// what they need.
	Workloads, Nemeses []string
	// Keep keeps the histories of rounds in which nothing was wrong.
	Keep bool
	// Out gets a line per round.
	Out io.Writer
}

// complete fills in defaults and says what is wrong.
func (c *Config) complete() error {
	var errs []error
	if c.Binary == "" || c.Dir == "" || c.Out == nil {
		errs = append(errs, errors.New("binary, directory and output are needed"))
	}
	if c.Time <= 0 && c.Rounds <= 0 {
		errs = append(errs, errors.New("a time or a number of rounds is needed"))
	}
	c.Round = orDefault(c.Round, 30*time.Second)
	c.Pause = orDefault(c.Pause, 40*time.Millisecond)
	c.Nodes = orDefault(c.Nodes, 3)
	if c.Nodes != 3 && c.Nodes != 5 {
		errs = append(errs, fmt.Errorf("%d nodes: 3 or 5 are possible", c.Nodes))
	}
	if c.Round < 0 || c.Pause < 0 {
		errs = append(errs, errors.New("times must be above zero"))
	}
	errs = append(errs, known("workload", c.Workloads, workloads), known("nemesis", c.Nemeses, nemeses))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.Workloads == nil {
		c.Workloads = slices.Sorted(maps.Keys(workloads))
	}
	return c.chooseNemeses()
}

// chooseNemeses takes all that the server has what they need for, or holds that it has it
// for those that were asked for.
func (c *Config) chooseNemeses() error {
	has, err := featuresOf(c.Binary)
	if err != nil {
		return err
	}
	if c.Nodes > 3 {
		delete(has, recoverName) // a survivor of five does not hold all groups
	}
	for _, name := range c.Nemeses {
		if needs := nemeses[name].needs; !has[needs] {
			return fmt.Errorf("nemesis %s: no %q in %s with %d nodes", name, needs, c.Binary, c.Nodes)
		}
	}
	if c.Nemeses == nil {
		for _, name := range slices.Sorted(maps.Keys(nemeses)) {
			if has[nemeses[name].needs] {
				c.Nemeses = append(c.Nemeses, name)
			}
		}
	}
	return nil
}

// featuresOf are the commands of a server, and whether it was built with the tag stress.
func featuresOf(binary string) (map[string]bool, error) {
	has := map[string]bool{"": true}
	help, err := exec.Command(binary, "help").Output()
	if err != nil {
		return nil, fmt.Errorf("commands of %s: %w", binary, err)
	}
	for line := range strings.Lines(string(help)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "quorate" {
			has[f[1]] = true
		}
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("build of %s: %w", binary, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), stressTag) {
			has[stressTag] = true
		}
	}
	return has, nil
}

// stressTag is the build tag of servers that let a suite step their clocks.
const stressTag = "stress"

// known says which names are not in the table.
func known[V any](what string, names []string, table map[string]V) error {
	for _, name := range names {
		if _, ok := table[name]; !ok {
			return fmt.Errorf("unknown %s %q; there are %v", what, name, slices.Sorted(maps.Keys(table)))
		}
	}
	return nil
}

func orDefault[T int | time.Duration](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}
