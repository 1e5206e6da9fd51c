package protocol_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/quorate/quorate/protocol"
)

var seed = flag.Uint64("seed", 0, "seed of randomised tests; 0 takes one from the clock")

// random returns a generator whose seed is in the test's log.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// vectors reads the cases of one file in testdata.
func vectors[T any](t testing.TB, name string) []T {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	var file struct{ Cases []T }
	require.NoError(t, json.Unmarshal(b, &file))
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// m is a MsgPack map under construction, packed by a codec that is not ours.
type m map[string]any

func pack(t testing.TB, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.SetSortMapKeys(true)
	require.NoError(t, enc.Encode(v))
	return buf.Bytes()
}

// unpack reads a frame with a codec that is not ours; numbers become float64.
func unpack(t testing.TB, b []byte) any {
	t.Helper()
	in := bytes.NewReader(b)
	v, err := msgpack.NewDecoder(in).DecodeInterface()
	require.NoError(t, err)
	require.Zero(t, in.Len(), "bytes after the value")
	return floats(v)
}

func floats(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = floats(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
		return v
	}
	if n := reflect.ValueOf(v); n.IsValid() && n.CanConvert(reflect.TypeFor[float64]()) {
		return n.Convert(reflect.TypeFor[float64]()).Float()
	}
	return v
}

// mustAppend encodes a message that must be encodable.
func mustAppend(t testing.TB, msg protocol.Message) []byte {
	t.Helper()
	b, err := protocol.Append(nil, msg)
	require.NoError(t, err)
	return b
}

// decodeAs decodes a frame that must hold a T.
func decodeAs[T protocol.Message](t testing.TB, frame []byte) T {
	t.Helper()
	msg, err := protocol.Decode(frame)
	require.NoError(t, err)
	require.IsType(t, *new(T), msg)
	return msg.(T)
}

// clientOpFrame is a CLIENT_OP with a small record, with fields replaced or, if
// nil is given for them, removed.
func clientOpFrame(t testing.TB, changes m) []byte {
	op := m{"id": "7", "mapName": "todos", "key": "k", "opType": "PUT", "record": m{"value": 1, "timestamp": stamp()}}
	return pack(t, m{"type": "CLIENT_OP", "payload": changed(op, changes)})
}

func stamp() m { return m{"millis": 1760000000123.0, "counter": 0, "nodeId": "9b1c"} }

func changed(fields, changes m) m {
	for k, v := range changes {
		if v == nil {
			delete(fields, k)
		} else {
			fields[k] = v
		}
	}
	return fields
}

// diff compares messages; an empty slice or map equals an absent one, and a Raw of
// nil equals an empty one.
func diff(want, got protocol.Message) string {
	raw := cmp.Comparer(func(a, b msgp.Raw) bool {
		return strings.TrimPrefix(string(a), "\xc0") == strings.TrimPrefix(string(b), "\xc0")
	})
	emptyToNil := cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().Type() != reflect.TypeFor[msgp.Raw]()
	}, cmpopts.EquateEmpty())
	return cmp.Diff(want, got, raw, emptyToNil)
}

// kindRow is one line of testdata/kinds.txt.
type kindRow struct {
	origin, name, layout string
	direction            protocol.Direction
	required, optional   []string
	any                  map[string]bool // required fields of which absence is nil
}

func kindRows(t testing.TB) map[string]kindRow {
	t.Helper()
	b, err := os.ReadFile("testdata/kinds.txt")
	require.NoError(t, err)
	directions := map[string]protocol.Direction{"C": protocol.ClientToServer, "S": protocol.ServerToClient,
		"B": protocol.BothWays, "N": protocol.NodeToNode}
	rows := map[string]kindRow{}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		required, optional, _ := strings.Cut(line, "|")
		f := strings.Fields(required)
		row := kindRow{origin: f[0], name: f[1], direction: directions[f[2]], layout: f[3],
			optional: strings.Fields(optional), any: map[string]bool{}}
		for _, name := range f[4:] {
			name, isAny := strings.CutPrefix(name, "any:")
			row.required = append(row.required, name)
			row.any[name] = isAny
		}
		rows[row.name] = row
	}
	return rows
}

