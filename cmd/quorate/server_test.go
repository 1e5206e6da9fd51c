package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/quorate/quorate"
)

// patience bounds every wait of these tests; it is far above what is waited for.
const patience = 60 * time.Second

// server is a running quorate process.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	port   string
	exited chan error

	mu             sync.Mutex // protects the fields below
	stdout, stderr bytes.Buffer
}

// lineWriter appends to buf under the server's lock.
type lineWriter struct {
	s   *server
	buf *bytes.Buffer
}

func (w lineWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.buf.Write(p)
}

// start runs a server with nothing but env in its environment and waits for its
// port.
func start(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	s := launch(t, env, args...)
	port := regexp.MustCompile(`(?m)^PORT=(\d+)$`)
	s.await("the PORT line", func() bool {
		m := port.FindStringSubmatch(s.out())
		if m != nil {
			s.port = m[1]
		}
		return m != nil
	})
	return s
}

func launch(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command("quorate", args...), exited: make(chan error, 1)}
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	s.cmd.Stdout = lineWriter{s, &s.stdout}
	s.cmd.Stderr = lineWriter{s, &s.stderr}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("output of %v:\n%s%s", s.cmd.Args, s.out(), s.err())
		}
	})
	return s
}

func (s *server) out() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdout.String()
}

func (s *server) err() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

func (s *server) await(what string, done func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// get returns the status and the body of a path.
func (s *server) get(path string) (int, string) {
	s.t.Helper()
	resp, err := http.Get("http://127.0.0.1:" + s.port + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (s *server) awaitReady() {
	s.t.Helper()
	s.await("readiness", func() bool {
		code, _ := s.get("/health/ready")
		return code == http.StatusOK
	})
}

func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// exitCode waits for the end of the process.
func (s *server) exitCode() int {
	s.t.Helper()
	select {
	case err := <-s.exited:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		s.t.Fatal("the process does not end")
		return -1
	}
}

// tool runs an operator command.
func tool(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	s := launch(t, env, args...)
	return s.exitCode(), s.out(), s.err()
}

func TestServerInMemoryFromStartToDrain(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"SERVICE_NO_AUTH=true", "STORAGE_BACKEND=null", "PORT=0", "SERVICE_LOG_FORMAT=json"})
	if code, _ := s.get("/health/live"); code != http.StatusOK {
		t.Errorf("/health/live answers %d", code)
	}
	s.awaitReady()
	_, health := s.get("/health")
	var h struct{ State string }
	if err := json.Unmarshal([]byte(health), &h); err != nil || h.State != "ready" {
		t.Errorf("/health answers %s", health)
	}
	if _, metrics := s.get("/metrics"); !strings.Contains(metrics, "service_build_info") {
		t.Error("/metrics lacks service_build_info")
	}
	s.signal(syscall.SIGTERM)
	if code := s.exitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if s.err() != "" {
		t.Errorf("stderr: %s", s.err())
	}
	checkJSONLog(t, s.out())
}

// checkJSONLog wants every line but one to be an event, and the lines of the
// contract among them.
func checkJSONLog(t *testing.T, out string) {
	t.Helper()
	ports := 0
	seen := make(map[string]bool)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "PORT=") {
			ports++
			continue
		}
		var e struct {
			Timestamp time.Time
			Level     string
			Target    string
			NodeID    string `json:"node_id"`
			Fields    map[string]any
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if e.Timestamp.IsZero() || e.Level == "" || e.Target == "" || e.NodeID != "service-server-node" || e.Fields["message"] == "" {
			t.Errorf("incomplete event %q", line)
		}
		for key := range e.Fields {
			seen[key] = true
		}
	}
	if ports != 1 {
		t.Errorf("%d PORT lines", ports)
	}
	for _, key := range []string{
		"max_ram_mb", "high_water_pct", "low_water_pct", "interval_ms", "write_behind_enabled",
		"embedding_provider", "embedding_dimension", "vectorized_maps", "peer_addr", "cluster_size", "role", "frame_bytes",
	} {
		if !seen[key] {
			t.Errorf("no start line has the field %s", key)
		}
	}
}

