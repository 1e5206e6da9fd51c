package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

const (
	// indexMap is the map that is asked, and indexAttribute what its records are indexed by.
	indexMap, indexAttribute = "bench-index", "depot"
	// indexMatches is how many records a query finds.
	indexMatches = 1000
	// indexRounds is how often it is asked through the index for each time without.
	indexRounds = 10
	// indexTarget is how many times faster an index must be.
	indexTarget = 100
	// indexPatience bounds the building of the index.
	indexPatience = 5 * time.Minute
	// loadChunk is how many records are prepared at a time.
	loadChunk = 100_000
)

// IndexRun is a query for few of many records, answered by a scan and then by an index of
// the same node: medians, in microseconds from the sending of the query to its rows.
type IndexRun struct {
	Records int     `json:"records"`
	Matches int     `json:"matches"`
	Scan    float64 `json:"scanMicros"`
	Indexed float64 `json:"indexedMicros"`
	Ratio   float64 `json:"ratio"`
	// BuildSeconds is what the index took to be built beside nothing else.
	BuildSeconds float64 `json:"buildSeconds"`
}

// index measures queries for the records of one depot.
func (r *runner) index(ctx context.Context) (run IndexRun, err error) {
	c, err := startCluster(ctx, 1)
	if err != nil {
		return run, err
	}
	defer c.stop()
	m := &indexMeasurement{node: c.nodes[0], run: IndexRun{Records: r.options.Records, Matches: min(indexMatches, r.options.Records)}}
	fmt.Fprintf(r.diag, "query: writing %d records\n", m.run.Records)
	if err := m.load(ctx); err != nil {
		return run, err
	}
	o := r.options
	if m.client, err = dial(ctx, &o, 0, m.node.url()); err != nil {
		return run, err
	}
	defer m.client.close()
	fmt.Fprintln(r.diag, "query: one depot, without and with an index")
	if m.run.Scan, err = m.ask(ctx, r.options.Runs, "scan"); err != nil {
		return run, err
	}
	if err := m.build(ctx); err != nil {
		return run, err
	}
	if m.run.Indexed, err = m.ask(ctx, r.options.Runs*indexRounds, "index"); err != nil {
		return run, err
	}
	m.run.Ratio = m.run.Scan / m.run.Indexed
	return m.run, nil
}

type indexMeasurement struct {
	node   *childNode
	client *client
	run    IndexRun
}

// depots is how many depots there are, each with as many records.
func (m *indexMeasurement) depots() int { return m.run.Records / m.run.Matches }

func (m *indexMeasurement) load(ctx context.Context) error {
	for from := 0; from < m.run.Records; from += loadChunk {
		ops := make([]protocol.ClientOp, min(loadChunk, m.run.Records-from))
		for i := range ops {
			n := from + i
			value := msgp.AppendInt(msgp.AppendString(msgp.AppendMapHeader(nil, 3), indexAttribute), n%m.depots())
			value = msgp.AppendInt(msgp.AppendString(value, "n"), n)
			value = append(msgp.AppendString(value, "data"), benchValue(80)...)
			ops[i] = syncPut(i, recordKey(n), value, stamp(int64(n)))
			ops[i].MapName = indexMap
		}
		if err := writeAll(ctx, m.node.url(), ops); err != nil {
			return fmt.Errorf("write records: %w", err)
		}
	}
	return nil
}

// ask asks for the records of some depots, one after the other, and returns the median time.
func (m *indexMeasurement) ask(ctx context.Context, rounds int, kind string) (float64, error) {
	var took []float64
	for i := range rounds + 1 {
		one, err := m.askOnce(ctx, i%m.depots(), kind)
		if err != nil {
			return 0, err
		}
		if i > 0 { // at first nothing is warm
			took = append(took, float64(one.Microseconds()))
		}
	}
	return median(took), nil
}

func (m *indexMeasurement) askOnce(ctx context.Context, depot int, kind string) (time.Duration, error) {
	started := time.Now()
	if err := m.client.send(ctx, &protocol.QuerySub{QueryID: "q", MapName: indexMap, Query: depotQuery(depot), Explain: true}); err != nil {
		return 0, err
	}
	answer, err := m.client.receive(ctx)
	if err != nil {
		return 0, err
	}
	took := time.Since(started)
	if failed, ok := answer.(*protocol.ErrorMessage); ok {
		return 0, fmt.Errorf("%w: %d %s", errRefused, failed.Code, failed.Message)
	}
	resp, ok := answer.(*protocol.QueryResp)
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: %T in place of the answer to a query", errRefused, answer)
	case len(resp.Results) < m.run.Matches || resp.Plan == nil || resp.Plan.Kind != kind:
		return 0, fmt.Errorf("%w: %d rows by %+v, want %d by %s", errRefused, len(resp.Results), resp.Plan, m.run.Matches, kind)
	}
	return took, m.client.send(ctx, &protocol.QueryUnsub{QueryID: "q"})
}

// build defines the index and waits until it is used.
func (m *indexMeasurement) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	started := time.Now()
	body := map[string]string{"mapName": indexMap, "attribute": indexAttribute, "indexType": "hash"}
	if err := m.admin(ctx, http.MethodPost, "", body, nil); err != nil {
		return err
	}
	for {
		var status struct{ Done bool }
		if err := m.admin(ctx, http.MethodGet, "/"+indexMap+"/"+indexAttribute+"/status", nil, &status); err != nil {
			return err
		}
		if status.Done {
			m.run.BuildSeconds = time.Since(started).Seconds()
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("index is not built: %w", ctx.Err())
		}
	}
}

// admin makes a request for indexes.
func (m *indexMeasurement) admin(ctx context.Context, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+strconv.Itoa(m.node.port)+"/api/admin/indexes"+path, bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("index request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("index request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = errors.New(string(text))
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, req.URL, err)
	}
	return nil
}

// writeText prints the line of the report.
func (n *IndexRun) writeText(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%d of %d records by an equality: scan %s, index %s: %.0f times faster (target at least %d); the index was built in %.1f s\n",
		n.Matches, n.Records, micros(n.Scan), micros(n.Indexed), n.Ratio, indexTarget, n.BuildSeconds)
	return err
}
