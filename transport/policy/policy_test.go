package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/quorate/quorate/transport/policy"
)

func pack(t testing.TB, v any) []byte {
	if v == nil {
		return nil
	}
	b, err := msgpack.Marshal(v)
	require.NoError(t, err)
	return b
}

func compile(t testing.TB, list ...policy.Policy) *policy.Set {
	for i := range list {
		if list[i].ID == "" {
			list[i].ID = string(rune('a' + i))
		}
	}
	s, err := policy.Compile(list, true)
	require.NoError(t, err)
	return s
}

func condition(t testing.TB, text string) *policy.Node {
	n, err := policy.ParseExpression(text)
	require.NoError(t, err, text)
	return n
}

func onMap(name string) policy.Resource { return policy.Resource{Kind: policy.Map, Name: name} }

func TestPatternsSelectResources(t *testing.T) {
	cases := []struct {
		pattern string
		kind    policy.Kind
		name    string
		want    bool
	}{
		{"users.*", policy.Map, "users.a", true},
		{"users.*", policy.Map, "users", false},
		{"users.*", policy.Map, "users.a.b", false},
		{"users.**", policy.Map, "users.a", true},
		{"users.**", policy.Map, "users", true},
		{"users.**", policy.Map, "users.a.b", true},
		{"users.**", policy.Map, "usersx", false},
		{"**.log", policy.Map, "a.b.log", true},
		{"**.log", policy.Map, "a.b.logs", false},
		{"a.**.z", policy.Map, "a.z", true},
		{"a.**.z", policy.Map, "a.b.c.z", true},
		{"a.**.m.**.z", policy.Map, "a.m.b.z", true},
		{"a.**.m.**.z", policy.Map, "a.b.z", false},
		{"*", policy.Map, "a.b", true},
		{"*", policy.Lock, "a.b", true},
		{"**", policy.Topic, "a", true},
		{"*.b", policy.Map, "a.b", true},
		{"Users", policy.Map, "users", false},
		{"lock:jobs.*", policy.Lock, "jobs.nightly", true},
		{"lock:jobs.*", policy.Map, "jobs.nightly", false},
		{"jobs.*", policy.Lock, "jobs.nightly", false},
		{"lock:*", policy.Lock, "a.b.c", true},
		{"topic:*", policy.Lock, "a", false},
		{"map:lock:x", policy.Map, "lock:x", true},
		{"counter:likes", policy.Counter, "likes", true},
		{"journal:todos", policy.Journal, "todos", true},
	}
	for _, c := range cases {
		s := compile(t, policy.Policy{MapPattern: c.pattern, Action: "read", Effect: "allow"})
		got := s.Judge(policy.Caller{}, policy.Read, policy.Resource{Kind: c.kind, Name: c.name}, policy.Row{}) == policy.Allowed
		require.Equal(t, c.want, got, "%s on %s %q", c.pattern, c.kind, c.name)
	}
}

// TestLongPatternsAreQuick has patterns that a search which goes back everywhere would not
// finish with.
func TestLongPatternsAreQuick(t *testing.T) {
	s := compile(t, policy.Policy{MapPattern: strings.Repeat("**.a.", 80) + "b", Action: "all", Effect: "allow"})
	name := strings.Repeat("a.", 120) + "a"
	require.Equal(t, policy.Denied, s.Judge(policy.Caller{}, policy.Read, onMap(name), policy.Row{}))
}

func TestDenyWinsAndNothingIsAllowedByDefault(t *testing.T) {
	open, err := policy.Compile(nil, false)
	require.NoError(t, err)
	require.False(t, open.Restricts())
	require.Equal(t, policy.Allowed, open.Judge(policy.Caller{}, policy.Write, onMap("m"), policy.Row{}))

	closed := compile(t)
	require.Equal(t, policy.Denied, closed.Judge(policy.Caller{}, policy.Write, onMap("m"), policy.Row{}), "all were deleted")
	require.Equal(t, policy.Allowed, closed.Judge(policy.Caller{Admin: true}, policy.Write, onMap("m"), policy.Row{}))

	s := compile(t,
		policy.Policy{MapPattern: "*", Action: "all", Effect: "allow"},
		policy.Policy{MapPattern: "secret", Action: "write", Effect: "deny"},
	)
	require.Equal(t, policy.Denied, s.Judge(policy.Caller{}, policy.Write, onMap("secret"), policy.Row{}))
	require.Equal(t, policy.Allowed, s.Judge(policy.Caller{}, policy.Read, onMap("secret"), policy.Row{}))
	allowed, id := s.Explain(policy.Caller{}, policy.Write, onMap("secret"), policy.Row{})
	require.False(t, allowed)
	require.Equal(t, "b", id)

	writes := compile(t, policy.Policy{MapPattern: "*", Action: "write", Effect: "allow"})
	require.Equal(t, policy.Denied, writes.Judge(policy.Caller{}, policy.Remove, onMap("m"), policy.Row{}), "write does not allow remove")
}

