package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is one line of a test: an operation on the key k, between two moments.
func row(client int, kind Kind, value string, o Outcome, call, ret int64) Op {
	return Op{Client: client, Node: "n1", Kind: kind, Key: "k", Value: value, Outcome: o, Call: call, Return: ret}
}

func with(op Op, change func(*Op)) Op {
	change(&op)
	return op
}

func shows(kind Kind, client int, call, ret int64, rows ...string) Op {
	op := row(client, kind, "", OK, call, ret)
	op.Key, op.Rows = "", map[string]string{}
	for i := 0; i < len(rows); i += 2 {
		op.Rows[rows[i]] = rows[i+1]
	}
	return op
}

func totals(kind Kind, client int, total float64, o Outcome, call, ret int64) Op {
	return with(row(client, kind, "", o, call, ret), func(op *Op) { op.Number = total })
}

func token(client int, kind Kind, t uint64, o Outcome, call, ret int64) Op {
	return with(row(client, kind, "", o, call, ret), func(op *Op) {
		op.Token = t
		if kind == Acquire || kind == Renew && o != Failed {
			op.Until = call + 100
		}
	})
}

func held(client int, t uint64, asked, at int64) Op {
	return with(token(client, Held, t, OK, asked, at+1), func(op *Op) { op.Until = at })
}

func fenced(client int, t uint64, value string, o Outcome, call, ret int64) Op {
	return with(row(client, Fenced, value, o, call, ret), func(op *Op) { op.Token, op.Refused = t, o == Failed })
}

// at has a fenced write go to another key.
func at(resource string, op Op) Op { return with(op, func(op *Op) { op.Resource = resource }) }

func appends(client int, seen, value string, o Outcome, call, ret int64) Op {
	return with(row(client, Append, value, o, call, ret), func(op *Op) { op.Rows = map[string]string{"k": seen} })
}

func refused(op Op) Op { return with(op, func(op *Op) { op.Refused = true }) }

