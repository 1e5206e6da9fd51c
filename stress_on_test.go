//go:build stress

package quorate

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// awaitClock polls until ok; the file of the clock is not read at every call.
func awaitClock(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestStressClockIsOffByWhatItsFileSays(t *testing.T) {
	c := &skewedClock{file: filepath.Join(t.TempDir(), "skew")}
	if got := c.offset(); got != 0 {
		t.Errorf("%d without a file", got)
	}
	for _, text := range []string{"3600000\n", "-3600000", "0"} {
		if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want, err := readSkew(c.file)
		if err != nil {
			t.Fatal(err)
		}
		awaitClock(t, text, func() bool { return c.offset() == want })
	}
	if err := os.WriteFile(c.file, []byte("-5000"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitClock(t, "-5000", func() bool { return c.offset() == -5000 })
	if err := os.WriteFile(c.file, []byte("much"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitClock(t, "the fault to be seen", func() bool { return c.offset() != 0 && c.fault != "" })
	if got := c.offset(); got != -5000 {
		t.Errorf("%d with a damaged file, -5000 before", got)
	}
}

func TestStressLogShortensTheLog(t *testing.T) {
	t.Setenv(stressLog, "100")
	cfg := DefaultNodeConfig("n1")
	if err := stress(&cfg); err != nil || cfg.Raft.SnapshotThreshold != 100 || cfg.Raft.TrailingLogs != 50 {
		t.Errorf("%+v, %v", cfg.Raft, err)
	}
	for _, text := range []string{"31", "-1", "many"} {
		t.Setenv(stressLog, text)
		if stress(&cfg) == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