func TestRolesAndSubjectsRestrictAPolicy(t *testing.T) {
	s := compile(t,
		policy.Policy{MapPattern: "a", Action: "all", Effect: "allow", Roles: []string{"editor", "chief"}},
		policy.Policy{MapPattern: "b", Action: "all", Effect: "allow", Subjects: []string{"ann"}},
	)
	judge := func(c policy.Caller, m string) bool {
		return s.Judge(c, policy.Write, onMap(m), policy.Row{}) == policy.Allowed
	}
	require.True(t, judge(policy.Caller{ID: "x", Roles: []string{"chief"}}, "a"))
	require.False(t, judge(policy.Caller{ID: "x", Roles: []string{"Editor"}}, "a"))
	require.False(t, judge(policy.Caller{ID: "admin", Roles: []string{"admin"}}, "a"), "a role of that name is no admin")
	require.True(t, judge(policy.Caller{ID: "ann"}, "b"))
	require.False(t, judge(policy.Caller{ID: "bob"}, "b"))
	require.False(t, judge(policy.Caller{}, "b"))
}

func TestConditions(t *testing.T) {
	ann := policy.Caller{ID: "ann", Roles: []string{"editor", "staff"}}
	stored := map[string]any{"owner": "ann", "n": 3, "tags": []string{"a", "b"}}
	incoming := map[string]any{"owner": "bob", "n": 4.5, "deep": map[string]any{"x": true}, "name": "Quorum", "none": nil}
	cases := []struct {
		text string
		want bool
	}{
		{"stored.owner == auth.id", true},
		{"existing.owner == auth.id", true},
		{"auth.id == data.owner", false},
		{"data.owner == 'bob' && stored.owner == 'ann'", true},
		{"data.owner == 'x' || stored.n >= 3 && stored.n < 4", true},
		{"(data.owner == 'x' || stored.n >= 3) && stored.n > 3", false},
		{"!(data.owner == 'x')", true},
		{"data.n > stored.n", true},
		{"data.n == 4.5", true},
		{"4 < data.n", true},
		{"stored.n == 3.0", true},
		{"data.deep.x == true", true},
		{"data.missing == 'x'", false},
		{"data.missing != 'x'", false},
		{"data.missing == null", true},
		{"data.none == null", true},
		{"null != data.owner", true},
		{"data.owner.deeper == null", true},
		{"auth == null", false},
		{"auth != null", true},
		{"auth.id == 'ann'", true},
		{"auth.roles contains 'editor'", true},
		{"'editor' in auth.roles", true},
		{"'chief' in auth.roles", false},
		{"auth.roles containsAny ['chief', 'staff']", true},
		{"auth.roles containsAll ['chief', 'staff']", false},
		{"stored.tags containsAll ['a', 'b']", true},
		{"data.owner in ['ann', 'bob']", true},
		{"data.name startsWith 'Quo'", true},
		{"data.name endsWith 'x'", false},
		{"data.name contains 'oru'", true},
		{"data.name > 'A'", true},
		{"data.name > 1", false},
		{"key == 'k1'", true},
		{"stored.n == -3", false},
	}
	for _, c := range cases {
		s := compile(t, policy.Policy{MapPattern: "m", Action: "write", Effect: "allow", Condition: condition(t, c.text)})
		row := policy.Row{Key: "k1", Stored: pack(t, stored), Incoming: pack(t, incoming)}
		require.Equal(t, c.want, s.Judge(ann, policy.Write, onMap("m"), row) == policy.Allowed, c.text)
	}
}

