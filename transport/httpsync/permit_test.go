package httpsync

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/policy"
)

// guarded has requests judged by policies; the client is anonymous.
func guarded(t *testing.T, list ...policy.Policy) func(*Config, *Deps) {
	doc, err := policy.Encode(list)
	require.NoError(t, err)
	guard := policy.NewGuard(hclog.NewNullLogger())
	guard.Update(doc, 1)
	return func(_ *Config, d *Deps) { d.Guard = guard }
}

func ownedBy(owner string) protocol.Record {
	return protocol.Record{Value: msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "owner"), owner), Timestamp: protocol.Timestamp{Millis: 1, NodeID: "c"}}
}

func TestOnlyWhatPoliciesAllowIsWrittenAndShown(t *testing.T) {
	mine, err := policy.ParseExpression("data.owner == 'me'")
	require.NoError(t, err)
	rules := guarded(t,
		policy.Policy{ID: "a", MapPattern: "open", Action: "all", Effect: "allow"},
		policy.Policy{ID: "b", MapPattern: "rows", Action: "read", Effect: "allow", Condition: mine},
	)
	b := &fakeBackend{
		rows: []partitions.Row{{Key: "k", Record: ownedBy("me")}, {Key: "l", Record: ownedBy("you")}},
		deltas: map[string][]protocol.KeyedRecord{"rows": {
			{Key: "mine", Record: ownedBy("me")}, {Key: "yours", Record: ownedBy("you")}, {Key: "gone", Record: protocol.Record{Timestamp: protocol.Timestamp{Millis: 1}}},
		}},
	}
	query := func(id, mapName string) protocol.HTTPQuery {
		return protocol.HTTPQuery{QueryID: id, MapName: mapName, Filter: msgp.AppendNil(nil)}
	}
	answer := sync(t, b, &protocol.HTTPSync{
		Operations: []protocol.ClientOp{put("1", "open", "a"), put("2", "shut", "b")},
		SyncMaps:   []protocol.HTTPSyncMap{{MapName: "rows"}, {MapName: "shut"}},
		Queries:    []protocol.HTTPQuery{query("q1", "open"), query("q2", "shut"), query("q3", "rows")},
	}, rules)
	require.Len(t, b.written, 1)
	require.Equal(t, "open", b.written[0].Map)
	require.Equal(t, "1", answer.Ack.Results[0].OpID)
	require.Equal(t, []protocol.HTTPError{
		{Code: 403, Message: `no permission to write map "shut" (map "shut")`, Context: "2"},
		{Code: 403, Message: `no permission to read map "shut"`},
		{Code: 403, Message: `no permission to read map "shut"`, Context: "q2"},
	}, answer.Errors)
	require.Len(t, answer.Deltas, 1)
	var shown []string
	for _, rec := range answer.Deltas[0].Records {
		shown = append(shown, rec.Key)
	}
	require.Equal(t, []string{"mine", "gone"}, shown)
	require.Len(t, answer.QueryResults, 2)
	require.Len(t, answer.QueryResults[0].Results, 2)
	require.Len(t, answer.QueryResults[1].Results, 1, "rows are judged one by one")
}

// TestRemovalsAreToldToWhoMaySeeTheKey has a policy that looks at keys.
func TestRemovalsAreToldToWhoMaySeeTheKey(t *testing.T) {
	mine, err := policy.ParseExpression("key startsWith 'my-'")
	require.NoError(t, err)
	gone := protocol.Record{Timestamp: protocol.Timestamp{Millis: 1}}
	b := &fakeBackend{deltas: map[string][]protocol.KeyedRecord{"rows": {{Key: "my-1", Record: gone}, {Key: "your-1", Record: gone}}}}
	answer := sync(t, b, &protocol.HTTPSync{SyncMaps: []protocol.HTTPSyncMap{{MapName: "rows"}}},
		guarded(t, policy.Policy{ID: "a", MapPattern: "rows", Action: "read", Effect: "allow", Condition: mine}))
	require.Len(t, answer.Deltas[0].Records, 1)
	require.Equal(t, "my-1", answer.Deltas[0].Records[0].Key)
}

func TestAFailedReadOfWhatIsStoredIsNoVerdict(t *testing.T) {
	stored, err := policy.ParseExpression("stored == null")
	require.NoError(t, err)
	b := &fakeBackend{reads: partitions.ErrUnavailable}
	answer := sync(t, b, &protocol.HTTPSync{Operations: []protocol.ClientOp{put("1", "m", "a")}},
		guarded(t, policy.Policy{ID: "a", MapPattern: "*", Action: "all", Effect: "allow", Condition: stored}))
	require.Nil(t, answer.Ack)
	require.Equal(t, protocol.CodeUnavailable, answer.Errors[0].Code)
	require.Empty(t, b.written)
}

func TestPlansCountNoHiddenRows(t *testing.T) {
	mine, err := policy.ParseExpression("data.owner == 'me'")
	require.NoError(t, err)
	rules := guarded(t,
		policy.Policy{ID: "a", MapPattern: "open", Action: "all", Effect: "allow"},
		policy.Policy{ID: "b", MapPattern: "rows", Action: "read", Effect: "allow", Condition: mine},
	)
	b := &fakeBackend{rows: []partitions.Row{{Key: "k", Record: ownedBy("me")}, {Key: "l", Record: ownedBy("you")}}}
	query := func(mapName string, explain bool) *protocol.QueryPlan {
		q := protocol.HTTPQuery{QueryID: "q", MapName: mapName, Explain: explain}
		return sync(t, b, &protocol.HTTPSync{Queries: []protocol.HTTPQuery{q}}, rules).QueryResults[0].Plan
	}
	require.Nil(t, query("open", false))
	require.Equal(t, &protocol.QueryPlan{Kind: "scan", Candidates: 2, Matched: 2}, query("open", true))
	require.Equal(t, &protocol.QueryPlan{Kind: "scan"}, query("rows", true))
}
