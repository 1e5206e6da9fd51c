package harness

import "time"

// TB is what the harness needs of a test. testing.TB has it.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	Failed() bool
	TempDir() string
}

const pollInterval = 50 * time.Millisecond

// Eventually waits until done returns nil and fails the test with its last error
// after timeout. It returns how long it took.
func Eventually(t TB, timeout time.Duration, what string, done func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := done()
		took := time.Since(start)
		if err == nil {
			return took
		}
		if took > timeout {
			t.Fatalf("waited %v in vain for %s: %v", took.Round(time.Millisecond), what, err)
		}
		time.Sleep(pollInterval)
	}
}
