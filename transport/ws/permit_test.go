package ws

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/policy"
)

// people is a Verifier whose tokens are "subject:role,role", and "root" for the operator.
type people struct{ tokens }

func (p people) Verify(token string) (auth.Principal, error) {
	subject, roles, _ := strings.Cut(token, ":")
	principal, err := p.tokens.Verify(subject)
	principal.Roles, principal.Admin = strings.Split(roles, ","), subject == "root"
	return principal, err
}

// guarded runs a Server with policies.
func guarded(t *testing.T, anonymous bool, list ...policy.Policy) (*fixture, *policy.Guard) {
	guard := policy.NewGuard(hclog.NewNullLogger())
	f := start(t, func(_ *Config, d *Deps, b *fakeBackend) {
		d.Guard, b.onBarrier = guard, func() error { return nil }
		if !anonymous {
			d.Verifier = people{}
		}
	})
	enforce(t, guard, list...)
	return f, guard
}

func enforce(t *testing.T, g *policy.Guard, list ...policy.Policy) {
	doc, err := policy.Encode(list)
	require.NoError(t, err)
	g.Update(doc, g.Version()+1)
}

func allow(id, pattern, action, condition string, roles ...string) policy.Policy {
	p := policy.Policy{ID: id, MapPattern: pattern, Action: action, Effect: "allow", Roles: roles}
	if condition != "" {
		var err error
		if p.Condition, err = policy.ParseExpression(condition); err != nil {
			panic(err)
		}
	}
	return p
}

func owned(id, key, owner string, millis int64) protocol.ClientOp {
	op := put(id, "own", key, 1)
	op.Record.Value = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "owner"), owner)
	op.Record.Timestamp.Millis = testNow + millis
	return op
}

func removal(id, mapName, key string, millis int64) protocol.ClientOp {
	return protocol.ClientOp{ID: id, MapName: mapName, Key: key, Type: protocol.OpRemove, Record: tombstone(testNow + millis), RecordPresence: protocol.Present}
}

func TestOperationsThatNoPolicyAllowsAreRefusedOneByOne(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "open", "write", ""), allow("b", "open", "remove", "", "janitor"))
	c := f.login("ann:editor")
	c.send(batch(put("1", "open", "a", 1), put("2", "shut", "b", 2), removal("3", "open", "a", 5)))
	require.Equal(t, &protocol.OpRejected{OpID: "2", Reason: `no permission to write map "shut"`, Code: protocol.CodeForbidden, Permanent: true}, expect[*protocol.OpRejected](c))
	require.Equal(t, &protocol.OpRejected{OpID: "3", Reason: `no permission to remove map "open"`, Code: protocol.CodeForbidden, Permanent: true}, expect[*protocol.OpRejected](c))
	require.Equal(t, []string{"1"}, resultIDs(expect[*protocol.OpAck](c)))
	require.Len(t, f.backend.written(), 1)

	c.send(&protocol.ClientOpMessage{Op: put("4", "shut", "b", 2)})
	expect[*protocol.OpRejected](c)
	require.Empty(t, resultIDs(expect[*protocol.OpAck](c)))

	j := f.login("joe:janitor")
	j.send(batch(removal("1", "open", "a", 9)))
	require.Equal(t, "1", expect[*protocol.OpAck](j).LastID)
}

func TestAFenceNeedsPermissionForItsLock(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "open", "all", ""), allow("b", "lock:mine", "write", ""))
	c := f.login("ann:")
	op := func(id, lock string) protocol.ClientOp {
		op := put(id, "open", id, 1)
		op.Fence = &protocol.Fence{Lock: lock, Token: 7}
		return op
	}
	c.send(batch(op("1", "mine"), op("2", "others")))
	require.Equal(t, `no permission to write lock "others"`, expect[*protocol.OpRejected](c).Reason)
	require.Equal(t, []string{"1"}, resultIDs(expect[*protocol.OpAck](c)))
}

