package logstore

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// countingFSM counts the commands that were applied.
type countingFSM struct{ applied []string }

func (f *countingFSM) Apply(log *raft.Log) any {
	f.applied = append(f.applied, string(log.Data))
	return nil
}
func (f *countingFSM) Snapshot() (raft.FSMSnapshot, error) { return emptySnapshot{}, nil }
func (f *countingFSM) Restore(r io.ReadCloser) error       { return r.Close() }

type emptySnapshot struct{}

func (emptySnapshot) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (emptySnapshot) Release()                             {}

// TestRaftRunsOnTheLogAndSurvivesPowerLoss drives three groups of one node with
// the real library, in virtual time, through three power losses.
func TestRaftRunsOnTheLogAndSurvivesPowerLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		for life := range 3 {
			l := mustOpen(t, smallConfig("/log"), fs)
			for id := range uint32(3) {
				runRaftLife(t, l.Group(id), life)
			}
			fs.Crash()
			_ = l.Abandon()
		}
	})
}

func runRaftLife(t *testing.T, g *GroupLog, life int) {
	t.Helper()
	cfg := raft.DefaultConfig()
	cfg.LocalID = "n1"
	cfg.Logger = hclog.NewNullLogger()
	_, trans := raft.NewInmemTransport("n1")
	snaps := raft.NewInmemSnapshotStore()
	if life == 0 {
		noErr(t, raft.BootstrapCluster(cfg, g, g, snaps, trans, raft.Configuration{
			Servers: []raft.Server{{ID: "n1", Address: "n1"}},
		}))
	}
	fsm := &countingFSM{}
	r, err := raft.NewRaft(cfg, fsm, g, g, snaps, trans)
	noErr(t, err)
	for deadline := 0; r.State() != raft.Leader; deadline++ {
		if deadline > 1000 {
			t.Fatal("no leader")
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	for i := range 50 {
		noErr(t, r.Apply(fmt.Appendf(nil, "%d-%d", life, i), 0).Error())
	}
	if len(fsm.applied) != 50*(life+1) {
		t.Fatalf("life %d applied %d commands", life, len(fsm.applied))
	}
	for i, command := range fsm.applied {
		if want := fmt.Sprintf("%d-%d", i/50, i%50); command != want {
			t.Fatalf("command %d is %s, want %s", i, command, want)
		}
	}
	noErr(t, r.Shutdown().Error())
}
