package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// floorSpec tells a floor node what to do; it travels as one JSON argument.
type floorSpec struct {
	Index int      `json:"index"`
	Peers []string `json:"peers"` // peer addresses by index
	Dir   string   `json:"dir"`
	// Proposers is the number of proposers on this node.
	Proposers  int           `json:"proposers"`
	Batch      int           `json:"batch"`
	ValueBytes int           `json:"valueBytes"`
	Keys       int           `json:"keys"`
	Warmup     time.Duration `json:"warmup"`
	Duration   time.Duration `json:"duration"`
}

// floorResult is what a floor node prints when it has measured.
type floorResult struct {
	Ops     int64   `json:"ops"`
	Errors  int64   `json:"errors"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50Micros"`
	P99     float64 `json:"p99Micros"`
}

// runFloor measures the floor with proposers spread over nodes processes: the Raft
// stack with an empty state machine and the server's coalescing. A proposer's batch
// goes to the groups that its own node leads, split by key as a server splits it.
func runFloor(ctx context.Context, o *Options, proposers int) (floorResult, error) {
	dir, err := os.MkdirTemp("", "quorate-floor-")
	if err != nil {
		return floorResult{}, fmt.Errorf("directory of the floor: %w", err)
	}
	c := &cluster{dir: dir}
	defer c.stop()
	ports, err := freePorts(o.Nodes)
	if err != nil {
		return floorResult{}, err
	}
	var peers []string
	for _, p := range ports {
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", p))
	}
	for i := range peers {
		spec := floorSpec{
			Index: i, Peers: peers, Dir: filepath.Join(dir, fmt.Sprint(i)), Batch: o.Batch, ValueBytes: o.ValueBytes, Keys: o.Keys,
			Proposers: proposers / len(peers), Warmup: o.Warmup, Duration: o.Duration,
		}
		if i < proposers%len(peers) {
			spec.Proposers++
		}
		arg, err := json.Marshal(spec)
		if err != nil {
			return floorResult{}, fmt.Errorf("encode the floor's task: %w", err)
		}
		if err := c.spawn(&childNode{id: fmt.Sprintf("floor%d", i)}, []string{"bench", floorCommand, string(arg)}, nil); err != nil {
			return floorResult{}, err
		}
	}
	return c.collect(ctx, o.Warmup+o.Duration+60*time.Second)
}

// collect waits for the result lines of all floor nodes and adds them up.
func (c *cluster) collect(ctx context.Context, patience time.Duration) (floorResult, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	results := map[string]floorResult{}
	for len(results) < len(c.nodes) {
		for _, n := range c.nodes {
			if r, ok := readFloorResult(n.log.Name()); ok {
				results[n.id] = r
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return floorResult{}, fmt.Errorf("%w: floor without result: %w\n%s", errChild, ctx.Err(), c.tails())
		}
	}
	return addFloorResults(results), nil
}

func addFloorResults(results map[string]floorResult) floorResult {
	var total floorResult
	var p50 []float64
	for _, r := range results {
		total.Ops += r.Ops
		total.Errors += r.Errors
		total.Seconds = max(total.Seconds, r.Seconds)
		total.P99 = max(total.P99, r.P99)
		if r.Ops > 0 {
			p50 = append(p50, r.P50)
		}
	}
	sort.Float64s(p50)
	if len(p50) > 0 {
		total.P50 = p50[len(p50)/2]
	}
	return total
}

// resultPrefix begins the line of a floor node's output that holds its result.
const resultPrefix = "FLOOR "

func readFloorResult(path string) (floorResult, bool) {
	f, err := os.Open(path)
	if err != nil {
		return floorResult{}, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), resultPrefix); ok {
			var r floorResult
			return r, json.Unmarshal([]byte(text), &r) == nil
		}
	}
	return floorResult{}, false
}
