package membership

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoadIdentityMintsOnceAndKeeps(t *testing.T) {
	store := memory.New(memory.Config{Durable: true})
	first, err := LoadIdentity(store, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if first.NodeID != "n1" || len(first.Incarnation) != 16 || first.ClusterID != "" {
		t.Fatalf("identity %+v", first)
	}
	if again, err := LoadIdentity(store, "n1"); err != nil || again != first {
		t.Fatalf("second load: %+v, %v", again, err)
	}
	other, err := LoadIdentity(memory.New(memory.Config{}), "n1")
	if err != nil || other.Incarnation == first.Incarnation {
		t.Fatalf("another empty store: %+v, %v", other, err)
	}
}

func TestLoadIdentityRefusesAnotherNodesStore(t *testing.T) {
	store := memory.New(memory.Config{Durable: true})
	if _, err := LoadIdentity(store, "n1"); err != nil {
		t.Fatal(err)
	}
	_, err := LoadIdentity(store, "n2")
	var owner *StoreOwnerError
	if !errors.As(err, &owner) || owner.Owner != "n1" || owner.NodeID != "n2" {
		t.Fatalf("error %v", err)
	}
	if _, err := New(testConfig("n1", "another"), Deps{Logger: hclog.NewNullLogger(), Identity: store}); !errors.As(err, &owner) {
		t.Fatalf("New with an identity that is not the stored one: %v", err)
	}
}

func TestLoadIdentityRefusesWhatItCannotRead(t *testing.T) {
	for _, doc := range []string{"", "garbage", `{"format":2,"nodeId":"n1","incarnation":"a"}`, `{"format":1}`} {
		store := memory.New(memory.Config{Durable: true})
		if err := store.SetMeta(identityDocument, []byte(doc)); err != nil {
			t.Fatal(err)
		}
		if id, err := LoadIdentity(store, "n1"); err == nil {
			t.Errorf("document %q gave identity %+v", doc, id)
		}
	}
}

func testConfig(nodeID, incarnation string) Config {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Incarnation = nodeID, incarnation
	return cfg
}

func TestConfigReportsAllProblems(t *testing.T) {
	good := testConfig("n1", "a")
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	var bad Config
	err := bad.Validate()
	if err == nil {
		t.Fatal("the zero Config is valid")
	}
	for _, name := range []string{"NodeID", "Groups", "ReplicationFactor", "HelloInterval", "RefusalPatience", "SuspectAfter", "FailedAfter"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("problem with %s is not reported", name)
		}
	}
}

