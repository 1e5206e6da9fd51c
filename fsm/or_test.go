package fsm_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// setState is what an observed-remove map holds: the live tags of each key that has
// some, and all removed tags.
type setState struct {
	Live    map[string][]string
	Removed []string
	Root    uint32
}

func (r *rig) setState(name string) setState {
	r.t.Helper()
	s := setState{Live: map[string][]string{}, Root: r.leaves(name, merkle.Sets).Root()}
	for _, bucket := range r.buckets(name, merkle.Sets) {
		for _, e := range r.sets(name, bucket) {
			for _, rec := range e.Records {
				s.Live[e.Key] = append(s.Live[e.Key], rec.Tag)
			}
			s.Removed = append(s.Removed, e.Tombstones...)
			one, _, err := r.machine.Set(name, e.Key, "")
			r.must(err)
			if diff := cmp.Diff(e, one); diff != "" {
				r.t.Errorf("key %q in its leaf and alone (-leaf +alone):\n%s", e.Key, diff)
			}
		}
	}
	slices.Sort(s.Removed)
	return s
}

// orStep is one step of a recorded history of a client.
type orStep struct {
	Op, Key    string
	Record     orVector
	Records    []orVector
	Tombstones []string
	Tag        string
	Result     json.RawMessage
	RootAfter  *uint32
}

type orVector struct {
	Value     any
	ValueHex  string
	Timestamp protocol.Timestamp
	Tag       string
	TTLMillis int64 `json:"ttlMs"`
}

func (v orVector) add(t *testing.T, key string) command.Raw {
	t.Helper()
	value, err := msgpack.Marshal(v.Value)
	if v.ValueHex != "" {
		value, err = hex.DecodeString(v.ValueHex)
	}
	if err != nil {
		t.Fatal(err)
	}
	return orAddRecord("m", key, protocol.ORRecord{Value: value, Timestamp: v.Timestamp, Tag: v.Tag, TTLMillis: v.TTLMillis})
}

// commands are what a server receives of the step; ok is false for one that has no
// counterpart there.
func (s orStep) commands(t *testing.T) (list []command.Raw, ok bool) {
	t.Helper()
	switch s.Op {
	case "add":
		var rec orVector
		if err := json.Unmarshal(s.Result, &rec); err != nil {
			t.Fatal(err)
		}
		return []command.Raw{rec.add(t, s.Key)}, true
	case "remove":
		var tags []string
		if err := json.Unmarshal(s.Result, &tags); err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags {
			list = append(list, orRemove("m", s.Key, tag))
		}
		return list, true
	case "apply":
		return []command.Raw{s.Record.add(t, s.Key)}, true
	case "tombstone":
		return []command.Raw{orRemoveHomeless("m", s.Tag)}, true
	case "mergeKey":
		for _, tag := range s.Tombstones {
			list = append(list, orRemove("m", s.Key, tag))
		}
		for _, rec := range s.Records {
			list = append(list, rec.add(t, s.Key))
		}
		return list, true
	default:
		return nil, s.Op == "noop"
	}
}

func TestObservedRemoveMapsMergeAsClientsDo(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "ormap_merge.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name   string
			Quirk  bool
			Steps  []orStep
			Expect struct {
				StoredTags map[string][]string
				Tombstones []string
				RootHash   uint32
			}
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, c := range file.Cases {
		// A client replaces a record under the tag of its own whatever its age; of two
		// such records a server keeps the newest, in any order. And a client hashes a
		// lifetime of nil, which this server leaves out, as a lifetime.
		if c.Quirk || c.Name == "apply same tag again replaces unconditionally" || c.Name == "ttl: nil means none" {
			continue
		}
		r, possible := newRig(t, 1), true
		for i, s := range c.Steps {
			cmds, ok := s.commands(t)
			possible = possible && ok
			r.apply(entry(uint64(i+1), ts(1, int64(100*i)), cmds...))
		}
		if !possible {
			continue
		}
		ran++
		got := r.setState("m")
		for _, tags := range c.Expect.StoredTags {
			slices.SortFunc(tags, protocol.CompareText)
		}
		maps.DeleteFunc(c.Expect.StoredTags, func(_ string, tags []string) bool { return len(tags) == 0 })
		if diff := cmp.Diff(c.Expect.StoredTags, got.Live); diff != "" {
			t.Errorf("%s: live tags (-want +got):\n%s", c.Name, diff)
		}
		if got.Root != c.Expect.RootHash {
			t.Errorf("%s: root %#x, want %#x", c.Name, got.Root, c.Expect.RootHash)
		}
		for _, tag := range c.Expect.Tombstones {
			if state, err := r.machine.Tag("m", tag); err != nil || state == fsm.TagUnknown {
				t.Errorf("%s: removed tag %q is not known: %v", c.Name, tag, err)
			}
		}
	}
	if ran < 40 {
		t.Errorf("only %d cases ran", ran)
	}
}

