package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

func put(ctx context.Context, c *client.Client, key string, value any, opts ...client.WriteOption) <-chan error {
	return begin(func() error {
		_, err := c.Map("m").Put(ctx, key, value, opts...)
		return err
	})
}

func TestUnansweredWritesAreSentAgainUnderTheirIDs(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	require.Empty(t, p.device)
	done := put(within(t), c, "k", "v")
	first := next[*protocol.OpBatch](p)
	done2 := put(within(t), c, "k2", 1, client.ServerStamp())
	second := next[*protocol.OpBatch](p)
	require.False(t, first.Ops[0].Record.Timestamp.IsZero())
	require.True(t, second.Ops[0].Record.Timestamp.IsZero(), "the server stamps")
	for _, end := range []func(){func() { p.end(protocol.CloseRetry) }, func() { p.end(protocol.CloseShutdown) }, func() { p.cut() }} {
		end()
		p = f.accept()
		require.Equal(t, "issued 1", p.device, "the server knows the client again")
		batch := next[*protocol.OpBatch](p)
		for len(batch.Ops) < 2 {
			batch.Ops = append(batch.Ops, next[*protocol.OpBatch](p).Ops...)
		}
		require.Equal(t, first.Ops[0], batch.Ops[0])
		require.Equal(t, second.Ops[0], batch.Ops[1])
		if len(batch.Ops) > 2 {
			t.Fatalf("%d operations", len(batch.Ops))
		}
	}
	// Both may have come in one frame or in two; either way each frame is acknowledged.
	p.end(protocol.CloseRetry)
	p = f.accept()
	for left := 2; left > 0; {
		batch := next[*protocol.OpBatch](p)
		p.ack(batch)
		left -= len(batch.Ops)
	}
	require.NoError(t, await(t, done))
	require.NoError(t, await(t, done2))
}

func TestWritesGatherInFrames(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	const writers = 600
	all := make(chan error, writers)
	for range writers {
		go func() {
			_, err := c.Map("m").Put(within(t), "k", strings.Repeat("x", 8000))
			all <- err
		}()
	}
	for left := writers; left > 0; {
		batch := next[*protocol.OpBatch](p)
		size := 0
		for _, op := range batch.Ops {
			size += len(op.Record.Value)
		}
		require.Less(t, size, protocol.MaxFrame/2)
		p.ack(batch)
		left -= len(batch.Ops)
	}
	for range writers {
		require.NoError(t, await(t, all))
	}
}