func testFormer(t *testing.T, store IdentityStore, seeds ...string) *former {
	t.Helper()
	self := genesis.Node{ID: "a#1", NodeID: "a", Addr: "a:1", Durable: true}
	f, err := newFormer(self, seeds, DefaultTiming(), store)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func node2(id, addr string, expects ...string) genesis.Node {
	nodeID, _, _ := strings.Cut(id, "#")
	return genesis.Node{ID: id, NodeID: nodeID, Addr: addr, Expects: expects, Durable: true}
}

func TestFormerNamesSeedsByWhatAnswersThere(t *testing.T) {
	f := testFormer(t, memory.New(memory.Config{Durable: true}), "alias-of-a", "alias-of-b")
	now := time.Unix(100, 0)
	view := func(at time.Time) string {
		self, _, err := f.electorate(at)
		if err != nil {
			return err.Error()
		}
		return strings.Join(self.View, " ")
	}
	if got := view(now); got != "alias-of-a alias-of-b" {
		t.Fatalf("before any answer: %s", got)
	}
	f.record("alias-of-a", node2("a#1", "a:1"), now)
	f.record("alias-of-b", node2("b#1", "b:1", "a:1", "b:1"), now)
	if got := view(now); got != "a:1 b:1" {
		t.Fatalf("after both answered: %s", got)
	}
	if got := strings.Join(f.targets(now), " "); got != "alias-of-b b:1" {
		t.Fatalf("targets: %s", got)
	}
	if got := view(now.Add(time.Minute)); got != "a:1 alias-of-b" {
		t.Fatalf("after a silence: %s", got)
	}
}

func TestFormerNeverTakesAnotherNodeForItself(t *testing.T) {
	f := testFormer(t, memory.New(memory.Config{Durable: true}), "elsewhere")
	now := time.Unix(100, 0)
	f.record("elsewhere", node2("b#1", "a:1", "a:1"), now)
	if _, _, err := f.electorate(now); err == nil {
		t.Fatal("two nodes with one address were not noticed")
	}
	self, e, err := f.electorate(now.Add(time.Minute))
	if err != nil || self.View.Has("a:1") || len(e.View) != 1 {
		t.Fatalf("after a silence the electorate is %v, %v", e.View, err)
	}
}

func TestFormerReplacesANodeThatLostItsDisk(t *testing.T) {
	f := testFormer(t, memory.New(memory.Config{Durable: true}), "b:1")
	now := time.Unix(100, 0)
	f.record("b:1", node2("b#1", "b:1", "a:1"), now)
	f.record("b:1", node2("b#2", "b:1", "a:1"), now)
	_, e, err := f.electorate(now)
	if err != nil || len(e.Heard) != 2 || e.Heard[1].ID != "b#2" {
		t.Fatalf("heard %+v, %v", e.Heard, err)
	}
}

func TestVotesSurviveARestart(t *testing.T) {
	store := memory.New(memory.Config{Durable: true})
	now := time.Unix(100, 0)
	ready := func() *former {
		f := testFormer(t, store, "a:1", "b:1")
		f.record("b:1", node2("b#1", "b:1", "a:1", "b:1"), now)
		return f
	}
	high := voteMessage{Ballot: genesis.Ballot{Round: 5, Proposer: "b#1"}, View: genesis.NewView("a:1", "b:1"),
		Founder: genesis.Founder{ID: "b#1", Addr: "b:1"}}
	if answer, err := ready().vote(methodAccept, high, now); err != nil || !answer.Granted {
		t.Fatalf("vote: %+v, %v", answer, err)
	}
	low := high
	low.Ballot.Round = 4
	answer, err := ready().vote(methodPrepare, low, now)
	if err != nil || answer.Granted || answer.Founder != high.Founder {
		t.Fatalf("a lower ballot after a restart: %+v, %v", answer, err)
	}
}

func TestVotesAreRefused(t *testing.T) {
	now := time.Unix(100, 0)
	view := genesis.NewView("a:1", "b:1")
	tests := []struct {
		name  string
		msg   voteMessage
		close bool
		code  uint16
	}{
		{"for another electorate", voteMessage{Ballot: genesis.Ballot{Round: 1}, View: genesis.NewView("a:1", "b:1", "c:1")}, false, codeOtherView},
		{"without a number", voteMessage{View: view}, false, codeMalformed},
		{"with a number that leaves no higher one", voteMessage{Ballot: genesis.Ballot{Round: 1 << 63}, View: view}, false, codeMalformed},
		{"after the founding", voteMessage{Ballot: genesis.Ballot{Round: 1}, View: view}, true, codeIsMember},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := testFormer(t, memory.New(memory.Config{Durable: true}), "a:1", "b:1")
			if tt.close {
				f.close()
			}
			_, err := f.vote(methodPrepare, tt.msg, now)
			if _, ok := refusedWith(err, tt.code); !ok {
				t.Fatalf("error %v, want code %d", err, tt.code)
			}
		})
	}
}

func TestRefusalsEndTheSearchOnlyWhenNobodyAnswersForLong(t *testing.T) {
	refusal := answer{err: &mux.RefusedError{Code: mux.RefusedWrongCluster}}
	silence := answer{err: mux.ErrUnreachable}
	now := time.Unix(100, 0)
	patience := 15 * time.Second
	var w refusalWatch
	look := func(after time.Duration, answers ...answer) error { return w.look(answers, patience, now.Add(after)) }
	if err := errors.Join(look(0, refusal), look(10*time.Second, refusal, silence), look(14*time.Second, silence)); err != nil {
		t.Fatalf("gave up early: %v", err)
	}
	if err := errors.Join(look(15*time.Second, answer{}, refusal), look(16*time.Second, refusal)); err != nil {
		t.Fatalf("gave up although somebody answered: %v", err)
	}
	var refused *RefusedError
	if err := look(31*time.Second, refusal); !errors.As(err, &refused) {
		t.Fatalf("error %v, want a refusal", err)
	}
}

func TestSeedsOfTwoClustersAreNotJoined(t *testing.T) {
	member := func(cluster string) answer { return answer{hello: helloMessage{ClusterID: cluster}} }
	if found, err := clustersIn([]answer{member(""), member("x"), {err: mux.ErrUnreachable}, member("x")}); err != nil || len(found) != 2 {
		t.Fatalf("one cluster: %v, %v", found, err)
	}
	if _, err := clustersIn([]answer{member("x"), member("y")}); err == nil {
		t.Fatal("two clusters were taken for one")
	}
}
