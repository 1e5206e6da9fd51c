package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
)

// storeCeilingMB is the RAM ceiling of the nodes that store measures, beyondFactor how many
// times that the data is, and withinFactor the part of it that fits well.
const (
	storeCeilingMB = 64
	beyondFactor   = 5
	withinFactor   = 4
)

// StoreReport is what `quorate bench store` measured.
type StoreReport struct {
	Machine   Machine `json:"machine"`
	CeilingMB int     `json:"ceilingMb"`
	Records   int     `json:"records"`
	DataMB    float64 `json:"dataMb"`
	// Within and Beyond are acknowledged writes per second over data that is a quarter of
	// the ceiling, and over all records.
	Within []float64 `json:"within"`
	Beyond []float64 `json:"beyond"`
	// WriteRatio is the ratio of their medians.
	WriteRatio float64 `json:"writeRatio"`
	// StartMB, EndMB are anonymous resident memory of the node before the first write and
	// after the last; WrittenMB is what was written in between.
	StartMB   float64 `json:"startMb"`
	EndMB     float64 `json:"endMb"`
	WrittenMB float64 `json:"writtenMb"`
	// RestartSeconds are from the start of the process after kill -9 until it is ready.
	RestartSeconds []float64 `json:"restartSeconds"`
	// Scan and Cursor are records per second of a scan of the store and of a bare cursor
	// over the same file.
	Scan      []float64 `json:"scan"`
	Cursor    []float64 `json:"cursor"`
	ScanRatio float64   `json:"scanRatio"`
}

// measureStore measures one node whose data is beyond its RAM ceiling.
func (r *runner) measureStore(ctx context.Context) (*StoreReport, error) {
	o := r.options
	o.Keys = max(1, o.Records/o.Connections)
	o.ValueBytes = max(1, beyondFactor*storeCeilingMB<<20/(o.Keys*o.Connections))
	report := &StoreReport{
		Machine: describeMachine(), CeilingMB: storeCeilingMB, Records: o.Keys * o.Connections,
		DataMB: float64(o.ValueBytes*o.Keys*o.Connections) / (1 << 20),
	}
	for i := range o.Runs {
		fmt.Fprintf(r.diag, "store: run %d of %d\n", i+1, o.Runs)
		if err := r.storeRun(ctx, &o, report); err != nil {
			return nil, err
		}
	}
	report.WriteRatio = median(report.Beyond) / median(report.Within)
	report.ScanRatio = median(report.Scan) / median(report.Cursor)
	return report, nil
}

func (r *runner) storeRun(ctx context.Context, o *Options, report *StoreReport) error {
	c, err := startCluster(ctx, 1, "SERVICE_MAX_RAM_MB="+strconv.Itoa(storeCeilingMB))
	if err != nil {
		return err
	}
	defer c.stop()
	if report.StartMB, err = c.anonymousMB(); err != nil {
		return err
	}
	within := *o
	within.Keys = max(1, o.Keys/(beyondFactor*withinFactor))
	small, err := storeLoad(ctx, &within, c.nodes[0].url())
	if err != nil {
		return err
	}
	fmt.Fprintln(r.diag, "store: filling")
	if err := fill(ctx, o, c.nodes[0].url()); err != nil {
		return err
	}
	large, err := storeLoad(ctx, o, c.nodes[0].url())
	if err != nil {
		return err
	}
	report.Within, report.Beyond = append(report.Within, small.rate()), append(report.Beyond, large.rate())
	report.WrittenMB = report.DataMB + float64(small.ops+large.ops)*float64(o.ValueBytes)/(1<<20)
	if report.EndMB, err = c.anonymousMB(); err != nil {
		return err
	}
	seconds, err := c.restart(ctx)
	if err != nil {
		return err
	}
	report.RestartSeconds = append(report.RestartSeconds, seconds)
	path := filepath.Join(c.dir, c.nodes[0].id+".db")
	c.halt()
	return report.scan(path)
}

// storeLoad writes over the keys of o in a row.
func storeLoad(ctx context.Context, o *Options, url string) (*measurement, error) {
	var workers []worker
	for i := range o.Connections {
		c, err := dial(ctx, o, i, url)
		if err != nil {
			return nil, err
		}
		defer c.close()
		workers = append(workers, c.worker("write"))
	}
	m := drive(ctx, workers, o.Warmup, o.Duration, 0)
	if m.ops == 0 {
		return nil, errors.Join(errors.New("no operation was acknowledged"), m.firstErr)
	}
	return m, nil
}

