// Package admin serves what operators see and change over HTTP: login, the state of the
// node and its cluster, maps, settings, policies, nodes, the description of the interface
// and the pages below /admin. It decides nothing about data; settings and policies are
// documents that the cluster replicates, and every node follows them.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/policy"
	"github.com/quorate/quorate/transport/quota"
)

// Config tunes a Handler. Use DefaultConfig and change fields.
type Config struct {
	// Enabled mounts login, the admin routes and the pages. Without it they do not exist.
	Enabled bool
	// Open lets everybody in without a token, who can then only come from this machine:
	// there is no authentication and the listener is bound to the loopback interface.
	Open bool
	// Username and Password are those of the one operator. Without a password nobody can
	// log in.
	Username, Password string
	// Dir holds the pages below /admin; empty for the ones in the binary.
	Dir string
	// AllowedOrigins lists the origins whose pages may change things, besides the
	// server's own: "scheme://host[:port]", or "*".
	AllowedOrigins []string
	// LoginsPerAddress and LoginsPerUser bound the attempts to log in within a minute,
	// RequestsPerSecond the admin requests of an address.
	LoginsPerAddress, LoginsPerUser, RequestsPerSecond int
	// GatherTimeout bounds the wait for other nodes, ChangeTimeout that for a change to
	// be committed.
	GatherTimeout, ChangeTimeout time.Duration
	// Fixed is what the settings show of what cannot be changed, Defaults what is in
	// force while nobody changed it.
	Fixed    Fixed
	Defaults Runtime
}

// DefaultConfig is the configuration for production, without names, settings and secrets.
func DefaultConfig() Config {
	return Config{
		Enabled: true, Username: "admin", LoginsPerAddress: 5, LoginsPerUser: 20, RequestsPerSecond: 100,
		GatherTimeout: time.Second, ChangeTimeout: 10 * time.Second,
	}
}

// Validate reports all problems of c at once.
func (c Config) Validate() error {
	var errs []error
	for name, v := range map[string]int64{
		"logins per address": int64(c.LoginsPerAddress), "logins per user": int64(c.LoginsPerUser), "admin requests per second": int64(c.RequestsPerSecond),
		"gather timeout": int64(c.GatherTimeout), "change timeout": int64(c.ChangeTimeout),
	} {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, not %d", name, v))
		}
	}
	return errors.Join(errs...)
}

// Backend is the cluster's data as operators use it; *partitions.Router is one.
type Backend interface {
	// Document returns a replicated document and its version, zero for none; PutDocument
	// replaces what was computed from a version, and blocks until this node follows it.
	// FreshDocuments has Document show what was committed before the call.
	Document(name string) (value []byte, version uint64)
	FreshDocuments(ctx context.Context) error
	PutDocument(ctx context.Context, name string, base uint64, value []byte) (version uint64, err error)
	// MapNames lists the maps, Inventory counts what one holds.
	MapNames() []string
	Inventory(ctx context.Context, mapName string) (*partitions.MapStat, error)
	// IndexStat says how far the node has built an index that is defined.
	IndexStat(d partitions.IndexDefinition) partitions.IndexStat
	// PartitionMap is the cluster as clients see it, nil while there is none.
	PartitionMap() *partitions.MapInfo
}

// Cluster is what the node knows of itself and the others.
type Cluster interface {
	// Node describes this node. It does not block.
	Node() NodeInfo
	// Nodes describes all nodes, of those that do not answer before ctx ends what is
	// known without them.
	Nodes(ctx context.Context) []Node
	// Drain has a node finish what it has begun and stop. Remove has it leave the cluster
	// for good, or has the others take a dead one out. Both return when that has begun.
	// Errors: ErrUnknownNode, and others.
	Drain(ctx context.Context, nodeID string) error
	Remove(ctx context.Context, nodeID string) error
	// Transfer hands the leadership of a group to a node, or to any caught-up voter if
	// nodeID is empty. Errors: ErrUnknownGroup; ErrNoTransfer (nothing was begun); any other
	// leaves the outcome open.
	Transfer(ctx context.Context, group uint32, nodeID string) (Transferred, error)
}

// Transferred is a leadership that was handed over, by node ids; From and To are equal when
// the wanted node led already.
type Transferred struct {
	Group uint32 `json:"group"`
	From  string `json:"from"`
	To    string `json:"to"`
	Term  uint64 `json:"term"`
}

// ErrUnknownNode says that no live node has that id.
var ErrUnknownNode = errors.New("no live node has this id")

// ErrUnknownGroup says that the cluster has no such group.
var ErrUnknownGroup = errors.New("there is no such group")

// ErrNoTransfer says that a leadership cannot be handed over as asked.
var ErrNoTransfer = errors.New("the leadership was not handed over")

// Verifier tells who else bears a token; *auth.Verifier is one.
type Verifier interface {
	Verify(token string) (auth.Principal, error)
}

