package chaos

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// silence runs silent until it returns, while what happens after the times given.
func silence(t *testing.T, answer, gone, resume time.Duration) (is bool, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		start := time.Now()
		after := func(d time.Duration) <-chan struct{} {
			c := make(chan struct{})
			if d > 0 {
				time.AfterFunc(d, func() { close(c) })
			}
			return c
		}
		paused := func(since time.Time) bool { return resume > 0 && start.Add(resume).After(since) }
		is = silent(after(gone), after(answer), nil, paused, start.Add(-5*time.Second), 35*time.Second)
		took = time.Since(start)
	})
	return is, took
}

func TestSilenceIsAProblemOnlyOfNodesThatRun(t *testing.T) {
	is, took := silence(t, 0, 0, 0)
	require.True(t, is)
	require.Equal(t, 30*time.Second, took, "it was asked 5 s before")
	is, took = silence(t, 0, 0, 20*time.Second)
	require.True(t, is)
	require.Equal(t, 55*time.Second, took, "it was paused for 20 s")
	is, _ = silence(t, 29*time.Second, 0, 0)
	require.False(t, is, "answered")
	is, _ = silence(t, 0, 29*time.Second, 0)
	require.False(t, is, "ended")
	is, _ = silence(t, 50*time.Second, 0, 20*time.Second)
	require.False(t, is, "answered after a pause")
}
