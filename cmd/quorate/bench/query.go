package bench

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

const (
	// queryMap is the map that is followed.
	queryMap = "bench-query"
	// queryMatches is how many live queries a change concerns.
	queryMatches = 10
	// queriesPerConn is how many live queries a connection has at most.
	queriesPerConn = 60
	// queryTarget is what a change may cost beside many queries, in changes beside those
	// that it concerns.
	queryTarget = 3
)

// QueryReport is what `quorate bench query` measured.
type QueryReport struct {
	Machine Machine   `json:"machine"`
	Filter  FilterRun `json:"filter"`
	Fan     FanRun    `json:"fan"`
	Index   IndexRun  `json:"index"`
}

// Cost is what one change takes: from its writing to the last of its updates, and of the
// server's CPU time, both in microseconds.
type Cost struct {
	P50 float64 `json:"p50Micros"`
	P99 float64 `json:"p99Micros"`
	CPU float64 `json:"cpuMicros"`
}

// FilterRun is a change beside the live queries that it concerns alone, and beside many
// others: medians of some runs.
type FilterRun struct {
	Queries  int     `json:"queries"`
	Matching int     `json:"matching"`
	Few      Cost    `json:"few"`
	Many     Cost    `json:"many"`
	Ratio    float64 `json:"ratio"`
	CPURatio float64 `json:"cpuRatio"`
}

// measureQueries measures live queries.
func (r *runner) measureQueries(ctx context.Context) (*QueryReport, error) {
	report := &QueryReport{Machine: describeMachine()}
	var err error
	if report.Index, err = r.index(ctx); err != nil {
		return nil, err
	}
	var few, many []Cost
	for i := range r.options.Runs {
		fmt.Fprintf(r.diag, "query: run %d of %d, one change and %d queries\n", i+1, r.options.Runs, r.options.Queries)
		a, b, err := r.filter(ctx)
		if err != nil {
			return nil, err
		}
		few, many = append(few, a), append(many, b)
	}
	f := &report.Filter
	f.Queries, f.Matching, f.Few, f.Many = r.options.Queries, queryMatches, medianCost(few), medianCost(many)
	f.Ratio, f.CPURatio = f.Many.P50/f.Few.P50, f.Many.CPU/f.Few.CPU
	var fans []FanRun
	for i := range r.options.Runs {
		fmt.Fprintf(r.diag, "query: run %d of %d, one change and %d subscribers\n", i+1, r.options.Runs, r.options.Subscribers)
		fan, err := r.fan(ctx)
		if err != nil {
			return nil, err
		}
		fans = append(fans, fan)
	}
	report.Fan = medianFan(fans)
	return report, nil
}

func medianCost(list []Cost) Cost {
	pick := func(f func(Cost) float64) float64 {
		var values []float64
		for _, c := range list {
			values = append(values, f(c))
		}
		return median(values)
	}
	return Cost{
		P50: pick(func(c Cost) float64 { return c.P50 }),
		P99: pick(func(c Cost) float64 { return c.P99 }),
		CPU: pick(func(c Cost) float64 { return c.CPU }),
	}
}

// filter measures changes of one value on one node: first with the queries for that value
// alone, then with many for others.
func (r *runner) filter(ctx context.Context) (few, many Cost, err error) {
	c, err := startCluster(ctx, 1)
	if err != nil {
		return few, many, err
	}
	defer c.stop()
	o := r.options
	writer, err := dial(ctx, &o, 0, c.nodes[0].url())
	if err != nil {
		return few, many, err
	}
	defer writer.close()
	// updates takes one signal for each update of a query for the value.
	updates := make(chan struct{}, queryMatches)
	for i := range queryMatches {
		f, err := r.follow(ctx, c.nodes[0].url(), []msgp.Raw{depotQuery(0)}, newListener(func() { updates <- struct{}{} }))
		if err != nil {
			return few, many, fmt.Errorf("query %d: %w", i, err)
		}
		defer f.close()
	}
	if few, err = r.changes(ctx, c, writer, updates); err != nil {
		return few, many, err
	}
	for left := o.Queries - queryMatches; left > 0; left -= queriesPerConn {
		list := make([]msgp.Raw, min(left, queriesPerConn))
		for i := range list {
			list[i] = depotQuery(left - i) // from 1 on
		}
		f, err := r.follow(ctx, c.nodes[0].url(), list, newListener(func() {}))
		if err != nil {
			return few, many, fmt.Errorf("%d queries are missing: %w", left, err)
		}
		defer f.close()
	}
	many, err = r.changes(ctx, c, writer, updates)
	return few, many, err
}

