package membership

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

// FuzzMessages gives bytes to every decoder of what peers say and of what the store keeps:
// they are refused with the code for it, or mean the same when they are written again, and
// what follows from them keeps its bounds.
func FuzzMessages(f *testing.F) {
	node := genesis.Node{ID: "a#1", NodeID: "a", Addr: "h:1", Expects: []string{"h:2"}, View: genesis.NewView("h:1", "h:2"), Durable: true}
	ballot := genesis.Ballot{Round: 3, Proposer: "a#1"}
	founder := genesis.Founder{ID: "a#1", Addr: "h:1"}
	for _, seed := range []any{
		helloMessage{Node: node, Boot: "b", ClusterID: "c", Members: peerAddrs{"a#1": "h:1"}},
		voteMessage{Ballot: ballot, View: node.View, Founder: founder},
		genesis.Answer{Granted: true, Promised: ballot, Accepted: ballot, Founder: founder},
		genesis.Acceptor{Promised: ballot, Accepted: ballot, Founder: founder},
		joinRequest{ID: "a#1", NodeID: "a", Addr: "h:1", ClientURL: "ws://h/ws"}, joinReply{ClusterID: "c", Members: peerAddrs{"a#1": "h:1"}},
		leaveRequest{ID: "a#1"}, leaveReply{Removed: true},
		pingMessage{ID: "a#1", Addr: "h:1", Table: 3, HeardMillis: map[raftnode.ServerID]int64{"b#1": 700}, Groups: []groupReport{{Group: 1, Voters: []raftnode.ServerID{"a#1"}}}},
		pingMessage{ID: "a#1", HeardMillis: map[raftnode.ServerID]int64{"b#1": 18446744073710, "c#1": -1}},
		identityRecord{Format: identityFormat, NodeID: "n1", Incarnation: "i", ClusterID: "c", Founding: "d", Groups: 7},
	} {
		f.Add(encode(seed))
	}
	f.Add([]byte(`{"node":null,"members":{"":""},"heardMillis":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		hello := readsBack[helloMessage](t, body)
		readsBack[voteMessage](t, body)
		readsBack[genesis.Answer](t, body)
		readsBack[joinRequest](t, body)
		readsBack[joinReply](t, body)
		readsBack[leaveRequest](t, body)
		readsBack[leaveReply](t, body)
		readsBack[expelRequest](t, body)
		checkElectorate(t, hello.Node)
		checkHearsay(t, readsBack[pingMessage](t, body))
		checkDocuments(t, body)
	})
}

// readsBack holds that body is no T, or the T that is read from its own encoding.
func readsBack[T any](t *testing.T, body []byte) T {
	t.Helper()
	msg, err := decode[T](body)
	if err != nil {
		var refusal *mux.RemoteError
		if !errors.As(err, &refusal) || refusal.Code != codeMalformed {
			t.Fatalf("%T: untyped error %v", msg, err)
		}
		return msg
	}
	again, err := decode[T](encode(msg))
	if err != nil || !cmp.Equal(msg, again, cmpopts.EquateEmpty()) {
		t.Fatalf("%+v reads back as %+v: %v", msg, again, err)
	}
	return msg
}

// checkElectorate holds that a node whatever it says about itself leaves an electorate
// whose quorums meet.
func checkElectorate(t *testing.T, heard genesis.Node) {
	t.Helper()
	self := genesis.Node{ID: "self#1", Addr: "self:1", Expects: []string{"self:1", "h:1", heard.Addr}, Durable: true}
	e, err := genesis.Assess(self, []genesis.Node{heard})
	if err != nil {
		var conflict *genesis.AddressConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("untyped error %v", err)
		}
		return
	}
	if e.Quorum < e.View.Majority() || e.Quorum > len(e.View) || !slices.IsSorted(e.View) || len(e.Heard) > 2 || !e.View.Has("self:1") {
		t.Fatalf("%+v gives electorate %+v", heard, e)
	}
}

// checkHearsay holds that a peer is taken for silent exactly as long as msg says, and that
// a report of a silence that is long, or in the future, counts for nothing.
func checkHearsay(t *testing.T, msg pingMessage) {
	t.Helper()
	timing, now := DefaultConfig().Timing, time.Unix(1_700_000_000, 0)
	book := newPeerBook(timing, now)
	book.update(msg, now)
	for id, millis := range msg.HeardMillis {
		at, known := book.detector.heard[string(id)]
		if id == msg.ID {
			continue
		}
		believed := millis >= 0 && millis < timing.FailedAfter.Milliseconds()
		if known != believed || known && now.Sub(at).Milliseconds() != millis {
			t.Fatalf("%s, heard of %d ms ago, is known %v since %v", id, millis, known, now.Sub(at))
		}
	}
}

// checkDocuments holds that a store with body as a document is refused, or gives what was
// written.
func checkDocuments(t *testing.T, body []byte) {
	t.Helper()
	store := memory.New(memory.Config{Durable: true})
	for _, name := range []string{identityDocument, acceptorDocument, peersDocument} {
		if err := store.SetMeta(name, body); err != nil {
			t.Fatal(err)
		}
	}
	if id, err := LoadIdentity(store, "n1"); err == nil && (id.NodeID != "n1" || id.Incarnation == "") {
		t.Fatalf("identity %+v", id)
	}
	a, err := loadAcceptor(store)
	if err != nil {
		return
	}
	if err := saveDocument(store, acceptorDocument, a); err != nil {
		t.Fatal(err)
	}
	if again, err := loadAcceptor(store); err != nil || again != a {
		t.Fatalf("acceptor %+v reads back as %+v: %v", a, again, err)
	}
}
