package quorate_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// documents reads the YAML documents of a file; a key that stands twice is an error.
func documents(t *testing.T, file string) (list []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var doc map[string]any
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, doc)
	}
}

// at is the value below v at a path of keys and places; nil for none.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// texts are the elements of a list as texts.
func texts(v any) (list []string) {
	l, _ := v.([]any)
	for _, e := range l {
		list = append(list, fmt.Sprint(e))
	}
	return list
}

// named maps the elements of a list by their names.
func named(v any) map[string]any {
	m := map[string]any{}
	l, _ := v.([]any)
	for _, e := range l {
		m[fmt.Sprint(at(e, "name"))] = e
	}
	return m
}

// argument is the value of a command line flag.
func argument(args []string, name string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

func expectEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// atLeastTheDrain is what a supervisor has to wait for before it kills.
func atLeastTheDrain(t *testing.T, what string, seconds int) {
	t.Helper()
	const drain = 30 // seconds, by the contract
	if seconds <= drain {
		t.Errorf("%s is %d s, and a drain may take %d s", what, seconds, drain)
	}
}

// TestKubernetesManifestsFitTogether checks what no cluster is needed for: that names that
// refer to each other agree.
func TestKubernetesManifestsFitTogether(t *testing.T) {
	kinds := map[string]string{"Service": "v1", "PodDisruptionBudget": "policy/v1", "StatefulSet": "apps/v1"}
	all := map[string]map[string]any{}
	for _, doc := range documents(t, "deploy/kubernetes/quorate.yaml") {
		kind, name := fmt.Sprint(doc["kind"]), fmt.Sprint(at(doc, "metadata", "name"))
		expectEqual(t, "apiVersion of "+kind, doc["apiVersion"], kinds[kind])
		all[kind+"/"+name] = doc
	}
	set := all["StatefulSet/quorate"]
	pod, labels := at(set, "spec", "template", "spec"), at(set, "spec", "template", "metadata", "labels")
	for name, selector := range map[string]any{
		"set":     at(set, "spec", "selector", "matchLabels"),
		"service": at(all["Service/quorate"], "spec", "selector"), "headless service": at(all["Service/quorate-nodes"], "spec", "selector"),
		"budget": at(all["PodDisruptionBudget/quorate"], "spec", "selector", "matchLabels"),
	} {
		expectEqual(t, "selector of the "+name, selector, labels)
	}
	headless := fmt.Sprint(at(set, "spec", "serviceName"))
	expectEqual(t, "clusterIP of "+headless, at(all["Service/"+headless], "spec", "clusterIP"), "None")
	expectEqual(t, "publishNotReadyAddresses", at(all["Service/"+headless], "spec", "publishNotReadyAddresses"), true)

	container := at(pod, "containers", 0)
	args, ports := texts(at(container, "args")), named(at(container, "ports"))
	replicas, _ := at(set, "spec", "replicas").(int)
	var seeds []string
	for i := range replicas {
		seeds = append(seeds, fmt.Sprintf("quorate-%d.%s:%s", i, headless, argument(args, "cluster-port")))
	}
	expectEqual(t, "seeds", argument(args, "seed-nodes"), strings.Join(seeds, ","))
	expectEqual(t, "port http", at(ports["http"], "containerPort"), argument(args, "port"))
	expectEqual(t, "port cluster", at(ports["cluster"], "containerPort"), argument(args, "cluster-port"))
	expectEqual(t, "port of the headless service", at(all["Service/"+headless], "spec", "ports", 0, "port"), argument(args, "cluster-port"))
	for _, probe := range []any{at(container, "livenessProbe"), at(container, "readinessProbe")} {
		if ports[fmt.Sprint(at(probe, "httpGet", "port"))] == nil {
			t.Errorf("probe %v names no port", probe)
		}
	}
	grace, _ := at(pod, "terminationGracePeriodSeconds").(int)
	atLeastTheDrain(t, "terminationGracePeriodSeconds", grace)
	volumes := map[string]any{}
	for _, claim := range at(set, "spec", "volumeClaimTemplates").([]any) {
		volumes[fmt.Sprint(at(claim, "metadata", "name"))] = claim
	}
	mounts := named(at(container, "volumeMounts"))
	for name := range mounts {
		if volumes[name] == nil {
			t.Errorf("mount %s has no claim", name)
		}
	}
	environment := named(at(container, "env"))
	store := fmt.Sprint(at(environment["SERVICE_STORE_PATH"], "value"))
	expectEqual(t, "directory of the store", filepath.Dir(store), at(mounts["data"], "mountPath"))
	for name, want := range map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true} {
		expectEqual(t, name, at(container, "securityContext", name), want)
	}
	expectEqual(t, "runAsNonRoot", at(pod, "securityContext", "runAsNonRoot"), true)
	limit := strings.TrimSuffix(fmt.Sprint(at(container, "resources", "limits", "memory")), "Mi")
	cache := fmt.Sprint(at(environment["SERVICE_MAX_RAM_MB"], "value"))
	if wholeNumber(t, limit) < wholeNumber(t, cache)*5/4 {
		t.Errorf("memory limit %s Mi leaves no room beside %s MB of records", limit, cache)
	}
}

func wholeNumber(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Errorf("%q is no number", text)
	}
	return n
}