// depotQuery asks for the records of one depot.
func depotQuery(depot int) msgp.Raw {
	b := msgp.AppendString(msgp.AppendMapHeader(nil, 1), "where")
	b = msgp.AppendString(msgp.AppendMapHeader(b, 1), "depot")
	return msgp.AppendInt(b, depot)
}

// parcel is a record of depot 0.
func parcel(n uint64) msgp.Raw {
	b := msgp.AppendInt(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "depot"), 0)
	return msgp.AppendUint64(msgp.AppendString(b, "n"), n)
}

// changes writes one record again and again, each time when all have heard of the last one.
func (r *runner) changes(ctx context.Context, c *cluster, writer *client, updates <-chan struct{}) (Cost, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*(r.options.Warmup+r.options.Duration))
	defer cancel()
	h := newHistogram()
	var before []usage
	begin := time.Now().Add(r.options.Warmup)
	for time.Since(begin) < r.options.Duration {
		if before == nil && time.Now().After(begin) {
			var err error
			if before, err = c.usage(); err != nil {
				return Cost{}, err
			}
		}
		start := time.Now()
		if err := writer.put(ctx, queryMap, "k", parcel); err != nil {
			return Cost{}, err
		}
		for range queryMatches {
			select {
			case <-updates:
			case <-ctx.Done():
				return Cost{}, fmt.Errorf("an update did not come: %w", ctx.Err())
			}
		}
		if before != nil {
			_ = h.RecordValue(min(time.Since(start).Microseconds(), maxLatency)) // within its range
		}
	}
	after, err := c.usage()
	if err != nil {
		return Cost{}, err
	}
	cost := costOf(h)
	cost.CPU = float64((after[0].cpu - before[0].cpu).Microseconds()) / float64(h.TotalCount())
	return cost, nil
}

func costOf(h *hdrhistogram.Histogram) Cost {
	return Cost{P50: float64(h.ValueAtQuantile(50)), P99: float64(h.ValueAtQuantile(99))}
}

// put writes a record whose value is made from the number of the write, and waits for the
// acknowledgement.
func (c *client) put(ctx context.Context, mapName, key string, value func(n uint64) msgp.Raw) error {
	c.nextID++
	id := strconv.FormatUint(c.nextID, 10)
	op := protocol.ClientOp{
		ID: id, MapName: mapName, Key: key, Type: protocol.OpPut, RecordPresence: protocol.Present,
		Record: protocol.Record{Value: value(c.nextID), Timestamp: protocol.Timestamp{
			Millis: time.Now().UnixMilli(), Counter: int64(c.nextID), NodeID: "bench",
		}},
	}
	if err := c.send(ctx, &protocol.OpBatch{Ops: []protocol.ClientOp{op}}); err != nil {
		return err
	}
	return c.await(ctx, id)
}

// writeText prints the report.
func (r *QueryReport) writeText(out io.Writer) error {
	fmt.Fprintf(out, "%s, %d cores, %s/%s, %s\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Arch, r.Machine.GoTool)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ONE CHANGE\tLAST UPDATE P50\tP99\tSERVER CPU")
	row := func(name string, c Cost) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, micros(c.P50), micros(c.P99), micros(c.CPU))
	}
	f := &r.Filter
	row(fmt.Sprintf("%d live queries, all match", f.Matching), f.Few)
	row(fmt.Sprintf("%d live queries, %d match", f.Queries, f.Matching), f.Many)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "ratio: %.2f of the median, %.2f of the CPU time (target at most %d)\n", f.Ratio, f.CPURatio, queryTarget)
	n := &r.Fan
	if err := r.Index.writeText(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "one change to %d subscribers on %d nodes: p50 %s, p99 %s, last %s; %.0f frames/s, %.2f of the %.0f frames/s "+
		"of PONG on the same sockets\n", n.Subscribers, n.Nodes, micros(n.P50), micros(n.P99), micros(n.Last), n.FramesPerSecond, n.Ratio, n.RawFramesPerSecond)
	return err
}
