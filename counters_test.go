package quorate_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/protocol"
)

// run is a server that a test talks to.
type run struct {
	*quorate.Server
	t    *testing.T
	port int
	end  func()
}

func startServer(t *testing.T, cfg quorate.ServerConfig) *run {
	t.Helper()
	s, err := quorate.New(cfg, quorate.Deps{})
	must(t, err)
	port, err := s.Start()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	awaitReady(t, port)
	return &run{Server: s, t: t, port: port, end: func() {
		cancel()
		must(t, <-served)
		must(t, s.Close())
	}}
}

// tally is a client's view of a counter, over all servers that it meets.
type tally struct {
	protocol.CounterState
	additions int
}

// add adds to the counter on a server and returns the value that the client sees then.
func (c *tally) add(r *run, delta float64) float64 {
	r.t.Helper()
	c.additions++
	return c.exchange(r, &protocol.CounterSync{Name: "likes", State: c.CounterState, Add: &delta, RequestID: fmt.Sprint("add-", c.additions)})
}

// sync tells a server what the client knows and returns the value that both see then.
func (c *tally) sync(r *run) float64 {
	r.t.Helper()
	c.exchange(r, &protocol.CounterSync{Name: "likes", State: c.CounterState})
	return c.exchange(r, &protocol.CounterRequest{Name: "likes"})
}

func (c *tally) exchange(r *run, m protocol.Message) float64 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	conn := dial(ctx, r.t, r.port)
	defer func() { _ = conn.CloseNow() }()
	if s, ok := m.(*protocol.CounterSync); ok && s.Add == nil {
		return c.merge(exchange[*protocol.CounterUpdate](ctx, r.t, conn, m).State)
	}
	return c.merge(exchange[*protocol.CounterResponse](ctx, r.t, conn, m).State)
}

func (c *tally) merge(s protocol.CounterState) (value float64) {
	if c.Positive == nil {
		c.Positive = map[string]float64{}
	}
	for writer, total := range s.Positive {
		c.Positive[writer] = max(c.Positive[writer], total)
	}
	for _, total := range c.Positive {
		value += total
	}
	return value
}

// A client that saw more than the cluster has kept sees every later addition, and the
// cluster counts what the client brings back.
func TestACounterNeverGoesBack(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, cfg quorate.ServerConfig, saved []byte, disk string) quorate.ServerConfig{
		"restored": func(t *testing.T, cfg quorate.ServerConfig, saved []byte, _ string) quorate.ServerConfig {
			cfg.NodeID, cfg.Storage.Path = "m1", filepath.Join(t.TempDir(), "m1.db")
			_, err := quorate.Restore(&cfg, bytes.NewReader(saved), nil)
			must(t, err)
			return cfg
		},
		"recovered": func(t *testing.T, cfg quorate.ServerConfig, _ []byte, disk string) quorate.ServerConfig {
			cfg.Storage.Path = filepath.Join(disk, filepath.Base(cfg.Storage.Path))
			confirm(t, cfg, quorate.RecoverOptions{}, ".2")
			return cfg
		},
		"founded again": func(_ *testing.T, cfg quorate.ServerConfig, _ []byte, _ string) quorate.ServerConfig {
			cfg.Storage.Backend = quorate.BackendNull
			return cfg
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := lone(t)
			client := &tally{}
			r := startServer(t, cfg)
			client.add(r, 10)
			var saved bytes.Buffer
			_, err := quorate.Backup(t.Context(), r.Status().PeerAddr, "", &saved)
			must(t, err)
			r.end()
			disk := t.TempDir()
			must(t, os.CopyFS(disk, os.DirFS(filepath.Dir(cfg.Storage.Path))))
			r = startServer(t, cfg)
			if got := client.add(r, 5); got != 15 {
				t.Errorf("before: %v", got)
			}
			r.end()

			r = startServer(t, begin(t, cfg, saved.Bytes(), disk))
			defer r.end()
			if got := client.add(r, 2); got != 17 {
				t.Errorf("the client sees %v after the first addition", got)
			}
			if got := client.sync(r); got != 17 {
				t.Errorf("the client sees %v after it told what it knows", got)
			}
			if got := (&tally{}).sync(r); got != 17 {
				t.Errorf("another client sees %v", got)
			}
			if got := client.add(r, 1); got != 18 {
				t.Errorf("the client sees %v after the second addition", got)
			}
		})
	}
}
