package raftnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/raftnode/logstore"
)

// pipeLayer connects a transport to itself.
type pipeLayer struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeLayer() *pipeLayer {
	return &pipeLayer{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipeLayer) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeLayer) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeLayer) Close() error   { close(p.closed); return nil }
func (p *pipeLayer) Addr() net.Addr { return &net.UnixAddr{Name: "self"} }

// withTransport runs a test with a guarded transport that talks to itself.
func withTransport(t *testing.T, test func(t *testing.T, tr *transport)) {
	synctest.Test(t, func(t *testing.T) {
		tr := &transport{
			NetworkTransport: newTransport(newPipeLayer(), time.Second, hclog.NewNullLogger()),
			peers:            newPeers(hclog.NewNullLogger()),
			fenced:           func() error { return nil },
			progressed:       func() {},
			stop:             t.Context().Done(),
		}
		test(t, tr)
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		tr.CloseStreams()
	})
}

// serve answers the messages to the transport with resp until the test ends.
func serve(tr *transport, resp any) (served *atomic.Int64) {
	served = new(atomic.Int64)
	go func() {
		for {
			select {
			case rpc := <-tr.Consumer():
				served.Add(1)
				rpc.Respond(resp, nil)
			case <-tr.stop:
				return
			}
		}
	}()
	return served
}

func heartbeat(term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("self"), Addr: []byte("self")},
		Term:      term, Leader: []byte("self"),
	}
}

// hashicorp/raft issue 695: the fast path handles heartbeats beside the main loop.
func TestHeartbeatsTakeTheMainLoop(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		tr.SetHeartbeatHandler(func(raft.RPC) { t.Error("a heartbeat took the fast path") })
		served := serve(tr, &raft.AppendEntriesResponse{Success: true})
		var resp raft.AppendEntriesResponse
		if err := tr.AppendEntries("self", "self", heartbeat(1), &resp); err != nil || served.Load() != 1 {
			t.Errorf("%v, %d messages on the main loop", err, served.Load())
		}
	})
}

func TestTransportKeepsPreVote(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		if _, ok := any(tr).(raft.WithPreVote); !ok {
			t.Error("pre-vote is lost, so a returning node disturbs the leader")
		}
		if _, ok := any(tr).(raft.WithClose); !ok {
			t.Error("the library cannot close the transport")
		}
	})
}

// hashicorp/raft issue 612: a pipeline can stick for good.
func TestEntriesAreNotPipelined(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		if _, err := tr.AppendEntriesPipeline("self", "self"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
			t.Errorf("pipeline: %v", err)
		}
	})
}

// hashicorp/raft issue 503: a leader whose disk hangs keeps its followers quiet.
func TestFencedNodeSendsNothingAsALeader(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		served := serve(tr, &raft.AppendEntriesResponse{Success: true})
		tr.fenced = func() error { return errFenced }
		var resp raft.AppendEntriesResponse
		if err := tr.AppendEntries("self", "self", heartbeat(1), &resp); !errors.Is(err, errFenced) {
			t.Errorf("heartbeat: %v", err)
		}
		req := &raft.InstallSnapshotRequest{Term: 1}
		if err := tr.InstallSnapshot("self", "self", req, &raft.InstallSnapshotResponse{}, nil); !errors.Is(err, errFenced) {
			t.Errorf("snapshot: %v", err)
		}
		if served.Load() != 0 {
			t.Errorf("%d messages arrived", served.Load())
		}
	})
}

func TestProgressOfFollowersIsKnown(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		serve(tr, &raft.AppendEntriesResponse{Success: true})
		req := heartbeat(3)
		req.PrevLogEntry = 7
		req.Entries = []*raft.Log{{Index: 8}, {Index: 9}}
		var resp raft.AppendEntriesResponse
		if err := tr.AppendEntries("self", "self", req, &resp); err != nil {
			t.Fatal(err)
		}
		f, known := tr.peers.follower("self", 3)
		if !known || f.Match != 9 || !f.Contact.Equal(time.Now()) {
			t.Errorf("follower %+v, known %v", f, known)
		}
		if _, known := tr.peers.follower("self", 4); known {
			t.Error("progress of an earlier term counts in the next")
		}
	})
}

