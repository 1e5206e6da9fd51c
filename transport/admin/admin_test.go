package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/policy"
)

const testNow = int64(1_800_000_000_000)

// fakeCluster is the cluster in memory.
type fakeCluster struct {
	mu        sync.Mutex
	documents map[string][]byte
	versions  map[string]uint64
	// committed are documents that this node does not have yet, and behind says why it cannot
	// get them.
	committed map[string][]byte
	behind    error
	// conflicts is how many more changes fail because somebody was faster.
	conflicts int
	fail      error
	maps      []string
	drained   string
	node      string // the id of the only node
}

func (c *fakeCluster) Document(name string) ([]byte, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.documents[name], c.versions[name]
}

func (c *fakeCluster) PutDocument(_ context.Context, name string, base uint64, value []byte) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return 0, c.fail
	}
	if c.conflicts > 0 || c.versions[name] != base {
		c.conflicts--
		return 0, partitions.ErrConflict
	}
	c.documents[name] = value
	c.versions[name]++
	return c.versions[name], nil
}

// FreshDocuments shows what others have committed.
func (c *fakeCluster) FreshDocuments(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behind != nil {
		return c.behind
	}
	for name, value := range c.committed {
		c.documents[name], c.versions[name] = value, c.versions[name]+1
	}
	c.committed = nil
	return nil
}

func (c *fakeCluster) MapNames() []string { return slices.Clone(c.maps) }

func (*fakeCluster) Inventory(_ context.Context, name string) (*partitions.MapStat, error) {
	s := &partitions.MapStat{Name: name, Entries: 3, Tombstones: 1, Bytes: 99, Records: true}
	s.Partitions[7] = 3
	return s, nil
}

func (*fakeCluster) IndexStat(d partitions.IndexDefinition) partitions.IndexStat {
	return partitions.IndexStat{IndexDefinition: d, Entries: 3, Total: 5, Processed: 4, Restart: d.MapName == "old", Incomplete: d.MapName == "old"}
}

func (c *fakeCluster) PartitionMap() *partitions.MapInfo {
	info := &partitions.MapInfo{Version: 1}
	for p := range info.Owner {
		info.Owner[p], info.Backups[p] = c.node, []string{}
	}
	return info
}

func (c *fakeCluster) Node() NodeInfo { return NodeInfo{NodeID: c.node, Version: "v", Accepting: true} }

func (c *fakeCluster) Nodes(context.Context) []Node {
	return []Node{{NodeID: c.node, Status: "healthy", State: "active", Groups: []Group{}}}
}

func (c *fakeCluster) Drain(_ context.Context, id string) error {
	if id != "n1" {
		return ErrUnknownNode
	}
	c.drained = id
	return nil
}

func (*fakeCluster) Remove(context.Context, string) error {
	return &NodeError{NodeID: "n1", Err: errors.New("the last member cannot leave")}
}

func (*fakeCluster) Transfer(_ context.Context, group uint32, nodeID string) (Transferred, error) {
	switch {
	case group == 99:
		return Transferred{}, ErrUnknownGroup
	case group == 2:
		return Transferred{}, context.DeadlineExceeded
	case nodeID == "slow":
		return Transferred{}, fmt.Errorf("%w: it lags behind", ErrNoTransfer)
	default:
		return Transferred{Group: group, From: "n1", To: nodeID, Term: 7}, nil
	}
}

// fixture is a Handler over a fake cluster.
type fixture struct {
	*Handler
	t       *testing.T
	cluster *fakeCluster
	mux     *http.ServeMux
	token   string
	applied []Runtime
	log     *bytes.Buffer
}

