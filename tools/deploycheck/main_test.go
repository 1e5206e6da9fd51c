package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../.."

func TestTheFilesAreAccepted(t *testing.T) {
	for _, c := range checks {
		if err := c.check(filepath.Join(repository, c.file)); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
	}
}

// TestMistakesAreFound makes one mistake in a copy of a file at a time.
func TestMistakesAreFound(t *testing.T) {
	for file, mistakes := range map[string][][2]string{
		"Dockerfile":                     {{"COPY . .", "COPPY . ."}, {"COPY --from=build /quorate", "COPY --fom=build /quorate"}, {"AS build", "as build"}, {"--interval=10s", "--interval=ten"}},
		"deploy/compose.yml":             {{"stop_grace_period", "stop_grace"}, {"40s", "forty"}, {`volumes: ["n3:/data"]`, `volumes: ["n4:/data"]`}, {"random bytes}", "random bytes"}},
		"deploy/kubernetes/quorate.yaml": {{"fsGroup", "fsgruop"}, {"runAsNonRoot: true", "runAsNonRoot: 1"}, {"replicas: 3", "replicas: 3\n  replicas: 3"}, {"kind: StatefulSet", "kind: StatefullSet"}, {"10Gi", "10Gx"}},
		"deploy/prometheus/alerts.yml":   {{"service_ready == 0", "service_ready = 0"}, {"for: 1m", "for: soon"}, {"{{ $labels.instance }}", "{{ $label.instance }}"}, {"labels:", "lables:"}},
		"deploy/grafana/quorate.json":    {{"sum(service_ready", "sum((service_ready"}, {`"x": 8`, `"x": 7`}, {`"title": "Quorate",`, `"title": "Quorate"`}},
	} {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mistakes {
			broken := strings.Replace(string(text), m[0], m[1], 1)
			if broken == string(text) {
				t.Errorf("%s does not have %q", file, m[0])
			}
			path := filepath.Join(t.TempDir(), filepath.Base(file))
			if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, c := range checks {
				if c.file == file && c.check(path) == nil {
					t.Errorf("%s passes with %q", file, m[1])
				}
			}
		}
	}
}
