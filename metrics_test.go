package quorate_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate"
)

// expectedMetrics are the names by which operators of such servers look for metrics.
const expectedMetrics = `
active_connections operations_total operation_duration_seconds operation_errors_total
ormap_tombstone_bytes ormap_tombstone_bytes_total wal_applied_watermark_lag wal_gc_skipped_total
cluster_nodes partitions_owned crdt_merges_total crdt_conflicts_total map_entries search_duration_seconds
sync_messages_total memory_bytes index_lookups_total storage_operations_total ws_messages_total ws_bytes_total
ws_closes_total outbound_dropped_total slow_consumers_total auth_total http_requests_total
http_request_duration_seconds writebehind_pending writebehind_failures_total evictions_total raft_term raft_role
raft_commit_index raft_applied_index raft_leader_changes_total raft_append_duration_seconds
raft_fsync_duration_seconds replication_lag_entries locks_held build_info
tombstones tombstone_pruned_total tombstone_prune_passes_total tombstone_prune_absent_total
tombstone_stale_writes_total tombstone_pruned_through_seconds tombstone_epoch_seconds`

// scrape is what a node shows.
func scrape(t *testing.T, port int) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return string(shown)
}

// shownMetrics are the names of all series that a fresh node shows, with and without the
// endings of histograms.
func shownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	noLeaks(t)
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.NoAuth = true
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	port, end := embed(t, cfg)
	awaitReady(t, port)
	shown := scrape(t, port)
	if err := end(); err != nil {
		t.Error(err)
	}
	exists := map[string]bool{}
	for line := range strings.SplitSeq(shown, "\n") {
		if name := metricNames.FindString(line); name != "" && strings.HasPrefix(line, name) {
			exists[name] = true
			exists[strings.TrimSuffix(name, "_count")] = true
		}
	}
	return exists
}

// TestEveryExpectedMetricIsThereOrExplained compares a fresh node with the names that
// operators know: what is measured under another name, or not at all, has a row in
// transport/DESIGN.md, and what that names instead exists.
func TestEveryExpectedMetricIsThereOrExplained(t *testing.T) {
	exists := shownMetrics(t)
	text, err := os.ReadFile("transport/DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Metrics\n")
	if !found {
		t.Fatal("transport/DESIGN.md has no section about metrics")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	explained := map[string]bool{}
	for row := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) != 4 {
			continue
		}
		names := metricNames.FindAllString(cells[1], -1)
		for _, name := range names {
			explained[name] = true
			if exists[name] {
				t.Errorf("%s exists, and has a row that says otherwise", name)
			}
		}
		for _, name := range metricNames.FindAllString(cells[2], -1) {
			if !exists[name] {
				t.Errorf("%s stands for %s and is not a metric of the server", name, names)
			}
		}
	}
	for name := range strings.FieldsSeq(expectedMetrics) {
		if name = "service_" + name; !exists[name] && !explained[name] {
			t.Errorf("a fresh node does not show %s, and no row of transport/DESIGN.md says why", name)
		}
	}
	if len(exists) < 100 || len(explained) < 5 {
		t.Errorf("%d names are shown and %d explained; is everything read?", len(exists), len(explained))
	}
}
