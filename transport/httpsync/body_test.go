package httpsync

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

// TestBodiesThatComeSlowlyHoldNothingUp begins more requests than are handled at a time,
// whose bodies do not end.
func TestBodiesThatComeSlowlyHoldNothingUp(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Concurrent, cfg.MaxBodies = 2, 100
	h := New(cfg, Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return testNow }, Backend: func() Backend { return &fakeBackend{} }})
	request := protocol.AppendHTTPSync(nil, &protocol.HTTPSync{ClientID: "c"})
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, post(request))
		return w.Code
	}
	var answered []chan int
	var bodies []*io.PipeWriter
	for range 10 {
		r, w := io.Pipe()
		status := make(chan int, 1)
		go func() {
			recorder := httptest.NewRecorder()
			h.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/sync", r))
			status <- recorder.Code
		}()
		_, err := w.Write(request[:1])
		require.NoError(t, err)
		bodies, answered = append(bodies, w), append(answered, status)
	}
	require.Equal(t, http.StatusOK, ask())
	_, err := bodies[0].Write(request[1:])
	require.NoError(t, err)
	require.NoError(t, bodies[0].Close())
	require.Equal(t, http.StatusOK, <-answered[0])

	// What they hold together is bounded.
	require.Eventually(t, func() bool { return h.bodies.Load() == 9 }, time.Minute, time.Millisecond)
	go func() { _, _ = bodies[1].Write(bytes.Repeat([]byte{1}, 101)) }()
	require.Equal(t, http.StatusServiceUnavailable, <-answered[1])
	for i := range bodies[2:] {
		require.NoError(t, bodies[2+i].Close())
		require.Equal(t, http.StatusBadRequest, <-answered[2+i])
	}
	require.Zero(t, h.bodies.Load())
	require.Equal(t, http.StatusOK, ask())
}