func TestMessagesThatSayNothingNewAreRare(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		served := serve(tr, &raft.AppendEntriesResponse{Term: 3, Success: true})
		tr.repeat = 100 * time.Millisecond
		send := func(change func(*raft.AppendEntriesRequest)) int64 {
			t.Helper()
			req := heartbeat(3)
			req.PrevLogEntry, req.LeaderCommitIndex = 7, 6
			change(req)
			before := served.Load()
			resp := raft.AppendEntriesResponse{}
			if err := tr.AppendEntries("self", "self", req, &resp); err != nil || !resp.Success || resp.Term != 3 {
				t.Fatalf("%+v, %v", resp, err)
			}
			return served.Load() - before
		}
		same := func(*raft.AppendEntriesRequest) {}
		for i, step := range []struct {
			what   string
			change func(*raft.AppendEntriesRequest)
			sent   int64
		}{
			{"first", same, 1},
			{"repeated", same, 0},
			{"more is committed", func(r *raft.AppendEntriesRequest) { r.LeaderCommitIndex = 7 }, 1},
			{"what was said before", same, 1},
			{"entries", func(r *raft.AppendEntriesRequest) { r.Entries = []*raft.Log{{Index: 8}} }, 1},
			{"log is longer", func(r *raft.AppendEntriesRequest) { r.PrevLogEntry = 8 }, 1},
		} {
			if got := send(step.change); got != step.sent {
				t.Errorf("step %d, %s: %d messages", i, step.what, got)
			}
		}
		count := func(heartbeats bool) (sent int64) {
			for range 100 {
				if heartbeats {
					tr.peers.answered("self", 3)
				}
				sent += send(same)
				time.Sleep(10 * time.Millisecond)
			}
			return sent
		}
		send(same)
		if sent := count(false); sent < 9 || sent > 12 {
			t.Errorf("%d messages in a second without heartbeats", sent)
		}
		if sent := count(true); sent < 1 || sent > 3 {
			t.Errorf("%d messages in a second beside heartbeats", sent)
		}
		tr.peers.failed("self", 3, nil)
		tr.peers.answered("self", 3)
		if got := send(same); got != 1 {
			t.Error("a follower that was away is not told again")
		}
		tr.peers.answered("self", 4)
		if tr.peers.repeats("self", heartbeat(3), time.Hour) {
			t.Error("an earlier term's answer is repeated")
		}
	})
}

func TestLargeEntriesTravelInSeveralMessages(t *testing.T) {
	withTransport(t, func(t *testing.T, tr *transport) {
		served := serve(tr, &raft.AppendEntriesResponse{Term: 3, Success: true})
		entries := make([]*raft.Log, 10)
		for i := range entries {
			entries[i] = &raft.Log{Index: uint64(i + 1), Data: make([]byte, maxMessageBytes/4)}
		}
		entries[4].Data = make([]byte, 2*maxMessageBytes)
		var sizes []int
		for len(entries) > 0 {
			req := heartbeat(3)
			req.Entries = entries
			if err := tr.AppendEntries("self", "self", req, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(req.Entries))
			entries = entries[len(req.Entries):]
		}
		if want := []int{4, 1, 4, 1}; !slices.Equal(sizes, want) || served.Load() != 4 {
			t.Errorf("messages of %v entries, want %v", sizes, want)
		}
		if f, _ := tr.peers.follower("self", 3); f.Match != 10 {
			t.Errorf("follower has %d entries", f.Match)
		}
	})
}

func TestMessagesWaitForALinkThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(hclog.NewNullLogger())
		waits := func(stop <-chan struct{}) time.Duration {
			start := time.Now()
			p.await("a", 2, stop)
			return time.Since(start)
		}
		if took := waits(nil); took != 0 {
			t.Errorf("a link that is up delays by %s", took)
		}
		p.failed("a", 2, nil)
		if took := waits(nil); took != linkWait {
			t.Errorf("a link that stays down delays by %s", took)
		}
		time.AfterFunc(300*time.Millisecond, func() { p.answered("a", 2) })
		if took := waits(nil); took != 300*time.Millisecond {
			t.Errorf("a link that comes back delays by %s", took)
		}
		p.failed("a", 2, nil)
		time.AfterFunc(100*time.Millisecond, func() { p.answered("b", 3) })
		if took := waits(nil); took != 100*time.Millisecond {
			t.Errorf("the end of the term comes after %s", took)
		}
		p.failed("a", 3, nil)
		stopped := make(chan struct{})
		close(stopped)
		if took := waits(stopped); took != 0 {
			t.Errorf("a stopped instance waits for %s", took)
		}
	})
}