// Deps are the collaborators of a Handler. All but Clients and Apply are required.
type Deps struct {
	Logger hclog.Logger
	// Now is the wall clock in milliseconds since 1970.
	Now func() int64
	// Tokens are those of operators. Clients verifies those of clients, to tell a wrong
	// token from a bad one.
	Tokens  *auth.Admin
	Clients Verifier
	// Guard holds the policies in force.
	Guard *policy.Guard
	// Backend returns the cluster's data, nil while there is none.
	Backend func() Backend
	Cluster Cluster
	// Apply puts settings into force on this node; it is told about each change once.
	Apply func(Runtime) error
	// Check reports why a log filter cannot be used.
	Check func(filter string) error
	// Changed puts the documents of the cluster into force on this node, as it has them now.
	Changed func()
	// Draining reports whether the node is about to stop; it takes no changes then.
	Draining func() bool
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
}

// Handler serves the routes. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	deps    Deps
	log     hclog.Logger
	audit   hclog.Logger
	routes  []route
	logins  *prometheus.CounterVec
	byAddr  *quota.Buckets
	byUser  *quota.Buckets
	request *quota.Buckets
	cross   *http.CrossOriginProtection
	pages   pages
	applied settingsState
	counts  countCache
	openapi []byte
}

// New returns a Handler. described are the routes of the listener that others serve, for
// the description of the interface.
func New(cfg Config, deps Deps, described []Operation) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure admin plane: %w", err)
	}
	h := &Handler{
		cfg: cfg, deps: deps, log: deps.Logger.Named("admin"), audit: deps.Logger.Named("audit"),
		byAddr:  quota.New(float64(cfg.LoginsPerAddress)/60, cfg.LoginsPerAddress),
		byUser:  quota.New(float64(cfg.LoginsPerUser)/60, cfg.LoginsPerUser),
		request: quota.New(float64(cfg.RequestsPerSecond), cfg.RequestsPerSecond),
		cross:   http.NewCrossOriginProtection(),
	}
	h.applied.now = cfg.Defaults
	h.logins = newLoginMetrics(deps.Registerer)
	for _, origin := range cfg.AllowedOrigins {
		if origin == "*" {
			h.cross.AddInsecureBypassPattern("/")
			continue
		}
		if err := h.cross.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("allowed origin %q: %w", origin, err)
		}
	}
	var err error
	if h.pages, err = openPages(cfg.Dir); err != nil {
		return nil, err
	}
	h.routes = h.table()
	operations := described
	for _, r := range h.routes {
		operations = append(operations, r.Operation)
	}
	h.openapi, err = describe(operations)
	return h, err
}

// access says who may use a route.
type access uint8

const (
	public   access = iota
	login           // public, and part of the admin plane
	operator        // bearers of an operator's token
)

// route is one row of the table.
type route struct {
	Operation
	access access
	serve  http.HandlerFunc
}