func TestTreesOfTheFieldWork(t *testing.T) {
	for text, want := range map[string]bool{
		`{"op":"eq","attribute":"owner","value":"ann"}`:                                                      true,
		`{"op":"eq","attribute":"data.owner","valueRef":"auth.id"}`:                                          true,
		`{"op":"eq","attribute":"owner","valueRef":"nowhere.id"}`:                                            false,
		`{"op":"like","attribute":"owner","value":"a_%"}`:                                                    true,
		`{"op":"regex","attribute":"owner","value":"^b"}`:                                                    false,
		`{"op":"between","attribute":"n","value":[1,2]}`:                                                     true,
		`{"op":"in","attribute":"owner","value":["ann"]}`:                                                    true,
		`{"op":"isNull","attribute":"gone"}`:                                                                 true,
		`{"op":"and","children":[{"op":"isNotNull","attribute":"n"},{"op":"lt","attribute":"n","value":2}]}`: false,
	} {
		var n policy.Node
		require.NoError(t, json.Unmarshal([]byte(text), &n))
		s := compile(t, policy.Policy{MapPattern: "m", Action: "write", Effect: "allow", Condition: &n})
		row := policy.Row{Incoming: pack(t, map[string]any{"owner": "ann", "n": 2})}
		require.Equal(t, want, s.Judge(policy.Caller{ID: "ann"}, policy.Write, onMap("m"), row) == policy.Allowed, text)
	}
}

// TestConditionsAreReadOnce holds that a Node has no decoder of its own: each level of a deep
// condition would be read as often as there are levels above it, and 1.6 MB took 80 s.
func TestConditionsAreReadOnce(t *testing.T) {
	_, own := any(&policy.Node{}).(json.Unmarshaler)
	require.False(t, own)
	doc, err := policy.Encode([]policy.Policy{{ID: "p", MapPattern: "m", Action: "write", Effect: "allow", Condition: condition(t, "data.n == 9007199254740993")}})
	require.NoError(t, err)
	list, err := policy.Decode(doc)
	require.NoError(t, err)
	s := compile(t, list...)
	for n, want := range map[int64]policy.Decision{9007199254740993: policy.Allowed, 9007199254740992: policy.Denied} {
		require.Equal(t, want, s.Judge(policy.Caller{}, policy.Write, onMap("m"), policy.Row{Incoming: pack(t, map[string]any{"n": n})}), n)
	}
	_, err = policy.Decode([]byte(`{"format":1,"policies":[{"id":"p","mapPattern":"m","action":"all","effect":"allow","groups":["x"]}]}`))
	require.ErrorIs(t, err, policy.ErrFormat, "a restriction that is not understood is not passed over")
}

func TestWhatCannotBeToldIsDenied(t *testing.T) {
	allow := compile(t, policy.Policy{MapPattern: "m", Action: "all", Effect: "allow", Condition: condition(t, "stored == null || stored.owner == auth.id")})
	deny := compile(t, policy.Policy{MapPattern: "*", Action: "all", Effect: "allow"},
		policy.Policy{MapPattern: "m", Action: "all", Effect: "deny", Condition: condition(t, "stored.locked == true")})
	for _, row := range []policy.Row{{StoredUnknown: true}, {Stored: []byte{0xc1}}} {
		require.Equal(t, policy.Denied, allow.Judge(policy.Caller{ID: "a"}, policy.Write, onMap("m"), row))
		require.Equal(t, policy.Denied, deny.Judge(policy.Caller{ID: "a"}, policy.Write, onMap("m"), row))
	}
	require.Equal(t, policy.Allowed, allow.Judge(policy.Caller{ID: "a"}, policy.Write, onMap("m"), policy.Row{}))
	require.Equal(t, policy.Allowed, deny.Judge(policy.Caller{ID: "a"}, policy.Write, onMap("m"), policy.Row{}))
}

