package protocol

// Message is one decoded frame: a pointer to one of this package's message
// structs. Which of them a kind has is in the kind table.
type Message interface {
	// Kind is the message's kind.
	Kind() Kind
}

// Request is a Message that clients send.
type Request interface {
	Message
	// Correlation is what an answer or a refusal names the request by: its request,
	// query or subscription id, or where it has none the map, topic or counter it
	// is about. Empty if there is nothing to name.
	Correlation() string
}

// Presence says how an optional field arrived.
type Presence uint8

// The presences of a field.
const (
	Absent  Presence = iota // the key was not there
	Nil                     // the key was there with the value nil
	Present                 // the key was there with a value
)

// Direction says who sends a kind of message.
type Direction uint8

// The directions.
const (
	ClientToServer Direction = iota + 1
	ServerToClient
	BothWays
	NodeToNode
)

// layout says where a kind keeps its fields.
type layout uint8

const (
	flat    layout = iota // beside "type"
	payload               // in a map under "payload"
	event                 // in a map under "event"
)

// key is the top-level key of the fields; empty for flat.
func (l layout) key() string {
	switch l {
	case payload:
		return "payload"
	case event:
		return "event"
	default:
		return ""
	}
}

// selfCoded is implemented by kinds whose codec is written by hand, because they
// are frequent or because their fields do not map one to one. All other kinds are
// coded by their schema.
type selfCoded interface {
	Message
	readBody(r *reader)
	appendFields(o object) object
}
