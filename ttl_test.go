package quorate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// postSync sends one POST /sync.
func postSync(ctx context.Context, t *testing.T, port int, m *protocol.HTTPSync) *protocol.HTTPSyncResponse {
	t.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/sync", port)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(protocol.AppendHTTPSync(nil, m)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-msgpack")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := protocol.DecodeHTTPSyncResponse(body)
	if err != nil {
		t.Fatalf("status %d, %q: %v", resp.StatusCode, body, err)
	}
	return answer
}

// lifetimes are a record that lives and one whose life is over, and a value of a set whose
// life is over.
func lifetimes() (records map[string]protocol.Record, set protocol.ORRecord) {
	at := protocol.Timestamp{Millis: time.Now().Add(-time.Minute).UnixMilli(), NodeID: "w"}
	return map[string]protocol.Record{
		"lives": {Value: msgp.AppendInt(nil, 1), Timestamp: at, TTLMillis: time.Hour.Milliseconds()},
		"over":  {Value: msgp.AppendInt(nil, 2), Timestamp: at, TTLMillis: 1},
	}, protocol.ORRecord{Value: msgp.AppendInt(nil, 3), Timestamp: at, Tag: at.String(), TTLMillis: 1}
}

// TestALifetimeHidesARecordFromReadsAndChangesNothing holds that a record whose life is over
// is in no answer, and that it is still what it was to all who sync: in the tree, in leaves
// and deltas with its lifetime, and for the merge, also after a restart.
func TestALifetimeHidesARecordFromReadsAndChangesNothing(t *testing.T) {
	ctx, cfg, port, end := embedAlone(t)
	records, value := lifetimes()
	batch := &protocol.OpBatch{}
	for key, rec := range records {
		batch.Ops = append(batch.Ops, protocol.ClientOp{ID: key, MapName: "records", Key: key, Type: protocol.OpPut, RecordPresence: protocol.Present, Record: rec})
	}
	batch.Ops = append(batch.Ops, protocol.ClientOp{ID: "set", MapName: "sets", Key: "k", Type: protocol.OpORAdd, ORRecord: &value})
	older := batch.Ops[0]
	older.ID, older.Key, older.Record = "older", "over", protocol.Record{Value: msgp.AppendInt(nil, 9), Timestamp: protocol.Timestamp{Millis: 1, NodeID: "w"}}
	d := &device{t: t, ctx: ctx}
	d.connect(port)
	d.send(batch)
	next[*protocol.OpAck](d)
	for _, restart := range []bool{false, true} {
		if restart {
			if err := end(); err != nil {
				t.Error(err)
			}
			port, end = embed(t, cfg)
			awaitReady(t, port)
		}
		_ = d.conn.CloseNow()
		if roots, want := d.connect(port), rootsOf(records, value); roots != want {
			t.Errorf("roots %v, want the client's %v", roots, want)
		}
		d.send(&protocol.OpBatch{Ops: []protocol.ClientOp{older}})
		next[*protocol.OpAck](d)
		checkLifetimes(ctx, t, port, records, value)
	}
	_ = d.conn.CloseNow()
	if err := end(); err != nil {
		t.Error(err)
	}
}

// rootsOf are those of a client's trees of its maps.
func rootsOf(records map[string]protocol.Record, value protocol.ORRecord) (roots [2]uint32) {
	var lww, or merkle.Tree
	for key, rec := range records {
		lww.Update(merkle.BucketOf(key), 0, merkle.LWWItem(key, rec.Timestamp), 1, 0)
	}
	or.Update(merkle.BucketOf("k"), 0, merkle.ORItem("k", []protocol.ORRecord{value}), 1, 0)
	for i, tree := range []*merkle.Tree{&lww, &or} {
		leaves := new(merkle.Leaves)
		tree.AddTo(leaves)
		roots[i] = leaves.Root()
	}
	return roots
}

func checkLifetimes(ctx context.Context, t *testing.T, port int, records map[string]protocol.Record, value protocol.ORRecord) {
	t.Helper()
	conn := dial(ctx, t, port)
	defer conn.CloseNow()
	resp := exchange[*protocol.QueryResp](ctx, t, conn, &protocol.QuerySub{QueryID: "q", MapName: "records"})
	if len(resp.Results) != 1 || resp.Results[0].Key != "lives" {
		t.Errorf("a query shows %+v", resp.Results)
	}
	answer := postSync(ctx, t, port, &protocol.HTTPSync{
		ClientID: "c", SyncMaps: []protocol.HTTPSyncMap{{MapName: "records"}}, Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: "records"}},
	})
	if len(answer.QueryResults) != 1 || len(answer.QueryResults[0].Results) != 1 {
		t.Errorf("POST /sync shows %+v", answer.QueryResults)
	}
	delta, leaves := map[string]protocol.Record{}, map[string]protocol.Record{}
	for _, rec := range answer.Deltas[0].Records {
		delta[rec.Key] = rec.Record
	}
	for key := range records {
		leaf := exchange[*protocol.SyncRespLeaf](ctx, t, conn, &protocol.MerkleReqBucket{MapName: "records", Path: merkle.Path(merkle.BucketOf(key))})
		for _, got := range leaf.Records {
			leaves[got.Key] = got.Record
		}
	}
	for name, got := range map[string]map[string]protocol.Record{"delta": delta, "leaves": leaves} {
		if diff := cmp.Diff(records, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	diff := exchange[*protocol.ORMapDiffResponse](ctx, t, conn, &protocol.ORMapDiffRequest{MapName: "sets", Keys: []string{"k"}})
	if got := cmp.Diff([]protocol.ORRecord{value}, diff.Entries[0].Records); got != "" {
		t.Errorf("set (-want +got):\n%s", got)
	}
}
