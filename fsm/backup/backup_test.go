package backup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/backup"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	groups  = 2
	records = 12
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot is the state of a group with some records.
func snapshot(t testing.TB, group uint32) []byte {
	t.Helper()
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	must(t, err)
	m, err := fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher})
	must(t, err)
	var cmds []command.Raw
	for i := range records {
		rec := protocol.Record{Value: []byte{0xcc, byte(i)}, Timestamp: protocol.Timestamp{Millis: int64(i), NodeID: "n1"}}
		cmds = append(cmds, command.EncodePut(command.Put{Map: "m", Key: fmt.Sprint("key-", i), Record: rec}))
	}
	entry := fsm.Entry{Index: 5, Term: 3, Data: command.AppendEntry(nil, protocol.Timestamp{Millis: 1, NodeID: "n1"}, cmds)}
	_, err = m.Apply([]fsm.Entry{entry})
	must(t, err)
	must(t, m.Checkpoint(t.Context(), fsm.Position{Index: 5, Term: 3}))
	s, err := m.OpenSnapshot()
	must(t, err)
	b, err := io.ReadAll(s)
	must(t, err)
	must(t, s.Close())
	must(t, m.Close())
	return b
}

// write makes a backup of the snapshots, which are numbered from 0.
func write(t testing.TB, snapshots ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := backup.NewWriter(&b, backup.Header{ClusterID: "c", NodeID: "n1", Version: "test", CreatedMillis: 1, Groups: groups})
	must(t, err)
	for group, s := range snapshots {
		must(t, w.WriteGroup(backup.Part{Group: uint32(group), Index: 5, Term: 3, Node: "n1#1"}, bytes.NewReader(s)))
	}
	must(t, w.Close())
	return b.Bytes()
}

func sample(t testing.TB) []byte {
	t.Helper()
	return write(t, snapshot(t, 0), snapshot(t, 1), snapshot(t, 2))
}

func TestABackupSaysWhatItContains(t *testing.T) {
	content := sample(t)
	for name, read := range map[string]func(io.Reader) (*backup.Summary, error){"verify": backup.Verify, "inspect": backup.Inspect} {
		s, err := read(bytes.NewReader(content))
		must(t, err)
		if s.ClusterID != "c" || len(s.Parts) != groups+1 || s.Size != int64(len(content)) || s.Parts[2].Bytes != int64(len(snapshot(t, 2))) {
			t.Errorf("%s: %+v", name, s)
		}
		if counted := s.Parts[1].Records == records; counted != (name == "verify") {
			t.Errorf("%s counts %d records", name, s.Parts[1].Records)
		}
	}
	seen := 0
	must(t, backup.Extract(bytes.NewReader(content), func(p backup.Part, src io.Reader) error {
		b, err := io.ReadAll(src)
		if want := snapshot(t, p.Group); !bytes.Equal(b, want) {
			t.Errorf("group %d has %d bytes, want the %d that were written", p.Group, len(b), len(want))
		}
		seen++
		return err
	}))
	if seen != groups+1 {
		t.Errorf("%d groups", seen)
	}
}

func TestALargeSnapshotIsCutIntoChunks(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	content := write(t, large, nil, large)
	s, err := backup.Inspect(bytes.NewReader(content))
	must(t, err)
	if s.Parts[0].Bytes != int64(len(large)) || s.Parts[1].Bytes != 0 || len(content) > len(large)/10 {
		t.Errorf("%+v", s)
	}
}

// refused reports whether a damaged backup is refused, with the right class of error.
func refused(t *testing.T, what string, content []byte) {
	t.Helper()
	_, err := backup.Verify(bytes.NewReader(content))
	if !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrFormat) {
		t.Errorf("%s: %v, want ErrDamaged or ErrFormat", what, err)
	}
	if _, err := backup.Inspect(bytes.NewReader(content)); err == nil {
		t.Errorf("%s: inspect takes it", what)
	}
}

func TestEveryDamageIsFound(t *testing.T) {
	content := sample(t)
	for i := range content {
		flipped := bytes.Clone(content)
		flipped[i] ^= 1 << (i % 8)
		refused(t, fmt.Sprintf("bit of byte %d flipped", i), flipped)
		refused(t, fmt.Sprintf("cut to %d bytes", i), content[:i])
		if zeroed := bytes.Clone(content); !bytes.Equal(zeroed[i:min(i+16, len(content))], make([]byte, 16)) {
			clear(zeroed[i:min(i+16, len(content))])
			refused(t, fmt.Sprintf("16 bytes from %d on zeroed", i), zeroed)
		}
	}
	refused(t, "a byte more", append(bytes.Clone(content), 0))
	refused(t, "twice", append(bytes.Clone(content), content...))
}

func TestGroupsMustBeCompleteAndInTheirPlaces(t *testing.T) {
	a, b, c := snapshot(t, 0), snapshot(t, 1), snapshot(t, 2)
	for name, parts := range map[string][][]byte{
		"swapped": {a, c, b}, "one is missing": {a, b}, "one too many": {a, b, c, c}, "none": nil,
	} {
		if _, err := backup.Verify(bytes.NewReader(write(t, parts...))); !errors.Is(err, backup.ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
	}
}
