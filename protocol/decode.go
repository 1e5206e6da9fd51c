package protocol

import "fmt"

// Decode reads one frame. It guards the frame first, so a hostile one costs little
// and fails; bytes after the frame's value are ignored.
//
// The returned message aliases frame where it holds msgp.Raw or Binary, so frame
// must not be modified, and what outlives it should be cloned; all text is copied.
// Raw values are exactly the sender's bytes, except that extension values in them
// become nil and map keys become text, as the protocol knows neither.
//
// Reading is lenient: integers may come in any number format if they are whole,
// absent and nil are the same for optional fields, unknown fields are ignored, and
// the last of equal keys counts. Errors wrap ErrUnknownKind for a type to ignore,
// otherwise they are a *DecodeError. Operations of CLIENT_OP and OP_BATCH fail one
// by one, in ClientOp.Err, and not the frame.
func Decode(frame []byte) (Message, error) { return decodeWithin(frame, fromClient) }

// DecodeAnswer is Decode for clients, which trust their server: a frame may be as long as
// MaxAnswer and hold as many elements as fit.
func DecodeAnswer(frame []byte) (Message, error) { return decodeWithin(frame, fromServer) }

func decodeWithin(frame []byte, limit bounds) (Message, error) {
	shape, err := guardWithin(frame, limit)
	if err != nil {
		return nil, &DecodeError{Err: err}
	}
	env, err := openEnvelope(frame[:shape.Size])
	if err != nil {
		return nil, err
	}
	kind, ok := kindsByName[string(env.name)]
	if !ok {
		return nil, fmt.Errorf("%w %q", ErrUnknownKind, fieldName(env.name))
	}
	row := &kinds[kind]
	m := row.alloc()
	r := &reader{b: env.body(row.layout), odd: shape.HasExt || shape.HasOddKey}
	if c, ok := m.(selfCoded); ok {
		c.readBody(r)
	} else {
		schemas[kind].read(r, m)
	}
	if r.err != nil {
		return nil, env.failure(m, r.err)
	}
	return m, nil
}

// envelope is the outermost map of a frame.
type envelope struct {
	frame          []byte
	name           []byte // value of "type"
	payload, event []byte // values under these keys, nil if absent or nil
}

func openEnvelope(frame []byte) (envelope, error) {
	env := envelope{frame: frame}
	r := reader{b: frame}
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "type":
			env.name = f.required(0).text()
		case "payload":
			env.payload = r.raw()
		case "event":
			env.event = r.raw()
		default:
			r.skip()
		}
	}
	f.end("type")
	if r.err != nil {
		return env, decodeError(r.err)
	}
	return env, nil
}

// emptyMap stands for a payload that is absent: only required fields then fail.
var emptyMap = []byte{0x80}

// body is the map that holds the fields of a message with layout l.
func (env *envelope) body(l layout) []byte {
	b := env.frame
	switch l {
	case payload:
		b = env.payload
	case event:
		b = env.event
	}
	if b == nil {
		return emptyMap
	}
	return b
}

// failure completes the error of reading m.
func (env *envelope) failure(m Message, err error) error {
	e := *decodeError(err)
	e.Kind = m.Kind()
	if l := kinds[e.Kind].layout; l != flat {
		e = *decodeError(atField(l.key(), &e))
	}
	if req, ok := m.(Request); ok {
		e.Correlation = req.Correlation()
	}
	return &e
}