func TestScopeTellsWhetherRowsDecide(t *testing.T) {
	own := policy.Policy{MapPattern: "own", Action: "read", Effect: "allow", Condition: condition(t, "data.owner == auth.id")}
	staff := policy.Policy{MapPattern: "own", Action: "read", Effect: "allow", Roles: []string{"staff"}}
	secret := policy.Policy{MapPattern: "own", Action: "read", Effect: "deny", Condition: condition(t, "stored.secret == true")}
	signedIn := policy.Policy{MapPattern: "own", Action: "read", Effect: "allow", Condition: condition(t, "auth != null")}
	ann, boss := policy.Caller{ID: "ann"}, policy.Caller{ID: "boss", Roles: []string{"staff"}}
	cases := []struct {
		set  *policy.Set
		who  policy.Caller
		want policy.Decision
	}{
		{compile(t, own), ann, policy.Depends},
		{compile(t, own, staff), ann, policy.Depends},
		{compile(t, own, staff), boss, policy.Allowed},
		{compile(t, own, staff, secret), boss, policy.Depends},
		{compile(t, staff), ann, policy.Denied},
		{compile(t, secret), ann, policy.Denied},
		{compile(t, signedIn), ann, policy.Allowed},
		{compile(t, signedIn), policy.Caller{}, policy.Denied},
	}
	for i, c := range cases {
		require.Equal(t, c.want, c.set.Scope(c.who, policy.Read, onMap("own")), "case %d", i)
	}
	byKey := policy.Policy{MapPattern: "own", Action: "read", Effect: "allow", Condition: condition(t, "key startsWith auth.id && data.secret == false")}
	require.Equal(t, policy.Depends, compile(t, byKey).Scope(ann, policy.Read, onMap("own")))
	require.Equal(t, policy.Depends, compile(t, byKey).ScopeOf(ann, policy.Read, onMap("own"), "ann/1"))
	require.Equal(t, policy.Denied, compile(t, byKey).ScopeOf(ann, policy.Read, onMap("own"), "bob/1"))
	require.Equal(t, policy.Depends, compile(t, own).ScopeOf(ann, policy.Read, onMap("own"), "bob/1"))
	require.True(t, compile(t, secret).SeesStored(ann, policy.Read, onMap("own")))
	require.False(t, compile(t, own).SeesStored(ann, policy.Read, onMap("own")))
	require.False(t, compile(t, secret).SeesStored(ann, policy.Write, onMap("own")))
}

func TestReadsAreFilteredByRow(t *testing.T) {
	g := policy.NewGuard(hclog.NewNullLogger())
	doc, err := policy.Encode([]policy.Policy{{ID: "own", MapPattern: "m", Action: "read", Effect: "allow", Condition: condition(t, "data.owner == auth.id && stored.owner == auth.id")}})
	require.NoError(t, err)
	g.Update(doc, 3)
	ann := policy.Access{Guard: g, Caller: policy.Caller{ID: "ann"}}
	require.True(t, ann.Allow(policy.Read, "m", "k", pack(t, map[string]any{"owner": "ann"}), nil))
	require.False(t, ann.Allow(policy.Read, "m", "k", pack(t, map[string]any{"owner": "bob"}), nil))

	g.Update(nil, 2)
	require.Equal(t, uint64(3), g.Version(), "an older document changes nothing")
	g.Update([]byte("{broken"), 4)
	require.False(t, ann.Allow(policy.Read, "m", "k", pack(t, map[string]any{"owner": "ann"}), nil))
	require.Equal(t, policy.Denied, ann.Scope(policy.Read, onMap("m")))
}

func TestInvalidPoliciesAreRefusedByField(t *testing.T) {
	good := policy.Policy{ID: "p", MapPattern: "m", Action: "read", Effect: "allow"}
	require.NoError(t, good.Validate())
	deep := &policy.Node{Op: "isNull", Attribute: "a"}
	for range 40 {
		deep = &policy.Node{Op: "not", Children: []*policy.Node{deep}}
	}
	cases := map[string]func(*policy.Policy){
		"id":         func(p *policy.Policy) { p.ID = "a b" },
		"mapPattern": func(p *policy.Policy) { p.MapPattern = "" },
		"action":     func(p *policy.Policy) { p.Action = "readd" },
		"effect":     func(p *policy.Policy) { p.Effect = "" },
		"roles":      func(p *policy.Policy) { p.Roles = []string{""} },
		"subjects":   func(p *policy.Policy) { p.Subjects = make([]string, 300) },
	}
	for _, empty := range []func(*policy.Policy){func(p *policy.Policy) { p.Roles = []string{} }, func(p *policy.Policy) { p.Subjects = []string{} }} {
		p := good
		empty(&p)
		require.Error(t, p.Validate(), "whoever names nobody does not mean everybody")
	}
	for field, change := range cases {
		p := good
		change(&p)
		var problem *policy.FieldError
		require.True(t, errors.As(p.Validate(), &problem), field)
		require.Equal(t, field, problem.Field)
	}
	for _, n := range []*policy.Node{
		{}, {Op: "surprise", Attribute: "a"}, {Op: "and"}, {Op: "not", Children: []*policy.Node{nil}}, {Op: "eq", Attribute: "a"},
		{Op: "eq", Value: 1}, {Op: "regex", Attribute: "a", Value: "("}, {Op: "regex", Attribute: "a", Value: strings.Repeat("a", 2000)},
		{Op: "regex", Attribute: "a", ValueRef: "data.b"}, {Op: "between", Attribute: "a", Value: []any{1}}, deep,
	} {
		p := good
		p.Condition = n
		var problem *policy.FieldError
		require.True(t, errors.As(p.Validate(), &problem), "%+v", n)
		require.Equal(t, "condition", problem.Field)
	}
}