func start(t *testing.T, change ...func(*Config, *Deps)) *fixture {
	cluster := &fakeCluster{documents: map[string][]byte{}, versions: map[string]uint64{}, node: "n1"}
	f := &fixture{t: t, cluster: cluster, mux: http.NewServeMux(), log: &bytes.Buffer{}}
	now := func() int64 { return testNow }
	tokens, err := auth.NewAdmin([]byte("secret"), now)
	require.NoError(t, err)
	logger := hclog.New(&hclog.LoggerOptions{Output: f.log})
	cfg := DefaultConfig()
	cfg.Password = "open sesame"
	cfg.RequestsPerSecond = 1_000_000
	cfg.Fixed = Fixed{NodeID: "n1", PartitionCount: 271, RequireAuth: true}
	cfg.Defaults = Runtime{LogLevel: "info", GCIntervalMs: 60_000, MaxConcurrentOperations: 1000, MaxConnections: 9, OperationsPerSecond: 20_000}
	deps := Deps{
		Logger: logger, Now: now, Tokens: tokens, Clients: clients{}, Guard: policy.NewGuard(logger), Backend: func() Backend { return cluster },
		Cluster: cluster, Apply: func(r Runtime) error { f.applied = append(f.applied, r); return nil },
		Check: func(filter string) error {
			if filter == "loud" {
				return errors.New("unknown level")
			}
			return nil
		}, Changed: func() {}, Draining: func() bool { return false }, Registerer: prometheus.NewRegistry(),
	}
	for _, c := range change {
		c(&cfg, &deps)
	}
	f.Handler, err = New(cfg, deps, nil)
	require.NoError(t, err)
	f.Register(f.mux)
	f.token, err = tokens.Issue("admin")
	require.NoError(t, err)
	return f
}

// clients takes the token "client".
type clients struct{}

func (clients) Verify(token string) (auth.Principal, error) {
	if token != "client" {
		return auth.Principal{}, auth.ErrRefused
	}
	return auth.Principal{ID: "ann", Roles: []string{"admin"}}, nil
}

func (f *fixture) send(method, path, token, body string, change ...func(*http.Request)) (status int, answer map[string]any, header http.Header) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	f.mux.ServeHTTP(w, r)
	b, err := io.ReadAll(w.Body)
	require.NoError(f.t, err)
	if w.Header().Get("Content-Type") == "application/json" {
		require.NoError(f.t, json.Unmarshal(b, &answer), "%s", b)
	} else {
		answer = map[string]any{"text": string(b)}
	}
	return w.Code, answer, w.Header()
}

// do is send with the operator's token.
func (f *fixture) do(method, path, body string) (int, map[string]any) {
	status, answer, _ := f.send(method, path, f.token, body)
	return status, answer
}

func loginBody(user, password string) string {
	b, _ := json.Marshal(credentials{user, password})
	return string(b)
}