// TestJudges gives each judge histories that are right and histories with one thing wrong.
func TestJudges(t *testing.T) {
	for _, tc := range []struct {
		name  string
		judge func([]Op) []string
		ops   []Op
		want  string // empty if nothing is wrong
	}{
		{"register in order", Registers, []Op{
			row(1, Put, "a", OK, 1, 2), shows(Read, 2, 3, 4, "k", "a"), row(1, Put, "", OK, 5, 6), shows(Read, 2, 7, 8),
		}, ""},
		{"stale read", Registers, []Op{
			row(1, Put, "a", OK, 1, 2), row(1, Put, "b", OK, 3, 4), shows(Read, 2, 5, 6, "k", "a"),
		}, "not linearizable"},
		{"lost write", Registers, []Op{row(1, Put, "a", OK, 1, 2), shows(Read, 2, 3, 4)}, "not linearizable"},
		{"unknown write comes late", Registers, []Op{
			row(1, Put, "a", OK, 1, 2), row(3, Put, "u", Unknown, 1, 9), shows(Read, 2, 10, 11, "k", "a"), shows(Read, 2, 20, 21, "k", "u"),
		}, ""},
		{"unknown write comes twice", Registers, []Op{
			row(3, Put, "u", Unknown, 1, 9), shows(Read, 2, 10, 11, "k", "u"), row(1, Put, "a", OK, 12, 13),
			shows(Read, 2, 14, 15, "k", "a"), shows(Read, 2, 20, 21, "k", "u"),
		}, "not linearizable"},
		{"unknown removal", Registers, []Op{
			row(1, Put, "a", OK, 1, 2), row(3, Put, "", Unknown, 3, 4), shows(Read, 2, 5, 6, "k", "a"), shows(Read, 2, 7, 8),
		}, ""},
		{"failed removal", Registers, []Op{shows(Read, 2, 1, 2), row(1, Put, "", Failed, 1, 2), row(1, Put, "a", OK, 3, 4)}, ""},
		{"failed write shows", Registers, []Op{row(1, Put, "a", Failed, 1, 2), shows(Read, 2, 3, 4, "k", "a")}, "whose write had failed"},
		{"nobody's value", Registers, []Op{row(1, Put, "a", OK, 1, 2), shows(Read, 2, 1, 4, "k", "z")}, "which nobody wrote"},

		{"list grows", Lists, []Op{
			appends(1, "", "a", OK, 1, 2), appends(2, "a", "b", Unknown, 3, 4), appends(1, "a,b", "c", OK, 5, 6), shows(Read, 3, 7, 8, "k", "a,b,c"),
		}, ""},
		{"lost append", Lists, []Op{
			appends(1, "", "a", OK, 1, 2), appends(2, "", "b", OK, 3, 4), shows(Read, 3, 7, 8, "k", "b"),
		}, "not linearizable"},
		{"two appends to one list", Lists, []Op{
			appends(1, "", "a", OK, 1, 2), appends(2, "a", "b", OK, 3, 9), appends(3, "a", "c", OK, 4, 8),
		}, "not linearizable"},
		{"append to a list that was open comes later", Lists, []Op{
			appends(1, "", "a", OK, 1, 2), appends(2, "a", "b", Unknown, 3, 4), appends(3, "a", "c", OK, 5, 6), shows(Read, 4, 7, 8, "k", "a,b"),
		}, "not linearizable"},
		{"append that was refused shows", Lists, []Op{
			appends(1, "", "a", Failed, 1, 2), shows(Read, 3, 7, 8, "k", "a"),
		}, "not linearizable"},

		{"set complete", Set, []Op{
			row(1, Add, "a", OK, 1, 2), row(1, Add, "u", Unknown, 1, 9), shows(Final, 2, 10, 11, "a", "a"),
		}, ""},
		{"element lost", Set, []Op{row(1, Add, "a", OK, 1, 2), shows(Final, 2, 10, 11)}, `lacks "a", acknowledged`},
		{"element invented", Set, []Op{shows(Final, 2, 10, 11, "z", "z")}, "nobody added"},
		{"element of a failed addition", Set, []Op{row(1, Add, "a", Failed, 1, 2), shows(Final, 2, 10, 11, "a", "a")}, "had failed"},
		{"element gone again", Set, []Op{
			row(1, Add, "u", Unknown, 1, 2), shows(Read, 3, 3, 4, "u", "u"), shows(Final, 2, 10, 11),
		}, "which client 3 had read"},
		{"element gone again after a local read", Set, []Op{
			row(1, Add, "u", Unknown, 1, 2), shows(Local, 2, 3, 4, "u", "u"), shows(Read, 3, 5, 6, "u", "u"), shows(Read, 3, 7, 8),
		}, "which client 3 had read"},
		{"element of a local read gone in the end", Set, []Op{
			row(1, Add, "u", Unknown, 1, 2), shows(Local, 2, 3, 4, "u", "u"), shows(Final, 9, 10, 11),
		}, "which client 2 had read"},
		{"element of a local read behind in a linearizable one that began before", Set, []Op{
			row(1, Add, "u", Unknown, 1, 2), shows(Read, 3, 3, 7), shows(Local, 2, 3, 4, "u", "u"), shows(Final, 9, 10, 11, "u", "u"),
		}, ""},
		{"local read behind others", Set, []Op{row(1, Add, "a", OK, 1, 2), shows(Local, 2, 3, 4), shows(Final, 2, 10, 11, "a", "a")}, ""},
		{"local read behind its session", Set, []Op{
			row(1, Add, "a", OK, 1, 2), shows(Local, 1, 3, 4), shows(Final, 2, 10, 11, "a", "a"),
		}, "which its session knew"},

		{"counter", Counter, []Op{
			totals(Add, 1, 1, OK, 1, 2), totals(Add, 2, 0, Unknown, 1, 3), totals(Add, 1, 3, OK, 4, 5), totals(Local, 3, 2, OK, 4, 6), totals(Final, 9, 3, OK, 8, 9),
		}, ""},
		{"one total twice", Counter, []Op{totals(Add, 1, 1, OK, 1, 2), totals(Add, 2, 1, OK, 1, 3)}, "both made the total"},
		{"totals against time", Counter, []Op{totals(Add, 1, 2, OK, 1, 2), totals(Add, 2, 1, OK, 3, 4)}, "before client"},
		{"counted twice", Counter, []Op{totals(Add, 1, 1, OK, 1, 2), totals(Final, 9, 2, OK, 8, 9)}, "after 1 additions"},
		{"gap that nobody can have made", Counter, []Op{
			totals(Add, 1, 2, OK, 1, 2), totals(Add, 2, 3, OK, 1, 5), totals(Add, 3, 0, Unknown, 3, 4),
		}, "too few"},
		{"addition lost", Counter, []Op{totals(Add, 1, 1, OK, 1, 2), totals(Final, 9, 0, OK, 8, 9)}, "ends with 0"},
		{"total of a replica gone in the end", Counter, []Op{
			totals(Add, 1, 1, OK, 1, 2), totals(Add, 2, 0, Unknown, 1, 3), totals(Local, 3, 2, OK, 4, 5), totals(Final, 9, 1, OK, 8, 9),
		}, "although client 3 was shown 2"},
		{"total of an addition gone in the end", Counter, []Op{
			totals(Add, 2, 0, Unknown, 1, 3), totals(Add, 1, 2, OK, 1, 2), totals(Final, 9, 1, OK, 8, 9),
		}, "although client 1 was shown 2"},
		{"session reads less", Counter, []Op{totals(Add, 1, 1, OK, 1, 2), totals(Local, 1, 0, OK, 3, 4)}, "after 1"},

		{"lock handed over", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), fenced(1, 1, "a", OK, 3, 4), token(1, Release, 1, OK, 5, 6), token(2, Acquire, 2, OK, 1, 7),
			fenced(2, 2, "b", OK, 8, 9), fenced(1, 1, "c", Failed, 10, 11), shows(Read, 3, 12, 13, "k", "b"),
		}, ""},
		{"two holders", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 3, 4), token(1, Release, 1, OK, 5, 6), token(2, Release, 2, OK, 7, 8),
		}, "while client 1 held"},
		{"two holders, the first of which hangs up", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 3, 4), fenced(1, 1, "a", OK, 5, 6), fenced(2, 2, "b", OK, 7, 8),
		}, "while client 1 held"},
		{"two holders, the first of which reads", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 3, 4), shows(Read, 1, 5, 6), token(2, Release, 2, OK, 7, 8),
		}, "while client 1 held"},
		{"two holders, releases of which are not answered", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 3, 4), fenced(1, 1, "a", OK, 5, 6), token(1, Release, 1, Unknown, 7, 8),
			fenced(2, 2, "b", OK, 9, 10), token(2, Release, 2, Unknown, 11, 12),
		}, "while client 1 held"},
		{"holder after its release was not answered", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(1, Release, 1, Unknown, 3, 9), token(2, Acquire, 2, OK, 4, 5), fenced(1, 1, "a", OK, 10, 11),
			fenced(2, 2, "b", OK, 12, 13),
		}, ""},
		{"holder on another connection", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 4, 5),
			with(fenced(1, 1, "a", OK, 6, 7), func(op *Op) { op.Session = 1 }), fenced(2, 2, "b", OK, 8, 9),
		}, ""},
		{"holder whose connection nobody knows", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 4, 5),
			with(fenced(1, 1, "a", OK, 6, 7), func(op *Op) { op.Node = AnyNode }), fenced(2, 2, "b", OK, 8, 9),
		}, ""},
		{"two holders, the first of which says so", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 203, 204), held(1, 1, 205, 207), token(2, Release, 2, OK, 208, 209),
		}, "while client 1 held"},
		{"lost in time", Locks, []Op{token(1, Acquire, 1, OK, 1, 2), refused(token(1, Lost, 1, Failed, 105, 105))}, ""},
		{"lost with the connection", Locks, []Op{token(1, Acquire, 1, OK, 1, 2), token(1, Lost, 1, Failed, 50, 50)}, ""},
		{"lost while the lease runs", Locks, []Op{token(1, Acquire, 1, OK, 1, 2), refused(token(1, Lost, 1, Failed, 50, 50))}, "before its lease ended"},
		{"lost while it is held", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), held(1, 1, 205, 207), refused(token(1, Lost, 1, Failed, 206, 206)),
		}, "before its lease ended"},
		{"not released while it is held", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), refused(with(token(1, Release, 1, Failed, 205, 206), func(op *Op) { op.Until = 210 })),
		}, "before its lease ended"},
		{"second holder after the lease", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 2, OK, 103, 104), token(1, Release, 1, OK, 105, 106), token(2, Release, 2, OK, 107, 108),
		}, ""},
		{"second holder after a lease that was renewed for less", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), with(token(1, Renew, 1, OK, 3, 4), func(op *Op) { op.Until = 13 }), token(2, Acquire, 2, OK, 20, 21),
			shows(Read, 1, 30, 31), token(2, Release, 2, OK, 40, 41),
		}, ""},
		{"second holder after a lease that was perhaps renewed for less", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), with(token(1, Renew, 1, Unknown, 3, 4), func(op *Op) { op.Until = 13 }), token(2, Acquire, 2, OK, 20, 21),
			shows(Read, 1, 30, 31), token(2, Release, 2, OK, 40, 41),
		}, ""},
		{"second holder within a lease that was renewed", Locks, []Op{
			token(1, Acquire, 1, OK, 1, 2), token(1, Renew, 1, OK, 90, 91), token(2, Acquire, 2, OK, 150, 151),
			shows(Read, 1, 160, 161), token(2, Release, 2, OK, 170, 171),
		}, "while client 1 held"},
		{"token again", Locks, []Op{token(1, Acquire, 1, OK, 1, 2), token(2, Acquire, 1, OK, 3, 4)}, "both got token"},
		{"token goes back", Locks, []Op{token(1, Acquire, 2, OK, 1, 2), token(2, Acquire, 1, OK, 3, 4)}, "before client 2 asked"},
		{"lost early", Locks, []Op{token(1, Acquire, 1, OK, 1, 2), refused(token(1, Release, 1, Failed, 5, 6))}, "before its lease ended"},
		{"former holder writes", Locks, []Op{
			fenced(2, 2, "b", OK, 1, 2), fenced(1, 1, "a", OK, 3, 4),
		}, "not linearizable"},
		{"resources of two groups", Locks, []Op{
			fenced(1, 1, "a", OK, 1, 2), fenced(2, 2, "b", OK, 3, 4), at("far", fenced(1, 1, "c", OK, 5, 6)), at("far", fenced(2, 2, "d", OK, 7, 8)),
			at("far", fenced(1, 1, "e", Failed, 9, 10)), shows(Read, 3, 11, 12, "k", "b", "far", "d"),
		}, ""},
		{"former holder writes to another group", Locks, []Op{
			fenced(2, 2, "b", OK, 1, 2), at("far", fenced(2, 2, "d", OK, 3, 4)), at("far", fenced(1, 1, "e", OK, 5, 6)),
		}, "resource far of lock k"},
		{"holder refused", Locks, []Op{fenced(1, 1, "a", OK, 1, 2), fenced(2, 2, "b", Failed, 3, 4)}, "not linearizable"},

		{"tags", Tags, []Op{
			row(1, Add, "a", OK, 1, 2), row(1, Add, "b", OK, 1, 2), row(2, Remove, "b", Unknown, 3, 4), row(1, Add, "c", Unknown, 1, 2),
			shows(Final, 9, 5, 6, "a", "k", "c", "k"),
		}, ""},
		{"tag lost", Tags, []Op{row(1, Add, "a", OK, 1, 2), shows(Final, 9, 5, 6)}, "ends without tag"},
		{"tag comes back", Tags, []Op{
			row(1, Add, "a", OK, 1, 2), row(2, Remove, "a", OK, 3, 4), shows(Final, 9, 5, 6, "a", "k"),
		}, "had removed"},
		{"tag invented", Tags, []Op{shows(Final, 9, 5, 6, "a", "k")}, "nobody added"},

		{"live", Live, []Op{
			row(1, Put, "a", OK, 1, 2), row(1, Put, "b", Unknown, 3, 4), row(2, Update, "a", OK, 5, 5), row(2, Update, "", OK, 5, 5),
			row(2, Update, "b", OK, 6, 6), row(3, Update, "b", OK, 6, 6),
		}, ""},
		{"live against the order", Live, []Op{
			row(1, Put, "a", OK, 1, 2), row(1, Put, "b", OK, 3, 4), row(2, Update, "a", OK, 5, 5), row(2, Update, "b", OK, 6, 6),
			row(3, Update, "b", OK, 6, 6), row(3, Update, "a", OK, 7, 7),
		}, "no order"},
		{"live again", Live, []Op{
			row(1, Put, "a", OK, 1, 2), row(1, Put, "b", OK, 3, 4), row(2, Update, "a", OK, 5, 5), row(2, Update, "b", OK, 6, 6), row(2, Update, "a", OK, 7, 7),
		}, "again"},
		{"live of a failed write", Live, []Op{row(1, Put, "a", Failed, 1, 2), row(2, Update, "a", OK, 5, 5)}, "had failed"},

		{"topic", Topics, []Op{
			row(1, Publish, "a", Unknown, 1, 2), row(1, Publish, "b", Unknown, 3, 4), row(2, Deliver, "a", OK, 5, 5), row(2, Deliver, "b", OK, 6, 6),
			row(3, Deliver, "b", OK, 6, 6),
		}, ""},
		{"topic twice", Topics, []Op{row(1, Publish, "a", Unknown, 1, 2), row(2, Deliver, "a", OK, 5, 5), row(2, Deliver, "a", OK, 6, 6)}, "again"},
		{"topic echo", Topics, []Op{row(1, Publish, "a", Unknown, 1, 2), row(1, Deliver, "a", OK, 5, 5)}, "it had published"},
		{"topic against the publisher", Topics, []Op{
			row(1, Publish, "a", Unknown, 1, 2), row(1, Publish, "b", Unknown, 3, 4), row(2, Deliver, "b", OK, 5, 5), row(2, Deliver, "a", OK, 6, 6),
		}, "of the same publisher"},
		{"topic in two orders", Topics, []Op{
			row(1, Publish, "a", Unknown, 1, 2), row(4, Publish, "b", Unknown, 3, 4), row(2, Deliver, "b", OK, 5, 5), row(2, Deliver, "a", OK, 6, 6),
			row(3, Deliver, "a", OK, 5, 5), row(3, Deliver, "b", OK, 6, 6),
		}, "no order"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := tc.judge(tc.ops)
			if tc.want == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Contains(t, strings.Join(found, "\n"), tc.want)
		})
	}
}

