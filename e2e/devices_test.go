package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// fleet is some devices and what they did, whoever may know it already.
type fleet struct {
	t       *testing.T
	ctx     context.Context
	cluster *harness.Cluster
	rnd     *rand.Rand
	devices []*harness.Device
}

// edit lets a device change its maps while it is away.
func (f *fleet) edit(d *harness.Device, n int) {
	for range n {
		mapName, key := fmt.Sprint("map", f.rnd.IntN(2)), fmt.Sprint("k", f.rnd.IntN(60))
		switch f.rnd.IntN(5) {
		case 0:
			d.Put(mapName, key, "")
		case 1, 2:
			d.Put(mapName, key, fmt.Sprint(d.ID, " ", f.rnd.IntN(1000)))
		case 3:
			d.Add("sets", key, fmt.Sprint(d.ID, " ", f.rnd.IntN(1000)))
		default:
			d.Drop("sets", key)
		}
	}
}

// meet connects a device to a node, syncs and, half of the time, leaves again.
func (f *fleet) meet(d *harness.Device) {
	d.Disconnect()
	node := f.cluster.Nodes()[f.rnd.IntN(3)]
	require.NoError(f.t, d.Connect(f.ctx, node))
	_, err := d.Sync(f.ctx)
	require.NoError(f.t, err, "%s on %s", d.ID, node.Name)
	if f.rnd.IntN(2) == 0 {
		d.Disconnect()
	}
}

// converge syncs every device until none finds a difference any more.
func (f *fleet) converge() {
	harness.Eventually(f.t, patience, "all devices to hold the same", func() error {
		for _, d := range f.devices {
			d.Disconnect()
			if err := d.Connect(f.ctx, f.cluster.Nodes()[f.rnd.IntN(3)]); err != nil {
				return err
			}
			equal, err := d.Sync(f.ctx)
			if err != nil {
				return err
			}
			if !equal {
				return fmt.Errorf("%s found a difference", d.ID)
			}
		}
		return nil
	})
}

// same requires that two devices hold equal maps, removed tags that only one of them
// ever needed aside.
func (f *fleet) same(a, b *harness.Device) {
	for _, mapName := range []string{"map0", "map1"} {
		require.Equal(f.t, a.Records[mapName], b.Records[mapName], "%s of %s and %s", mapName, a.ID, b.ID)
	}
	require.Equal(f.t, a.Sets["sets"].Live, b.Sets["sets"].Live, "sets of %s and %s", a.ID, b.ID)
}

func TestDevicesThatComeAndGoConverge(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c := harness.Start(t, config(), 3)
	f := &fleet{t: t, ctx: ctx, cluster: c, rnd: rand.New(rand.NewPCG(uint64(*seed), 3))}
	for i := range 4 {
		d := harness.NewDevice(fmt.Sprintf("device-%d", i))
		// Clocks that differ, so that edits are not ordered by when they arrive.
		skew := int64(f.rnd.IntN(20_000) - 10_000)
		clock := d.Clock
		d.Clock = func() int64 { return clock() + skew }
		defer d.Disconnect()
		f.devices = append(f.devices, d)
	}
	for range 25 {
		d := f.devices[f.rnd.IntN(len(f.devices))]
		f.edit(d, f.rnd.IntN(30))
		f.meet(d)
	}
	f.converge()
	for _, d := range f.devices[1:] {
		f.same(f.devices[0], d)
	}

	// A new device gets everything; what it then asks for again costs one round trip a map.
	fresh := harness.NewDevice("fresh")
	for mapName := range f.devices[0].Records {
		fresh.Records[mapName] = map[string]protocol.Record{}
	}
	fresh.Drop("sets", "") // knows of the map
	f.devices = append(f.devices, fresh)
	f.converge()
	f.same(f.devices[0], fresh)
	requests := fresh.Requests
	f.converge()
	require.Equal(t, requests, fresh.Requests, "equal maps cost no walk")

	// The same records come by HTTP.
	require.Equal(t, liveOf(f.devices[0].Records["map0"]), httpState(t, ctx, c.Node("n2"), "map0"))

	// The cluster holds the same after everything was killed.
	for _, n := range c.Nodes() {
		n.Kill()
	}
	for _, n := range c.Nodes() {
		n.Start()
	}
	c.AwaitReady()
	equalOnEveryNode(f, fresh)
}

// equalOnEveryNode requires that the trees of all nodes equal the device's.
func equalOnEveryNode(f *fleet, d *harness.Device) {
	for _, n := range f.cluster.Nodes() {
		harness.Eventually(f.t, patience, "the trees of "+n.Name, func() error {
			d.Disconnect()
			if err := d.Connect(f.ctx, n); err != nil {
				return err
			}
			equal, err := d.Sync(f.ctx)
			if err == nil && !equal {
				err = fmt.Errorf("trees of %s differ", n.Name)
			}
			return err
		})
	}
}

func liveOf(records map[string]protocol.Record) map[string]string {
	live := map[string]string{}
	for key, rec := range records {
		if !rec.IsTombstone() {
			live[key] = harness.TextOf(rec.Value)
		}
	}
	return live
}

// httpState follows a map by POST /sync until there is nothing new, and reads it by a
// query too.
func httpState(t *testing.T, ctx context.Context, n *harness.Node, mapName string) map[string]string {
	state := map[string]protocol.Record{}
	var since protocol.Timestamp
	for {
		answer, err := n.PostSync(ctx, &protocol.HTTPSync{
			ClientID: "web", SyncMaps: []protocol.HTTPSyncMap{{MapName: mapName, LastSyncTimestamp: since}},
			Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: mapName}},
		})
		require.NoError(t, err)
		require.Empty(t, answer.Errors)
		for _, rec := range answer.Deltas[0].Records {
			require.Equal(t, rec.EventType == protocol.OpRemove, rec.Record.IsTombstone())
			state[rec.Key] = rec.Record
		}
		since = answer.Deltas[0].ServerSyncTimestamp
		if len(answer.Deltas[0].Records) > 0 {
			continue
		}
		live := liveOf(state)
		var queried []string
		for _, value := range answer.QueryResults[0].Results {
			queried = append(queried, harness.TextOf(value))
		}
		var want []string
		for _, key := range slices.Sorted(maps.Keys(live)) {
			want = append(want, live[key])
		}
		require.Equal(t, want, queried, "the query shows the same rows in key order")
		return live
	}
}
