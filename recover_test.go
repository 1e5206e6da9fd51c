package quorate_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/membership"
)

// lone is a node of its own cluster that has stopped, with one record.
func lone(t *testing.T) quorate.ServerConfig {
	t.Helper()
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID, cfg.Security.NoAuth = "n1", true
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	conn := dial(ctx, t, port)
	exchange[*protocol.OpAck](ctx, t, conn, put("k", "v"))
	if _, err := quorate.Recover(ctx, cfg, quorate.RecoverOptions{}, nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("recovery of a node that runs: %v", err)
	}
	_ = conn.CloseNow()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// disk works on the store and the log of a stopped node.
func disk(t *testing.T, cfg quorate.ServerConfig, do func(store storage.Store, log *logstore.Log) error) {
	t.Helper()
	logger := hclog.NewNullLogger()
	store, err := bolt.Open(bolt.Config{Path: cfg.Storage.Path}, bolt.Deps{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	log, err := logstore.Open(logstore.DefaultConfig(filepath.Join(cfg.Storage.Path+".raft", "wal")), logstore.Deps{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(store, log), log.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// confirm recovers the node and has the cluster's life checked.
func confirm(t *testing.T, cfg quorate.ServerConfig, opts quorate.RecoverOptions, life string) {
	t.Helper()
	opts.Confirm = true
	r, err := quorate.Recover(t.Context(), cfg, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Done || r.Begun || !strings.HasSuffix(r.NewClusterID, life) {
		t.Errorf("%+v", r)
	}
}

// serves starts the node and holds that it has the record and takes writes.
func serves(t *testing.T, cfg quorate.ServerConfig, records int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	conn := dial(ctx, t, port)
	resp := exchange[*protocol.QueryResp](ctx, t, conn, &protocol.QuerySub{QueryID: "q", MapName: "m"})
	if len(resp.Results) != records {
		t.Errorf("%d records, want %d", len(resp.Results), records)
	}
	_ = conn.CloseNow()
	conn = dial(ctx, t, port)
	exchange[*protocol.OpAck](ctx, t, conn, put("k", "v"))
	_ = conn.CloseNow()
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestARecoveryCanBeRepeated(t *testing.T) {
	cfg := lone(t)
	before, err := quorate.Recover(t.Context(), cfg, quorate.RecoverOptions{}, nil)
	if err != nil || before.Done || len(before.Groups) != 7 || len(before.Missing()) != 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	again, err := quorate.Recover(t.Context(), cfg, quorate.RecoverOptions{}, nil)
	if err != nil || again.ClusterID != before.ClusterID || again.Groups[1].LastIndex != before.Groups[1].LastIndex {
		t.Fatalf("the report changed something: %+v, %v", again, err)
	}
	// Killed when some groups were rewritten and others not.
	disk(t, cfg, func(store storage.Store, _ *logstore.Log) error {
		_, err := membership.BeginRecovery(store)
		return err
	})
	_, end := embed(t, cfg)
	if err := end(); !errors.Is(err, membership.ErrRecovering) {
		t.Errorf("a node that was rewritten in part: %v", err)
	}
	if r, err := quorate.Recover(t.Context(), cfg, quorate.RecoverOptions{}, nil); err != nil || !r.Begun {
		t.Errorf("%+v, %v", r, err)
	}
	confirm(t, cfg, quorate.RecoverOptions{}, ".2")
	serves(t, cfg, 1)
	confirm(t, cfg, quorate.RecoverOptions{}, ".3")
	confirm(t, cfg, quorate.RecoverOptions{}, ".4")
	serves(t, cfg, 1)
}

func TestMissingGroupsBeginAnewOnlyOnRequest(t *testing.T) {
	cfg := lone(t)
	disk(t, cfg, func(store storage.Store, log *logstore.Log) error {
		for group := uint32(1); group <= 6; group++ {
			if err := errors.Join(log.DropGroup(group), store.Drop(group)); err != nil {
				return err
			}
		}
		return nil
	})
	r, err := quorate.Recover(t.Context(), cfg, quorate.RecoverOptions{Confirm: true}, nil)
	if !errors.Is(err, quorate.ErrGroupsMissing) || r == nil || r.Done || len(r.Missing()) != 6 {
		t.Fatalf("%+v, %v", r, err)
	}
	confirm(t, cfg, quorate.RecoverOptions{StartEmpty: true}, ".2")
	serves(t, cfg, 0)
}

func TestThereIsNothingToRecover(t *testing.T) {
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID, cfg.Security.NoAuth = "n1", true
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	recoverIt := func() error {
		_, err := quorate.Recover(t.Context(), cfg, quorate.RecoverOptions{Confirm: true}, nil)
		return err
	}
	if err := recoverIt(); !errors.Is(err, quorate.ErrNothingToRecover) {
		t.Errorf("no store: %v", err)
	}
	// A node that waits for its seeds belongs to no cluster.
	cfg.Cluster.Seeds = []string{"127.0.0.1:1"}
	port, end := embed(t, cfg)
	if port == 0 {
		t.Error("no port")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if err := recoverIt(); !errors.Is(err, quorate.ErrNothingToRecover) {
		t.Errorf("no cluster: %v", err)
	}
	cfg.Storage.Backend = quorate.BackendNull
	if err := recoverIt(); !errors.Is(err, quorate.ErrNothingToRecover) {
		t.Errorf("nothing on disk: %v", err)
	}
}
