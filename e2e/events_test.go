package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

// TestSubscribersOfEveryNodeSeeEveryChange follows one map on all nodes while clients
// write to it, and compares what the events add up to with what the map holds.
func TestSubscribersOfEveryNodeSeeEveryChange(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed, Maps: 1})
	load.AwaitProgress(t, 100, patience)
	queries := make(map[string]*harness.Query)
	clients := make(map[string]*harness.Client)
	for _, n := range c.Nodes() {
		client, err := n.Dial(ctx)
		require.NoError(t, err)
		defer client.Close()
		q, err := client.Subscribe(ctx, "map0")
		require.NoError(t, err)
		queries[n.Name], clients[n.Name] = q, client
	}
	load.AwaitProgress(t, 300, patience)
	load.Stop()
	checkNow(t, c, load)
	for name, q := range queries {
		harness.Eventually(t, patience, "the events on "+name, func() error {
			return sameRows(readState(t, c.Node("n1"), "map0")["map0"], q)
		})
		require.NotEmpty(t, q.Updates())
		require.NotEmpty(t, clients[name].Events())
		for _, e := range clients[name].Events() {
			require.NotNil(t, e.Record, "%s of %s carries its record", e.EventType, e.Key)
			require.Equal(t, e.EventType == protocol.OpRemove, e.Record.IsTombstone())
		}
		require.Empty(t, clients[name].Problems())
	}
}

func sameRows(want map[string]string, q *harness.Query) error {
	got := q.Current()
	if len(got) != len(want) {
		return fmt.Errorf("%d rows, want %d", len(got), len(want))
	}
	for key, value := range want {
		if text := harness.TextOf(got[key]); text != value {
			return fmt.Errorf("%s is %s, want %s", key, text, value)
		}
	}
	return nil
}

func TestWriterGetsNoEchoAndOthersDo(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	subscribe := func(n *harness.Node) (*harness.Client, *harness.Query) {
		client, err := n.Dial(ctx)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		q, err := client.Subscribe(ctx, "echo")
		require.NoError(t, err)
		return client, q
	}
	writer, _ := subscribe(c.Node("n1"))
	other, seen := subscribe(c.Node("n2"))
	now := protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: "w"}
	for i, key := range []string{"a", "b", "c"} {
		batch := &protocol.OpBatch{Ops: []protocol.ClientOp{harness.Put(fmt.Sprint(i+1), "echo", key, "v", now)}}
		require.True(t, writer.Write(ctx, batch).Accepted())
	}
	// The other's write comes after the writer's own in no particular order, but what
	// the server had to echo would be there by then.
	harness.Eventually(t, patience, "three updates", func() error {
		if n := len(seen.Updates()); n != 3 {
			return fmt.Errorf("%d updates", n)
		}
		return nil
	})
	batch := &protocol.OpBatch{Ops: []protocol.ClientOp{harness.Put("1", "echo", "a", "w", protocol.Timestamp{Millis: now.Millis + 1, NodeID: "o"})}}
	require.True(t, other.Write(ctx, batch).Accepted())
	harness.Eventually(t, patience, "the other's write", func() error {
		if len(writer.Events()) == 0 {
			return fmt.Errorf("no event")
		}
		return nil
	})
	require.Len(t, writer.Events(), 1)
	require.Equal(t, "a", writer.Events()[0].Key)
}

// TestUnstampedWritesAreARegister lets clients on all nodes write without timestamps
// to a few keys while a leader is killed, then reads them everywhere. Reads happen
// only at rest, when every node must answer the latest write.
func TestUnstampedWritesAreARegister(t *testing.T) {
	c := harness.Start(t, config(), 3)
	registers := model.NewRegisters()
	const keys, rounds = 4, 60
	done := make(chan struct{})
	for i := range 3 {
		go func() {
			defer func() { done <- struct{}{} }()
			writeRegisters(c, i, registers, keys, rounds)
		}()
	}
	victim := leaderOf(t, c, 1)
	victim.Kill()
	victim.Start()
	for range 3 {
		<-done
	}
	c.AwaitFormed()
	read := make([]func(), len(c.Nodes()))
	c.Still(func() {
		for i, n := range c.Nodes() {
			called := registers.Now()
			state := readState(t, n, "registers")["registers"]
			returned := registers.Now()
			read[i] = func() {
				for k := range keys {
					key := fmt.Sprintf("r%d", k)
					registers.Read(10+i, key, state[key], called, returned)
				}
			}
		}
	})
	for _, note := range read {
		note()
	}
	require.NoError(t, registers.Check(patience))
}

// writeRegisters writes values in turn to the keys through changing nodes. A write
// whose outcome stays unknown is not repeated.
func writeRegisters(c *harness.Cluster, writer int, registers *model.Registers, keys, rounds int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range rounds {
		client, err := c.Nodes()[(writer+i/10)%3].Dial(ctx)
		if err != nil {
			<-time.After(20 * time.Millisecond) // spaces the attempts out
			continue
		}
		key, value := fmt.Sprintf("r%d", i%keys), fmt.Sprintf("%d/%d", writer, i)
		called := registers.Now()
		op := harness.Put("1", "registers", key, value, protocol.Timestamp{})
		result := client.Write(ctx, &protocol.OpBatch{Ops: []protocol.ClientOp{op}})
		client.Close()
		switch result["1"].Kind {
		case model.Accepted:
			registers.Wrote(writer, key, value, called, registers.Now())
		case model.Unknown:
			registers.Wrote(100+100*writer+i, key, value, called, -1)
		}
	}
}
