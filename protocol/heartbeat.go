package protocol

import "github.com/tinylib/msgp/msgp"

// Ping is PING: a client's heartbeat.
type Ping struct {
	// Timestamp is the client's clock, a number exactly as sent. Empty if the
	// client sent none, which is tolerated.
	Timestamp msgp.Raw
}

// Kind implements Message.
func (*Ping) Kind() Kind { return KindPing }

// Correlation is empty: heartbeats need no answer by name.
func (*Ping) Correlation() string { return "" }

func (m *Ping) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		if string(f.name) == "timestamp" {
			m.Timestamp = r.numberRaw()
		} else {
			r.skip()
		}
	}
	f.end()
}

func (m *Ping) appendFields(o object) object {
	if len(m.Timestamp) > 0 {
		o.raw("timestamp", m.Timestamp)
	}
	return o
}

// Pong is PONG: the answer to Ping.
type Pong struct {
	// Timestamp repeats the Ping's; left out when empty.
	Timestamp msgp.Raw
	// ServerTime is the server's clock in milliseconds since 1970.
	ServerTime int64
}

// Kind implements Message.
func (*Pong) Kind() Kind { return KindPong }

func (m *Pong) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "timestamp":
			m.Timestamp = r.numberRaw()
		case "serverTime":
			m.ServerTime = f.required(0).millis()
		default:
			r.skip()
		}
	}
	f.end("serverTime")
}

func (m *Pong) appendFields(o object) object {
	if len(m.Timestamp) > 0 {
		o.raw("timestamp", m.Timestamp)
	}
	o.int("serverTime", m.ServerTime)
	return o
}
