package ws

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

func (f *fixture) gap() { f.backend.hub.Publish(&fsm.Changes{Group: 1, Reset: true}) }

// root is the root of a map's records.
func (f *fixture) root(mapName string) uint32 {
	leaves := new(merkle.Leaves)
	_, err := f.backend.machine.AddLeaves(mapName, merkle.Records, leaves)
	require.NoError(f.t, err)
	return leaves.Root()
}

func TestAClientThatMissedChangesIsShownThePresentState(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(querySub("q", "m"))
	expect[*protocol.QueryResp](c)
	f.backend.put("m", "k", record(1, testNow))
	c.collect(2)
	f.gap()
	require.Equal(t, "k", expect[*protocol.QueryResp](c).Results[0].Key)
	require.Equal(t, f.root("m"), expect[*protocol.SyncRespRoot](c).RootHash)
	require.Zero(t, expect[*protocol.ORMapSyncRespRoot](c).RootHash)
	f.backend.put("m", "k2", record(2, testNow))
	events, _ := c.collect(2)
	require.Equal(t, []string{"k2"}, events)
	c.silent()
}

func TestAMapThatIsFollowedIsResyncedByItsRoot(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(&protocol.SyncInit{MapName: "m"})
	expect[*protocol.SyncRespRoot](c)
	f.backend.put("m", "k", record(1, testNow))
	require.Equal(t, "k", expect[*protocol.ServerEvent](c).Key)
	f.gap()
	require.Equal(t, f.root("m"), expect[*protocol.SyncRespRoot](c).RootHash)
	expect[*protocol.ORMapSyncRespRoot](c)
	f.backend.put("m", "k2", record(2, testNow))
	require.Equal(t, "k2", expect[*protocol.ServerEvent](c).Key)
}

func TestAClientThatFallsBehindAgainIsDisconnected(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(querySub("q", "m"))
	expect[*protocol.QueryResp](c)
	f.gap()
	expect[*protocol.QueryResp](c)
	expect[*protocol.SyncRespRoot](c)
	expect[*protocol.ORMapSyncRespRoot](c)
	q := &f.onlyConn().queries
	q.mu.Lock()
	q.resynced = q.resynced.Add(-2 * time.Second) // it was not at the same time
	q.mu.Unlock()
	f.gap()
	require.Equal(t, protocol.CloseRetry, c.expectClose())
}

// onlyConn is the server's end of the one connection.
func (f *fixture) onlyConn() *conn {
	all := f.all()
	require.Len(f.t, all, 1)
	return all[0]
}

func TestABurstBeyondTheQueueCostsAResyncAndNotTheConnection(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.Connection.EventCapacity = 8 })
	c := f.dial()
	c.send(&protocol.SyncInit{MapName: "m"})
	expect[*protocol.SyncRespRoot](c)
	ops := make([]protocol.ClientOp, 2000)
	for i := range ops {
		ops[i] = put(fmt.Sprint(i+1), "m", fmt.Sprint("k", i), i)
	}
	writer := f.dial()
	writer.send(batch(ops...))
	expect[*protocol.OpAck](writer)
	for {
		if root, ok := c.next().(*protocol.SyncRespRoot); ok {
			require.Equal(t, f.root("m"), root.RootHash)
			break
		}
	}
}

func TestAClientThatDoesNotReadIsDisconnected(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) {
		cfg.Connection.EventCapacity, cfg.Connection.SendTimeout = 8, 100*time.Millisecond
	})
	c := f.dial()
	c.send(&protocol.SyncInit{MapName: "m"})
	expect[*protocol.SyncRespRoot](c)
	value := append([]byte{0xc6, 0, 7, 0, 0}, make([]byte, 7<<16)...)
	for i := range 60 {
		f.backend.put("m", fmt.Sprint("k", i), protocol.Record{Value: value, Timestamp: protocol.Timestamp{Millis: int64(i + 1), NodeID: "x"}})
	}
	eventually(t, func() bool { return f.Connections() == 0 }, "the stuck client is gone")
}