// TestTheCompositionFormsOneCluster checks that three services of the file are each other's
// seeds and keep their data.
func TestTheCompositionFormsOneCluster(t *testing.T) {
	doc := documents(t, "deploy/compose.yml")[0]
	services, _ := doc["services"].(map[string]any)
	volumes, _ := doc["volumes"].(map[string]any)
	nodes := []string{"n1", "n2", "n3"}
	published := map[string]bool{}
	for _, name := range nodes {
		service := services[name]
		args := texts(at(service, "command"))
		expectEqual(t, "id of "+name, argument(args, "node-id"), name)
		expectEqual(t, "host of "+name, argument(args, "host"), name)
		var seeds []string
		for _, node := range nodes {
			seeds = append(seeds, node+":"+argument(args, "cluster-port"))
		}
		expectEqual(t, "seeds of "+name, argument(args, "seed-nodes"), strings.Join(seeds, ","))
		volume, mount, _ := strings.Cut(texts(at(service, "volumes"))[0], ":")
		if _, declared := volumes[volume]; !declared || volume != name {
			t.Errorf("%s keeps its data in %q", name, volume)
		}
		expectEqual(t, "mount of "+name, mount, "/data")
		port, inside, _ := strings.Cut(texts(at(service, "ports"))[0], ":")
		expectEqual(t, "published port of "+name, inside, argument(args, "port"))
		if published[port] {
			t.Errorf("port %s is published twice", port)
		}
		published[port] = true
		grace := wholeNumber(t, strings.TrimSuffix(fmt.Sprint(at(service, "stop_grace_period")), "s"))
		atLeastTheDrain(t, "stop_grace_period of "+name, grace)
		if secret := fmt.Sprint(at(service, "environment", "JWT_SECRET")); !strings.HasPrefix(secret, "${JWT_SECRET:?") {
			t.Errorf("%s starts without a secret: %s", name, secret)
		}
	}
	for _, name := range []string{"prometheus", "grafana"} {
		for _, volume := range texts(at(services[name], "volumes")) {
			source, _, _ := strings.Cut(volume, ":")
			if _, err := os.Stat(filepath.Join("deploy", source)); err != nil {
				t.Errorf("%s mounts %v", name, err)
			}
		}
	}
}

// TestScrapingAndAlertsAreRead checks the shape of the files for Prometheus and Grafana.
func TestScrapingAndAlertsAreRead(t *testing.T) {
	scrape := documents(t, "deploy/prometheus/prometheus.yml")[0]
	expectEqual(t, "rule file", at(scrape, "rule_files", 0), "alerts.yml")
	if targets := texts(at(scrape, "scrape_configs", 0, "static_configs", 0, "targets")); len(targets) != 3 {
		t.Errorf("targets %v", targets)
	}
	rules, _ := at(documents(t, "deploy/prometheus/alerts.yml")[0], "groups", 0, "rules").([]any)
	seen := map[string]bool{}
	for _, rule := range rules {
		name := fmt.Sprint(at(rule, "alert"))
		for _, part := range []any{at(rule, "expr"), at(rule, "labels", "severity"), at(rule, "annotations", "summary")} {
			if part == nil || part == "" {
				t.Errorf("alert %s lacks a part", name)
			}
		}
		if seen[name] {
			t.Errorf("alert %s stands twice", name)
		}
		seen[name] = true
	}
	if len(seen) < 5 {
		t.Errorf("only %d alerts are read", len(seen))
	}
	for _, file := range []string{"deploy/grafana/datasource.yml", "deploy/grafana/provider.yml"} {
		expectEqual(t, "apiVersion of "+file, documents(t, file)[0]["apiVersion"], 1)
	}
}

// TestTheImageIsStaticAndWithoutRoot reads the Dockerfile line by line.
func TestTheImageIsStaticAndWithoutRoot(t *testing.T) {
	b, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "\\\n", " ")
	var stages []string
	last := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#":
			continue
		case "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD":
		default:
			if !strings.HasPrefix(word, "#") {
				t.Errorf("unknown instruction %s", word)
			}
			continue
		}
		last[word] = rest
		if _, stage, ok := strings.Cut(rest, " AS "); word == "FROM" && ok {
			stages = append(stages, stage)
		}
		if from := regexp.MustCompile(`--from=(\S+)`).FindStringSubmatch(rest); from != nil && !slices.Contains(stages, from[1]) {
			t.Errorf("no stage %s", from[1])
		}
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))[1]
	if !strings.Contains(text, "golang:"+version+"-") {
		t.Errorf("the image is not built with Go %s", version)
	}
	if !strings.Contains(text, "CGO_ENABLED=0 go build") {
		t.Error("the binary is not static")
	}
	expectEqual(t, "base", last["FROM"], "scratch")
	expectEqual(t, "signal", last["STOPSIGNAL"], "SIGTERM")
	if user, _, _ := strings.Cut(last["USER"], ":"); wholeNumber(t, user) == 0 {
		t.Error("the user is root")
	}
	if !strings.Contains(last["HEALTHCHECK"], `["/quorate", "ready"]`) {
		t.Errorf("health check %s", last["HEALTHCHECK"])
	}
	if entry := last["ENTRYPOINT"]; entry != `["/quorate"]` {
		t.Errorf("entry point %s", entry)
	}
}

// TestTheSystemdUnitIsValid has systemd read the unit, with this program in the place of the
// one that is not installed.
func TestTheSystemdUnitIsValid(t *testing.T) {
	b, err := os.ReadFile("deploy/systemd/quorate.service")
	if err != nil {
		t.Fatal(err)
	}
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(string(b))
	if stop == nil {
		t.Fatal("no TimeoutStopSec")
	}
	atLeastTheDrain(t, "TimeoutStopSec", wholeNumber(t, stop[1]))
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "quorate.service")
	text := strings.ReplaceAll(string(b), "/usr/local/bin/quorate", self)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "quorate.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