func TestObservedRemoveMapsConvergeInEveryOrder(t *testing.T) {
	rnd := newRand(t)
	for range 60 {
		var cmds []command.Raw
		for range 40 {
			cmds = append(cmds, randomSetCommand(rnd, 1000))
		}
		cmds = slices.DeleteFunc(cmds, func(c command.Raw) bool { return len(c.Body) > 1<<20 }) // refused
		want := deliver(t, rnd, cmds)
		for range 3 {
			if diff := cmp.Diff(want, deliver(t, rnd, cmds)); diff != "" {
				t.Fatalf("states of two orders differ (-one +other):\n%s", diff)
			}
		}
	}
}

// deliver applies cmds in some order, some of them more than once.
func deliver(t *testing.T, rnd *rand.Rand, cmds []command.Raw) map[string]setState {
	r := newRig(t, 1, cacheBytes(rnd.IntN(2000)))
	order := append(slices.Clone(cmds), cmds[:rnd.IntN(len(cmds))]...)
	rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i, c := range order {
		r.apply(entry(uint64(i+1), ts(int64(i), 0), c))
		if rnd.IntN(10) == 0 {
			r.flush()
		}
	}
	states := map[string]setState{}
	for _, name := range modelMaps {
		s := r.setState(name)
		s.Removed = nil // which of them have a key depends on the order
		states[name] = s
	}
	return states
}

func TestARemovedTagStaysRemoved(t *testing.T) {
	at := ts(5, 0)
	add, remove := orAdd("m", "k", "v", at), orRemove("m", "k", at.String())
	for name, cmds := range map[string][]command.Raw{
		"add, remove, add": {add, remove, add},
		"remove, add":      {remove, add},
		"another key":      {add, orRemove("m", "other", at.String()), add},
		"no key":           {orRemoveHomeless("m", at.String()), add},
	} {
		r := newRig(t, 1)
		r.apply(entry(1, ts(1, 0), cmds...))
		got := r.setState("m")
		if len(got.Live) > 0 || got.Root != 0 {
			t.Errorf("%s: live tags %v, root %#x", name, got.Live, got.Root)
		}
		if !slices.Equal(got.Removed, []string{at.String()}) {
			t.Errorf("%s: removed tags %q", name, got.Removed)
		}
	}
}

func TestARemovalIsListedUnderTheKeyThatHeldTheTag(t *testing.T) {
	at := ts(5, 0)
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), orAdd("m", "k", "v", at), orRemove("m", "elsewhere", at.String())))
	entry, _, err := r.machine.Set("m", "k", "")
	r.must(err)
	if !slices.Equal(entry.Tombstones, []string{at.String()}) {
		t.Errorf("removed tags of the key: %q", entry.Tombstones)
	}
	if got := r.buckets("m", merkle.Sets); !slices.Equal(got, []uint16{merkle.BucketOf("k")}) {
		t.Errorf("buckets %v, want that of the key although it has no item", got)
	}
}

func TestChangesOfSets(t *testing.T) {
	at := ts(5, 0)
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), orAdd("m", "k", "v", at), orAdd("m", "k", "v", at), orRemove("m", "k", "unknown"), orRemove("m", "k", at.String()), orRemove("m", "k", at.String())))
	var got []string
	for _, c := range r.changes {
		for _, change := range c.List {
			if change.Added != nil {
				got = append(got, "add "+change.Key+" "+change.Added.Tag)
			} else {
				got = append(got, "remove "+change.Key+" "+change.Removed)
			}
		}
	}
	if want := []string{"add k 5:0:n1", "remove k 5:0:n1"}; !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
}

