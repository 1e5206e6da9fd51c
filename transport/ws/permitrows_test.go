package ws

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

// ofOwn is an operation on an observed-remove map whose value names its owner.
func ofOwn(id, key, tag, owner string) protocol.ClientOp {
	op := orAdd(id, "sets", key, tag)
	op.ORRecord.Value = owned("", "", owner, 1).Record.Value
	return op
}

// TestRemovalsAreToldToWhoMaySeeTheKey has policies that look at keys: what is removed has no
// value to judge, and must not show the keys of others.
func TestRemovalsAreToldToWhoMaySeeTheKey(t *testing.T) {
	f, _ := guarded(t, false, allow("w", "**", "all", "", "writer"), allow("r", "**", "read", "key startsWith auth.id"))
	w, c := f.login("joe:writer"), f.login("ann:")
	c.send(&protocol.SyncInit{MapName: "own"})
	expect[*protocol.SyncRespRoot](c)
	c.send(&protocol.ORMapSyncInit{MapName: "sets", BucketHashes: map[string]uint32{}})
	expect[*protocol.ORMapSyncRespRoot](c)

	w.send(batch(
		owned("1", "bob-1", "bob", 1), removal("2", "own", "bob-1", 2), ofOwn("3", "bob-1", "t1", "bob"), orRemove("4", "sets", "bob-1", "t1"),
		owned("5", "ann-1", "ann", 1), removal("6", "own", "ann-1", 2), ofOwn("7", "ann-1", "t2", "ann"), orRemove("8", "sets", "ann-1", "t2"),
	))
	expect[*protocol.OpAck](w)
	var heard []string
	for range 4 {
		e := expect[*protocol.ServerEvent](c)
		heard = append(heard, string(e.EventType)+" "+e.Key)
	}
	require.ElementsMatch(t, []string{"PUT ann-1", "REMOVE ann-1", "OR_ADD ann-1", "OR_REMOVE ann-1"}, heard)
	for _, key := range []string{"bob-1", "ann-1"} {
		c.send(&protocol.MerkleReqBucket{MapName: "own", Path: leafOf(key)})
		for _, rec := range expect[*protocol.SyncRespLeaf](c).Records {
			require.Equal(t, "ann-1", rec.Key)
		}
	}
	c.send(&protocol.ORMapMerkleReqBucket{MapName: "sets", Path: leafOf("ann-1")})
	require.Equal(t, []protocol.OREntry{{Key: "ann-1", Tombstones: []string{"t2"}}}, expect[*protocol.ORMapSyncRespLeaf](c).Entries)
	c.send(&protocol.ORMapDiffRequest{MapName: "sets", Keys: []string{"bob-1", "ann-1"}})
	require.Equal(t, []protocol.OREntry{{Key: "bob-1"}, {Key: "ann-1", Tombstones: []string{"t2"}}}, expect[*protocol.ORMapDiffResponse](c).Entries)
}

// TestKeysOfHiddenValuesAreHidden has an observed-remove map of which the reader may see some
// values only.
func TestKeysOfHiddenValuesAreHidden(t *testing.T) {
	f, guard := guarded(t, false, allow("w", "sets", "all", "", "writer"), allow("r", "sets", "read", "data.owner == auth.id"))
	w, c := f.login("joe:writer"), f.login("ann:")
	w.send(batch(ofOwn("1", "bob", "t1", "bob"), ofOwn("2", "both", "t2", "bob"), ofOwn("3", "both", "t3", "ann")))
	expect[*protocol.OpAck](w)
	c.send(&protocol.ORMapSyncInit{MapName: "sets", BucketHashes: map[string]uint32{}})
	expect[*protocol.ORMapSyncRespRoot](c)
	tags := func(entries []protocol.OREntry) (list []string) {
		for _, e := range entries {
			for _, rec := range e.Records {
				list = append(list, e.Key+" "+rec.Tag)
			}
			if len(e.Records) == 0 {
				list = append(list, e.Key)
			}
		}
		return list
	}
	var entries []protocol.OREntry
	for _, key := range []string{"both", "bob"} {
		c.send(&protocol.ORMapMerkleReqBucket{MapName: "sets", Path: leafOf(key)})
	}
	c.send(&protocol.ORMapDiffRequest{MapName: "sets", Keys: []string{"bob", "both"}})
	for asked := false; !asked; {
		switch m := c.next().(type) {
		case *protocol.ORMapSyncRespLeaf:
			entries = append(entries, m.Entries...)
		case *protocol.ORMapDiffResponse:
			asked = true
			require.Equal(t, []string{"bob", "both t3"}, tags(m.Entries), "keys that the client named itself")
		}
	}
	require.Equal(t, []string{"both t3"}, tags(entries))

	w.send(batch(ofOwn("4", "more", "t4", "bob"), ofOwn("5", "more", "t5", "ann")))
	expect[*protocol.OpAck](w)
	require.Equal(t, "t5", expect[*protocol.ServerEvent](c).ORTag)
	enforce(t, guard, allow("w", "sets", "all", "", "writer"))
	w.send(batch(ofOwn("6", "more", "t6", "ann"), orRemove("7", "sets", "more", "t5")))
	expect[*protocol.OpAck](w)
	c.send(&protocol.ORMapDiffRequest{MapName: "sets", Keys: []string{"more"}})
	require.Equal(t, protocol.CodeForbidden, expect[*protocol.ErrorMessage](c).Code, "no event of a map that may not be read any more")
}

// TestRolesDoNotOutliveTheirToken has a client keep a token with a role that its later one does
// not have.
func TestRolesDoNotOutliveTheirToken(t *testing.T) {
	f, _ := guarded(t, false, allow("w", "m", "write", "", "writer"))
	early, late := token("ann", time.Hour), token("ann", 2*time.Hour)
	c := f.login(early + ":writer")
	next := 0
	permitted := func() bool {
		next++
		c.send(batch(put(strconv.Itoa(next), "m", "k", next)))
		switch m := c.next().(type) {
		case *protocol.OpRejected:
			expect[*protocol.OpAck](c)
			return m.Code != protocol.CodeForbidden
		default:
			return true
		}
	}
	require.True(t, permitted())
	c.send(&protocol.Auth{Token: late + ":reader"})
	require.False(t, permitted(), "the roles of the later token count")
	c.send(&protocol.Auth{Token: early + ":writer"})
	require.False(t, permitted(), "it ends before the connection")
	c.send(&protocol.Auth{Token: late + ":writer"})
	require.True(t, permitted())
}

// TestCountersStopWithThePermission is for what is followed as TestMessagesOfTopicsStopWithThePermission.
func TestCountersStopWithThePermission(t *testing.T) {
	f, guard := guarded(t, false, allow("a", "counter:*", "all", "", "writer"), allow("b", "counter:*", "read", ""))
	w, c := f.login("joe:writer"), f.login("ann:")
	add := func(id string) {
		one := 1.0
		w.send(&protocol.CounterSync{Name: "visits", RequestID: id, Add: &one, Once: true})
		expect[*protocol.CounterResponse](w)
	}
	c.send(&protocol.CounterRequest{Name: "visits"})
	expect[*protocol.CounterResponse](c)
	add("1")
	expect[*protocol.CounterUpdate](c)
	enforce(t, guard, allow("a", "counter:*", "all", "", "writer"))
	add("2")
	c.silent()
	enforce(t, guard, allow("a", "counter:*", "all", "", "writer"), allow("b", "counter:*", "read", ""))
	add("3")
	expect[*protocol.CounterUpdate](c)
}