func TestHistoryIsReadBackAndShown(t *testing.T) {
	dir := t.TempDir()
	about := Head{Workload: "register", Round: 3, Seed: -7, Repeat: "-seed -7 -rounds 1"}
	h, err := NewHistory(filepath.Join(dir, "h.jsonl"), about)
	require.NoError(t, err)
	h.Add(row(1, Put, "a<b>", OK, 1e6, 2e6))
	h.Add(shows(Read, 2, 3e6, 4e6, "k", "a<b>"))
	require.NoError(t, h.Close())
	head, ops, err := ReadHistory(h.Path())
	require.NoError(t, err)
	require.Equal(t, about, head)
	require.Equal(t, h.Ops(), ops)

	page := filepath.Join(dir, "h.html")
	require.NoError(t, WriteTimeline(page, Timeline{
		Title: "a round", Ops: ops, Faults: []Band{{Name: "kill", About: "n1", From: 1e6, To: 2e6}}, Problems: []string{"something"},
	}))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, part := range []string{"client 1", "client 2", "kill n1", "something", "a&lt;b&gt;", `style="--from: 2.0; --wide: 1.0"`} {
		require.Contains(t, string(text), part)
	}
}

func TestATimelineShowsEverythingAsText(t *testing.T) {
	const markup = `"><img src=x onerror=alert(1)><script>alert(2)</script>`
	op := Op{
		Client: 1, Node: markup, Kind: markup, Key: markup, Resource: markup, Value: markup, Outcome: markup,
		Rows: map[string]string{markup: markup}, Call: 1e6, Return: 2e6,
	}
	page := filepath.Join(t.TempDir(), "h.html")
	require.NoError(t, WriteTimeline(page, Timeline{
		Title: markup, Ops: []Op{op}, Faults: []Band{{Name: markup, About: markup, From: 1e6, To: 2e6}}, Problems: []string{markup},
	}))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.NotContains(t, string(text), "<img")
	require.NotContains(t, string(text), "<script")
	require.NotContains(t, string(text), `"">`, "the end of an attribute")
	require.GreaterOrEqual(t, strings.Count(string(text), "&lt;img"), 12)
}
