package bench

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Options say what to measure.
type Options struct {
	// Mode is write, latency, lock, idle, floor, all, sync, query or store. It may be given as the first
	// argument.
	Mode string
	// Nodes is the size of the cluster that is started when Target is empty.
	Nodes int
	// Target lists WebSocket URLs of running nodes, separated by commas; connections
	// are spread over them and no cluster is started.
	Target string
	// Token authenticates at Target.
	Token string
	// Connections, Batch and ValueBytes shape the load: operations per frame and bytes
	// per value.
	Connections, Batch, ValueBytes int
	// Keys is the number of distinct keys per connection.
	Keys int
	// Level is the write concern asked for; empty asks for nothing.
	Level string
	// Duration and Warmup are the measured and the discarded time of each run.
	Duration, Warmup time.Duration
	// Runs is how often each measurement is repeated; medians are reported.
	Runs int
	// Rate is the number of operations per second of an open-loop run; zero is
	// closed-loop.
	Rate float64
	// Records is the largest map that sync measures with, and the one that query asks.
	Records int
	// Queries is how many live queries a change meets, and Subscribers how many connections
	// follow one, that query measures with.
	Queries, Subscribers int
	// JSON selects machine-readable output.
	JSON bool
}

// ParseOptions reads the arguments of `quorate bench`. Usage goes to out.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	o := Options{}
	f := flag.NewFlagSet("quorate bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.Mode, "mode", "write", "what to measure: write, latency, lock, idle, floor, all, sync, query, store")
	f.IntVar(&o.Nodes, "nodes", 3, "nodes of the cluster to start")
	f.StringVar(&o.Target, "target", "", "comma-separated WebSocket URLs of running nodes, instead of a cluster of its own")
	f.StringVar(&o.Token, "token", "", "token to authenticate with at the target")
	f.IntVar(&o.Connections, "connections", 200, "client connections")
	f.IntVar(&o.Batch, "batch", 10, "operations per frame")
	f.IntVar(&o.ValueBytes, "value-bytes", 100, "bytes per value")
	f.IntVar(&o.Keys, "keys", 100, "distinct keys per connection")
	f.StringVar(&o.Level, "level", "", "write concern asked for, such as MEMORY or PERSISTED")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "measured time of a run")
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "time before a run that does not count")
	f.IntVar(&o.Runs, "runs", 3, "runs of each measurement; medians are reported")
	f.Float64Var(&o.Rate, "rate", 0, "operations per second of an open-loop run; 0 is closed-loop")
	f.IntVar(&o.Records, "records", 1_000_000, "records of the largest map that sync and query measure with")
	f.IntVar(&o.Queries, "queries", 10_000, "live queries that query measures with")
	f.IntVar(&o.Subscribers, "subscribers", 5000, "connections that query measures with")
	f.BoolVar(&o.JSON, "json", false, "print JSON")
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		args = append([]string{"-mode", args[0]}, args[1:]...)
	}
	if err := f.Parse(args); err != nil {
		return Options{}, err
	}
	if f.NArg() > 0 {
		return Options{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	var errs []error
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	switch o.Mode {
	case "write", "latency", "lock", "idle", "floor", "all", "sync", "query", "store":
	default:
		errs = append(errs, fmt.Errorf("-mode %q is not one of write, latency, lock, idle, floor, all, sync, query, store", o.Mode))
	}
	check(o.Nodes >= 1 && o.Nodes <= 9, "-nodes must be 1 to 9")
	check(o.Connections >= 1, "-connections must be at least 1")
	check(o.Batch >= 1 && o.Batch <= 8192, "-batch must be 1 to 8192")
	check(o.ValueBytes >= 1 && o.ValueBytes <= 1<<20, "-value-bytes must be 1 to 1048576")
	check(o.Keys >= 1, "-keys must be at least 1")
	check(o.Duration > 0 && o.Warmup >= 0, "-duration must be positive and -warmup not negative")
	check(o.Records >= 1000, "-records must be at least 1000")
	check(o.Queries > queryMatches && o.Subscribers >= 1, "-queries must be more than 10 and -subscribers at least 1")
	check(o.Runs >= 1, "-runs must be at least 1")
	check(o.Rate >= 0, "-rate must not be negative")
	check(o.Target == "" || o.Mode == "write" || o.Mode == "latency" || o.Mode == "lock", "-target measures write, latency and lock only")
	return errors.Join(errs...)
}
