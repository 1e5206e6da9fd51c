package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/e2e/fault"
)

// Node is one server process and its directory. Its methods end the test when they
// cannot do what they say.
type Node struct {
	Name string
	// Alone starts the node without seeds: it founds a cluster of its own.
	Alone bool
	// Env has further variables of this node, NAME=value; they win over the
	// cluster's.
	Env []string

	cluster        *Cluster
	dir            string
	port, peerPort int
	cmd            *exec.Cmd
	// exited is closed when the process has ended.
	exited chan struct{}

	// mu protects the fields below: whether the process is paused, and when it last went on.
	mu      sync.Mutex
	paused  bool
	resumed time.Time
}

// Readdress gives a node that does not run new ports.
func (n *Node) Readdress() {
	n.cluster.t.Helper()
	n.mustNotRun()
	n.port = freePort(n.cluster.t, backHost())
	n.peerPort = freePort(n.cluster.t, backHost(), frontHost())
	if nw := n.cluster.Network; nw != nil {
		e := fault.Endpoint{Front: n.advertised(), Back: n.PeerAddr()}
		if err := nw.Add(n.Name, e); err != nil {
			n.cluster.t.Fatalf("%v", err)
		}
	}
}

// Start starts the process. It does not wait for it to be ready.
func (n *Node) Start() {
	t := n.cluster.t
	t.Helper()
	n.mustNotRun()
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		t.Fatalf("directory of %s: %v", n.Name, err)
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("log of %s: %v", n.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(n.cluster.cfg.Binary, n.args()...)
	cmd.Dir, cmd.Env = n.dir, n.env()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", n.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	n.cmd, n.exited = cmd, exited
	if nw := n.cluster.Network; nw != nil {
		nw.SetProcess(n.Name, cmd.Process.Pid)
	}
}

func (n *Node) args() []string {
	host, _, _ := net.SplitHostPort(n.advertised())
	args := []string{
		"--node-id", n.Name, "--host", host, "--port", strconv.Itoa(n.port), "--cluster-port", strconv.Itoa(n.peerPort),
	}
	if !n.Alone {
		args = append(args, "--seed-nodes", n.cluster.seeds())
	}
	return args
}

func (n *Node) env() []string {
	cfg := &n.cluster.cfg
	env := []string{
		"PATH=" + os.Getenv("PATH"), "SERVICE_BIND_ADDR=" + backHost(),
		"SERVICE_STORE_PATH=" + filepath.Join(n.dir, "service.db"),
	}
	if cfg.Backend != "" {
		env = append(env, "STORAGE_BACKEND="+cfg.Backend)
	}
	if cfg.Secret != "" {
		env = append(env, "JWT_SECRET="+cfg.Secret)
	} else {
		env = append(env, "SERVICE_NO_AUTH=true")
	}
	return slices.Concat(env, cfg.Env, n.Env)
}

// Running reports whether the process runs; a paused one does.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (n *Node) Kill() {
	n.cluster.t.Helper()
	n.signal(syscall.SIGKILL)
	<-n.exited
}

// Stop asks the process to drain and waits for its end. It returns the exit code and
// how long it took; more than 30 s fails the test.
func (n *Node) Stop() (int, time.Duration) {
	n.cluster.t.Helper()
	start := time.Now()
	n.signal(syscall.SIGTERM)
	select {
	case <-n.exited:
	case <-time.After(35 * time.Second):
		n.cluster.t.Fatalf("%s does not end within 35 s after SIGTERM", n.Name)
	}
	return n.cmd.ProcessState.ExitCode(), time.Since(start)
}

// AwaitExit waits for the process to end by itself and returns its exit code.
func (n *Node) AwaitExit() int {
	n.cluster.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(patience):
		n.cluster.t.Fatalf("%s does not end by itself", n.Name)
	}
	return n.cmd.ProcessState.ExitCode()
}

