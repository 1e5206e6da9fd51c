package quorate_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate"
)

// TestWhatToolsAskForIsOnRecord asks a node for what only the holder of the cluster's secret
// gets, and reads its log.
func TestWhatToolsAskForIsOnRecord(t *testing.T) {
	noLeaks(t)
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID, cfg.Security.NoAuth, cfg.Storage.Backend = "n1", true, quorate.BackendNull
	var log bytes.Buffer
	s, err := quorate.New(cfg, quorate.Deps{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
	must(t, err)
	port, err := s.Start()
	must(t, err)
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- s.Serve(ctx) }()
	awaitReady(t, port)
	addr := s.Status().PeerAddr
	_, err = quorate.Backup(t.Context(), addr, "", io.Discard)
	must(t, err)
	_, err = quorate.FetchSupport(t.Context(), addr, "")
	must(t, err)
	// The only leader cannot go, and the only member cannot leave; that they were asked is on record.
	_, _ = quorate.RequestTransfer(t.Context(), addr, "", 1, "")
	_, _ = quorate.RequestLeave(t.Context(), addr, "")
	cancel()
	must(t, <-served)
	must(t, s.Close())
	for _, what := range []string{"backup", "support bundle", "transfer of a leadership", "removal of this node"} {
		if !bytes.Contains(log.Bytes(), []byte("audit: "+what+" asked for: peer=")) {
			t.Errorf("nothing in the log of a %s:\n%s", what, &log)
		}
	}
}