// TestPatternsOfPoliciesAreBounded has patterns of few bytes that would take every node long
// to compile, each time that policies change.
func TestPatternsOfPoliciesAreBounded(t *testing.T) {
	with := func(expr string, n int) policy.Policy {
		tree := &policy.Node{Op: "or"}
		for range n {
			tree.Children = append(tree.Children, &policy.Node{Op: "regex", Attribute: "a", Value: expr})
		}
		return policy.Policy{ID: "p", MapPattern: "m", Action: "read", Effect: "allow", Condition: tree}
	}
	folds, classes := "(?i)["+strings.Repeat("B-\U0001F000", 9)+"]", "["+strings.Repeat(`\pL`, 300)+"]"
	for name, p := range map[string]policy.Policy{
		"ranges in any case": with(folds, 1), "classes": with(classes, 4), "size of one": with(strings.Repeat("(x{900})", 100), 1), "size of all": with("x{1000}", 200),
	} {
		var problem *policy.FieldError
		require.True(t, errors.As(p.Validate(), &problem), name)
		require.Equal(t, "condition", problem.Field, name)
	}
	one := with(classes, 1)
	require.NoError(t, one.Validate())
	_, err := policy.Compile([]policy.Policy{one, one, one}, true)
	require.NoError(t, err)
	_, err = policy.Compile([]policy.Policy{one, one, one, one}, true)
	require.Error(t, err, "the bound is one for all policies")
}

func TestExpressionErrorsShowThePlace(t *testing.T) {
	for text, at := range map[string]int{
		"data.a = 1": 7, "data.a ==": 9, "data.a == 'x": 10, "(data.a == 1": 12, "data.a == 1)": 11, "owner == 1": 0, "1 == 2": 2,
		"data.a == 1 && ": 15, "data..a == 1": 0, "data.a in [1": 12, "data.a in [1 2]": 13, "'x' startsWith data.a": 4, "": 0, "data.a == 1e": 10,
	} {
		_, err := policy.ParseExpression(text)
		var problem *policy.FieldError
		require.True(t, errors.As(err, &problem), text)
		require.Equal(t, "conditionExpr", problem.Field)
		lines := strings.Split(problem.Reason, "\n")
		require.Equal(t, strings.Repeat(" ", at)+"^", lines[len(lines)-1], text)
	}
	_, err := policy.ParseExpression(strings.Repeat("!", 100) + "data.a == 1")
	require.Error(t, err)
}

func FuzzParseExpression(f *testing.F) {
	for _, text := range []string{"data.a == 'x' && !(auth.id in ['a'] || stored.b >= -1.5)", "key == null", "'", "[", "data.a containsAny ['']"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := policy.ParseExpression(text)
		if err != nil {
			return
		}
		p := policy.Policy{ID: "p", MapPattern: "*", Action: "all", Effect: "allow", Condition: n}
		s, err := policy.Compile([]policy.Policy{p}, true)
		if err != nil {
			return // too large
		}
		s.Judge(policy.Caller{ID: "a"}, policy.Write, onMap("m"), policy.Row{Stored: []byte{0x81, 0xa1, 'a', 1}, Incoming: []byte{0x90}})
	})
}

func FuzzDecodePolicies(f *testing.F) {
	f.Add([]byte(`{"format":1,"policies":[{"id":"a","mapPattern":"*","action":"all","effect":"deny","condition":{"op":"eq","attribute":"a","value":[1]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := policy.Decode(b)
		if err != nil {
			return
		}
		s, err := policy.Compile(list, true)
		if err != nil {
			return
		}
		s.Scope(policy.Caller{ID: "a"}, policy.Read, onMap("m"))
	})
}