// table lists the routes with their descriptions.
func (h *Handler) table() []route {
	list := []route{
		{Operation{Method: "GET", Path: "/api/status", Summary: "What this node is and does", Response: statusBody{}}, public, h.status},
		{Operation{Method: "GET", Path: "/api/auth/status", Summary: "Whether clients need a token", Response: authStatusBody{}}, public, h.authStatus},
		{Operation{Method: "POST", Path: "/api/auth/login", Summary: "Get an operator's token", Request: credentials{}, Response: tokenBody{}, Failures: []int{400, 401, 413, 415, 422, 429, 503}}, login, h.login},
		{Operation{Method: "GET", Path: "/api/admin/cluster/status", Summary: "Nodes, groups and partitions", Response: clusterBody{}}, operator, h.cluster},
		{Operation{Method: "GET", Path: "/api/admin/maps", Summary: "Maps with counts and sizes, counted now", Query: []string{"limit", "after"}, Response: mapsBody{}, Failures: []int{400, 503}}, operator, h.maps},
		{Operation{Method: "GET", Path: "/api/admin/settings", Summary: "The settings in force", Response: Settings{}}, operator, h.getSettings},
		{Operation{Method: "PUT", Path: "/api/admin/settings", Summary: "Change settings on all nodes", Request: Change{}, Response: Settings{}, Failures: []int{400, 409, 503, 504}}, operator, h.putSettings},
		{Operation{Method: "GET", Path: "/api/admin/policies", Summary: "The policies in force", Response: policiesBody{}, Failures: []int{503}}, operator, h.listPolicies},
		{Operation{Method: "POST", Path: "/api/admin/policies", Summary: "Create a policy, or replace that of its id", Status: http.StatusCreated, Request: policyRequest{}, Response: policy.Policy{}, Failures: []int{400, 409, 503, 504}}, operator, h.putPolicy},
		{Operation{Method: "DELETE", Path: "/api/admin/policies/{id}", Summary: "Delete a policy", Status: http.StatusNoContent, Failures: []int{409, 503, 504}}, operator, h.deletePolicy},
		{Operation{Method: "POST", Path: "/api/admin/policies/evaluate", Summary: "Try what policies would decide", Request: evaluateRequest{}, Response: evaluateBody{}, Failures: []int{400, 503}}, operator, h.evaluate},
		{Operation{Method: "GET", Path: "/api/admin/revocations", Summary: "The subjects that are shut out", Response: revocationsBody{}, Failures: []int{503}}, operator, h.listRevocations},
		{Operation{Method: "POST", Path: "/api/admin/revocations", Summary: "Shut a subject out at once: its connections are closed and its tokens refused", Status: http.StatusCreated, Request: revocationRequest{}, Response: auth.Revocation{}, Failures: []int{400, 409, 503, 504}}, operator, h.revoke},
		{Operation{Method: "DELETE", Path: "/api/admin/revocations/{subject}", Summary: "Let a subject in again", Status: http.StatusNoContent, Failures: []int{409, 503, 504}}, operator, h.liftRevocation},
		{Operation{Method: "GET", Path: "/api/admin/indexes", Summary: "The secondary indexes, with what this node holds of them", Response: indexesBody{}, Failures: []int{503}}, operator, h.listIndexes},
		{Operation{Method: "POST", Path: "/api/admin/indexes", Summary: "Index the records of a map by an attribute", Status: http.StatusCreated, Request: indexRequest{}, Response: indexBody{}, Failures: []int{400, 409, 501, 503, 504}}, operator, h.createIndex},
		{Operation{Method: "DELETE", Path: "/api/admin/indexes/{map}/{attribute}", Summary: "Drop an index", Status: http.StatusNoContent, Failures: []int{404, 503, 504}}, operator, h.dropIndex},
		{Operation{Method: "GET", Path: "/api/admin/indexes/{map}/{attribute}/status", Summary: "How far this node has built an index", Response: indexStatusBody{}, Failures: []int{404, 503}}, operator, h.indexStatus},
		{Operation{Method: "POST", Path: "/api/admin/nodes/{id}/drain", Summary: "Have a node finish what it has begun and stop", Status: http.StatusAccepted, Failures: []int{404, 502, 503}}, operator, h.drainNode},
		{Operation{Method: "DELETE", Path: "/api/admin/nodes/{id}", Summary: "Have a node leave the cluster for good; a dead one is taken out", Status: http.StatusAccepted, Failures: []int{404, 502, 503}}, operator, h.removeNode},
		{Operation{Method: "POST", Path: "/api/admin/groups/{group}/transfer", Summary: "Hand the leadership of a group to a node, or to any caught-up voter", Query: []string{"node"}, Response: Transferred{}, Failures: []int{400, 404, 409, 503, 504}}, operator, h.transfer},
		{Operation{Method: "GET", Path: "/api/openapi.json", Summary: "This description", MediaType: "application/json"}, public, h.serveOpenAPI},
		{Operation{Method: "GET", Path: "/api/docs", Summary: "This description as a page", MediaType: "text/html"}, public, h.docs},
		{Operation{Method: "GET", Path: "/api/docs/{file}", Summary: "Parts of that page", MediaType: "*/*", Failures: []int{404}}, public, h.docs},
		{Operation{Method: "GET", Path: "/admin", Summary: "The operators' pages", MediaType: "text/html"}, login, h.servePage},
		{Operation{Method: "GET", Path: "/admin/{path...}", Summary: "Files of the operators' pages", MediaType: "*/*", Failures: []int{404}}, login, h.servePage},
	}
	return list
}

// Register adds the routes to mux.
func (h *Handler) Register(mux interface {
	Handle(pattern string, h http.Handler)
}) {
	for _, r := range h.routes {
		if r.access == public || h.cfg.Enabled {
			mux.Handle(r.Method+" "+r.Path, h.guarded(r))
		}
	}
}

// guarded wraps a route into what its access demands.
func (h *Handler) guarded(r route) http.Handler {
	var next http.Handler = r.serve
	if r.access == operator {
		if r.Method != http.MethodGet {
			next = h.whileServing(next)
		}
		next = h.authorized(next)
	}
	if r.access != public && r.Path != "/admin" && r.Path != "/admin/{path...}" {
		next = h.limited(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := h.cross.Check(req); err != nil {
			httperr.Write(w, http.StatusForbidden, "cross-origin requests may not change anything")
			return
		}
		if h.cfg.Open && r.access != public && !LocalHost(req.Host) {
			// A page of another name that leads to this machine would be of the same origin.
			httperr.Write(w, http.StatusForbidden, "without authentication the admin plane answers to addresses and localhost only")
			return
		}
		next.ServeHTTP(w, req)
	})
}

// whileServing refuses requests of a node that drains: they may be cut off, and another node
// can take them.
func (h *Handler) whileServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.deps.Draining() {
			httperr.Unavailable(w, "the node is shutting down, ask another one")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *Handler) backend(w http.ResponseWriter) (Backend, bool) {
	if b := h.deps.Backend(); b != nil {
		return b, true
	}
	httperr.Unavailable(w, "the node does not belong to a cluster yet")
	return nil, false
}
