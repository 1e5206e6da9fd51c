package storage_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm/storage"
)

func TestMarksReadBack(t *testing.T) {
	for _, want := range []storage.Mark{
		{},
		{Index: 1 << 60, Term: 7, Configuration: []byte("conf"), ConfigurationIndex: 3, Digest: 1<<64 - 1, ClockMillis: -1, ClockCounter: 1 << 53},
	} {
		encoded := storage.AppendMark(nil, want)
		got, err := storage.DecodeMark(encoded)
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("mark %+v reads back as %+v, %v", want, got, err)
		}
		for cut := range encoded {
			if _, err := storage.DecodeMark(encoded[:cut]); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("mark cut at %d: %v, want ErrCorrupt", cut, err)
			}
		}
		if _, err := storage.DecodeMark(append(encoded, 0)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("mark with a byte left over: %v, want ErrCorrupt", err)
		}
		encoded[0] = 2
		if _, err := storage.DecodeMark(encoded); !errors.Is(err, storage.ErrFormat) {
			t.Errorf("mark of a newer format: %v, want ErrFormat", err)
		}
	}
}

// TestItemHashIsStable pins a number that is stored and compared between nodes.
func TestItemHashIsStable(t *testing.T) {
	key := storage.Key{Section: storage.SectionRecords, Bytes: "\x01mkey"}
	if got, want := storage.ItemHash(key, []byte("value")), uint64(0xbf2c27f0e729941); got != want {
		t.Errorf("hash %#x, want %#x", got, want)
	}
}

func TestItemHashSeparatesSectionKeyAndValue(t *testing.T) {
	seen := map[uint64]string{}
	for _, it := range []storage.Item{
		{Key: storage.Key{Section: 1, Bytes: "ab"}, Value: []byte("c")},
		{Key: storage.Key{Section: 2, Bytes: "ab"}, Value: []byte("c")},
		{Key: storage.Key{Section: 1, Bytes: "a"}, Value: []byte("bc")},
		{Key: storage.Key{Section: 1, Bytes: "abc"}, Value: []byte{}},
		{Key: storage.Key{Section: 1, Bytes: ""}, Value: []byte("abc")},
	} {
		h := storage.ItemHash(it.Key, it.Value)
		if other, twice := seen[h]; twice {
			t.Errorf("%+v has the hash of %s", it, other)
		}
		seen[h] = it.Key.Bytes
	}
}

func FuzzDecodeMark(f *testing.F) {
	f.Add(storage.AppendMark(nil, storage.Mark{}))
	f.Add(storage.AppendMark(nil, storage.Mark{
		Index: 9, Term: 2, ConfigurationIndex: 1, Configuration: []byte("voters"), Digest: 1 << 63, ClockMillis: -1, ClockCounter: 7,
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := storage.DecodeMark(b)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormat) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := storage.DecodeMark(storage.AppendMark(nil, m))
		if err != nil || !cmp.Equal(m, again) {
			t.Fatalf("%+v reads back as %+v, %v", m, again, err)
		}
	})
}
