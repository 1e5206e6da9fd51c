package quorate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/protocol"
)

// deltaKeys are the keys and event types of the first delta of an answer.
func deltaKeys(answer *protocol.HTTPSyncResponse) map[string]protocol.OpType {
	keys := map[string]protocol.OpType{}
	for _, rec := range answer.Deltas[0].Records {
		keys[rec.Key] = rec.EventType
	}
	return keys
}

// TestPostSyncGoesOnWhereItWasAcrossARestart writes by POST /sync what a follower hears of,
// once however it is sent again, and reads deltas before and after a restart. A client whose
// clock is wrong drags nobody along.
func TestPostSyncGoesOnWhereItWasAcrossARestart(t *testing.T) {
	ctx, cfg, port, end := embedAlone(t)
	follower, other := &device{t: t, ctx: ctx}, &device{t: t, ctx: ctx}
	follower.connect(port)
	other.connect(port)
	ops := operations()[:3] // with a stamp, without one, and with one from the future
	refused := ops[0]
	refused.ID, refused.MapName = "9", "_service_x"
	request := &protocol.HTTPSync{
		ClientID: "web", ClientHLC: protocol.Timestamp{Millis: ops[2].Record.Timestamp.Millis, NodeID: "web"},
		Operations: append(ops[:3:3], refused), SyncMaps: []protocol.HTTPSyncMap{{MapName: "records"}},
	}
	first := postSync(ctx, t, port, request)
	if ack := first.Ack; ack == nil || ack.LastID != "9" || len(ack.Results) != 3 || len(first.Errors) != 1 || first.Errors[0].Context != "9" {
		t.Errorf("ack %+v, errors %+v", first.Ack, first.Errors)
	}
	written := map[string]protocol.OpType{"stamped": protocol.OpPut, "unstamped": protocol.OpPut, "future": protocol.OpPut}
	if diff := cmp.Diff(written, deltaKeys(first)); diff != "" {
		t.Errorf("delta (-want +got):\n%s", diff)
	}
	latest := time.Now().Add(time.Minute).UnixMilli()
	for _, rec := range first.Deltas[0].Records {
		if rec.Record.Timestamp.Millis > latest {
			t.Errorf("%s has the stamp %v", rec.Key, rec.Record.Timestamp)
		}
	}
	if first.ServerHLC.Millis > latest {
		t.Errorf("the server's clock is at %v", first.ServerHLC)
	}
	since := first.Deltas[0].ServerSyncTimestamp
	for _, restart := range []bool{false, true} {
		if restart {
			if err := end(); err != nil {
				t.Error(err)
			}
			port, end = embed(t, cfg)
			awaitReady(t, port)
		}
		request.SyncMaps[0].LastSyncTimestamp = since
		again := postSync(ctx, t, port, request)
		if again.Ack == nil || len(again.Ack.Results) != 3 || len(again.Deltas[0].Records) > 0 {
			t.Errorf("restart %v: ack %+v, delta %+v", restart, again.Ack, again.Deltas)
		}
		other.connect(port)
		other.send(&protocol.OpBatch{Ops: []protocol.ClientOp{ops[0], ops[2], removal(restart), mark(restart)}})
		next[*protocol.OpAck](other)
		request.SyncMaps[0].LastSyncTimestamp = again.Deltas[0].ServerSyncTimestamp
		after := postSync(ctx, t, port, request)
		if diff := cmp.Diff(map[string]protocol.OpType{"stamped": protocol.OpRemove, "mark": protocol.OpPut}, deltaKeys(after)); diff != "" {
			t.Errorf("restart %v: delta (-want +got):\n%s", restart, diff)
		}
		since = after.Deltas[0].ServerSyncTimestamp
		if !restart {
			var kinds []string
			for _, e := range follower.told("mark") {
				kinds = append(kinds, string(e.EventType)+" "+e.Key)
			}
			want := []string{"PUT stamped", "PUT unstamped", "PUT future", "REMOVE stamped"}
			if diff := cmp.Diff(setOf(want), setOf(kinds)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		}
	}
	for _, d := range []*device{follower, other} {
		_ = d.conn.CloseNow()
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// removal deletes a key, later the second time.
func removal(again bool) protocol.ClientOp {
	op := operations()[3]
	op.ID = "7"
	if again {
		op.ID, op.Record.Timestamp.Counter = "8", op.Record.Timestamp.Counter+1
	}
	return op
}

// mark is a write behind all others, with another value the second time.
func mark(again bool) protocol.ClientOp {
	op := operations()[0]
	op.ID, op.Key = "mark", "mark"
	if again {
		op.Record.Timestamp.Counter += 10
	}
	return op
}
