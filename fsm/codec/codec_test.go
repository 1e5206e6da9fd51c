package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/quorate/quorate/fsm/codec"
)

func TestFieldsReadBackInOrder(t *testing.T) {
	b := binary.AppendUvarint(nil, 1<<40)
	b = binary.AppendVarint(b, -7)
	b = codec.AppendText(b, "téxt")
	b = codec.AppendBytes(b, []byte{0, 1})
	b = binary.LittleEndian.AppendUint64(b, 99)
	b = append(b, 5, 'x')

	r := codec.NewReader(b)
	if got := r.Uvarint(); got != 1<<40 {
		t.Errorf("Uvarint = %d", got)
	}
	if got := r.Varint(); got != -7 {
		t.Errorf("Varint = %d", got)
	}
	if got := r.Text(); got != "téxt" {
		t.Errorf("Text = %q", got)
	}
	if got := r.Bytes(); !bytes.Equal(got, []byte{0, 1}) {
		t.Errorf("Bytes = %v", got)
	}
	if got := r.Uint64(); got != 99 {
		t.Errorf("Uint64 = %d", got)
	}
	if got := r.Byte(); got != 5 {
		t.Errorf("Byte = %d", got)
	}
	if got := r.Rest(); string(got) != "x" {
		t.Errorf("Rest = %q", got)
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
}

func TestMalformedInputIsATypedErrorAndReadsZero(t *testing.T) {
	tests := []struct {
		name  string
		input []byte
		read  func(*codec.Reader)
	}{
		{"empty byte", nil, func(r *codec.Reader) { r.Byte() }},
		{"short fixed integer", make([]byte, 7), func(r *codec.Reader) { r.Uint64() }},
		{"endless varint", bytes.Repeat([]byte{0xff}, 20), func(r *codec.Reader) { r.Uvarint() }},
		{"length beyond the end", []byte{200, 1, 'a'}, func(r *codec.Reader) { r.Bytes() }},
		{"huge length", binary.AppendUvarint(nil, 1<<63), func(r *codec.Reader) { r.Bytes() }},
		{"count beyond the end", []byte{3, 1, 1, 1, 1}, func(r *codec.Reader) { r.Count(2) }},
		{"left over", []byte{1, 2}, func(r *codec.Reader) { r.Byte(); _ = r.End() }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := codec.NewReader(tc.input)
			tc.read(&r)
			if err := r.Err(); !errors.Is(err, codec.ErrMalformed) {
				t.Fatalf("error = %v, want ErrMalformed", err)
			}
			if r.Uvarint() != 0 || r.Varint() != 0 || r.Text() != "" || r.Byte() != 0 || r.Uint64() != 0 {
				t.Error("a failed reader returned a value")
			}
		})
	}
}