func TestASetDoesNotGrowBeyondItsBound(t *testing.T) {
	r := newRig(t, 1)
	big := protocol.ORRecord{Value: make([]byte, 1<<20), Timestamp: ts(1, 0)}
	refused := 0
	for i := range uint64(6) {
		big.Tag = fmt.Sprint(i)
		if res := r.apply(entry(i+1, ts(1, 0), orAddRecord("m", "k", big)))[0][0]; res.Code == protocol.CodeTooLarge {
			refused++
			if state, err := r.machine.Tag("m", big.Tag); err != nil || state != fsm.TagUnknown {
				t.Errorf("a refused tag is known: %v", err)
			}
		}
	}
	if refused != 3 {
		t.Errorf("%d of 6 refused, want 3", refused)
	}
	// Also of many small records the encoding is what is bounded.
	var cmds []command.Raw
	for i := range 20_000 {
		small := protocol.ORRecord{Tag: fmt.Sprint(i), Timestamp: protocol.Timestamp{Millis: 1, NodeID: strings.Repeat("n", 255)}, Value: []byte{1}}
		cmds = append(cmds, orAddRecord("m", "many", small))
	}
	r.apply(entry(7, ts(1, 0), cmds...))
	many, _, err := r.machine.Set("m", "many", "")
	r.must(err)
	if added := len(many.Records); added < 10_000 || added > 16_000 {
		t.Errorf("%d records of 300 bytes in a set", added)
	}
	// So is the work of hashing it.
	bin := protocol.ORRecord{Value: msgp.AppendBytes(nil, make([]byte, 1<<18)), Timestamp: ts(1, 0)}
	var codes []protocol.Code
	for i := range uint64(3) {
		bin.Tag = fmt.Sprint("bin", i)
		codes = append(codes, r.apply(entry(8+i, ts(1, 0), orAddRecord("m", "bins", bin)))[0][0].Code)
	}
	if codes[0] != 0 || codes[2] != protocol.CodeTooLarge {
		t.Errorf("three bins of 256 KiB: %v", codes)
	}
	r.apply(entry(11, ts(1, 0), orRemove("m", "bins", "bin0")))
	if res := r.apply(entry(12, ts(1, 0), orAddRecord("m", "bins", bin)))[0][0]; res.Code != 0 {
		t.Errorf("a bin where one was removed: %+v", res)
	}
	if res := r.apply(entry(13, ts(1, 0), orAdd("m", strings.Repeat("k", 40_000), "v", ts(1, 0))))[0][0]; res.Code != protocol.CodeTooLarge {
		t.Errorf("a key of 40,000 bytes: %+v", res)
	}
}

func TestAKeyWithManyRemovedTagsIsReadInParts(t *testing.T) {
	const tags = 2*fsm.MaxTags + fsm.MaxTags/2
	r := newRig(t, 1)
	want := map[string]bool{}
	for batch := range uint64(4) { // every other one is not in the store yet, and the two alternate
		var cmds []command.Raw
		for i := int(batch); i < tags; i += 4 {
			tag := fmt.Sprintf("tag-%05d", i)
			want[tag] = true
			cmds = append(cmds, orRemove("m", "k", tag))
		}
		r.apply(entry(2*batch+1, ts(1, 0), cmds...), entry(2*batch+2, ts(1, 0), orAdd("m", "k", "v", ts(1, int64(batch)))))
		if batch == 1 {
			r.flush()
		}
	}
	leaf := fsm.Leaf{Map: "m", Bucket: merkle.BucketOf("k")}
	var whole, single []protocol.OREntry
	r.must(r.machine.LeafSets(leaf, func(part protocol.OREntry) bool { whole = append(whole, part); return true }))
	for end := false; !end; { // each part on its own
		end = true
		r.must(r.machine.LeafSets(leaf, func(part protocol.OREntry) bool {
			single, leaf, end = append(single, part), leaf.Behind(part), false
			return false
		}))
	}
	var byKey []protocol.OREntry
	for tag, more := "", true; more; {
		var part protocol.OREntry
		var err error
		part, more, err = r.machine.Set("m", "k", tag)
		r.must(err)
		byKey, tag = append(byKey, part), fsm.TagBehind(part)
	}
	if diff := cmp.Diff(whole, single) + cmp.Diff(whole, byKey); diff != "" {
		t.Fatalf("parts differ: %s", diff)
	}
	if len(whole) != 3 || len(whole[0].Records) != 4 || len(whole[1].Records)+len(whole[2].Records) > 0 {
		t.Fatalf("%d parts, want 3 of which the first has the 4 records", len(whole))
	}
	for i, part := range whole {
		if got := len(part.Tombstones); got != min(fsm.MaxTags, tags-i*fsm.MaxTags) {
			t.Errorf("part %d has %d removed tags", i, got)
		}
		for _, tag := range part.Tombstones {
			delete(want, tag)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d removed tags are not in any part", len(want))
	}
}
