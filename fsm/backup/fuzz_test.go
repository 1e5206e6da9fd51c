package backup_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"

	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm/backup"
)

const (
	beginBytes = 8 // what a backup begins with, before its records
	headBytes  = 5 // kind and length of a record
	footerKind = 5
)

// resummed is a backup whose records, and whose footer, have right checksums as far as it
// has records, so that what is in them is read.
func resummed(content []byte) []byte {
	at := min(len(content), beginBytes)
	whole := bytes.Clone(content[:at])
	for rest := content[at:]; ; {
		n := uint64(0)
		if len(rest) >= headBytes {
			n = uint64(binary.LittleEndian.Uint32(rest[1:]))
		}
		if len(rest) < headBytes || n+headBytes+4 > uint64(len(rest)) {
			return append(whole, rest...)
		}
		payload := rest[headBytes : headBytes+n]
		var footer map[string]any
		if rest[0] == footerKind && json.Unmarshal(payload, &footer) == nil && footer != nil {
			sum := sha256.Sum256(whole)
			footer["sha256"] = hex.EncodeToString(sum[:])
			payload, _ = json.Marshal(footer)
		}
		start := len(whole)
		whole = binary.LittleEndian.AppendUint32(append(whole, rest[0]), uint32(len(payload)))
		whole = append(whole, payload...)
		whole = binary.LittleEndian.AppendUint32(whole, crc32.Checksum(whole[start:], crc32.MakeTable(crc32.Castagnoli)))
		rest = rest[headBytes+n+4:]
	}
}

func TestAResummedBackupIsAsItWas(t *testing.T) {
	content := sample(t)
	if diff := cmp.Diff(content, resummed(content)); diff != "" {
		t.Errorf("backup (-want +got):\n%s", diff)
	}
}

// FuzzReader holds that a file is refused as damaged or as none that can be read, or that
// each way of reading it says the same of it.
func FuzzReader(f *testing.F) {
	content := sample(f)
	f.Add(content, true)
	f.Add(content, false)
	f.Add(write(f, nil, nil, nil), true)
	f.Add(content[:beginBytes], false)
	f.Fuzz(func(t *testing.T, content []byte, resum bool) {
		if resum {
			content = resummed(content)
		}
		inspected, err := backup.Inspect(bytes.NewReader(content))
		typed(t, err)
		verified, verifyErr := backup.Verify(bytes.NewReader(content))
		typed(t, verifyErr)
		if err != nil {
			if verifyErr == nil {
				t.Fatalf("%v, but it verifies", err)
			}
			return
		}
		if inspected.Size != int64(len(content)) || len(inspected.Parts) != int(inspected.Groups)+1 {
			t.Fatalf("%+v of %d bytes", inspected, len(content))
		}
		if verifyErr != nil {
			return
		}
		for i := range verified.Parts {
			if p, q := verified.Parts[i], inspected.Parts[i]; p.Part != q.Part || p.Bytes != q.Bytes {
				t.Fatalf("group %d: %+v and %+v", i, p, q)
			}
		}
	})
}

func typed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrFormat) {
		t.Fatalf("untyped error %v", err)
	}
}