func TestLoginGivesATokenThatOpensTheAdminAPI(t *testing.T) {
	f := start(t)
	status, answer, header := f.send("POST", "/api/auth/login", "", loginBody("admin", "open sesame"))
	require.Equal(t, 200, status)
	require.Equal(t, "no-store", header.Get("Cache-Control"))
	token, _ := answer["token"].(string)
	status, _, _ = f.send("GET", "/api/admin/settings", token, "")
	require.Equal(t, 200, status)

	var texts []any
	for _, body := range []string{loginBody("admin", "wrong"), loginBody("nobody", "open sesame"), loginBody("", "")} {
		status, answer, _ = f.send("POST", "/api/auth/login", "", body)
		require.Equal(t, 401, status)
		texts = append(texts, answer["message"])
	}
	require.Equal(t, texts[0], texts[1], "the answer does not tell which was wrong")
	for body, want := range map[string]int{"{": 400, `{"username":1}`: 422, `[]`: 422} {
		status, _, _ = f.send("POST", "/api/auth/login", "", body)
		require.Equal(t, want, status, body)
	}
	status, _, _ = f.send("POST", "/api/auth/login", "", loginBody("admin", "x"), func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
	require.Equal(t, 415, status)
	require.NotContains(t, f.log.String(), "sesame")
	require.Contains(t, f.log.String(), "audit: login refused")
}

func TestCredentialsAreShort(t *testing.T) {
	f := start(t)
	status, answer, _ := f.send("POST", "/api/auth/login", "", loginBody("admin", strings.Repeat("x", maxCredentials)))
	require.Equal(t, 413, status, "%v", answer)
	status, _, _ = f.send("POST", "/api/auth/login", "", loginBody("admin", strings.Repeat("x", maxCredentials/2)))
	require.Equal(t, 401, status)
}

func TestGuessesAreBoundedPerAddressAndPerName(t *testing.T) {
	f := start(t)
	from := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	guess := func(addr, password string) (int, http.Header) {
		status, _, header := f.send("POST", "/api/auth/login", "", loginBody("admin", password), from(addr))
		return status, header
	}
	for range 5 {
		status, _ := guess("192.0.2.1:99", "no")
		require.Equal(t, 401, status)
	}
	status, header := guess("192.0.2.1:100", "open sesame")
	require.Equal(t, 429, status, "the right one has to wait too")
	require.NotEmpty(t, header.Get("Retry-After"))
	for i := range 15 {
		status, _ = guess("[2001:db8:0:"+string(rune('a'+i%6))+string(rune('0'+i/6))+"::1]:9", "no")
		require.Equal(t, 401, status)
	}
	status, _ = guess("198.51.100.7:1", "no")
	require.Equal(t, 429, status, "20 attempts at one name, from anywhere")
	status, _, _ = f.send("POST", "/api/auth/login", "", loginBody("other", "no"), from("198.51.100.8:1"))
	require.Equal(t, 401, status)
}

func TestRequestsOfAnAddressAreBounded(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps) { c.RequestsPerSecond = 3 })
	for i := range 5 {
		status, _, header := f.send("GET", "/api/admin/settings", f.token, "")
		require.Equal(t, i >= 3, status == 429, "request %d: %d", i, status)
		require.Equal(t, i >= 3, header.Get("Retry-After") != "")
	}
	status, _, _ := f.send("GET", "/api/status", "", "")
	require.Equal(t, 200, status, "probes of everybody are not bounded")
	status, _, _ = f.send("GET", "/api/admin/settings", f.token, "", func(r *http.Request) { r.RemoteAddr = "198.51.100.1:1" })
	require.Equal(t, 200, status)
}

// TestEveryRouteIsClosedToWhoMayNotUseIt is the matrix of callers and routes.
func TestEveryRouteIsClosedToWhoMayNotUseIt(t *testing.T) {
	f := start(t)
	off := start(t, func(c *Config, _ *Deps) { c.Enabled = false })
	open := start(t, func(c *Config, d *Deps) { c.Open, d.Clients = true, nil })
	for _, r := range f.routes {
		path := strings.NewReplacer("{id}", "none", "{subject}", "nobody", "{group}", "1", "{path...}", "x", "{file}", "docs.js").Replace(r.Path)
		name := r.Method + " " + path
		for token, want := range map[string]int{"": 401, "client": 403, "forged": 401, f.token: 0} {
			status, _, _ := f.send(r.Method, path, token, "")
			switch {
			case r.access == operator && want != 0:
				require.Equal(t, want, status, name)
			default:
				require.NotContains(t, []int{401, 403}, status, name)
			}
		}
		status, _, _ := off.send(r.Method, path, f.token, "")
		require.Equal(t, r.access != public, status == 404, "%s without the admin plane: %d", name, status)
		local := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
		status, _, _ = open.send(r.Method, path, "", "", local("127.0.0.1:8080"))
		require.NotContains(t, []int{401, 403}, status, name)
		status, _, _ = open.send(r.Method, path, "", "", local("evil.example:8080"))
		require.Equal(t, r.access != public, status == 403, "%s under a name that leads here: %d", name, status)
		foreign := func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Origin", "https://evil.example")
		}
		status, _, _ = f.send(r.Method, path, f.token, "", foreign)
		require.Equal(t, r.Method != "GET", status == 403, "%s from a foreign page: %d", name, status)
	}
}