// The library forgets futures when it shuts down.
func TestForgottenFuturesEndWithTheInstance(t *testing.T) {
	simulate(t, 1, 1, func(t *testing.T, c *cluster) {
		c.startAll()
		n := c.leader()
		in := n.group().instance()
		block := make(chan struct{})
		n.group().applier.machine = slowMachine{StateMachine: n.group().machine, block: block}
		var outcomes []chan error
		for i := range 20 {
			done := make(chan error, 1)
			outcomes = append(outcomes, done)
			f := in.raft.Apply([]byte{byte(i)}, 0)
			go func() { done <- in.await(f) }()
			synctest.Wait()
		}
		time.AfterFunc(time.Second, func() { close(block) })
		c.must(n.host.Close())
		for i, done := range outcomes {
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatalf("future %d was never answered", i)
			}
		}
	})
}

// slowMachine applies nothing until it may.
type slowMachine struct {
	StateMachine
	block chan struct{}
}

func (m slowMachine) Apply(entries []fsm.Entry) ([][]command.Result, error) {
	<-m.block
	return make([][]command.Result, len(entries)), nil
}

// hashicorp/raft issue 696: the flag of a leadership transfer is never taken back.
func TestEndlessTransferReplacesTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &instance{broken: make(chan string, 1)}
		const limit = 3 * time.Second
		in.noteRefusal(raft.ErrLeadershipTransferInProgress, limit)
		time.Sleep(limit / 2)
		in.noteRefusal(nil, limit)
		for range 4 {
			in.noteRefusal(raft.ErrLeadershipTransferInProgress, limit)
			time.Sleep(limit / 4)
		}
		if len(in.broken) != 0 {
			t.Fatal("a transfer that takes its time is no reason")
		}
		time.Sleep(time.Second)
		in.noteRefusal(raft.ErrLeadershipTransferInProgress, limit)
		if len(in.broken) != 1 {
			t.Error("the instance is not replaced")
		}
	})
}

func TestReplacedInstanceGoesOnWithLogAndState(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		for round := range 3 {
			leader := c.leader()
			leader.fill(fmt.Sprint("r", round), 20)
			p, err := leader.host.Propose(testGroup, []Command{put("k", "v")})
			c.must(err)
			leader.group().instance().replace("test")
			if _, err := p.Wait(context.Background()); err != nil && !errors.Is(err, ErrUnknown) && !isNotLeader(err) {
				t.Errorf("proposal under way: %v", err)
			}
			c.eventually(time.Second, "a new instance", func() bool {
				return leader.group().counters.replaced.Load() > 0
			})
			leader.group().counters.replaced.Store(0)
		}
		c.leader()
		c.converge()
		c.noFatal()
	})
}

// failingLog fails every call.
type failingLog struct{ groupLog }

func (failingLog) StoreLogs([]*raft.Log) error      { return logstore.ErrFailed }
func (failingLog) GetLog(uint64, *raft.Log) error   { return logstore.ErrFailed }
func (failingLog) SetUint64([]byte, uint64) error   { return logstore.ErrFailed }
func (failingLog) Get([]byte) ([]byte, error)       { return nil, logstore.ErrFailed }
func (failingLog) DeleteRange(uint64, uint64) error { return logstore.ErrFailed }
func (failingLog) FirstIndex() (uint64, error)      { return 0, logstore.ErrFailed }
func (failingLog) LastIndex() (uint64, error)       { return 0, logstore.ErrFailed }
func (failingLog) Set([]byte, []byte) error         { return logstore.ErrFailed }
func (failingLog) GetUint64([]byte) (uint64, error) { return 0, logstore.ErrFailed }