// TestOwnershipIsJudgedByWhatIsStored pipelines: a frame must see what earlier ones of its
// connection wrote, and an operation what earlier ones of its frame did.
func TestOwnershipIsJudgedByWhatIsStored(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "own", "all", "(stored == null || stored.owner == auth.id) && (data == null || data.owner == auth.id)"))
	ann, bob := f.login("ann:"), f.login("bob:")
	ann.send(batch(owned("1", "k", "ann", 1), owned("2", "k", "ann", 2)))
	ann.send(batch(owned("3", "k", "ann", 3)))
	ann.send(batch(owned("4", "other", "bob", 3)))
	for _, id := range []string{"2", "3"} {
		require.Equal(t, id, expect[*protocol.OpAck](ann).LastID)
	}
	require.Equal(t, "4", expect[*protocol.OpRejected](ann).OpID, "nobody writes for others")
	expect[*protocol.OpAck](ann)

	bob.send(batch(owned("1", "k", "bob", 9), removal("2", "own", "k", 10)))
	require.Equal(t, "1", expect[*protocol.OpRejected](bob).OpID, "claiming a record does not make it one's own")
	require.Equal(t, "2", expect[*protocol.OpRejected](bob).OpID)
	require.Empty(t, resultIDs(expect[*protocol.OpAck](bob)))

	ann.send(batch(removal("5", "own", "k", 11)))
	require.Equal(t, "5", expect[*protocol.OpAck](ann).LastID)
}

// TestStagesFollowEachOther has policies that allow the second stage of a record only after
// its first: within a frame, and in a frame that comes while the first is under way.
func TestStagesFollowEachOther(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "own", "write", "data.owner == 'first' && stored == null"),
		allow("b", "own", "write", "data.owner == 'second' && stored.owner == 'first'"))
	underWay, release := make(chan struct{}), make(chan struct{})
	f.backend.onWrite = func(_ context.Context, ops []partitions.Op) error {
		if ops[0].Key == "slow" && len(ops) == 1 {
			select {
			case underWay <- struct{}{}:
				<-release
			case <-release:
			}
		}
		return nil
	}
	c := f.login("ann:")
	c.send(batch(owned("1", "k", "first", 1), owned("2", "k", "second", 2)))
	require.Equal(t, &protocol.OpAck{LastID: "2", AchievedLevel: protocol.LevelPersisted}, expect[*protocol.OpAck](c))

	c.send(batch(owned("3", "slow", "first", 1)))
	<-underWay
	c.send(batch(owned("4", "slow", "second", 2)))
	c.silent() // the second frame is being handled
	close(release)
	require.Equal(t, "3", expect[*protocol.OpAck](c).LastID)
	require.Equal(t, "4", expect[*protocol.OpAck](c).LastID)
}

// TestAWriteIsJudgedAgainWhenWhatIsStoredChanges has somebody else write between the
// judgement and the write.
func TestAWriteIsJudgedAgainWhenWhatIsStoredChanges(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "own", "all", "stored == null || stored.owner == auth.id"))
	between := map[string]string{"mine": "ann", "taken": "bob"}
	f.backend.onWrite = func(_ context.Context, ops []partitions.Op) error {
		for _, op := range ops {
			if owner, first := between[op.Key]; first {
				delete(between, op.Key)
				rec := owned("", "", owner, 1).Record
				f.backend.put("own", op.Key, rec)
			}
		}
		return nil
	}
	c := f.login("ann:")
	c.send(batch(owned("1", "free", "ann", 5), owned("2", "taken", "ann", 5), owned("3", "mine", "ann", 5)))
	rejected := expect[*protocol.OpRejected](c)
	require.Equal(t, "2", rejected.OpID)
	require.Equal(t, protocol.CodeForbidden, rejected.Code)
	require.Equal(t, []string{"1", "3"}, resultIDs(expect[*protocol.OpAck](c)))
	written := f.backend.written()
	require.Len(t, written, 4, "three, and the one that was permitted again")
	require.Equal(t, "mine", written[3].Key)
}

func TestWhatCannotBeJudgedAgainIsUnknown(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "own", "all", "stored == null || stored.owner == auth.id"))
	barriers := 0
	f.backend.onBarrier = func() error {
		if barriers++; barriers > 1 {
			return partitions.ErrUnavailable
		}
		return nil
	}
	f.backend.onWrite = func(context.Context, []partitions.Op) error {
		f.backend.put("own", "taken", owned("", "", "bob", 1).Record)
		return nil
	}
	c := f.login("ann:")
	c.send(batch(owned("1", "free", "ann", 5), owned("2", "taken", "ann", 5)))
	require.Equal(t, protocol.CloseRetry, c.expectClose(), "one operation is applied and the other is not")
}

