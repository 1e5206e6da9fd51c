package protocol_test

import (
	"strconv"
	"testing"

	"github.com/quorate/quorate/protocol"
)

// benchOp is an operation as clients in the field write it, with a value of 100
// bytes.
func benchOp(i int) m {
	at := m{"millis": 1760000000123.0, "counter": i, "nodeId": "3f2b8c1e-6d5a-4e0b-9a77-1c2d3e4f5a6b"}
	return m{"mapName": "todos", "opType": "PUT", "key": "item-" + strconv.Itoa(i), "id": strconv.Itoa(i), "synced": false,
		"record": m{"value": m{"text": string(make([]byte, 93))}, "timestamp": at}, "timestamp": at}
}

func BenchmarkGuard(b *testing.B) {
	op := benchOp(1)
	frame := pack(b, m{"type": "CLIENT_OP", "payload": op})
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protocol.Guard(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	ops := make([]any, 10)
	for i := range ops {
		ops[i] = benchOp(i)
	}
	for _, bench := range []struct {
		name  string
		frame []byte
	}{
		{"CLIENT_OP", pack(b, m{"type": "CLIENT_OP", "payload": benchOp(1)})},
		{"OP_BATCH10", pack(b, m{"type": "OP_BATCH", "payload": m{"ops": ops}})},
		{"PING", pack(b, m{"type": "PING", "timestamp": 1760000000123.0})},
		{"QUERY_SUB", pack(b, m{"type": "QUERY_SUB", "payload": m{"queryId": "q1", "mapName": "todos", "query": m{}}})},
		{"AUTH", pack(b, m{"type": "AUTH", "token": string(make([]byte, 200))})},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := protocol.Decode(bench.frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	at := protocol.Timestamp{Millis: 1760000000123, NodeID: "3f2b8c1e-6d5a-4e0b-9a77-1c2d3e4f5a6b"}
	value := pack(b, m{"text": string(make([]byte, 93))})
	results := make([]protocol.AckResult, 10)
	for i := range results {
		results[i] = protocol.AckResult{OpID: strconv.Itoa(i), Success: true, AchievedLevel: protocol.LevelPersisted}
	}
	partitions := &protocol.PartitionMap{Version: 1, PartitionCount: protocol.PartitionCount}
	for i := range uint32(protocol.PartitionCount) {
		partitions.Partitions = append(partitions.Partitions,
			protocol.PartitionOwner{PartitionID: i, OwnerNodeID: "n1", BackupNodeIDs: []string{"n2", "n3"}})
	}
	for _, msg := range []protocol.Message{
		&protocol.OpAck{LastID: "10", AchievedLevel: protocol.LevelPersisted, Results: results},
		&protocol.ServerEvent{MapName: "todos", EventType: protocol.OpPut, Key: "item-1", Record: &protocol.Record{Value: value, Timestamp: at}},
		&protocol.QueryUpdate{QueryID: "q1", Key: "item-1", Value: value, ChangeType: protocol.ChangeEnter},
		partitions,
	} {
		b.Run(msg.Kind().String(), func(b *testing.B) {
			buf := make([]byte, 0, 1<<16)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = protocol.Append(buf[:0], msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
