package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

const (
	// syncMap is the map that is synced.
	syncMap = "bench-sync"
	// syncChanged is how many records change between two syncs.
	syncChanged = 100
	// ceilingMB is the RAM ceiling of the node, and spareMB what it may use beside it.
	ceilingMB, spareMB = 256, 64
	// syncTarget is what the first sync must reach of the pace of the store.
	syncTarget = 0.3
)

// syncSizes are the sizes of the map.
var syncSizes = []int{1_000, 10_000, 100_000, 1_000_000}

// Walk is one sync: how many records differed and what it took to get them.
type Walk struct {
	Records  int     `json:"records"`
	Changed  int     `json:"changed"`
	Found    int     `json:"found"`
	Requests int     `json:"requests"`
	Received int     `json:"bytesReceived"`
	Seconds  float64 `json:"seconds"`
}

// Delta is what the same changes took a client that walks the tree and one that follows
// by POST /sync.
type Delta struct {
	Tree Walk `json:"tree"`
	Post Walk `json:"post"`
}

// FirstSync is the sync of a client that has nothing, beside reading the same records
// from the store of the stopped node: medians of some runs of each.
type FirstSync struct {
	Walk
	RecordsPerSecond      float64 `json:"recordsPerSecond"`
	StoreRecordsPerSecond float64 `json:"storeRecordsPerSecond"`
	Ratio                 float64 `json:"ratio"`
	// PeakMegabytes is the most memory that the node had of its own, its files in the
	// page cache aside.
	PeakMegabytes float64 `json:"peakMegabytes"`
}

// SyncReport is what `quorate bench sync` measured.
type SyncReport struct {
	Machine Machine `json:"machine"`
	// Deltas are syncs of clients that lack some changes, Equal of one that lacks none.
	Deltas []Delta   `json:"deltas"`
	Equal  Walk      `json:"equal"`
	First  FirstSync `json:"first"`
}

// measureSync grows a map on one node, syncs a client after some changes at each size,
// and in the end one that has nothing.
func (r *runner) measureSync(ctx context.Context) (*SyncReport, error) {
	c, err := startCluster(ctx, 1, fmt.Sprintf("SERVICE_MAX_RAM_MB=%d", ceilingMB))
	if err != nil {
		return nil, err
	}
	defer c.stop()
	report := &SyncReport{Machine: describeMachine()}
	s := &syncClient{url: c.nodes[0].url(), post: newDeltaClient(c.nodes[0].url()), newest: map[string]protocol.Timestamp{}}
	for _, size := range syncSizes {
		if size > r.options.Records {
			break
		}
		fmt.Fprintf(r.diag, "sync: %d records\n", size)
		delta, err := s.delta(ctx, size)
		if err != nil {
			return nil, err
		}
		report.Deltas = append(report.Deltas, delta)
	}
	if report.Equal, err = s.sync(ctx, 0); err != nil {
		return nil, err
	}
	report.First, err = r.firstSyncs(ctx, s, c)
	return report, err
}

// firstSyncs measures first syncs, and then, with the node stopped, its store.
func (r *runner) firstSyncs(ctx context.Context, s *syncClient, c *cluster) (f FirstSync, err error) {
	fmt.Fprintln(r.diag, "sync: a client that has nothing")
	var syncs, reads []float64
	for range r.options.Runs {
		one, err := s.first(ctx, c.nodes[0].cmd.Process.Pid)
		if err != nil {
			return f, err
		}
		syncs, one.PeakMegabytes = append(syncs, one.RecordsPerSecond), max(one.PeakMegabytes, f.PeakMegabytes)
		f = one
	}
	path := filepath.Join(c.dir, c.nodes[0].id+".db")
	c.halt()
	for range r.options.Runs {
		pace, err := readStore(path, f.Found)
		if err != nil {
			return f, err
		}
		reads = append(reads, pace)
	}
	f.RecordsPerSecond, f.StoreRecordsPerSecond = median(syncs), median(reads)
	f.Seconds, f.Ratio = float64(f.Found)/f.RecordsPerSecond, f.RecordsPerSecond/f.StoreRecordsPerSecond
	return f, nil
}

// syncClient is a client that has written all records of the map itself, in the order of
// their numbers, so that of its own copy it needs the tree alone.
type syncClient struct {
	url     string
	post    *deltaClient
	records int
	tree    merkle.Tree
	// changes counts the stamps after those of the first writes; newest are those of the
	// changes that the client has.
	changes int64
	newest  map[string]protocol.Timestamp
}

// stamp is that of the first write of record i, and of the changes behind it.
func stamp(counter int64) protocol.Timestamp {
	return protocol.Timestamp{Millis: 1_700_000_000_000, Counter: counter, NodeID: "bench"}
}

func recordKey(i int) string { return fmt.Sprintf("record-%d", i) }

// grow writes records until there are n.
func (s *syncClient) grow(ctx context.Context, n int) error {
	var ops []protocol.ClientOp
	value := benchValue(100)
	for ; s.records < n; s.records++ {
		key, ts := recordKey(s.records), stamp(int64(s.records))
		s.tree.Update(merkle.BucketOf(key), 0, merkle.LWWItem(key, ts), 1, 0)
		ops = append(ops, syncPut(len(ops), key, value, ts))
	}
	return s.write(ctx, ops)
}

func syncPut(id int, key string, value []byte, ts protocol.Timestamp) protocol.ClientOp {
	return protocol.ClientOp{
		ID: fmt.Sprint(id + 1), MapName: syncMap, Key: key, Type: protocol.OpPut, RecordPresence: protocol.Present,
		Record: protocol.Record{Value: value, Timestamp: ts},
	}
}

