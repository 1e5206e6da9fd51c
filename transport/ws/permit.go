package ws

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// errForbidden: what a query shows may not be read any more.
var errForbidden = errors.New("no permission to read the map any more")

// caller is the client as policies see it.
func (c *conn) caller() policy.Caller {
	if caller := c.auth.caller.Load(); caller != nil {
		return *caller
	}
	return policy.Caller{}
}

func (c *conn) permission() judge.Permission {
	return judge.Permission{Access: policy.Access{Guard: c.srv.deps.Guard, Caller: c.caller()}, Reader: c.backend, Session: c.session}
}

func onMap(name string) policy.Resource { return policy.Resource{Kind: policy.Map, Name: name} }

// may reports whether the client may do something to what has no rows.
func (c *conn) may(action policy.Action, kind policy.Kind, name string) bool {
	return c.permission().Access.Judge(action, policy.Resource{Kind: kind, Name: name}, policy.Row{})
}

// demand is what a message asks for; messages that write records are judged operation by
// operation.
type demand struct {
	action   policy.Action
	resource policy.Resource
	// whole: permission for some rows is not enough.
	whole bool
}

// demands lists what the sender of m must be permitted. A kind of messages that has no row
// here is not known to be harmless, and refused while there are policies.
func demands(m protocol.Message) (list []demand, known bool) {
	switch m := m.(type) {
	case *protocol.Ping, *protocol.Auth, *protocol.DeviceHello, *protocol.PartitionMapRequest, *protocol.ClientApplyAck,
		*protocol.QueryUnsub, *protocol.SearchUnsub, *protocol.HybridSearchUnsub, *protocol.HybridQueryUnsubscribe,
		*protocol.TopicUnsub, *protocol.JournalUnsubscribe:
		return nil, true
	case *protocol.Batch, *protocol.ClientOpMessage, *protocol.OpBatch, *protocol.ORMapPushDiff: // judged by what is in them
		return nil, true
	case *protocol.SyncInit:
		return sees(m.MapName), true
	case *protocol.MerkleReqBucket:
		return sees(m.MapName), true
	case *protocol.ORMapSyncInit:
		return sees(m.MapName), true
	case *protocol.ORMapMerkleReqBucket:
		return sees(m.MapName), true
	case *protocol.ORMapDiffRequest:
		return sees(m.MapName), true
	}
	if list := queryDemands(m); list != nil {
		return list, true
	}
	list = messagingDemands(m)
	return list, list != nil
}

// sees asks to read those rows of a map that the client may see.
func sees(mapName string) []demand { return []demand{{action: policy.Read, resource: onMap(mapName)}} }

// on asks for all of a resource.
func on(action policy.Action, kind policy.Kind, name string) demand {
	return demand{action: action, resource: policy.Resource{Kind: kind, Name: name}, whole: true}
}

// queryDemands are those of queries and searches. What names no map can see all of them.
func queryDemands(m protocol.Message) []demand {
	mapName := ""
	switch m := m.(type) {
	case *protocol.QuerySub: // its rows are judged one by one
		return sees(m.MapName)
	case *protocol.Search:
		mapName = m.MapName
	case *protocol.SearchSub:
		mapName = m.MapName
	case *protocol.VectorSearch:
		mapName = m.MapName
	case *protocol.HybridSearch:
		mapName = m.MapName
	case *protocol.HybridSearchSub:
		mapName = m.MapName
	case *protocol.HybridQuerySubscribe:
		mapName = m.MapName
	case *protocol.QuerySyncInit, *protocol.SQLQuery:
	default:
		return nil
	}
	return []demand{on(policy.Read, policy.Map, mapName)}
}

// messagingDemands are those of everything else.
func messagingDemands(m protocol.Message) []demand {
	switch m := m.(type) {
	case *protocol.LockRequest:
		return []demand{on(policy.Write, policy.Lock, m.Name)}
	case *protocol.LockRelease:
		return []demand{on(policy.Write, policy.Lock, m.Name)}
	case *protocol.TopicSub:
		return []demand{on(policy.Read, policy.Topic, m.Topic)}
	case *protocol.TopicPub:
		return []demand{on(policy.Write, policy.Topic, m.Topic)}
	case *protocol.CounterRequest:
		return []demand{on(policy.Read, policy.Counter, m.Name)}
	case *protocol.CounterSync: // its answer is the state of the counter
		return []demand{on(policy.Write, policy.Counter, m.Name), on(policy.Read, policy.Counter, m.Name)}
	case *protocol.JournalSubscribe:
		return []demand{on(policy.Read, policy.Journal, m.MapName)}
	case *protocol.JournalRead:
		return []demand{on(policy.Read, policy.Journal, m.MapName)}
	case *protocol.EntryProcess:
		return []demand{on(policy.Read, policy.Map, m.MapName), on(policy.Write, policy.Map, m.MapName)}
	case *protocol.EntryProcessBatch:
		return []demand{on(policy.Read, policy.Map, m.MapName), on(policy.Write, policy.Map, m.MapName)}
	case *protocol.RegisterResolver:
		return []demand{on(policy.Write, policy.Map, m.MapName)}
	case *protocol.UnregisterResolver:
		return []demand{on(policy.Write, policy.Map, m.MapName)}
	case *protocol.ListResolvers:
		return []demand{on(policy.Read, policy.Map, m.MapName)}
	default:
		return nil
	}
}