func TestSettingsAreReplicatedValidatedAndInForceAtOnce(t *testing.T) {
	f := start(t)
	status, answer := f.do("PUT", "/api/admin/settings", `{"logLevel":"debug","gcIntervalMs":5000,"maxConcurrentOperations":null}`)
	require.Equal(t, 200, status)
	require.Equal(t, "debug", answer["logLevel"])
	require.EqualValues(t, 5000, answer["gcIntervalMs"])
	require.EqualValues(t, 1000, answer["maxConcurrentOperations"])
	require.Equal(t, "runtime", answer["sources"].(map[string]any)["gcIntervalMs"])
	require.Equal(t, "configuration", answer["sources"].(map[string]any)["maxConnections"])
	require.Len(t, f.applied, 1)
	require.Equal(t, Runtime{LogLevel: "debug", GCIntervalMs: 5000, MaxConcurrentOperations: 1000, MaxConnections: 9, OperationsPerSecond: 20_000}, f.applied[0])

	status, answer = f.do("PUT", "/api/admin/settings", `{"maxConnections":77,"operationsPerSecond":5,"maxConcurrentOperations":6}`)
	require.Equal(t, 200, status)
	require.Equal(t, "debug", answer["logLevel"], "earlier changes stay")
	require.Equal(t, Runtime{LogLevel: "debug", GCIntervalMs: 5000, MaxConcurrentOperations: 6, MaxConnections: 77, OperationsPerSecond: 5}, f.applied[1])
	status, answer = f.do("PUT", "/api/admin/settings", `{}`)
	require.Equal(t, 200, status)
	require.EqualValues(t, 2, answer["version"])

	for body, field := range map[string]string{
		`{"nodeId":"n1"}`: "nodeId", `{"port":1}`: "port", `{"maxValueBytes":1,"logLevel":"info"}`: "maxValueBytes", `{"surprise":1}`: "surprise",
		`{"logLevel":"loud"}`: "logLevel", `{"logLevel":5}`: "logLevel", `{"gcIntervalMs":999}`: "", `{"gcIntervalMs":-1}`: "", `{"gcIntervalMs":1.5}`: "",
		`{"maxConcurrentOperations":0}`: "", `{"maxConcurrentOperations":1000001}`: "", `{"maxConnections":"9"}`: "", `[1]`: "", `7`: "", `null`: "", `{`: "",
	} {
		status, answer := f.do("PUT", "/api/admin/settings", body)
		require.Equal(t, 400, status, body)
		got, _ := answer["field"].(string)
		require.Equal(t, field, got, body)
	}
	require.Len(t, f.applied, 2)
	f.cluster.documents[settingsDocument], f.cluster.versions[settingsDocument] = []byte("{"), 9
	f.Follow()
	require.Equal(t, 77, f.settings().MaxConnections, "what cannot be read changes nothing")
}

func TestChangesMeetThoseOfOthers(t *testing.T) {
	f := start(t)
	f.cluster.conflicts = 3
	status, _ := f.do("PUT", "/api/admin/settings", `{"maxConnections":77}`)
	require.Equal(t, 200, status)
	for err, want := range map[error]int{partitions.ErrUnavailable: 503, partitions.ErrUnknown: 504, context.DeadlineExceeded: 504, errors.New("x"): 500} {
		f.cluster.fail = err
		status, _ = f.do("PUT", "/api/admin/settings", `{"maxConnections":78}`)
		require.Equal(t, want, status, err)
	}
	f.Handler.deps.Backend = func() Backend { return nil }
	status, _ = f.do("PUT", "/api/admin/settings", `{"maxConnections":78}`)
	require.Equal(t, 503, status)
}