// change writes n records anew, behind the client's back.
func (s *syncClient) change(ctx context.Context, n int) error {
	var ops []protocol.ClientOp
	for i := range n {
		s.changes++
		key := recordKey(i * s.records / n)
		ops = append(ops, syncPut(i, key, benchValue(100), stamp(1_000_000_000+s.changes)))
	}
	return s.write(ctx, ops)
}

func (s *syncClient) write(ctx context.Context, ops []protocol.ClientOp) error {
	return writeAll(ctx, s.url, ops)
}

// writeAll brings ops, whose ids count from 1 on, to a node over a few connections at once.
func writeAll(ctx context.Context, url string, ops []protocol.ClientOp) error {
	const lanes, batch = 8, 500
	errs := make(chan error, lanes)
	for lane := range lanes {
		go func() {
			c, err := dial(ctx, &Options{ValueBytes: 1}, lane, url)
			if err != nil {
				errs <- err
				return
			}
			defer c.close()
			for from := lane * batch; from < len(ops) && err == nil; from += lanes * batch {
				err = c.writePart(ctx, ops[from:min(from+batch, len(ops))])
			}
			errs <- err
		}()
	}
	var first error
	for range lanes {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// writePart brings ops to the node, again while it has too much to do: what has a stamp may be
// written twice.
func (c *client) writePart(ctx context.Context, ops []protocol.ClientOp) error {
	const attempts = 10
	for attempt := 1; ; attempt++ {
		err := c.send(ctx, &protocol.OpBatch{Ops: ops})
		if err == nil {
			err = c.await(ctx, ops[len(ops)-1].ID)
		}
		if !errors.Is(err, errRefused) || attempt == attempts {
			return err
		}
	}
}

// delta grows the map to size and shows what it takes to get some changes then.
func (s *syncClient) delta(ctx context.Context, size int) (d Delta, err error) {
	if err := s.grow(ctx, size); err != nil {
		return d, err
	}
	if _, err := s.post.follow(ctx); err != nil {
		return d, err
	}
	if err := s.change(ctx, syncChanged); err != nil {
		return d, err
	}
	if d.Tree, err = s.sync(ctx, syncChanged); err != nil {
		return d, err
	}
	d.Post, err = s.post.follow(ctx)
	d.Post.Records, d.Post.Changed = s.records, syncChanged
	if err == nil && d.Post.Found != syncChanged {
		err = fmt.Errorf("%w: %d of %d changes followed", errSync, d.Post.Found, syncChanged)
	}
	return d, err
}

// sync walks to what differs from the client's copy, of which changed records are known
// to.
func (s *syncClient) sync(ctx context.Context, changed int) (Walk, error) {
	own := new(merkle.Leaves)
	s.tree.AddTo(own)
	w, err := walk(ctx, s.url, own, func(kr *protocol.KeyedRecord) bool { return s.take(kr) })
	w.Records, w.Changed = s.records, changed
	if err == nil && w.Found != changed {
		err = fmt.Errorf("%w: %d of %d changes found", errSync, w.Found, changed)
	}
	return w, err
}

// take merges a record into the copy, and reports whether it was newer.
func (s *syncClient) take(kr *protocol.KeyedRecord) bool {
	mine, changed := s.newest[kr.Key]
	if !changed {
		var i int64
		if _, err := fmt.Sscanf(kr.Key, "record-%d", &i); err != nil {
			return false
		}
		mine = stamp(i)
	}
	if kr.Record.Timestamp.Compare(mine) <= 0 {
		return false
	}
	s.tree.Update(merkle.BucketOf(kr.Key), merkle.LWWItem(kr.Key, mine), merkle.LWWItem(kr.Key, kr.Record.Timestamp), 0, 0)
	s.newest[kr.Key] = kr.Record.Timestamp
	return true
}

// first syncs a client that has nothing, and watches the memory of the node.
func (s *syncClient) first(ctx context.Context, pid int) (FirstSync, error) {
	watch, stop := context.WithCancel(ctx)
	peak := make(chan float64, 1)
	go func() { peak <- peakMegabytes(watch, pid) }()
	w, err := walk(ctx, s.url, new(merkle.Leaves), func(*protocol.KeyedRecord) bool { return true })
	stop()
	w.Records, w.Changed = s.records, s.records
	first := FirstSync{Walk: w, RecordsPerSecond: float64(w.Found) / w.Seconds, PeakMegabytes: <-peak}
	if err == nil && w.Found != s.records {
		err = fmt.Errorf("%w: %d of %d records found", errSync, w.Found, s.records)
	}
	return first, err
}

// writeText prints the report.
func (r *SyncReport) writeText(out io.Writer) error {
	fmt.Fprintf(out, "%s, %d cores, %s/%s, %s\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Arch, r.Machine.GoTool)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "RECORDS\tCHANGED\tBY\tREQUESTS\tRECEIVED\tTIME\t")
	row := func(by string, walk *Walk) {
		took := time.Duration(walk.Seconds * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%d kB\t%s\t\n", walk.Records, walk.Changed, by, walk.Requests, walk.Received/1000, took)
	}
	for i := range r.Deltas {
		row("tree walk", &r.Deltas[i].Tree)
		row("POST /sync", &r.Deltas[i].Post)
	}
	row("tree walk", &r.Equal)
	if err := w.Flush(); err != nil {
		return err
	}
	f := &r.First
	_, err := fmt.Fprintf(out, "first sync: %d records in %.1f s, %.0f records/s, %.2f of the %.0f records/s of the store (target %.2f); "+
		"node memory at most %.0f MB (target %d)\n", f.Found, f.Seconds, f.RecordsPerSecond, f.Ratio, f.StoreRecordsPerSecond, syncTarget,
		f.PeakMegabytes, ceilingMB+spareMB)
	return err
}
