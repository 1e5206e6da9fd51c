package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// environment returns a lookup over pairs NAME=value, and the names asked for.
func environment(pairs ...string) (lookup func(string) string, asked func() []string) {
	values := make(map[string]string)
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		values[name] = value
	}
	var names []string
	return func(name string) string {
		names = append(names, name)
		return values[name]
	}, func() []string { return names }
}

func load(t *testing.T, args []string, pairs ...string) (*Settings, []Problem) {
	t.Helper()
	lookup, _ := environment(pairs...)
	s, problems, err := Load(args, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return s, problems
}

func rowNamed(t *testing.T, name string) *row {
	t.Helper()
	for i := range table {
		if table[i].name == name || "--"+table[i].flag == name {
			return &table[i]
		}
	}
	t.Fatalf("no setting %s", name)
	return nil
}

// TestEverySettingOfTheContract holds the table to the list of settings: names,
// defaults, a value that is accepted and values that are refused.
func TestEverySettingOfTheContract(t *testing.T) {
	cases := []struct {
		name     string
		fallback string
		good     string
		shown    string // what good reads as; empty: itself
		bad      []string
		with     []string // other variables that good needs
	}{
		{name: "--node-id", fallback: "service-server-node", good: "n-1", bad: []string{"a b", "a#b", "a:b", "a/b", "ü", strings.Repeat("x", 65)}},
		{name: "--host", fallback: "127.0.0.1", good: "db.example.com", bad: []string{"a:1", "a b", "http://x", "", "0.0.0.0", "[::]"}},
		{name: "--port", fallback: "8080", good: "0", bad: []string{"65536", "-1", "x", "1.5", ""}},
		{name: "PORT", fallback: "8080", good: " 9000 ", shown: "9000", bad: []string{"65536", "http"}},
		{name: "--cluster-port", fallback: "0", good: "7000", bad: []string{"70000", "x"}},
		{name: "--seed-nodes", fallback: "(none)", good: "a:1, b:2,,", shown: "a:1,b:2", bad: []string{"a", "a:0", "a:99999", ":7000", "a b:1"}},
		{name: "STORAGE_BACKEND", fallback: "embedded", good: "null", bad: []string{"redis", "Embedded", " null"}},
		{name: "SERVICE_STORE_PATH", fallback: "./service.db", good: "/data/x.db"},
		{name: "DATABASE_URL", fallback: "(none)", good: "postgres://u:p@h/db", shown: "(set)"},
		{name: "SERVICE_BIND_ADDR", fallback: "0.0.0.0", good: "[::1]", shown: "::1", bad: []string{"1.2.3.4:80", "a b"}},
		{name: "SERVICE_CORS_ORIGINS", fallback: "(none)", good: "https://a.example, *", shown: "https://a.example,*", bad: []string{"a.example", "https://a.example/x", "null"}},
		{name: "JWT_SECRET", fallback: "(none)", good: " secret ", shown: "(set)"},
		{name: "SERVICE_NO_AUTH", fallback: "false", good: " TRUE ", shown: "true", bad: []string{"yes", "on", "2"}},
		{name: "INSECURE_FORWARD_AUTH_ERRORS", fallback: "false", good: "1", shown: "true", bad: []string{"yes"}},
		{name: "SERVICE_ADMIN_USERNAME", fallback: "admin", good: "root"},
		{name: "SERVICE_ADMIN_PASSWORD", fallback: "(none)", good: "p", shown: "(set)"},
		{name: "SERVICE_ADMIN_DIR", fallback: "(none)", good: "./dist"},
		{name: "SERVICE_INDEX_PATH", fallback: "(none)", good: "/i"},
		{name: "SERVICE_VECTOR_INDEX_PATH", fallback: "(none)", good: "/v"},
		{name: "SERVICE_EMBEDDING_PROVIDER", fallback: "none", good: " NONE ", shown: "none", bad: []string{"openai", "deterministic", "noop", "local_model", "http"}},
		{name: "SERVICE_EMBEDDING_MODEL", fallback: "(none)", good: "m"},
		{name: "SERVICE_EMBEDDING_BASE_URL", fallback: "(none)", good: "http://h:1/x", bad: []string{"h", "ftp://h", "http://u:p@h"}},
		{name: "SERVICE_EMBEDDING_API_KEY", fallback: "(none)", good: "k", shown: "(set)"},
		{name: "SERVICE_EMBEDDING_DIMENSION", fallback: "(none)", good: "768", bad: []string{"0", "65536", "x"}},
		{name: "SERVICE_VECTOR_MAPS", fallback: "(none)", good: `{"m":{"fields":["a"],"dimension":4}}`, bad: []string{"[]", "x", `{"m":{}}`, `{"m":{"fields":["a"],"dimension":4,"x":1}}`, `{} {}`}},
		{name: "RUST_LOG", fallback: "info", good: "warn,raftnode=debug"},
		{name: "SERVICE_LOG_FORMAT", fallback: "text", good: "JSON", shown: "json"},
		{name: "SERVICE_MAX_RAM_MB", fallback: "1024", good: "16", bad: []string{"15", "0", "-1", "x", "18446744073709551615"}},
		{name: "SERVICE_EVICTION_HIGH_PCT", fallback: "85", good: "100", bad: []string{"101", "256", "70", "0"}},
		{name: "SERVICE_EVICTION_LOW_PCT", fallback: "70", good: "84", bad: []string{"0", "85", "90"}},
		{name: "SERVICE_EVICTION_INTERVAL_MS", fallback: "1000", good: "1", bad: []string{"0", "1s", "18446744073709551615"}},
		{name: "SERVICE_WRITEBEHIND_FLUSH_INTERVAL_MS", fallback: "1000", good: "50", bad: []string{"0", "x"}},
		{name: "SERVICE_WRITEBEHIND_BATCH_SIZE", fallback: "100", good: "1", bad: []string{"0", "-5", "4294967296"}},
		{name: "SERVICE_WRITEBEHIND_CAPACITY", fallback: "10000", good: "20", bad: []string{"0", "x"}},
	}
	covered := make(map[*row]bool)
	for _, c := range cases {
		r := rowNamed(t, c.name)
		covered[r] = true
		t.Run(c.name, func(t *testing.T) {
			if got := defaults().value(r); got != c.fallback {
				t.Errorf("default %q, want %q", got, c.fallback)
			}
			set, problems := give(t, c.name, c.good)
			requireNone(t, problems)
			if got, want := set.value(r), orDefault(c.shown, c.good); got != want {
				t.Errorf("%q reads as %q, want %q", c.good, got, want)
			}
			for _, text := range c.bad {
				_, problems := give(t, c.name, text)
				if !slices.ContainsFunc(problems, func(p Problem) bool { return blames(p, c.name) }) {
					t.Errorf("%q: problems %v do not name the setting", text, problems)
				}
			}
		})
	}
	for i := range table {
		if !covered[&table[i]] {
			t.Errorf("%s is not in this test", table[i].title())
		}
	}
}

// blames allows the low water mark to be named for a high one that is below it.
func blames(p Problem, name string) bool {
	return p.Name == name || name == "SERVICE_EVICTION_HIGH_PCT" && p.Name == "SERVICE_EVICTION_LOW_PCT"
}

func requireNone(t *testing.T, problems []Problem) {
	t.Helper()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
}

// give loads settings that are complete but for name, which is set to text.
func give(t *testing.T, name, text string) (*Settings, []Problem) {
	t.Helper()
	args, env := []string{"--node-id=n1"}, []string{"JWT_SECRET=s"}
	switch {
	case name == "--node-id" && text != "":
		args = []string{name, text}
	case strings.HasPrefix(name, "--"):
		args = append(args, name+"="+text)
	default:
		env = append(env, name+"="+text)
	}
	return load(t, args, env...)
}

func TestOnlyVariablesOfTheTableAreRead(t *testing.T) {
	lookup, asked := environment("JWT_SECRET=s")
	if _, _, err := Load(nil, lookup); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range table {
		if table[i].name != "" {
			want = append(want, table[i].name)
		}
	}
	if diff := cmp.Diff(want, asked()); diff != "" {
		t.Error(diff)
	}
}

func TestFlagWinsOverVariableWinsOverDefault(t *testing.T) {
	s, problems := load(t, []string{"--port", "1"}, "JWT_SECRET=s", "PORT=not-a-number")
	requireNone(t, problems)
	if s.Server.Network.Port != 1 {
		t.Error("the variable beat the flag")
	}
	s, problems = load(t, nil, "JWT_SECRET=s", "PORT=2")
	requireNone(t, problems)
	if s.Server.Network.Port != 2 {
		t.Error("the default beat the variable")
	}
	s, problems = load(t, nil, "JWT_SECRET=s", "PORT=", "STORAGE_BACKEND=", "SERVICE_NO_AUTH=")
	requireNone(t, problems)
	if s.Server.Network.Port != 8080 || s.source(rowNamed(t, "PORT")) != "default" {
		t.Error("an empty variable counts as set")
	}
}

func TestCommandLineMistakes(t *testing.T) {
	cases := []struct {
		args []string
		want string
	}{
		{[]string{"--unknown"}, "-unknown"},
		{[]string{"--port"}, "-port"},
		{[]string{"extra"}, `unexpected argument "extra"`},
		{[]string{"--port=1", "extra"}, `unexpected argument "extra"`},
		{[]string{"--port=1", "--port=1"}, "given more than once"},
		{[]string{"--no", "1"}, "-no"},
	}
	for _, c := range cases {
		_, problems := load(t, c.args, "JWT_SECRET=s")
		if len(problems) != 1 || !strings.Contains(problems[0].String(), c.want) {
			t.Errorf("%q: %v", c.args, problems)
		}
	}
	for _, arg := range []string{"-h", "--help"} {
		lookup, _ := environment()
		if _, _, err := Load([]string{arg}, lookup); !errors.Is(err, ErrHelp) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

func TestAllProblemsAreReportedAtOnceEachOnce(t *testing.T) {
	_, problems := load(t, []string{"--port=x", "--seed-nodes=a:1"},
		"SERVICE_MAX_RAM_MB=1", "SERVICE_NO_AUTH=maybe", "STORAGE_BACKEND=relational", "SERVICE_EMBEDDING_PROVIDER=http",
		"SERVICE_VECTOR_MAPS={\"m\":{\"fields\":[\"a\"],\"dimension\":4}}")
	var names []string
	for _, p := range problems {
		names = append(names, p.Name)
	}
	want := []string{
		"--port", "SERVICE_NO_AUTH", "JWT_SECRET", "DATABASE_URL", "SERVICE_MAX_RAM_MB", "--node-id",
		"SERVICE_EMBEDDING_MODEL", "SERVICE_EMBEDDING_BASE_URL", "SERVICE_EMBEDDING_DIMENSION", "SERVICE_EMBEDDING_PROVIDER",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestMissingSecretSaysWhatToSet(t *testing.T) {
	_, problems := load(t, nil)
	if len(problems) != 1 {
		t.Fatal(problems)
	}
	for _, word := range []string{"JWT_SECRET", "SERVICE_NO_AUTH=true"} {
		if !strings.Contains(problems[0].String(), word) {
			t.Errorf("%q does not name %s", problems[0], word)
		}
	}
}

func TestNoAuthBindsLoopbackUnlessAnAddressIsGiven(t *testing.T) {
	s, problems := load(t, nil, "SERVICE_NO_AUTH=1")
	requireNone(t, problems)
	if got := s.Server.BindHost(); got != "127.0.0.1" || len(s.Warnings()) != 0 {
		t.Errorf("binds %s, warnings %v", got, s.Warnings())
	}
	s, problems = load(t, nil, "SERVICE_NO_AUTH=1", "SERVICE_BIND_ADDR=0.0.0.0")
	requireNone(t, problems)
	if got := s.Server.BindHost(); got != "0.0.0.0" || len(s.Warnings()) != 1 {
		t.Errorf("binds %s, warnings %v", got, s.Warnings())
	}
}

func TestSeedsNeedAnExplicitNodeID(t *testing.T) {
	_, problems := load(t, []string{"--seed-nodes=a:1"}, "JWT_SECRET=s")
	if len(problems) != 1 || problems[0].Name != "--node-id" {
		t.Error(problems)
	}
	_, problems = load(t, []string{"--seed-nodes=a:1", "--node-id=n1"}, "JWT_SECRET=s")
	requireNone(t, problems)
}

func TestEmbeddingDefaultsAndDimensions(t *testing.T) {
	for provider, want := range map[string]string{"local_model": "768", "deterministic": "256", "noop": "4", "remote_http": ""} {
		var e Embedding
		if err := e.setProvider(provider); err != nil {
			t.Fatal(err)
		}
		if got := e.dimension(); got != want {
			t.Errorf("%s: dimension %q, want %q", provider, got, want)
		}
	}
	_, problems := load(t, nil, "JWT_SECRET=s", "SERVICE_EMBEDDING_PROVIDER=noop",
		`SERVICE_VECTOR_MAPS={"a":{"fields":["x"],"dimension":5},"b":{"fields":["x"],"dimension":4}}`)
	if len(problems) != 2 || !strings.Contains(problems[0].String(), `map "a" has dimension 5, the provider 4`) {
		t.Error(problems)
	}
}

func TestWarningsNameWhatHasNoEffect(t *testing.T) {
	s, problems := load(t, []string{"--node-id=n1", "--seed-nodes=db2:7000"}, "JWT_SECRET=hunter2", "SERVICE_INDEX_PATH=x",
		`SERVICE_VECTOR_MAPS={"b":{"fields":["x"],"dimension":4}}`)
	requireNone(t, problems)
	all := strings.Join(s.Warnings(), "\n")
	for _, word := range []string{"SERVICE_ADMIN_PASSWORD is not set", "SERVICE_INDEX_PATH", "SERVICE_VECTOR_MAPS", "--host is 127.0.0.1"} {
		if !strings.Contains(all, word) {
			t.Errorf("no warning names %s: %s", word, all)
		}
	}
	if len(s.Warnings()) != 4 || strings.Contains(all, "hunter2") {
		t.Error(all)
	}
}

func TestGoldenDocuments(t *testing.T) {
	s, problems := load(t, []string{"--node-id=n1", "--port", "0"}, "JWT_SECRET=top-secret", "DATABASE_URL=postgres://u:top-secret@h/d",
		"SERVICE_EMBEDDING_API_KEY=top-secret", "SERVICE_ADMIN_PASSWORD=top-secret", "SERVICE_ADMIN_DIR=a\nb")
	requireNone(t, problems)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"config.txt": func(b *bytes.Buffer) error { return s.Print(b) },
		"usage.txt":  func(b *bytes.Buffer) error { return Usage(b) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got.String(), "top-secret") {
			t.Error("a secret is printed")
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (rewrite with -update):\n%s", name, diff)
		}
	}
}

// TestProblemsNeverQuoteSecrets feeds each secret a value that breaks whatever can
// be broken, beside other mistakes.
func TestProblemsNeverQuoteSecrets(t *testing.T) {
	s, problems := load(t, []string{"--port=x"}, "JWT_SECRET=hunter2\x00", "DATABASE_URL=hunter2", "SERVICE_ADMIN_PASSWORD=hunter2",
		"SERVICE_EMBEDDING_API_KEY=hunter2", "SERVICE_EMBEDDING_PROVIDER=remote_http", "SERVICE_EMBEDDING_BASE_URL=http://u:hunter2@h")
	for _, p := range problems {
		if strings.Contains(p.String(), "hunter2") {
			t.Error(p)
		}
	}
	if strings.Contains(strings.Join(s.Warnings(), ""), "hunter2") {
		t.Error(s.Warnings())
	}
}