// TestChangesAreMadeToWhatIsCommitted asks a node that lags behind: what it sees nothing to
// change in may have to be changed.
func TestChangesAreMadeToWhatIsCommitted(t *testing.T) {
	f := start(t)
	list, err := policy.Encode([]policy.Policy{{ID: "p", MapPattern: "*", Action: "all", Effect: "allow"}})
	require.NoError(t, err)
	f.cluster.committed = map[string][]byte{policy.DocumentName: list}
	status, _ := f.do("DELETE", "/api/admin/policies/p", "")
	require.Equal(t, 204, status)
	left, err := policy.Decode(f.cluster.documents[policy.DocumentName])
	require.NoError(t, err)
	require.Empty(t, left)

	status, _ = f.do("POST", "/api/admin/revocations", `{"subject":"ann"}`)
	require.Equal(t, 201, status)
	none, err := auth.EncodeRevocations(nil)
	require.NoError(t, err)
	f.cluster.committed = map[string][]byte{auth.RevocationsDocument: none}
	status, _ = f.do("POST", "/api/admin/revocations", `{"subject":"ann"}`)
	require.Equal(t, 201, status)
	revoked, err := auth.DecodeRevocations(f.cluster.documents[auth.RevocationsDocument])
	require.NoError(t, err)
	require.Len(t, revoked, 1, "somebody else had lifted it")

	f.cluster.behind = partitions.ErrUnavailable
	for method, path := range map[string]string{"DELETE": "/api/admin/policies/p", "POST": "/api/admin/revocations"} {
		status, _ := f.do(method, path, `{"subject":"ann"}`)
		require.Equal(t, 503, status, "nobody can tell that there is nothing to change")
	}
}

func TestPolicies(t *testing.T) {
	f := start(t)
	status, _ := f.do("DELETE", "/api/admin/policies/none", "")
	require.Equal(t, 204, status)
	require.False(t, f.deps.Guard.Set().Restricts(), "deleting nothing is not the first policy")
	status, answer := f.do("GET", "/api/admin/policies", "")
	require.Equal(t, 200, status)
	require.Equal(t, map[string]any{"policies": []any{}, "configured": false, "version": float64(0)}, answer)

	status, answer = f.do("POST", "/api/admin/policies", `{"mapPattern":"todos","action":"all","effect":"allow","conditionExpr":"stored.owner == auth.id"}`)
	require.Equal(t, 201, status)
	id, _ := answer["id"].(string)
	require.NotEmpty(t, id)
	require.Equal(t, map[string]any{"op": "eq", "attribute": "stored.owner", "valueRef": "auth.id"}, answer["condition"])
	require.True(t, f.deps.Guard.Set().Restricts(), "it is in force when it is answered")

	status, _ = f.do("POST", "/api/admin/policies", `{"id":"`+id+`","mapPattern":"*","action":"read","effect":"deny"}`)
	require.Equal(t, 201, status)
	status, answer = f.do("GET", "/api/admin/policies", "")
	require.Equal(t, 200, status)
	require.Len(t, answer["policies"], 1)

	for body, field := range map[string]string{
		`{"mapPattern":"*","action":"all","effect":"allow","conditionExpr":"data.a =="}`:            "conditionExpr",
		`{"id":"a b","mapPattern":"*","action":"all","effect":"allow"}`:                             "id",
		`{"mapPattern":"","action":"all","effect":"allow"}`:                                         "mapPattern",
		`{"mapPattern":"*","action":"some","effect":"allow"}`:                                       "action",
		`{"mapPattern":"*","action":"all","effect":"allow","condition":{"op":"x","attribute":"a"}}`: "condition",
		`{"mapPattern":"*","action":"all","effect":"allow","role":["editor"]}`:                      "role",
		`{"mapPattern":"*","action":"all","effect":"allow","roles":[]}`:                             "roles",
		`{"mapPattern":"*","action":"all","effect":"allow","subjects":[]}`:                          "subjects",
		`{"mapPattern":"*","action":"all","effect":"allow","condition":{"op":"eq","when":"a"}}`:     "when",
	} {
		status, answer := f.do("POST", "/api/admin/policies", body)
		require.Equal(t, 400, status, body)
		require.Equal(t, field, answer["field"], body)
	}

	status, answer = f.do("POST", "/api/admin/policies", `{"mapPattern":"*","action":"all","effect":"allow","roles":"editor"}`)
	require.Equal(t, 422, status)
	require.Equal(t, "roles", answer["field"])

	status, _ = f.do("DELETE", "/api/admin/policies/"+id, "")
	require.Equal(t, 204, status)
	status, answer = f.do("GET", "/api/admin/policies", "")
	require.Equal(t, 200, status)
	require.Empty(t, answer["policies"])
	require.Equal(t, true, answer["configured"])
	require.True(t, f.deps.Guard.Set().Restricts(), "what was configured once denies for good")
}