func TestOutcomesAreTold(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	is := func(t *testing.T, err error, class error) {
		t.Helper()
		for _, other := range []error{client.ErrRefused, client.ErrUnavailable, client.ErrUnknown, client.ErrClosed} {
			require.Equal(t, errors.Is(other, class), errors.Is(err, other), "%v as %v", err, other)
		}
	}

	t.Run("refused", func(t *testing.T) {
		done := put(within(t), c, "k", "v")
		op := next[*protocol.OpBatch](p).Ops[0]
		p.send(&protocol.OpRejected{OpID: op.ID, Reason: "no", Code: protocol.CodeForbidden, Permanent: true})
		p.send(&protocol.OpAck{LastID: op.ID, AchievedLevel: protocol.LevelMemory, Results: []protocol.AckResult{}})
		err := await(t, done)
		is(t, err, client.ErrRefused)
		var refusal *client.RefusedError
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, client.RefusedError{Code: 403, Reason: "no"}, *refusal)
	})
	t.Run("time is up while it is under way", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		done := put(ctx, c, "k", "v")
		batch := next[*protocol.OpBatch](p)
		cancel()
		is(t, await(t, done), client.ErrUnknown)
		p.ack(batch) // too late for anybody
	})
	t.Run("nothing was applied so far", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		done := put(ctx, c, "k", "v")
		op := next[*protocol.OpBatch](p).Ops[0]
		p.complain(protocol.CodeUnavailable)
		again := next[*protocol.OpBatch](p)
		require.Equal(t, op, again.Ops[0])
		p.complain(protocol.CodeOverloaded, "type", "OP_BATCH")
		next[*protocol.OpBatch](p)
		f.away.Store(true)
		p.complain(protocol.CodeUnavailable)
		p.cut()
		eventually(t, "the end of the connection", func() bool { return !c.Connected() })
		cancel()
		is(t, await(t, done), client.ErrUnavailable)
		_, err := c.Map("m").Put(ctx, "k", "v")
		is(t, err, client.ErrUnavailable)
		f.away.Store(false)
		p = f.accept()
	})
	t.Run("refused after an attempt without answer", func(t *testing.T) {
		done := put(within(t), c, "k", "v")
		next[*protocol.OpBatch](p)
		p.end(protocol.CloseRetry)
		p = f.accept()
		op := next[*protocol.OpBatch](p).Ops[0]
		p.send(&protocol.OpRejected{OpID: op.ID, Reason: "no", Code: protocol.CodeForbidden, Permanent: true})
		p.send(&protocol.OpAck{LastID: op.ID, AchievedLevel: protocol.LevelMemory, Results: []protocol.AckResult{}})
		is(t, await(t, done), client.ErrUnknown)
	})
	t.Run("one of a frame is refused", func(t *testing.T) {
		// The frames in progress are as many as there may be, so that the next writes gather.
		var waiting []*protocol.OpBatch
		var first []<-chan error
		for range 16 {
			first = append(first, put(within(t), c, "k", 1))
			waiting = append(waiting, next[*protocol.OpBatch](p))
		}
		good, bad := put(within(t), c, "good", 1), put(within(t), c, "bad", 1)
		var batch *protocol.OpBatch
		eventually(t, "both in one frame", func() bool { return c.Waiting() == 2 })
		p.ack(waiting[0])
		batch = next[*protocol.OpBatch](p)
		require.Len(t, batch.Ops, 2)
		for _, b := range waiting[1:] {
			p.ack(b)
		}
		ack := &protocol.OpAck{LastID: batch.Ops[1].ID, AchievedLevel: protocol.LevelApplied}
		for _, op := range batch.Ops {
			if op.Key == "bad" {
				p.send(&protocol.OpRejected{OpID: op.ID, Reason: "no", Code: protocol.CodeTooLarge, Permanent: true})
			} else {
				ack.Results = append(ack.Results, protocol.AckResult{OpID: op.ID, Success: true, AchievedLevel: protocol.LevelApplied})
			}
		}
		p.send(ack)
		require.NoError(t, await(t, good))
		is(t, await(t, bad), client.ErrRefused)
		for _, done := range first {
			require.NoError(t, await(t, done))
		}
	})
	t.Run("larger than a frame", func(t *testing.T) {
		_, err := c.Map("m").Put(within(t), "k", strings.Repeat("x", protocol.MaxFrame))
		is(t, err, client.ErrRefused)
		_, err = c.Map("m").Find(within(t), client.Query{Where: map[string]any{"f": strings.Repeat("x", protocol.MaxFrame)}})
		is(t, err, client.ErrRefused)
	})
	t.Run("closed", func(t *testing.T) {
		done := put(within(t), c, "k", "v")
		next[*protocol.OpBatch](p)
		require.NoError(t, c.Close())
		is(t, await(t, done), client.ErrUnknown)
		_, err := c.Map("m").Put(within(t), "k", "v")
		is(t, err, client.ErrClosed)
		_, err = c.Counter("n").Value(within(t))
		is(t, err, client.ErrClosed)
		require.NoError(t, c.Close())
	})
}

func TestNothingIsSentWithoutAConnection(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{OperationTimeout: patience}, f)
	p := f.accept()
	f.auth.Store(true) // from now on nobody gets in
	p.cut()
	eventually(t, "the refusal", func() bool { return c.Status().Final })
	_, err := c.Map("m").Put(within(t), "k", "v")
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorIs(t, c.Status().Err, client.ErrRefused)
}

func TestValuesComeBackAsTheyWere(t *testing.T) {
	for _, v := range []any{nil, "text", true, 7, int64(-1) << 62, uint64(1) << 63, 1.5, []any{"a", 1.0}, map[string]any{"n": map[string]any{}}} {
		encoded, err := client.Encode(v)
		require.NoError(t, err)
		var got any
		require.NoError(t, encoded.Decode(&got))
		switch v := v.(type) {
		case int:
			require.InDelta(t, v, got, 0)
			require.Equal(t, msgp.IntType, msgp.NextType(encoded))
		case int64, uint64:
			require.NotEqual(t, msgp.Float64Type, msgp.NextType(encoded), "whole numbers stay whole")
		default:
			require.Equal(t, v, got)
		}
	}
	b, err := client.Encode([]byte{1, 2})
	require.NoError(t, err)
	var bytes []byte
	require.NoError(t, b.Decode(&bytes))
	require.Equal(t, []byte{1, 2}, bytes)
	var raw client.Value
	require.NoError(t, b.Decode(&raw))
	require.Equal(t, b, raw)
	_, err = client.Encode(func() {})
	require.Error(t, err)
	_, err = client.EncodeJSON([]byte(`{} {}`))
	require.Error(t, err)
	_, err = client.EncodeJSON([]byte(`1e999`))
	require.Error(t, err)
	require.Equal(t, "null", client.Value(nil).String())
}