func TestAFailedReadOfWhatIsStoredAppliesNothing(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "own", "all", "stored == null"))
	f.backend.onBarrier = func() error { return partitions.ErrUnavailable }
	c := f.login("ann:")
	c.send(batch(owned("1", "k", "ann", 1)))
	require.Equal(t, protocol.CodeUnavailable, expect[*protocol.ErrorMessage](c).Code)
	require.Empty(t, f.backend.written())
}

func TestPushedRecordsAreJudgedOneByOne(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "own", "write", "data.owner == auth.id"))
	c := f.login("ann:")
	rec := func(owner, tag string) protocol.ORRecord {
		r := owned("", "", owner, 1).Record
		return protocol.ORRecord{Value: r.Value, Timestamp: r.Timestamp, Tag: tag}
	}
	c.send(&protocol.ORMapPushDiff{MapName: "own", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{rec("ann", "1:0:a"), rec("bob", "2:0:b")}}}})
	require.Equal(t, protocol.CodeForbidden, expect[*protocol.ErrorMessage](c).Code)
	eventually(t, func() bool { return len(f.backend.written()) == 1 }, "the permitted one is written")
	require.Equal(t, "1:0:a", f.backend.written()[0].Add.Tag)
}

func leafOf(key string) string { return merkle.Path(merkle.BucketOf(key)) }

func TestSyncsAndEventsShowPermittedRowsOnly(t *testing.T) {
	f, guard := guarded(t, false, allow("w", "own", "all", "", "writer"), allow("r", "own", "read", "data.owner == auth.id"))
	w := f.login("joe:writer")
	w.send(batch(owned("1", "a", "ann", 1), owned("2", "b", "bob", 1)))
	expect[*protocol.OpAck](w)

	c := f.login("ann:reader")
	c.send(&protocol.SyncInit{MapName: "own"})
	expect[*protocol.SyncRespRoot](c)
	var seen []string
	for _, path := range []string{"a", "b"} {
		c.send(&protocol.MerkleReqBucket{MapName: "own", Path: leafOf(path)})
		for _, rec := range expect[*protocol.SyncRespLeaf](c).Records {
			seen = append(seen, rec.Key)
		}
	}
	require.Equal(t, []string{"a"}, seen)

	w.send(batch(owned("3", "c", "bob", 2), owned("4", "d", "ann", 2)))
	expect[*protocol.OpAck](w)
	require.Equal(t, "d", expect[*protocol.ServerEvent](c).Key)

	enforce(t, guard, allow("w", "own", "all", "", "writer"))
	w.send(batch(owned("5", "e", "ann", 3), removal("6", "own", "a", 5)))
	expect[*protocol.OpAck](w)
	c.send(&protocol.MerkleReqBucket{MapName: "own", Path: leafOf("a")})
	require.Equal(t, protocol.CodeForbidden, expect[*protocol.ErrorMessage](c).Code, "no event of a map that may not be read any more")
}

func TestQueriesShowPermittedRowsOnly(t *testing.T) {
	f, guard := guarded(t, false, allow("w", "own", "all", "", "writer"), allow("r", "own", "read", "data.owner == auth.id"))
	w := f.login("joe:writer")
	w.send(batch(owned("1", "a", "ann", 1), owned("2", "b", "bob", 1)))
	expect[*protocol.OpAck](w)

	c := f.login("ann:reader")
	c.send(querySub("q", "own"))
	rows := expect[*protocol.QueryResp](c).Results
	require.Len(t, rows, 1)
	require.Equal(t, "a", rows[0].Key)

	w.send(batch(owned("3", "c", "bob", 2), owned("4", "d", "ann", 2)))
	expect[*protocol.OpAck](w)
	require.Equal(t, "d", expect[*protocol.ServerEvent](c).Key)
	require.Equal(t, protocol.ChangeEnter, expect[*protocol.QueryUpdate](c).ChangeType)

	w.send(batch(owned("5", "d", "bob", 3)))
	expect[*protocol.OpAck](w)
	left := expect[*protocol.QueryUpdate](c)
	require.Equal(t, "d", left.Key)
	require.Equal(t, protocol.ChangeLeave, left.ChangeType, "a row that may not be seen any more leaves")

	enforce(t, guard, allow("w", "own", "all", "", "writer"))
	w.send(batch(owned("6", "e", "ann", 4)))
	expect[*protocol.OpAck](w)
	c.send(querySub("again", "own"))
	require.Equal(t, protocol.CodeForbidden, expect[*protocol.ErrorMessage](c).Code, "nothing of a map that may not be read any more")
}

