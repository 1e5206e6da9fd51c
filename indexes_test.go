package quorate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// depots are records of ten depots, of which each has as many.
func depots(n int) []partitions.Op {
	ops := make([]partitions.Op, n)
	for i := range ops {
		value := msgp.AppendInt(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "depot"), i%10)
		ops[i] = partitions.Op{Map: "m", Key: fmt.Sprint("k", i), Record: protocol.Record{Value: value}}
	}
	return ops
}

// whereDepot is a query object.
func whereDepot(depot int) msgp.Raw {
	b := msgp.AppendString(msgp.AppendMapHeader(nil, 1), "where")
	return msgp.AppendInt(msgp.AppendString(msgp.AppendMapHeader(b, 1), "depot"), depot)
}

// TestEveryNodeBuildsTheIndexesOfTheCluster defines an index at one of three nodes and asks
// all of them.
func TestEveryNodeBuildsTheIndexesOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		nodes := []*simNode{startNode(t, network, "n1"), startNode(t, network, "n2", "n1:7000"), startNode(t, network, "n3", "n1:7000")}
		for _, n := range nodes {
			n.awaitCaughtUp(t)
			if _, err := n.Router().Write(t.Context(), n.Router().NewSession(), depots(100)); err != nil {
				t.Fatal(err)
			}
		}
		d := partitions.IndexDefinition{MapName: "m", Attribute: "depot", Type: "hash"}
		document, err := partitions.WithIndex(nil, d)
		if err == nil {
			_, err = nodes[1].Router().PutDocument(t.Context(), partitions.IndexDocument, 0, document)
		}
		if err != nil {
			t.Fatal(err)
		}
		q, err := partitions.CompileQuery(whereDepot(7), partitions.QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		check := func(n *simNode) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				s := n.Router().IndexStat(d)
				if s.Done && !s.Incomplete && s.Entries == 100 && !s.Restart {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%+v", s)
				}
			}
			answer, err := n.Router().Answer(t.Context(), n.Router().NewSession(), partitions.Ask{Map: "m", Query: q, Rows: 100, Bytes: 1 << 20})
			if err != nil || len(answer.Rows) != 10 || answer.Plan.Indexed != 6 {
				t.Fatalf("%+v, %v", answer, err)
			}
		}
		for _, n := range nodes {
			check(n)
		}
		for _, n := range nodes {
			if err := n.end(t); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestIndexesStandAcrossARestart(t *testing.T) {
	noLeaks(t)
	cfg := securedConfig(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	o := newOperator(t, port)
	o.must(201, "POST", "/api/admin/indexes", map[string]any{"mapName": "m", "attribute": "_value", "indexType": "navigable"})
	o.must(409, "POST", "/api/admin/indexes", map[string]any{"mapName": "m", "attribute": "_value", "indexType": "hash"})
	o.must(404, "DELETE", "/api/admin/indexes/m/other", nil)
	conn := signIn(ctx, t, port, clientToken(t, "ann"))
	for i := range 20 {
		exchange[*protocol.OpAck](ctx, t, conn, put(fmt.Sprint("k", i), fmt.Sprint("v", i%2)))
	}
	_ = conn.CloseNow()
	checkIndex(ctx, t, port, "backfill")
	if err := end(); err != nil {
		t.Fatal(err)
	}
	port, end = embed(t, cfg)
	awaitReady(t, port)
	checkIndex(ctx, t, port, "startupRebuild")
	o = newOperator(t, port)
	o.must(204, "DELETE", "/api/admin/indexes/m/_value", nil)
	o.must(404, "GET", "/api/admin/indexes/m/_value/status", nil)
	if err := end(); err != nil {
		t.Error(err)
	}
}

// checkIndex waits until the index over 20 records is built, and has it used.
func checkIndex(ctx context.Context, t *testing.T, port int, why string) {
	t.Helper()
	o := newOperator(t, port)
	for {
		s := o.must(200, "GET", "/api/admin/indexes/m/_value/status", nil)
		if s["done"] == true && s["total"] == 20.0 && s["processed"] == 20.0 && s["rebuildType"] == why {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v", s)
		}
	}
	list, _ := o.must(200, "GET", "/api/admin/indexes", nil)["indexes"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["entryCount"] != 20.0 {
		t.Errorf("indexes %v, want one with 20 entries", list)
	}
	conn := signIn(ctx, t, port, clientToken(t, "ann"))
	defer func() { _ = conn.CloseNow() }()
	object := msgp.AppendString(msgp.AppendMapHeader(nil, 1), "where")
	object = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(object, 1), "_value"), "v1")
	resp := exchange[*protocol.QueryResp](ctx, t, conn, &protocol.QuerySub{QueryID: "q", MapName: "m", Query: object, Explain: true})
	want := protocol.QueryPlan{Kind: "index", Attribute: "_value", IndexType: "navigable", GroupsIndexed: 6, Candidates: 10, Matched: 10}
	if len(resp.Results) != 10 || resp.Plan == nil || *resp.Plan != want {
		t.Errorf("%d rows by %+v, want 10 by %+v", len(resp.Results), resp.Plan, want)
	}
}
