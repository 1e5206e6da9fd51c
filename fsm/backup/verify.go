package backup

import (
	"errors"
	"io"

	"github.com/quorate/quorate/fsm"
)

// Inspect reads a backup to its end, checks that it is complete and as it was written,
// and says what it contains.
func Inspect(src io.Reader) (*Summary, error) {
	return survey(src, func(g *PartSummary, snapshot io.Reader) (err error) {
		g.Bytes, err = io.Copy(io.Discard, snapshot)
		return err
	})
}

// Verify is Inspect and also checks every item of every snapshot, as a restore does.
func Verify(src io.Reader) (*Summary, error) {
	return survey(src, func(g *PartSummary, snapshot io.Reader) error {
		counted := &counter{src: snapshot}
		info, err := fsm.CheckSnapshot(g.Group, counted)
		if errors.Is(err, fsm.ErrSnapshot) {
			return damaged("group %d: %w", g.Group, err)
		}
		if err != nil {
			return err
		}
		if info.Mark.Index != g.Index || info.Mark.Term != g.Term {
			return damaged("group %d is at index %d of term %d, not %d of term %d",
				g.Group, info.Mark.Index, info.Mark.Term, g.Index, g.Term)
		}
		g.Bytes = counted.bytes
		g.count(info)
		return nil
	})
}

// Extract verifies the backup in src and hands the snapshot of each group to take,
// which must read it to its end.
func Extract(src io.Reader, take func(g Part, snapshot io.Reader) error) error {
	_, err := survey(src, func(g *PartSummary, snapshot io.Reader) error { return take(g.Part, snapshot) })
	return err
}

// survey shows each group to look.
func survey(src io.Reader, look func(g *PartSummary, snapshot io.Reader) error) (*Summary, error) {
	r, err := NewReader(src)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s := &Summary{Header: r.Header()}
	for {
		g, snapshot, err := r.Next()
		if errors.Is(err, io.EOF) {
			s.Size = r.size
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		group := PartSummary{Part: g}
		if err := look(&group, snapshot); err != nil {
			return nil, err
		}
		s.Parts = append(s.Parts, group)
	}
}

// counter counts what is read.
type counter struct {
	src   io.Reader
	bytes int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.bytes += int64(n)
	return n, err
}