// fill writes every key once.
func fill(ctx context.Context, o *Options, url string) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range o.Connections {
		group.Go(func() error {
			c, err := dial(ctx, o, i, url)
			if err != nil {
				return err
			}
			defer c.close()
			for left := o.Keys; left > 0; {
				n := min(o.Batch, left)
				switch err := c.write(ctx, n); {
				case err == nil:
					left -= n
				case !errors.Is(err, errRefused) || ctx.Err() != nil:
					return err
				default: // a machine with other work; the same keys again
					c.nextKey = (c.nextKey - n%o.Keys + o.Keys) % o.Keys
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// anonymousMB is the resident memory of the first node that is no file's.
func (c *cluster) anonymousMB() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.nodes[0].cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return float64(kb) / 1024, err
		}
	}
	return 0, errors.New("the system does not tell anonymous resident memory")
}

// restart kills the only node, starts it again, and returns after how long it is ready.
func (c *cluster) restart(ctx context.Context) (seconds float64, err error) {
	node := c.nodes[0]
	if err := node.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	_ = node.cmd.Wait() // it was killed
	_ = node.log.Close()
	c.nodes = nil
	started := time.Now()
	if err := c.spawn(node, node.cmd.Args[1:], node.cmd.Env); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !c.ready(ctx) {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("the node did not become ready again: %w\n%s", ctx.Err(), c.tails())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(started).Seconds(), nil
}

// scan reads all records of a store, and the same pages with a bare cursor.
func (report *StoreReport) scan(path string) error {
	store, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	for range 3 {
		rate, err := scanRate(store)
		if err != nil {
			return errors.Join(err, store.Close())
		}
		report.Scan = append(report.Scan, rate)
	}
	if err := store.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	for range 3 {
		rate, err := cursorRate(db)
		if err != nil {
			return errors.Join(err, db.Close())
		}
		report.Cursor = append(report.Cursor, rate)
	}
	return db.Close()
}

// groupsOfBench is the number of groups that a node has, the system group included.
const groupsOfBench = 7

func scanRate(store storage.Store) (float64, error) {
	reader, err := store.NewReader()
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	records, touched, start := 0, 0, time.Now()
	for group := range uint32(groupsOfBench) {
		err := reader.Scan(group, storage.SectionRecords, "", "", func(_ string, value []byte) bool {
			records++
			touched += len(value) + int(value[len(value)-1])
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	return rate(records, touched, start)
}

func cursorRate(db *bbolt.DB) (float64, error) {
	records, touched, start := 0, 0, time.Now()
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if !bytes.HasPrefix(name, []byte("g/")) {
				return nil
			}
			cursor, section := b.Cursor(), []byte{byte(storage.SectionRecords)}
			for key, value := cursor.Seek(section); bytes.HasPrefix(key, section); key, value = cursor.Next() {
				records++
				touched += len(value) + int(value[len(value)-1])
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	return rate(records, touched, start)
}

// rate needs what was touched, so that nothing of it is left out.
func rate(records, touched int, start time.Time) (float64, error) {
	if records == 0 || touched == 0 {
		return 0, errors.New("the store has no records")
	}
	return float64(records) / time.Since(start).Seconds(), nil
}

func (report *StoreReport) writeText(out io.Writer) error {
	m := &report.Machine
	fmt.Fprintf(out, "%s, %d cores, %s/%s, %s\n", m.CPU, m.Cores, m.OS, m.Arch, m.GoTool)
	fmt.Fprintf(out, "one node, ceiling %d MiB, %d records, %.0f MiB of values\n", report.CeilingMB, report.Records, report.DataMB)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "MEASUREMENT\tVALUE\tBASE\tRATIO\tTARGET")
	fmt.Fprintf(w, "writes/s beyond the ceiling; base: within it\t%.0f\t%.0f\t%.2f\tat least 0.50\n",
		median(report.Beyond), median(report.Within), report.WriteRatio)
	fmt.Fprintf(w, "records/s of a scan; base: a bare cursor\t%.0f\t%.0f\t%.2f\tat least 0.50\n",
		median(report.Scan), median(report.Cursor), report.ScanRatio)
	fmt.Fprintf(w, "anonymous MiB after %.0f MiB written; base: before\t%.0f\t%.0f\t\tgrowth at most %.0f\n",
		report.WrittenMB, report.EndMB, report.StartMB, 1.25*float64(report.CeilingMB)+constantMB)
	fmt.Fprintf(w, "seconds from the start after kill -9 to ready\t%.2f\t\t\tat most 10\n", median(report.RestartSeconds))
	return w.Flush()
}

// constantMB is what a node takes beside the ceiling: two journals of 32 MiB, buffers of
// the log and of connections, and garbage that is not collected yet.
const constantMB = 128
