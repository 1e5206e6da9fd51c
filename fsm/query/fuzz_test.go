package query_test

import (
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/protocol"
)

// FuzzQuery holds that no query on any record panics, that what it says of a record does
// not depend on when it is asked, that its interest, keys and narrowings are conditions of
// its rows, and that places are read back.
func FuzzQuery(f *testing.F) {
	for _, seed := range []struct{ query, value any }{
		{m{"where": m{"a": 1}, "sort": l{m{"field": "a", "direction": "desc"}}, "limit": 3, "fields": l{"a"}}, m{"a": 1}},
		{m{"predicate": m{"op": "and", "children": l{test("in", "a.b", l{1, "x"}), test("like", "t", "%a_")}}}, m{"a": m{"b": "x"}, "t": "bar"}},
		{m{"predicate": m{"op": "not", "children": l{test("regex", "t", "[\\w\\D]\\S+")}}, "groupBy": l{"a", "t"}}, m{"t": "x y"}},
		{m{"predicate": test("between", "_value", l{1, 5}), "sort": m{"_value": "asc"}}, 3},
		{m{"predicate": test("eq", "_key", "k")}, nil},
		{m{"predicate": m{"op": "containsAny", "attribute": "l", "valueRef": "data.l"}}, m{"l": l{1, "x"}}},
	} {
		f.Add([]byte(raw(f, seed.query)), []byte(raw(f, seed.value)))
	}
	f.Fuzz(func(t *testing.T, object, value []byte) {
		object, value = guarded(object), guarded(value)
		q, err := query.Compile(object, query.Options{})
		if err != nil {
			return
		}
		matched, err := q.Match("k", value)
		again, errAgain := q.Match("k", value)
		if matched != again || (err == nil) != (errAgain == nil) {
			t.Fatal("asked twice, two answers")
		}
		if keys, only := q.Keys(); matched && only && (len(keys) == 0 || keys[0] > "k" || keys[len(keys)-1] < "k") {
			t.Fatal("a row with a key that the query excludes")
		}
		if i := q.Interest(); matched && i.Narrow() {
			name, ok := query.ParseAttribute(i.Attribute).ValueName(nil, "k", value)
			found := false
			for _, v := range i.Values {
				found = found || ok && v == string(name)
			}
			if !found {
				t.Fatalf("a row outside of the interest %+v: %q", i, name)
			}
		}
		for _, n := range q.Narrowings() {
			if rank := query.ParseAttribute(n.Attribute).AppendRank(nil, "k", value); matched && !contains(append(n.Spans, query.SpanOpaque), rank) {
				t.Fatalf("a row outside of the spans of %q: %q", n.Attribute, rank)
			}
		}
		p := q.Place("k", value)
		back, err := q.ParsePlace(q.AppendPlace(nil, &p))
		if err != nil || q.Compare(&p, &back) != 0 {
			t.Fatalf("place is not read back: %v", err)
		}
		if out := q.Project(value); len(out) > 0 {
			if _, err := protocol.Guard(out); err != nil {
				t.Fatalf("projection is no value: %v", err)
			}
		}
		g := q.NewGroups(1 << 16)
		if err := g.Add("k", value); err == nil {
			g.Each(func(_ string, row msgp.Raw) bool {
				if _, err := protocol.Guard(row); err != nil {
					t.Fatalf("group is no value: %v", err)
				}
				return true
			})
		}
	})
}

// guarded is the value at the start of b, nothing if there is none.
func guarded(b []byte) msgp.Raw {
	s, err := protocol.Guard(b)
	if err != nil || s.HasExt || s.HasOddKey {
		return nil
	}
	return msgp.Raw(b[:s.Size])
}