func TestMessagesOfTopicsStopWithThePermission(t *testing.T) {
	f, guard := guarded(t, false, allow("a", "topic:*", "all", ""))
	c := f.login("ann:")
	c.send(&protocol.TopicSub{Topic: "news"})
	c.silent()
	f.deliverTopic(&topics.Message{Topic: "news", Data: msgp.AppendInt(nil, 1)})
	expect[*protocol.TopicMessage](c)
	enforce(t, guard)
	f.deliverTopic(&topics.Message{Topic: "news", Data: msgp.AppendInt(nil, 2)})
	c.silent()
}

// samples has one message of every kind that clients send.
func samples() map[protocol.Kind]protocol.Message {
	one, _ := protocol.Append(nil, &protocol.QuerySub{QueryID: "q", MapName: "m"})
	hybrid := protocol.HybridQuery{MapName: "m", QueryText: "x", Methods: []string{protocol.MethodExact}, K: 1}
	list := []protocol.Message{
		&protocol.Auth{Token: "again"}, &protocol.DeviceHello{}, &protocol.Ping{Timestamp: msgp.AppendInt64(nil, 1)}, &protocol.PartitionMapRequest{},
		&protocol.ClientApplyAck{Cursor: 1}, &protocol.QueryUnsub{QueryID: "q"}, &protocol.SearchUnsub{SubscriptionID: "s"},
		&protocol.HybridSearchUnsub{SubscriptionID: "s"}, &protocol.HybridQueryUnsubscribe{SubscriptionID: "s"}, &protocol.TopicUnsub{Topic: "t"},
		&protocol.JournalUnsubscribe{SubscriptionID: "s"},
		&protocol.Batch{Count: 1, Data: protocol.AppendBatch(nil, one)}, &protocol.ClientOpMessage{Op: put("1", "m", "k", 1)}, batch(put("2", "m", "k", 2)),
		&protocol.ORMapPushDiff{MapName: "m", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{{Value: []byte{1}, Timestamp: record(1, testNow).Timestamp, Tag: "1:0:a"}}}}},
		&protocol.SyncInit{MapName: "m"}, &protocol.MerkleReqBucket{MapName: "m"}, &protocol.ORMapSyncInit{MapName: "m"}, &protocol.ORMapMerkleReqBucket{MapName: "m"},
		&protocol.ORMapDiffRequest{MapName: "m", Keys: []string{"k"}}, querySub("q", "m"), &protocol.QuerySyncInit{QueryID: "q"},
		&protocol.SQLQuery{QueryID: "q", SQL: "SELECT 1"}, &protocol.HybridQuerySubscribe{SubscriptionID: "s", MapName: "m"},
		&protocol.Search{RequestID: "r", MapName: "m", Query: "x"}, &protocol.SearchSub{SubscriptionID: "s", MapName: "m", Query: "x"},
		&protocol.VectorSearch{ID: "v", MapName: "m", QueryVector: []byte{0, 0, 0, 0}, K: 1}, &protocol.HybridSearch{RequestID: "r", HybridQuery: hybrid},
		&protocol.HybridSearchSub{SubscriptionID: "s", HybridQuery: hybrid},
		&protocol.LockRequest{RequestID: "r", Name: "l"}, &protocol.LockRelease{RequestID: "r", Name: "l", FencingToken: 1},
		&protocol.TopicSub{Topic: "t"}, &protocol.TopicPub{Topic: "t", Data: msgp.AppendInt(nil, 1)},
		&protocol.CounterRequest{Name: "c"}, &protocol.CounterSync{Name: "c", State: protocol.CounterState{Positive: map[string]float64{"a": 1}}},
		&protocol.JournalSubscribe{RequestID: "r"}, &protocol.JournalRead{RequestID: "r", FromSequence: "0"},
		&protocol.EntryProcess{RequestID: "r", MapName: "m", Key: "k", Processor: protocol.Processor{Name: "p"}},
		&protocol.EntryProcessBatch{RequestID: "r", MapName: "m", Keys: []string{"k"}, Processor: protocol.Processor{Name: "p"}},
		&protocol.RegisterResolver{RequestID: "r", MapName: "m", Resolver: protocol.Resolver{Name: "x"}},
		&protocol.UnregisterResolver{RequestID: "r", MapName: "m", ResolverName: "x"}, &protocol.ListResolvers{RequestID: "r"},
	}
	all := map[protocol.Kind]protocol.Message{}
	for _, m := range list {
		all[m.Kind()] = m
	}
	return all
}