// Pause stops the process from running until Resume.
func (n *Node) Pause() {
	n.pause(true)
	n.signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (n *Node) Resume() {
	n.signal(syscall.SIGCONT)
	n.pause(false)
}

func (n *Node) pause(paused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused, n.resumed = paused, time.Now()
}

// PausedSince reports whether the process was paused at any time since t.
func (n *Node) PausedSince(t time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused || n.resumed.After(t)
}

// Wipe removes everything that a node that does not run has on disk.
func (n *Node) Wipe() {
	n.cluster.t.Helper()
	n.mustNotRun()
	files, err := filepath.Glob(filepath.Join(n.dir, "service.db*"))
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	if err != nil {
		n.cluster.t.Fatalf("wipe %s: %v", n.Name, err)
	}
}

// AwaitReady waits until the readiness probe says yes and returns how long it took.
func (n *Node) AwaitReady() time.Duration {
	n.cluster.t.Helper()
	return Eventually(n.cluster.t, patience, n.Name+" to be ready", func() error {
		if !n.Running() {
			n.cluster.t.Fatalf("%s has ended:\n%s", n.Name, n.LogTail(20))
		}
		return n.Ready()
	})
}

var probe = http.Client{Timeout: 2 * time.Second}

// Ready returns nil if the readiness probe says yes.
func (n *Node) Ready() error {
	resp, err := probe.Get("http://" + n.clientAddr() + "/health/ready")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answers %d %s", resp.StatusCode, bytes.TrimSpace(body))
	}
	return nil
}

// URL is where clients connect.
func (n *Node) URL() string { return "ws://" + n.clientAddr() + "/ws" }

// PeerAddr is where the node's cluster port listens.
func (n *Node) PeerAddr() string { return net.JoinHostPort(backHost(), strconv.Itoa(n.peerPort)) }

// Dir is the node's directory; its store is service.db there.
func (n *Node) Dir() string { return n.dir }

// PID is the number of the process.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Tool runs an operator command against the node and returns its output.
func (n *Node) Tool(ctx context.Context, args ...string) ([]byte, error) {
	return n.OfflineTool(ctx, append(args, "--addr", n.PeerAddr())...)
}

// OfflineTool runs an operator command with the node's environment, for a node that does
// not run, and returns its output.
func (n *Node) OfflineTool(ctx context.Context, args ...string) ([]byte, error) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, n.cluster.cfg.Binary, args...)
	cmd.Env = n.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("quorate %s on %s: %w: %s", args[0], n.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// ResidentBytes is the memory that the process holds.
func (n *Node) ResidentBytes() int {
	n.cluster.t.Helper()
	resident, _ := n.memory()
	return resident
}

// AnonymousBytes is ResidentBytes without the pages of files.
func (n *Node) AnonymousBytes() int {
	n.cluster.t.Helper()
	resident, files := n.memory()
	return resident - files
}

func (n *Node) memory() (resident, files int) {
	n.cluster.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID()))
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %d %d", new(int), &resident, &files)
	}
	if err != nil {
		n.cluster.t.Fatalf("memory of %s: %v", n.Name, err)
	}
	return resident * os.Getpagesize(), files * os.Getpagesize()
}

// Log is everything that the node's processes have printed.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.cluster.t.Fatalf("log of %s: %v", n.Name, err)
	}
	return string(text)
}

// LogTail is the last lines of Log.
func (n *Node) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(n.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "log") }

func (n *Node) clientAddr() string { return net.JoinHostPort(backHost(), strconv.Itoa(n.port)) }

// advertised is what other nodes dial: the front of the proxy if there is one.
func (n *Node) advertised() string {
	host := backHost()
	if n.cluster.Network != nil {
		host = frontHost()
	}
	return net.JoinHostPort(host, strconv.Itoa(n.peerPort))
}

func (n *Node) mustNotRun() {
	n.cluster.t.Helper()
	if n.Running() {
		n.cluster.t.Fatalf("%s runs", n.Name)
	}
}

func (n *Node) signal(s syscall.Signal) {
	n.cluster.t.Helper()
	if !n.Running() {
		n.cluster.t.Fatalf("%s does not run:\n%s", n.Name, n.LogTail(20))
	}
	if err := n.cmd.Process.Signal(s); err != nil {
		n.cluster.t.Fatalf("signal %s: %v", n.Name, err)
	}
}

// End kills the process if it has not ended by itself, and waits for its end.
func (n *Node) End() {
	if n.Running() {
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
}
