package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what one process has used.
type usage struct {
	cpu time.Duration
	rss int64 // bytes
}

// clockTick is the unit of CPU times in /proc, fixed by the kernel's interface.
const clockTick = 10 * time.Millisecond

// usage reads the processes of the cluster from /proc.
func (c *cluster) usage() ([]usage, error) {
	var all []usage
	for _, n := range c.nodes {
		u, err := processUsage(n.cmd.Process.Pid)
		if err != nil {
			return nil, fmt.Errorf("usage of %s: %w", n.id, err)
		}
		all = append(all, u)
	}
	return all, nil
}

func processUsage(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	// The command name in parentheses may hold blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 22 {
		return usage{}, fmt.Errorf("unexpected content of stat: %q", stat)
	}
	var numbers [3]int64
	for i, f := range []string{fields[11], fields[12], fields[21]} {
		if numbers[i], err = strconv.ParseInt(f, 10, 64); err != nil {
			return usage{}, err
		}
	}
	return usage{
		cpu: time.Duration(numbers[0]+numbers[1]) * clockTick,
		rss: numbers[2] * int64(os.Getpagesize()),
	}, nil
}