// filler makes random messages. With full, no field is left at its zero value.
type filler struct {
	rng  *rand.Rand
	full bool
}

func (f *filler) message(k protocol.Kind) protocol.Message {
	v := reflect.New(messageType(k))
	f.fill(v.Elem())
	return v.Interface().(protocol.Message)
}

func (f *filler) skips() bool { return !f.full && f.rng.IntN(3) == 0 }

func (f *filler) text() string {
	words := []string{"a", "todos", "ключ", "😀", strings.Repeat("x", 40), "-", "b:c"}
	return words[f.rng.IntN(len(words))]
}

func (f *filler) raw() msgp.Raw {
	values := []any{true, 0, 1.5, "text", -7, 1 << 40, []byte{1, 2}, []any{nil, "x"}, map[string]any{"a": 1}}
	b, err := msgpack.Marshal(values[f.rng.IntN(len(values))])
	if err != nil {
		panic(err)
	}
	return b
}

func (f *filler) fill(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *msgp.Raw:
		if !f.skips() {
			*p = f.raw()
		}
		return
	case *protocol.WriteConcern:
		*p = protocol.WriteConcern(1 + f.rng.IntN(5))
		return
	case *protocol.Timestamp:
		if !f.skips() {
			*p = protocol.Timestamp{Millis: 1 + f.rng.Int64N(1<<53-1), Counter: f.rng.Int64N(9), NodeID: "n-1"}
		}
		return
	case *protocol.ClientOp:
		f.fillFields(v)
		p.Err = nil
		if p.RecordPresence = protocol.Presence(f.rng.IntN(3)); f.full {
			p.RecordPresence = protocol.Present
		}
		if p.RecordPresence != protocol.Present {
			p.Record = protocol.Record{}
		}
		return
	case *protocol.Ping:
		p.Timestamp = msgp.AppendInt64(nil, f.rng.Int64())
		return
	case *protocol.Pong:
		*p = protocol.Pong{Timestamp: msgp.AppendFloat64(nil, 1e12), ServerTime: 1 + f.rng.Int64N(1<<53-1)}
		return
	case *protocol.QuerySub:
		f.fillFields(v)
		p.Query = msgp.AppendMapHeader(nil, 0)
		return
	case *error:
		return
	}
	f.fillKind(v)
}

func (f *filler) fillFields(v reflect.Value) {
	for i := range v.NumField() {
		f.fill(v.Field(i))
	}
}

func (f *filler) fillKind(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		f.fillFields(v)
	case reflect.String:
		if !f.skips() {
			v.SetString(f.text())
		}
	case reflect.Bool:
		v.SetBool(!f.skips())
	case reflect.Float64:
		v.SetFloat(float64(1+f.rng.IntN(1000)) / 8)
	case reflect.Int64:
		v.SetInt(1 + f.rng.Int64N(1<<53-1))
	case reflect.Uint8:
		v.SetUint(uint64(f.rng.IntN(256)))
	case reflect.Uint16:
		v.SetUint(uint64(1 + f.rng.IntN(999)))
	case reflect.Uint32:
		v.SetUint(uint64(1 + f.rng.Uint32N(1<<32-1)))
	case reflect.Uint64:
		v.SetUint(1 + f.rng.Uint64N(1<<53-1))
	case reflect.Pointer:
		if !f.skips() {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		if !f.skips() {
			v.Set(reflect.MakeSlice(v.Type(), 1+f.rng.IntN(3), 3))
			for i := range v.Len() {
				f.fill(v.Index(i))
			}
		}
	case reflect.Map:
		if !f.skips() {
			v.Set(reflect.MakeMap(v.Type()))
			value := reflect.New(v.Type().Elem()).Elem()
			f.fill(value)
			v.SetMapIndex(reflect.ValueOf(f.text()), value)
		}
	default:
		panic("no filler for " + v.Type().String())
	}
}
