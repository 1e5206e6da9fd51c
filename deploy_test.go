package quorate_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// metricNames are the names of metrics in a text.
var metricNames = regexp.MustCompile(`\b(?:service|quorate|process|go)_[a-z0-9_]+\b`)

// TestBoardAndAlertsUseMetricsThatExist compares the board and the alerts with what a
// server shows.
func TestBoardAndAlertsUseMetricsThatExist(t *testing.T) {
	exists := shownMetrics(t)
	alerts, err := os.ReadFile("deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var expressions []string
	for line := range strings.SplitSeq(string(alerts), "\n") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			expressions = append(expressions, text)
		}
	}
	board, err := os.ReadFile("deploy/grafana/quorate.json")
	if err != nil {
		t.Fatal(err)
	}
	var panels struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(board, &panels); err != nil {
		t.Fatal(err)
	}
	for _, p := range panels.Panels {
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	// Boards of the field use these.
	expressions = append(expressions, "service_active_connections", "service_operations_total", "service_operation_duration_seconds_bucket",
		"service_operation_errors_total", "service_wal_applied_watermark_lag")
	used := 0
	for _, expr := range expressions {
		for _, name := range metricNames.FindAllString(expr, -1) {
			used++
			if !exists[name] {
				t.Errorf("%s is not a metric of the server, used in %s", name, expr)
			}
		}
	}
	if used < 30 {
		t.Errorf("only %d metrics are used; are the files read?", used)
	}
}

// TestManifestsPassSettingsThatExist compares the flags, variables, ports and paths of the
// packaging files with the server's.
func TestManifestsPassSettingsThatExist(t *testing.T) {
	usage, err := os.ReadFile("cmd/quorate/config/testdata/usage.txt")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`--[a-z]+(?:-[a-z]+)*=`)
	variables := regexp.MustCompile(`\b(?:SERVICE_[A-Z_]+|JWT_SECRET|STORAGE_BACKEND|DATABASE_URL)\b`)
	paths := regexp.MustCompile(`/health/[a-z]+`)
	seen := 0
	for _, file := range []string{"Dockerfile", "deploy/compose.yml", "deploy/systemd/quorate.service", "deploy/kubernetes/quorate.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := variables.FindAllString(string(text), -1)
		for _, flag := range flags.FindAllString(string(text), -1) {
			if flag = strings.TrimSuffix(flag, "="); flag != "--interval" && flag != "--timeout" && flag != "--start-period" && flag != "--from" && flag != "--chown" && flag != "--from-literal" {
				names = append(names, flag)
			}
		}
		for _, name := range names {
			seen++
			if !strings.Contains(string(usage), name) {
				t.Errorf("%s: the server does not know %s", file, name)
			}
		}
		for _, path := range paths.FindAllString(string(text), -1) {
			if path != "/health/live" && path != "/health/ready" {
				t.Errorf("%s: %s is no probe", file, path)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d settings are passed; are the files read?", seen)
	}
}
