// Package health tells load balancers and operators what a server is doing: a
// state that only moves forward, and the probe endpoints that show it. The probes
// answer from the moment the listener is bound until it closes, so that loading
// and draining are seen as such and not as a broken connection.
package health

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"
)

// State is what the server is doing. It moves forward only.
type State int32

// The states, in order.
const (
	Starting State = iota // loading; not caught up yet
	Ready                 // serving
	Draining              // finishing what was begun, taking nothing new
	Stopped               // done
)

var stateNames = [...]string{Starting: "starting", Ready: "ready", Draining: "draining", Stopped: "stopped"}

// String is the state's name as /health shows it.
func (s State) String() string { return stateNames[s] }

// Deps are the collaborators of a Monitor. Nil functions count nothing, and nil
// CaughtUp is always true.
type Deps struct {
	// Now is the wall clock in milliseconds since 1970. Required.
	Now func() int64
	// CaughtUp reports whether the node can serve at present: its log is replayed,
	// it belongs to a cluster with a leader and lags behind by little.
	CaughtUp func() bool
	// Connections and InFlight are the open client connections and the operations
	// under way.
	Connections, InFlight func() int
}

// Monitor holds the health of one server. It is safe for concurrent use.
type Monitor struct {
	deps    Deps
	started int64
	state   atomic.Int32
	// reached latches the first time that the node was seen ready.
	reached atomic.Bool
}

// New returns a Monitor in state Starting; uptime counts from now.
func New(deps Deps) *Monitor {
	zero := func() int { return 0 }
	if deps.CaughtUp == nil {
		deps.CaughtUp = func() bool { return true }
	}
	if deps.Connections == nil {
		deps.Connections = zero
	}
	if deps.InFlight == nil {
		deps.InFlight = zero
	}
	return &Monitor{deps: deps, started: deps.Now()}
}

// State is the present state.
func (m *Monitor) State() State { return State(m.state.Load()) }

// Advance moves to state s and reports whether it did: a state that lies behind
// the present one is not entered again.
func (m *Monitor) Advance(s State) bool {
	for {
		now := m.state.Load()
		if int32(s) <= now {
			return false
		}
		if m.state.CompareAndSwap(now, int32(s)) {
			return true
		}
	}
}

// Ready reports whether new clients should be sent here: in state Ready and caught
// up at this moment.
func (m *Monitor) Ready() bool {
	if m.State() != Ready || !m.deps.CaughtUp() {
		return false
	}
	m.reached.Store(true)
	return true
}

// Accepting reports whether new connections are taken: in state Ready, and caught
// up once. Unlike Ready it outlasts moments without a leader, in which clients are
// better off connected and told so than turned away.
func (m *Monitor) Accepting() bool {
	return m.State() == Ready && m.reached.Load() || m.Ready()
}

// Register adds the probe endpoints to mux: /health, /health/live, /health/ready
// and its alias /healthz.
func (m *Monitor) Register(mux interface {
	Handle(pattern string, h http.Handler)
}) {
	mux.Handle("GET /health", http.HandlerFunc(m.serveHealth))
	mux.Handle("GET /health/live", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	mux.Handle("GET /health/ready", http.HandlerFunc(m.serveReady))
	mux.Handle("GET /healthz", http.HandlerFunc(m.serveReady))
}

// report is the body of /health.
type report struct {
	State       string `json:"state"`
	Connections int    `json:"connections"`
	InFlight    int    `json:"in_flight"`
	UptimeSecs  int64  `json:"uptime_secs"`
}

func (m *Monitor) serveHealth(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(report{
		State:       m.State().String(),
		Connections: m.deps.Connections(),
		InFlight:    m.deps.InFlight(),
		UptimeSecs:  max(0, m.deps.Now()-m.started) / time.Second.Milliseconds(),
	})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // a client that is gone needs no answer
}

func (m *Monitor) serveReady(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if m.Ready() {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}
