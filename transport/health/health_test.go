package health

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

type fixture struct {
	*Monitor
	mux      *http.ServeMux
	now      int64
	caughtUp atomic.Bool
}

func newFixture() *fixture {
	f := &fixture{now: 1_000, mux: http.NewServeMux()}
	f.Monitor = New(Deps{
		Now:         func() int64 { return f.now },
		CaughtUp:    f.caughtUp.Load,
		Connections: func() int { return 7 },
		InFlight:    func() int { return 3 },
	})
	f.Register(f.mux)
	return f
}

func (f *fixture) get(path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	f.mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec
}

func TestProbesFollowTheStates(t *testing.T) {
	f := newFixture()
	steps := []struct {
		name      string
		enter     State
		caughtUp  bool
		ready     int
		accepting bool
	}{
		{"starting", Starting, true, 503, false},
		{"ready but behind", Ready, false, 503, false},
		{"ready", Ready, true, 200, true},
		{"ready without a leader", Ready, false, 503, true},
		{"ready again", Ready, true, 200, true},
		{"draining", Draining, true, 503, false},
		{"stopped", Stopped, true, 503, false},
	}
	for _, step := range steps {
		f.Advance(step.enter)
		f.caughtUp.Store(step.caughtUp)
		require.Equal(t, step.ready, f.get("/health/ready").Code, step.name)
		require.Equal(t, step.ready, f.get("/healthz").Code, step.name)
		require.Equal(t, step.accepting, f.Accepting(), step.name)
		require.Equal(t, 200, f.get("/health/live").Code, step.name)
		require.Equal(t, 200, f.get("/health").Code, step.name)
	}
}

func TestStateNeverMovesBack(t *testing.T) {
	f := newFixture()
	require.True(t, f.Advance(Draining))
	require.False(t, f.Advance(Ready))
	require.False(t, f.Advance(Draining))
	require.Equal(t, Draining, f.State())
}

func TestHealthBody(t *testing.T) {
	f := newFixture()
	f.Advance(Ready)
	f.now += 61_500
	rec := f.get("/health")
	require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
	var body map[string]any
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &body))
	require.Equal(t, map[string]any{"state": "ready", "connections": 7.0, "in_flight": 3.0, "uptime_secs": 61.0}, body)
}

func TestProbesRefuseOtherMethods(t *testing.T) {
	f := newFixture()
	rec := httptest.NewRecorder()
	f.mux.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/health", nil))
	require.Equal(t, http.StatusMethodNotAllowed, rec.Code)
}