// harmless are the kinds that everybody may send, because they neither show nor change
// data.
var harmless = []protocol.Kind{
	protocol.KindAuth, protocol.KindDeviceHello, protocol.KindPing, protocol.KindPartitionMapRequest, protocol.KindClientApplyAck, protocol.KindQueryUnsub,
	protocol.KindSearchUnsub, protocol.KindHybridSearchUnsub, protocol.KindHybridQueryUnsubscribe, protocol.KindTopicUnsub, protocol.KindJournalUnsubscribe,
}

// TestEveryMessageIsDeniedToWhoHasNoPermission is the matrix of callers and messages:
// with a policy for a role only, everybody else gets a refusal of every message that shows
// or changes data, and the role and the operator get none.
func TestEveryMessageIsDeniedToWhoHasNoPermission(t *testing.T) {
	all := samples()
	for _, kind := range protocol.Kinds() {
		if d := kind.Direction(); d != protocol.ClientToServer && d != protocol.BothWays {
			continue
		}
		m := all[kind]
		require.NotNil(t, m, "no sample of %s", kind)
		for _, who := range []struct {
			token  string
			denied bool
		}{{"", true}, {"ann:", true}, {"joe:reader", true}, {"eve:admin", true}, {"kim:editor", false}, {"root:admin", false}} {
			t.Run(kind.String()+" by "+who.token, func(t *testing.T) {
				f, _ := guarded(t, who.token == "", allow("a", "**", "all", "", "editor"))
				c := f.dial()
				if who.token != "" {
					expect[*protocol.AuthRequired](c)
					c.send(&protocol.Auth{Token: who.token})
					expect[*protocol.AuthAck](c)
				}
				c.send(m)
				if kind == protocol.KindORMapPushDiff && !who.denied { // it has no answer
					eventually(t, func() bool { return len(f.backend.written()) == 1 }, "the push is written")
					return
				}
				refused := forbiddenAnswer(c, kind)
				require.Equal(t, who.denied && !slices.Contains(harmless, kind), refused)
				if refused {
					require.Empty(t, f.backend.written())
				}
			})
		}
	}
}

// forbiddenAnswer reports whether a refusal for lack of permission comes before the answer
// to a PING that is sent once everything before has been answered.
func forbiddenAnswer(c *client, kind protocol.Kind) (refused bool) {
	if kind == protocol.KindORMapPushDiff { // its refusal has no turn
		return expect[*protocol.ErrorMessage](c).Code == protocol.CodeForbidden
	}
	c.send(batch(put("last", "$sys/none", "k", 1))) // is refused in its turn, whatever the policies
	for {
		switch m := c.next().(type) {
		case *protocol.ErrorMessage:
			refused = refused || m.Code == protocol.CodeForbidden
		case *protocol.OpRejected:
			if m.OpID == "last" {
				return refused
			}
			refused = refused || m.Code == protocol.CodeForbidden
		}
	}
}

func TestPlansCountNoHiddenRows(t *testing.T) {
	mine, err := policy.ParseExpression("data.owner == 'me'")
	require.NoError(t, err)
	f, _ := guarded(t, true,
		policy.Policy{ID: "a", MapPattern: "open", Action: "all", Effect: "allow"},
		policy.Policy{ID: "b", MapPattern: "rows", Action: "read", Effect: "allow", Condition: mine},
	)
	c := f.dial()
	for _, mapName := range []string{"open", "rows"} {
		f.backend.put(mapName, "k", record(1, testNow))
	}
	explain := func(mapName string, wanted bool) *protocol.QueryPlan {
		c.send(&protocol.QuerySub{QueryID: "q", MapName: mapName, Explain: wanted})
		return expect[*protocol.QueryResp](c).Plan
	}
	require.Nil(t, explain("open", false))
	require.Equal(t, &protocol.QueryPlan{Kind: "scan", Candidates: 1, Matched: 1}, explain("open", true))
	require.Equal(t, &protocol.QueryPlan{Kind: "scan"}, explain("rows", true))
}
