package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
)

func TestTheFilterChangesForLoggersThatAreInUse(t *testing.T) {
	var out bytes.Buffer
	root, levels := New(Config{Filter: "warn", Out: &out})
	sub := root.Named("transport").With("k", "v")
	sub.Info("one")
	if err := levels.Set("error,transport=debug"); err != nil {
		t.Fatal(err)
	}
	sub.Debug("two")
	root.Named("raftnode").Warn("three")
	if sub.IsTrace() || !sub.IsDebug() || sub.GetLevel() != hclog.Debug || root.GetLevel() != hclog.Error {
		t.Errorf("levels %v and %v", sub.GetLevel(), root.GetLevel())
	}
	if levels.Set("=") == nil || levels.Check("transport=loud") == nil {
		t.Error("a filter that cannot be read was taken")
	}
	sub.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}).Print("four")
	got := out.String()
	for text, want := range map[string]bool{"one": false, "two": true, "three": false, "four": true, "k=v": true} {
		if strings.Contains(got, text) != want {
			t.Errorf("%q is logged: %v, want %v\n%s", text, !want, want, got)
		}
	}
}

func TestFilterPicksTheLongestTarget(t *testing.T) {
	cases := []struct {
		filter string
		name   string
		want   hclog.Level
	}{
		{"", "transport", hclog.Info},
		{"  ", "transport", hclog.Info},
		{"debug", "transport", hclog.Debug},
		{"WARN", "transport", hclog.Warn},
		{"0", "transport", hclog.Off},
		{"5", "transport", hclog.Trace},
		{"transport=debug", "transport", hclog.Debug},
		{"transport=debug", "transport.ws", hclog.Debug},
		{"transport=debug", "transporter", hclog.Error},
		{"transport=debug", "raftnode", hclog.Error},
		{"info,transport=debug", "raftnode", hclog.Info},
		{"transport=debug , info", "raftnode", hclog.Info},
		{"transport=warn,transport.ws=trace", "transport.ws", hclog.Trace},
		{"transport::ws=trace,transport=warn", "transport.ws", hclog.Trace},
		{"transport=warn,transport=debug", "transport", hclog.Debug},
		{"transport", "transport", hclog.Trace},
		{"quorate=debug", "raftnode", hclog.Debug},
		{"quorate::raftnode=debug", "raftnode", hclog.Debug},
		{"another_server::raftnode=debug,info", "raftnode.raft", hclog.Debug},
		{"another_server=debug,info", "raftnode", hclog.Info},
		{"quorate=warn,raftnode=debug", "raftnode", hclog.Debug},
		{",info,", "raftnode", hclog.Info},
		{"raftnode=off", "raftnode", hclog.Off},
	}
	for _, c := range cases {
		t.Run(c.filter+" on "+c.name, func(t *testing.T) {
			f, err := ParseFilter(c.filter)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Level(c.name); got != c.want {
				t.Errorf("level %s, want %s", got, c.want)
			}
		})
	}
}

func TestFilterRefusesWhatItCannotHonour(t *testing.T) {
	for _, text := range []string{"transport=loud", "=debug", "[span]=debug", "transport[x{y=1}]=debug", "a b=debug", "transport=debug=info"} {
		if f, err := ParseFilter(text); err == nil {
			t.Errorf("%q was read as %v", text, f)
		}
	}
}

func TestUnreadableFilterFallsBackToInfoWithOneWarning(t *testing.T) {
	var out bytes.Buffer
	l, _ := New(Config{Filter: "transport=loud", Out: &out})
	l.Named("transport").Debug("hidden")
	l.Named("transport").Info("seen")
	text := out.String()
	if strings.Count(text, "[WARN]") != 1 || !strings.Contains(text, "seen") || strings.Contains(text, "hidden") {
		t.Error(text)
	}
}

func TestNamedLoggersHaveTheirOwnLevel(t *testing.T) {
	var out bytes.Buffer
	l, _ := New(Config{Filter: "warn,raftnode=debug", Out: &out})
	raft := l.Named("raftnode")
	if !raft.IsDebug() || l.Named("transport").IsInfo() {
		t.Error("the level of a named logger is not the filter's")
	}
	raft.Named("group").With("group", 3).Debug("elected")
	l.Info("hidden")
	l.Named("transport").With("conn", "c").Info("hidden")
	if text := out.String(); !strings.Contains(text, "raftnode.group: elected: group=3") || strings.Contains(text, "hidden") {
		t.Error(text)
	}
}

func TestTextLineIsUTCWithLevelTargetAndFields(t *testing.T) {
	var out bytes.Buffer
	l, _ := New(Config{Out: &out})
	l.Named("transport").Info("closed", "conn", "c-1", "err", errors.New("gone"))
	shape := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \[INFO\]  transport: closed: conn=c-1 err=gone\n$`)
	if !shape.MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}

func TestJSONShape(t *testing.T) {
	var out bytes.Buffer
	l, _ := New(Config{JSON: true, NodeID: "n1", Out: &out})
	l.Named("raftnode").With("group", 3).Warn("slow <disk>", "took", 2*time.Second, "err", fmt.Errorf("sync: %w", io.ErrShortWrite), "index", uint64(1)<<60, "was", hclog.Info, "node", net.IPv4(127, 0, 0, 1), "at", &url.URL{Scheme: "ws", Host: "n1"})
	l.Info("started")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	var got map[string]any
	dec := json.NewDecoder(strings.NewReader(lines[0]))
	dec.UseNumber()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339Nano, got["timestamp"].(string)); err != nil {
		t.Error(err)
	}
	delete(got, "timestamp")
	want := map[string]any{
		"level":   "WARN",
		"target":  "raftnode",
		"node_id": "n1",
		"fields": map[string]any{
			"message": "slow <disk>",
			"group":   json.Number("3"),
			"took":    json.Number("2000000000"),
			"err":     "sync: short write",
			"index":   json.Number("1152921504606846976"),
			"was":     "info",
			"node":    "127.0.0.1",
			"at":      "ws://n1",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(lines[0], "slow <disk>") || !strings.Contains(lines[1], `"target":"quorate"`) {
		t.Errorf("%q", lines)
	}
}

func TestConcurrentLinesStayWhole(t *testing.T) {
	var out bytes.Buffer
	w := NewLineWriter(&out)
	l, _ := New(Config{JSON: true, Out: w})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				l.Info("event", "i", i)
				if _, err := io.WriteString(w, "PORT=1\n"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for line := range strings.Lines(out.String()) {
		if line != "PORT=1\n" && !json.Valid([]byte(line)) {
			t.Errorf("%q", line)
		}
	}
}