func TestStoreSurvivesRestartAndServesOperators(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-thirty-two-bytes"
	env := []string{"JWT_SECRET=" + secret, "SERVICE_BIND_ADDR=127.0.0.1", "SERVICE_STORE_PATH=" + filepath.Join(t.TempDir(), "n1.db")}
	status := func() quorate.Status {
		code, out, stderr := tool(t, env, "status", "--json")
		var st quorate.Status
		if err := json.Unmarshal([]byte(out), &st); code != 0 || err != nil {
			t.Fatalf("status: exit code %d, %v, %s", code, err, stderr)
		}
		return st
	}
	s := start(t, env, "--node-id=n1", "--port=0")
	s.awaitReady()
	before := status()
	if len(before.Groups) != 7 || before.Groups[0].Role != "leader" || len(before.Members) != 1 || before.Members[0].Leads > 6 {
		t.Errorf("status of a cluster of one: %+v", before)
	}

	t.Run("a second process on the store is refused", func(t *testing.T) {
		code, _, stderr := tool(t, env, "--node-id=n1", "--port=0")
		if code != 1 || !strings.Contains(stderr, "n1.db") || !strings.Contains(stderr, "in use by another process") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
	t.Run("a taken port is named", func(t *testing.T) {
		code, _, stderr := tool(t, env, "--node-id=n1", "--port="+s.port)
		if code != 1 || !strings.Contains(stderr, "127.0.0.1:"+s.port) || !strings.Contains(stderr, "address already in use") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
	t.Run("tables are readable", func(t *testing.T) {
		for name, want := range map[string]string{"status": `(?m)^1 +leader `, "members": `(?m)^n1 +active `} {
			if code, out, _ := tool(t, env, name); code != 0 || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s: exit code %d\n%s", name, code, out)
			}
		}
	})
	t.Run("readiness is told by the exit code", func(t *testing.T) {
		if code, out, stderr := tool(t, env, "ready"); code != 0 || out != "ready\n" {
			t.Errorf("exit code %d, %q, %s", code, out, stderr)
		}
	})
	t.Run("a support bundle has what is needed and no secret", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "bundle.tar.gz")
		if code, out, stderr := tool(t, env, "support", "--out", file); code != 0 || strings.TrimSpace(out) != file {
			t.Fatalf("exit code %d, %q, %s", code, out, stderr)
		}
		files := unpack(t, file)
		for name, part := range map[string]string{
			"status.json": before.ServerID, "metrics.txt": "service_ready 1", "goroutines.txt": "goroutine profile", "build.txt": "quorate",
			"log.txt": "node is ready", "environment.txt": "JWT_SECRET",
		} {
			if !strings.Contains(files["quorate-support/"+name], part) {
				t.Errorf("%s does not tell %q", name, part)
			}
		}
		for name, text := range files {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the secret", name)
			}
		}
		if code, _, stderr := tool(t, env, "support", "--out", file); code != 1 || !strings.Contains(stderr, "exists") {
			t.Errorf("a file that is there is replaced: exit code %d, %s", code, stderr)
		}
	})
	t.Run("an operator without the secret is refused", func(t *testing.T) {
		code, _, stderr := tool(t, []string{"JWT_SECRET=another"}, "status", "--addr", before.PeerAddr)
		if code != 1 || !strings.Contains(stderr, "another cluster secret") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
	t.Run("leadership is handed over", func(t *testing.T) {
		for _, tc := range []struct {
			args       []string
			code       int
			out, error string
		}{
			{[]string{"1", "n1"}, 0, "n1 leads group 1 in term ", ""},
			{[]string{"1"}, 1, "", "not caught up"},
			{[]string{"1", "n9"}, 1, "", "n9: the node is no voter of the group"},
			{[]string{"7"}, 1, "", "group 7: there is no such group"},
			{nil, 2, "", "number of a group is missing"},
			{[]string{"one"}, 2, "", "not the number of a group"},
			{[]string{"1", "--addr", before.PeerAddr, "n1", "more"}, 2, "", `unexpected argument "more"`},
		} {
			code, out, stderr := tool(t, env, append([]string{"transfer"}, tc.args...)...)
			if code != tc.code || !strings.Contains(out, tc.out) || !strings.Contains(stderr, tc.error) {
				t.Errorf("transfer %q: exit code %d, %s%s", tc.args, code, out, stderr)
			}
		}
	})
	t.Run("the last member cannot leave", func(t *testing.T) {
		code, _, stderr := tool(t, env, "leave")
		if code != 1 || !strings.Contains(stderr, "last member") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})

	s.signal(syscall.SIGINT)
	if code := s.exitCode(); code != 0 {
		t.Errorf("exit code %d after SIGINT", code)
	}
	if code, _, stderr := tool(t, env, "status"); code != 1 || !strings.Contains(stderr, "no node runs") {
		t.Errorf("status after the end: exit code %d, %s", code, stderr)
	}
	code, _, stderr := tool(t, env, "--node-id=n2", "--port=0")
	if code != 1 || !strings.Contains(stderr, `belongs to node "n1"`) {
		t.Errorf("store under another node id: exit code %d, %s", code, stderr)
	}

	s = start(t, env, "--node-id=n1", "--port=0")
	s.awaitReady()
	if after := status(); after.ClusterID != before.ClusterID || after.ServerID != before.ServerID {
		t.Errorf("restarted as %s of %s, was %s of %s", after.ServerID, after.ClusterID, before.ServerID, before.ClusterID)
	}
	if code, _, stderr := tool(t, env, "recover", "--yes"); code != 1 || !strings.Contains(stderr, "in use by another process") {
		t.Errorf("recovery of a node that runs: exit code %d, %s", code, stderr)
	}
	s.signal(syscall.SIGINT)
	if code := s.exitCode(); code != 0 {
		t.Errorf("exit code %d after SIGINT", code)
	}
	recoverOffline(t, env, before.ClusterID)
}

// recoverOffline recovers the stopped node of a cluster of one.
func recoverOffline(t *testing.T, env []string, cluster string) {
	t.Helper()
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--perhaps"}, 2, "perhaps"},
		{[]string{"now"}, 2, `unexpected argument "now"`},
		{[]string{"--help"}, 0, "start-empty"},
		{nil, 0, "nothing was changed"},
		{nil, 0, "of cluster " + cluster + "\n"},
		{[]string{"--yes"}, 0, "recovered: n1 is the only member of cluster " + cluster + ".2"},
		{nil, 0, "of cluster " + cluster + ".2\n"},
	} {
		code, out, stderr := tool(t, env, append([]string{"recover"}, tc.args...)...)
		if code != tc.code || !strings.Contains(out+stderr, tc.want) {
			t.Errorf("recover %q: exit code %d\n%s%s", tc.args, code, out, stderr)
		}
	}
}

// unpack reads the files of an archive.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

func TestSecondSignalEndsTheDrainAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"SERVICE_NO_AUTH=true", "STORAGE_BACKEND=null"}, "--port=0")
	s.awaitReady()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A client that never answers the Close holds the drain up for two seconds.
	conn, _, err := websocket.Dial(ctx, "ws://127.0.0.1:"+s.port+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	// Two different ones, because equal pending signals become one; the system may
	// deliver them in either order.
	s.signal(syscall.SIGTERM)
	s.signal(syscall.SIGINT)
	if code := s.exitCode(); code != 128+int(syscall.SIGTERM) && code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d after the second signal", code)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2-hunter2-hunter2-hunter2"
	env := []string{
		"JWT_SECRET=" + secret, "DATABASE_URL=postgres://u:" + secret + "@h/d", "SERVICE_ADMIN_PASSWORD=" + secret,
		"SERVICE_EMBEDDING_API_KEY=" + secret, "RUST_LOG=trace", "SERVICE_BIND_ADDR=127.0.0.1",
		"SERVICE_STORE_PATH=" + filepath.Join(t.TempDir(), "n1.db"),
	}
	s := start(t, env, "--port=0")
	s.awaitReady()
	var all strings.Builder
	for _, path := range []string{"/health", "/metrics", "/sync", "/api/status", "/nowhere"} {
		_, body := s.get(path)
		all.WriteString(body)
	}
	for _, args := range [][]string{{"config"}, {"status"}, {"status", "--json"}, {"members"}} {
		_, stdout, stderr := tool(t, env, args...)
		fmt.Fprint(&all, stdout, stderr)
	}
	s.signal(syscall.SIGTERM)
	if code := s.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	fmt.Fprint(&all, s.out(), s.err())
	if strings.Contains(all.String(), "hunter2") {
		t.Error("a secret is printed")
	}
}