// forbidden is the refusal of a message that policies do not allow.
func (c *conn) forbidden(m protocol.Message) judge.Refusal {
	access := c.permission().Access
	if !access.Guard.Set().Restricts() {
		return judge.Refusal{}
	}
	list, known := demands(m)
	if !known && !access.Caller.Admin && m.Kind().Direction() == protocol.ClientToServer {
		return judge.Refusal{Code: protocol.CodeForbidden, Reason: "no permission for " + m.Kind().String()}
	}
	for _, d := range list {
		switch decision := access.Scope(d.action, d.resource); {
		case decision == policy.Denied:
			return judge.Denied(d.action, d.resource)
		case decision == policy.Depends && d.whole:
			return judge.Refusal{Code: protocol.CodeForbidden, Reason: fmt.Sprintf("only some rows of %s are permitted", d.resource)}
		}
	}
	return judge.Refusal{}
}

// refuseForbidden answers a message that is not permitted.
func (c *conn) refuseForbidden(m protocol.Message, r judge.Refusal) {
	c.srv.metrics.limit("forbidden")
	c.reply(failureOf(m, r.Code, r.Reason))
	switch m := m.(type) {
	case *protocol.LockRequest: // without id: see receiveLockRequest
		c.reply(&protocol.LockReleased{Name: m.Name, Reason: r.Reason})
	case *protocol.LockRelease:
		c.reply(&protocol.LockReleased{RequestID: m.RequestID, Name: m.Name, Reason: r.Reason})
	}
}

// maySee reports whether a record may be shown to the client. A tombstone has no value to
// judge, and whoever has the record must hear that it is gone: it is shown to all who may see
// some record under its key.
func (c *conn) maySee(mapName, key string, value []byte) bool {
	access := c.permission().Access
	if !access.Guard.Set().Restricts() {
		return true
	}
	switch {
	case len(value) > 0:
		return access.Allow(policy.Read, mapName, key, value, nil)
	case key == "": // of a removed tag whose key nobody has named
		return access.Scope(policy.Read, onMap(mapName)) != policy.Denied
	default:
		return access.ScopeOf(policy.Read, mapName, key) != policy.Denied
	}
}

// mayHear is maySee for a change.
func (c *conn) mayHear(mapName string, e *partitions.Event) bool {
	if e.Added != nil {
		return c.maySee(mapName, e.Key, e.Added.Value)
	}
	return c.maySee(mapName, e.Key, e.Record.Value)
}

// visible is what the client may see of a key of an observed-remove map: removed tags as
// tombstones, see maySee.
func (c *conn) visible(mapName string, entry protocol.OREntry) protocol.OREntry {
	access := c.permission().Access
	if !access.Guard.Set().Restricts() {
		return entry
	}
	if access.ScopeOf(policy.Read, mapName, entry.Key) == policy.Denied {
		return protocol.OREntry{Key: entry.Key}
	}
	records := make([]protocol.ORRecord, 0, len(entry.Records))
	for _, rec := range entry.Records {
		if access.Allow(policy.Read, mapName, entry.Key, rec.Value, nil) {
			records = append(records, rec)
		}
	}
	entry.Records = records
	return entry
}

// writePermitted brings those operations of a push to the cluster that the client may do,
// and tells it about the first one that it may not.
func (c *conn) writePermitted(ctx context.Context, m protocol.Message, ops []partitions.Op) ([]partitions.Verdict, error) {
	refusals, err := c.permission().Ops(ctx, ops)
	if err != nil {
		return nil, err
	}
	var permitted []partitions.Op
	told := false
	for i, r := range refusals {
		if !r.Refused() {
			permitted = append(permitted, ops[i])
		} else if !told {
			told = true
			c.refuseForbidden(m, r)
		}
	}
	if len(permitted) == 0 {
		return nil, nil
	}
	return c.backend.Write(ctx, c.session, permitted)
}