// TestPoliciesTogetherAreBounded writes policies that are sound one by one, until they would
// take too long to compile; what was written stays in force.
func TestPoliciesTogetherAreBounded(t *testing.T) {
	f := start(t)
	write := func(id int) (int, map[string]any) {
		return f.do("POST", "/api/admin/policies", fmt.Sprintf(`{"id":"p%d","mapPattern":"m","action":"read","effect":"allow",
			"condition":{"op":"regex","attribute":"a","value":"[%s]"}}`, id, strings.Repeat(`\\pL`, 300)))
	}
	for id := range 3 {
		status, answer := write(id)
		require.Equal(t, 201, status, "%v", answer)
	}
	status, answer := write(3)
	require.Equal(t, 400, status)
	require.Equal(t, "policies", answer["field"])
	_, answer = f.do("GET", "/api/admin/policies", "")
	require.Len(t, answer["policies"], 3)
	status, _ = f.do("DELETE", "/api/admin/policies/p0", "")
	require.Equal(t, 204, status)
	status, _ = write(3)
	require.Equal(t, 201, status)
}

func TestPoliciesCanBeTried(t *testing.T) {
	f := start(t)
	ask := func(body string) map[string]any {
		status, answer := f.do("POST", "/api/admin/policies/evaluate", body)
		require.Equal(t, 200, status, "%v", answer)
		return answer
	}
	require.Equal(t, map[string]any{"allowed": true}, ask(`{"subject":"ann","action":"write","name":"m"}`))
	trial := `"policies":[{"id":"own","mapPattern":"m","action":"all","effect":"allow","conditionExpr":"stored.owner == auth.id && data.n == 9007199254740993"}]`
	require.Equal(t, map[string]any{"allowed": true, "policyId": "own"},
		ask(`{"subject":"ann","action":"write","name":"m","stored":{"owner":"ann"},"incoming":{"n":9007199254740993},`+trial+`}`))
	require.Equal(t, map[string]any{"allowed": false}, ask(`{"subject":"bob","action":"write","name":"m","stored":{"owner":"ann"},`+trial+`}`))
	tree := `"policies":[{"mapPattern":"m","action":"all","effect":"allow","condition":{"op":"eq","attribute":"data.n","value":9007199254740993}}]`
	for n, want := range map[string]bool{"9007199254740993": true, "9007199254740992": false} {
		require.Equal(t, want, ask(`{"action":"write","name":"m","incoming":{"n":` + n + `},` + tree + `}`)["allowed"], n)
	}
	require.False(t, f.deps.Guard.Set().Restricts(), "nothing was changed")
	for _, body := range []string{
		`{"action":"fly","name":"m"}`, `{"action":"read","kind":"moon"}`, `{"policies":[{"id":""}],"action":"read"}`, `{`,
		`{"action":"read","name":"m"} {}`, `{"action":"read","name":"m","data":{"owner":"ann"}}`, `{"action":"read","name":"m","policies":[{"role":"x"}]}`,
	} {
		status, _ := f.do("POST", "/api/admin/policies/evaluate", body)
		require.Equal(t, 400, status, body)
	}
}
