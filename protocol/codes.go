package protocol

// Code is a numeric code of ERROR, OP_REJECTED and HTTP error entries. The
// numbers follow HTTP; clients show them and do not branch on them.
type Code uint16

// The codes in use.
const (
	CodeMalformed      Code = 400 // the item cannot be understood; correct it
	CodeUnauthorized   Code = 401 // authentication is missing or refused
	CodeForbidden      Code = 403 // access rule or reserved map
	CodeStale          Code = 409 // a newer fencing token or version has written
	CodeTooLarge       Code = 413 // value, frame or batch over its limit
	CodeUnknownOp      Code = 422 // opType that this protocol does not have
	CodeOverloaded     Code = 429 // nothing was applied; retry later
	CodeInternal       Code = 500 // nothing was applied; retry later
	CodeNotImplemented Code = 501 // the feature is not part of this server
	CodeUnavailable    Code = 503 // no leader, or draining; nothing was applied
)

// Temporary reports whether retrying the same request later can succeed.
func (c Code) Temporary() bool {
	return c == CodeOverloaded || c == CodeInternal || c == CodeUnavailable
}

// CloseCode is a WebSocket close code. All of them tell the client to reconnect;
// 4401 tells it to present a fresh token first.
type CloseCode uint16

// The close codes in use.
const (
	CloseShutdown CloseCode = 1001 // the server is shutting down
	CloseTooBig   CloseCode = 1009 // a frame over the size limit
	CloseRetry    CloseCode = 1013 // overloaded, slow consumer, or outcome unknown
	CloseAuth     CloseCode = 4401 // authentication failed, timed out or expired
	CloseIdle     CloseCode = 4408 // no inbound frame for the idle timeout
)
