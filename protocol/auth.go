package protocol

// Version is the version of the protocol that this server speaks.
const Version = 1

// AuthRequired is AUTH_REQUIRED: the first frame of a server that authenticates.
type AuthRequired struct{}

// Kind implements Message.
func (*AuthRequired) Kind() Kind { return KindAuthRequired }

// Auth is AUTH: a client presents its token.
type Auth struct {
	// Token is a JSON Web Token.
	Token string `wire:"token"`
	// ProtocolVersion is optional; any value is accepted.
	ProtocolVersion int64 `wire:"protocolVersion,optional"`
	// DeviceToken is an optional credential from an earlier AuthAck.
	DeviceToken string `wire:"deviceToken,optional"`
}

// Kind implements Message.
func (*Auth) Kind() Kind { return KindAuth }

// Correlation is empty: a connection authenticates once.
func (*Auth) Correlation() string { return "" }

// AuthAck is AUTH_ACK: the token was accepted.
type AuthAck struct {
	// ConnectionID is the server's id of the connection.
	ConnectionID string   `wire:"connectionId"`
	ServerNodeID string   `wire:"serverNodeId"`
	Roles        []string `wire:"roles"`
	// UserID is the token's subject; optional like the rest.
	UserID          string `wire:"userId,optional"`
	DeviceID        string `wire:"deviceId,optional"`
	DeviceToken     string `wire:"deviceToken,optional"`
	ProtocolVersion int64  `wire:"protocolVersion,optional"`
}

// Kind implements Message.
func (*AuthAck) Kind() Kind { return KindAuthAck }

// AuthFail is AUTH_FAIL: the token was refused and the connection ends. The reason
// is written twice, as "reason" and under "error", where clients look for it.
type AuthFail struct {
	Reason string
	// Code is left out when zero.
	Code Code
}

// Kind implements Message.
func (*AuthFail) Kind() Kind { return KindAuthFail }

func (m *AuthFail) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "reason":
			m.Reason = f.required(0).str()
		case "code":
			m.Code = Code(r.whole(1<<16 - 1))
		default:
			r.skip()
		}
	}
	f.end("reason")
}

func (m *AuthFail) appendFields(o object) object {
	o.str("reason", m.Reason)
	o.str("error", m.Reason)
	if m.Code != 0 {
		o.int("code", int64(m.Code))
	}
	return o
}

// DeviceHello is DEVICE_HELLO: the first frame of a client without a token.
type DeviceHello struct {
	DeviceToken string `wire:"deviceToken,optional"`
}

// Kind implements Message.
func (*DeviceHello) Kind() Kind { return KindDeviceHello }

// Correlation is empty: a connection says hello once.
func (*DeviceHello) Correlation() string { return "" }

// DeviceAck is DEVICE_ACK: the answer to DeviceHello; no authentication.
type DeviceAck struct {
	DeviceID string `wire:"deviceId,optional"`
	// DeviceToken is set only when newly issued.
	DeviceToken string `wire:"deviceToken,optional"`
}

// Kind implements Message.
func (*DeviceAck) Kind() Kind { return KindDeviceAck }