func TestFailedStorageNeverReturnsToTheLibrary(t *testing.T) {
	for name, call := range map[string]func(g *guardedLog){
		"store":      func(g *guardedLog) { _ = g.StoreLog(&raft.Log{}) },
		"get":        func(g *guardedLog) { _ = g.GetLog(1, &raft.Log{}) },
		"delete":     func(g *guardedLog) { _ = g.DeleteRange(1, 2) },
		"first":      func(g *guardedLog) { _, _ = g.FirstIndex() },
		"last":       func(g *guardedLog) { _, _ = g.LastIndex() },
		"set":        func(g *guardedLog) { _ = g.Set([]byte("k"), nil) },
		"set uint64": func(g *guardedLog) { _ = g.SetUint64([]byte("k"), 1) },
		"get key":    func(g *guardedLog) { _, _ = g.Get([]byte("k")) },
		"get uint64": func(g *guardedLog) { _, _ = g.GetUint64([]byte("k")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fatal, stop, ended := make(chan error, 1), make(chan struct{}), make(chan struct{})
				g := &guardedLog{
					groupLog: failingLog{}, limit: 1 << 20,
					fatal: func(err error) { fatal <- err }, stop: stop,
				}
				g.armed.Store(true)
				go func() {
					defer close(ended)
					call(g)
					t.Error("the call returned")
				}()
				if err := <-fatal; !errors.Is(err, logstore.ErrFailed) {
					t.Errorf("fatal: %v", err)
				}
				synctest.Wait()
				close(stop)
				<-ended
			})
		})
	}
}

func TestMissingEntriesAndKeysAreNoFailure(t *testing.T) {
	log := memLog(t)
	g := &guardedLog{groupLog: log, limit: 1 << 20, fatal: func(err error) { t.Errorf("fatal: %v", err) }}
	g.armed.Store(true)
	if err := g.GetLog(1, &raft.Log{}); err != raft.ErrLogNotFound { //nolint:errorlint // the library compares so
		t.Errorf("missing entry: %v", err)
	}
	if _, err := g.Get([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("missing key: %v", err)
	}
	if _, err := g.GetUint64([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("missing number: %v", err)
	}
}

func TestEntriesBehindAnInstalledSnapshotSurviveTheClearingOfTheLog(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replaced bool
		term     uint64 // of the snapshot; the log has term 3
		last     uint64 // that must be left
		replace  bool
	}{
		{name: "same history", replaced: true, term: 3, last: 9, replace: true},
		{name: "another history", replaced: true, term: 4, last: 0, replace: true},
		{name: "state was ahead", replaced: false, term: 4, last: 9, replace: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := memLog(t)
			storeEntries(t, log, 1, 9, 3)
			g := &Group{id: testGroup, log: log, logger: hclog.NewNullLogger()}
			in := &instance{broken: make(chan string, 1), log: &guardedLog{groupLog: log}}
			g.installed(in, &raft.SnapshotMeta{Index: 5, Term: tc.term}, tc.replaced)
			// This is what the library does next.
			if err := in.log.DeleteRange(1, 9); err != nil {
				t.Fatal(err)
			}
			last, err := log.LastIndex()
			if err != nil || last != tc.last {
				t.Errorf("log ends at %d, %v", last, err)
			}
			if (len(in.broken) == 1) != tc.replace {
				t.Error("the instance goes on with a wrong last index")
			}
		})
	}
}

// restoringMachine counts what happens to it.
type restoringMachine struct {
	StateMachine
	applied     uint64
	checkpoints int
}

func (m *restoringMachine) Applied() (uint64, uint64) { return m.applied, 1 }
func (m *restoringMachine) Checkpoint(_ context.Context, at fsm.Position) error {
	m.checkpoints++
	if at.Index != 5 {
		return errors.New("wrong position")
	}
	return nil
}

func TestSnapshotNeverSetsTheStateBack(t *testing.T) {
	m := &restoringMachine{applied: 8}
	a := &applier{machine: m}
	replaced, err := a.restore(&raft.SnapshotMeta{Index: 5, Term: 1}, nil)
	if err != nil || replaced || m.checkpoints != 1 {
		t.Errorf("replaced %v, %d checkpoints, %v", replaced, m.checkpoints, err)
	}
}
