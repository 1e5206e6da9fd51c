package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage/writebehind"
)

// measured has a machine count into Metrics of a new registry.
func measured(t *testing.T) (*prometheus.Registry, option) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := fsm.OpenMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return registry, func(_ *writebehind.Config, c *fsm.Config) { c.Metrics = m }
}

// expectMetrics compares values with lines of the exposition format.
func expectMetrics(t *testing.T, registry *prometheus.Registry, when, lines string) {
	t.Helper()
	var names []string
	for line := range strings.Lines(lines) {
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		names = append(names, name)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Builder{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			shown.WriteString(series(f.GetName(), m) + "\n")
		}
	}
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains("\n"+shown.String(), "\n"+line+"\n") {
			t.Errorf("%s: %q is not among\n%s", when, line, shown.String())
		}
	}
	if problems, err := testutil.GatherAndLint(registry, names...); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestTombstonesAreCountedThroughRestartAndSnapshot(t *testing.T) {
	registry, counting := measured(t)
	expectMetrics(t, registry, "of no machine", "service_ormap_tombstone_bytes 0\nservice_tombstone_epoch_seconds 0\nservice_locks_held 0")
	r := newRig(t, 1, counting)
	r.apply(
		entry(1, ts(10_000, 0), put("m", "old", "", ts(2, 0)), put("m", "revived", "", ts(2, 0))),
		entry(2, ts(20_000, 0), put("m", "revived", "v", ts(5, 0)), put("m", "revived", "v", ts(4, 0))),
		entry(3, ts(30_000, 0), orAdd("s", "a", "x", ts(1, 1)), orRemove("s", "a", ts(1, 1).String()), orRemoveHomeless("s", "stray")),
		entry(4, ts(40_000, 0), orRemove("s", "a", ts(1, 1).String())),
	)
	// A listing is 17 bytes, the map's name behind its length, the tag, and one byte.
	const held = `service_tombstones{kind="record"} 1
		service_tombstones{kind="tag"} 2
		service_ormap_tombstone_bytes 51`
	expectMetrics(t, registry, "with tombstones", held+`
		service_ormap_tombstone_bytes_total 51
		service_crdt_merges_total{type="lww"} 4
		service_crdt_conflicts_total{type="lww"} 1
		service_crdt_merges_total{type="or"} 4
		service_crdt_conflicts_total{type="or"} 1
		service_crdt_merges_total{type="counter"} 0`)
	r.flush()
	r = r.crash(counting)
	expectMetrics(t, registry, "after a restart", held+"\nservice_ormap_tombstone_bytes_total 51")
	snapshot := r.snapshot()
	late := r.collect(15_000, 10)
	r.apply(entry(5, ts(50_000, 0), r.collect(35_000, 10)), entry(6, ts(60_000, 0), late, put("m", "old", "v", ts(2, 0))))
	expectMetrics(t, registry, "when all are collected", `service_tombstones{kind="record"} 0
		service_tombstones{kind="tag"} 0
		service_ormap_tombstone_bytes 0
		service_tombstone_pruned_total{kind="record"} 1
		service_tombstone_pruned_total{kind="tag"} 2
		service_tombstone_prune_absent_total 1
		service_tombstone_prune_passes_total 2
		service_tombstone_stale_writes_total 1
		service_tombstone_pruned_through_seconds 35
		service_tombstone_epoch_seconds 60`)
	r.must(r.machine.Restore(strings.NewReader(string(snapshot))))
	expectMetrics(t, registry, "after a snapshot", held)
	r.must(r.machine.Close())
	expectMetrics(t, registry, "after the end", "service_ormap_tombstone_bytes 0")
}

func TestLocksOfAllMachinesAreCounted(t *testing.T) {
	registry, counting := measured(t)
	for group := range uint32(2) {
		r := newRig(t, group+1, counting)
		r.apply(entry(1, ts(1, 0), request(1, 1, 0), request(2, 2, 0)))
	}
	expectMetrics(t, registry, "of two groups", "service_locks_held 2")
}

// series is a sample as the exposition format shows it.
func series(name string, m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(labels) > 0 {
		name += "{" + strings.Join(labels, ",") + "}"
	}
	return fmt.Sprintf("%s %v", name, m.GetCounter().GetValue()+m.GetGauge().GetValue())
}
