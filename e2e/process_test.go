package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// runServer runs the server until it ends by itself.
func runServer(t *testing.T, env []string, args ...string) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, *server, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "SERVICE_BIND_ADDR=127.0.0.1"}, env...)
	var errText bytes.Buffer
	cmd.Stderr = &errText
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "the server does not end by itself")
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), errText.String()
}

func TestExitCodesTellWhatIsWrong(t *testing.T) {
	c := harness.Start(t, config(), 1)
	n := c.Node("n1")
	store := filepath.Join(n.Dir(), "service.db")
	noAuth := "SERVICE_NO_AUTH=true"
	_, busy, err := net.SplitHostPort(n.PeerAddr())
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(n.PeerAddr())
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		text string
	}{
		{"unknown flag", []string{noAuth}, []string{"--colour", "red"}, 2, "colour"},
		{"flag without number", []string{noAuth}, []string{"--port", "eighty"}, 2, "port"},
		{"bad PORT", []string{noAuth, "PORT=70000"}, nil, 2, "PORT"},
		{"no secret", nil, []string{"--port", "0"}, 2, "JWT_SECRET"},
		{"unknown backend", []string{noAuth, "STORAGE_BACKEND=papyrus"}, []string{"--port", "0"}, 2, "STORAGE_BACKEND"},
		{"directory missing", []string{noAuth, "SERVICE_STORE_PATH=/nowhere/at/all/service.db"}, []string{"--port", "0"}, 1, "/nowhere/at/all"},
		{"store in use", []string{noAuth, "SERVICE_STORE_PATH=" + store}, []string{"--port", "0"}, 1, store},
		{"port in use", []string{noAuth, "SERVICE_BIND_ADDR=" + host, "STORAGE_BACKEND=null"}, []string{"--port", busy}, 1, busy},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stderr := runServer(t, tc.env, tc.args...)
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.text)
			require.LessOrEqual(t, strings.Count(stderr, "\n"), 3, "a few lines say it: %s", stderr)
		})
	}
}

// TestClusterRefusesImpostors starts a second node under a name that is taken, and one
// with another secret.
func TestClusterRefusesImpostors(t *testing.T) {
	onlyFull(t)
	cfg := config()
	cfg.Secret = secret
	c := harness.Start(t, cfg, 3)
	twin := c.Add("n4")
	twin.Name = "n2"
	twin.Start()
	require.Equal(t, 3, twin.AwaitExit())
	require.Contains(t, twin.LogTail(1), c.Node("n2").PeerAddr(), "the other address is named")

	stranger := c.Add("n5")
	stranger.Env = []string{"JWT_SECRET=some-other-secret-of-more-than-thirty-two-bytes"}
	stranger.Start()
	require.Equal(t, 3, stranger.AwaitExit())
	require.Contains(t, stranger.LogTail(1), "secret")
	c.AwaitReady()
}

// TestPortLineComesOnceAndAlone is the contract with tools that start a server.
func TestPortLineComesOnceAndAlone(t *testing.T) {
	c := harness.Start(t, config(), 1)
	lines := 0
	for line := range strings.Lines(c.Node("n1").Log()) {
		if strings.HasPrefix(line, "PORT=") {
			lines++
			require.Contains(t, c.Node("n1").URL(), ":"+strings.TrimSpace(strings.TrimPrefix(line, "PORT="))+"/")
		}
	}
	require.Equal(t, 1, lines)
}

func TestNothingWorksBeforeAuthentication(t *testing.T) {
	cfg := config()
	cfg.Secret = secret
	c := harness.Start(t, cfg, 1)
	n := c.Node("n1")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	_, err := harness.Dial(ctx, n.URL(), harness.ClientConfig{Token: "no.such.token"})
	require.ErrorIs(t, err, harness.ErrRefused)
	forged, err := harness.Token("another-secret-of-more-than-thirty-two-bytes", "mallory")
	require.NoError(t, err)
	_, err = harness.Dial(ctx, n.URL(), harness.ClientConfig{Token: forged})
	require.ErrorIs(t, err, harness.ErrRefused)

	silent, err := harness.Dial(ctx, n.URL(), harness.ClientConfig{})
	require.NoError(t, err)
	defer silent.Close()
	early := harness.Put("1", "early", "k", "v", protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: "e"})
	require.NoError(t, silent.Send(ctx, &protocol.ClientOpMessage{Op: early}))
	require.NoError(t, silent.SendText(ctx, "hello"))
	require.NoError(t, silent.SendRaw(ctx, bytes.Repeat([]byte{0x91}, 1<<20)))

	require.Empty(t, readState(t, n, "early")["early"])
	require.Empty(t, silent.Errors())
	if !*full {
		return
	}
	start := time.Now()
	<-silent.Gone()
	within(t, "close of a client that does not authenticate", time.Since(start), 11*time.Second)
	require.Equal(t, int(protocol.CloseAuth), silent.CloseCode())
	require.Empty(t, silent.Problems())
}

// TestFragmentedFramesAreWhole sends a write in frames of one byte each.
func TestFragmentedFramesAreWhole(t *testing.T) {
	c := harness.Start(t, config(), 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, c.Node("n1").URL(), nil)
	require.NoError(t, err)
	defer conn.CloseNow()
	w, err := conn.Writer(ctx, websocket.MessageBinary)
	require.NoError(t, err)
	for _, b := range clientOp(put(nil))[0] {
		_, err := w.Write([]byte{b})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	for {
		_, data, err := conn.Read(ctx)
		require.NoError(t, err)
		m, err := protocol.Decode(data)
		require.NoError(t, err)
		if ack, ok := m.(*protocol.OpAck); ok {
			require.Equal(t, "1", ack.LastID)
			break
		}
	}
	require.Equal(t, fmt.Sprint(map[string]string{"k": "v"}), fmt.Sprint(readState(t, c.Node("n1"), "bad")["bad"]))
}
