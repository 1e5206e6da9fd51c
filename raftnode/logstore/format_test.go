package logstore

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
)

// FuzzRecordBodies feeds every body decoder: no input may panic, and what decodes
// as an entry must encode to something that decodes to the same entry.
func FuzzRecordBodies(f *testing.F) {
	f.Add(appendEntryRecord(nil, 1, entry(1, 2, 3))[recordHeaderBytes:])
	f.Add(appendStateRecord(nil, 1, groupImage{first: 1, last: 2, stable: map[string][]byte{"k": []byte("v")}})[recordHeaderBytes:])
	f.Add(appendPairRecord(nil, recordVote, 1, []byte("t"), []byte("c"))[recordHeaderBytes:])
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = decodeState(body)
		g := newGroupLog(&Log{}, 1)
		for kind := range recordState + 2 {
			_ = g.applyLocked(record{kind: kind, body: body}, location{})
		}
		var log, again raft.Log
		if decodeEntry(body, &log) != nil {
			return
		}
		b := appendEntryRecord(nil, 1, &log)
		if err := decodeEntry(b[recordHeaderBytes:], &again); err != nil || !sameEntry(&log, &again) {
			t.Fatalf("%+v became %+v, %v", log, again, err)
		}
	})
}

// FuzzOpen opens a directory whose only segment is arbitrary behind a valid header.
func FuzzOpen(f *testing.F) {
	valid := func(n uint64) []byte {
		fs := NewMemFS()
		l, err := Open(smallConfig("/log"), Deps{FS: fs})
		if err != nil {
			f.Fatal(err)
		}
		for i := uint64(1); i <= n; i++ {
			if err := l.Group(1).StoreLog(entry(i, 1, 50)); err != nil {
				f.Fatal(err)
			}
		}
		_ = l.Close()
		file, err := fs.Open(l.segments[0].path)
		if err != nil {
			f.Fatal(err)
		}
		b := make([]byte, l.segments[0].size.Load()+frameHeaderBytes)
		_, _ = file.ReadAt(b, 0)
		return b[segmentHeaderBytes:]
	}
	f.Add(valid(0))
	f.Add(valid(3))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := NewMemFS()
		noErr(t, fs.MkdirAll("/log"))
		file, err := fs.Create("/log/" + segmentName(1))
		noErr(t, err)
		_, err = file.WriteAt(append(appendSegmentHeader(nil, 1), b...), 0)
		noErr(t, err)
		l, err := Open(smallConfig("/log"), Deps{FS: fs})
		if err != nil {
			return
		}
		mustClose(t, l)
	})
}

func TestFrameIsValidOnlyWhereItWasWritten(t *testing.T) {
	b := appendEntryRecord(make([]byte, frameHeaderBytes), 1, entry(1, 1, 100))
	seed := segmentSeed(7)
	s := &segment{seed: seed}
	s.finishFrame(b, frameBatch, 3, 4096)
	h, ok := parseFrameHeader(b, seed, 4096)
	if !ok || h.sequence != 3 || h.length != len(b)-frameHeaderBytes || !checkRecords(b[frameHeaderBytes:], seed, h.recordsCRC) {
		t.Fatalf("header %+v, %v", h, ok)
	}
	if _, ok := parseFrameHeader(b, seed, 8192); ok {
		t.Error("valid at another offset")
	}
	if _, ok := parseFrameHeader(b, segmentSeed(8), 4096); ok {
		t.Error("valid in another segment")
	}
	// Records of an earlier attempt, of the same shape and intact by themselves.
	other := appendEntryRecord(make([]byte, frameHeaderBytes), 1, entry(1, 2, 100))
	s.finishFrame(other, frameBatch, 3, 4096)
	if checkRecords(bytes.Clone(other[frameHeaderBytes:]), seed, h.recordsCRC) {
		t.Error("records of another frame are accepted")
	}
}
