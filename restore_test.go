package quorate_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate"
)

// A restore that was killed is repeated, or has happened: there is no store in between.
func TestARestoreThatWasKilled(t *testing.T) {
	cfg := lone(t)
	r := startServer(t, cfg)
	var saved bytes.Buffer
	_, err := quorate.Backup(t.Context(), r.Status().PeerAddr, "", &saved)
	must(t, err)
	r.end()
	cfg.NodeID = "m1"
	for name, tc := range map[string]struct {
		// unfinished is what is left of the file in the making, named whether it was given
		// its name before.
		unfinished func(whole []byte) []byte
		named      bool
	}{
		"before the first sync": {unfinished: func([]byte) []byte { return nil }},
		"while it was filled":   {unfinished: func(whole []byte) []byte { return whole[:len(whole)/2] }},
		"before the link":       {unfinished: bytes.Clone},
		"after the link":        {unfinished: bytes.Clone, named: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Storage.Path = filepath.Join(t.TempDir(), "m1.db")
			_, err := quorate.Restore(&cfg, bytes.NewReader(saved.Bytes()), nil)
			must(t, err)
			whole, err := os.ReadFile(cfg.Storage.Path)
			must(t, err)
			if !tc.named {
				must(t, os.Remove(cfg.Storage.Path))
			}
			must(t, os.WriteFile(cfg.Storage.Path+".restore", tc.unfinished(whole), 0o600))
			_, err = quorate.Restore(&cfg, bytes.NewReader(saved.Bytes()), nil)
			if tc.named != errors.Is(err, quorate.ErrNotEmpty) || !tc.named && err != nil {
				t.Errorf("restored again: %v", err)
			}
			serves(t, cfg, 1)
		})
	}
}
