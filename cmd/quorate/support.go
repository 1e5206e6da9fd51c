package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/cmd/quorate/config"
)

// runSupport writes what somebody who helps needs to know about a node into an archive.
func runSupport(p *process, args []string) int {
	out := ""
	t, code := p.parseTarget("support", args, false, func(fs *flag.FlagSet) {
		fs.StringVar(&out, "out", "", "`file` to write (default: a name with the node and the time)")
	})
	if t == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	bundle, err := quorate.FetchSupport(ctx, t.addr, t.secret)
	if err != nil {
		return p.fail(err)
	}
	now := time.Now().UTC()
	if out == "" {
		out = fmt.Sprintf("quorate-support-%s-%s.tar.gz", bundle.Status.NodeID, now.Format("20060102T150405Z"))
	}
	if err := p.writeSupport(out, bundle, now); err != nil {
		return p.fail(err)
	}
	fmt.Fprintln(p.stdout, out)
	return exitOK
}

// writeSupport writes the archive. A file of its name that is there is not replaced.
func (p *process) writeSupport(name string, bundle *quorate.Support, now time.Time) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create archive: %w", err)
	}
	err = errors.Join(p.fillSupport(f, bundle, now), f.Close())
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

func (p *process) fillSupport(w io.Writer, bundle *quorate.Support, now time.Time) error {
	status, err := json.MarshalIndent(bundle.Status, "", "  ")
	if err != nil {
		return err
	}
	// What this environment would start with; the node may have been started with other
	// settings, which its log tells.
	var settings strings.Builder
	if s, _, err := config.Load(nil, p.getenv); err == nil {
		if err := s.Print(&settings); err != nil {
			return err
		}
	}
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, file := range []struct{ name, text string }{
		{"status.json", string(status)}, {"metrics.txt", bundle.Metrics}, {"goroutines.txt", bundle.Goroutines},
		{"build.txt", bundle.Build}, {"log.txt", bundle.Log}, {"environment.txt", settings.String()},
	} {
		header := &tar.Header{Name: "quorate-support/" + file.name, Mode: 0o600, Size: int64(len(file.text)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(archive, file.text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}
