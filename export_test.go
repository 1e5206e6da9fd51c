package quorate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// lone is a node in a file, whose answers to readers of snapshots can be lost.
type lone struct {
	*Node
	stop context.CancelFunc
	ran  chan error
}

func startLone(t *testing.T) *lone {
	t.Helper()
	store, err := bolt.Open(bolt.Config{Path: filepath.Join(t.TempDir(), "service.db")}, bolt.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultNodeConfig("n1")
	cfg.Mux.ListenAddr, cfg.Mux.Advertise = "n1:7000", "n1"
	n, err := OpenNode(cfg, NodeDeps{
		Logger: hclog.NewNullLogger(), Network: memnet.New(1).Host("n1"), LogFS: logstore.NewMemFS(), Store: store,
		Physical: unixMillis,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &lone{Node: n, ran: make(chan error, 1)}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	go func() { l.ran <- n.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); !n.CaughtUp(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", n.Status())
		}
	}
	return l
}

// end stops the node while somebody may still read.
func (l *lone) end(t *testing.T) {
	t.Helper()
	l.stop()
	if err := errors.Join(<-l.ran, l.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// call answers as the node does, but loses every second answer to a read.
func (l *lone) call() caller {
	reads := 0
	return func(ctx context.Context, method mux.Method, body []byte) ([]byte, error) {
		switch method {
		case methodOpen:
			var req openRequest
			if err := json.Unmarshal(body, &req); err != nil {
				return nil, err
			}
			return l.exports.handleOpen(ctx, &req)
		case methodRead:
			var req readRequest
			if err := json.Unmarshal(body, &req); err != nil {
				return nil, err
			}
			reply, err := l.exports.handleRead(ctx, &req)
			if reads++; reads%2 == 1 && err == nil {
				return nil, mux.ErrNoReply
			}
			return reply, err
		default:
			return nil, errors.New("not called here")
		}
	}
}

func TestASnapshotIsReadThoughAnswersAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLone(t)
		defer l.end(t)
		src, err := openRemote(t.Context(), l.call(), openRequest{Group: 0})
		if err != nil {
			t.Fatal(err)
		}
		counted := &countingWriter{dst: io.Discard}
		info, err := fsm.CheckSnapshot(0, io.TeeReader(src, counted))
		if err != nil || info.Mark.Index != src.Index || counted.bytes != src.Size || info.Items == 0 {
			t.Errorf("%+v, %v, want index %d and %d bytes", info, err, src.Index, src.Size)
		}
		// Left open: the node must end all the same.
	})
}

func TestForgottenSnapshotsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLone(t)
		defer l.end(t)
		for range maxExports {
			if _, err := openRemote(t.Context(), l.call(), openRequest{Group: 0, AtLeast: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := openRemote(t.Context(), l.call(), openRequest{Group: 0, AtLeast: 1}); !errors.Is(err, errExports) {
			t.Errorf("one more: %v, want errExports", err)
		}
		time.Sleep(2 * exportIdle)
		if _, err := openRemote(t.Context(), l.call(), openRequest{Group: 0, AtLeast: 1}); err != nil {
			t.Errorf("after the others were forgotten: %v", err)
		}
	})
}
