package protocol

import (
	"errors"
	"strconv"
	"strings"
)

// ErrUnknownKind is wrapped by Decode for a frame whose type this protocol does
// not have. The receiver ignores such a frame.
var ErrUnknownKind = errors.New("unknown message type")

// Causes inside a DecodeError, and results of Guard. Bad request.
var (
	// ErrFrameSize: the frame is longer than MaxFrame.
	ErrFrameSize = errors.New("frame is too large")
	// ErrTruncated: a value or a declared element is not there.
	ErrTruncated = errors.New("value is cut short")
	// ErrReserved: a byte that starts no MsgPack value.
	ErrReserved = errors.New("byte 0xc1 starts no value")
	// ErrDepth: nesting deeper than MaxDepth.
	ErrDepth = errors.New("nesting is too deep")
	// ErrElements: more than MaxElements elements.
	ErrElements = errors.New("too many elements")
	// ErrTooManyItems: more than MaxBatchItems messages or MaxBatchOps operations.
	ErrTooManyItems = errors.New("too many items in one batch")
	// ErrMissing: a required field is absent or nil.
	ErrMissing = errors.New("required field is missing")
	// ErrType: a field or the frame itself holds a value of another type.
	ErrType = errors.New("wrong type")
	// ErrRange: a number that is not whole, or outside the range of its field.
	ErrRange = errors.New("number is not whole or out of range")
	// ErrText: text that is not valid UTF-8.
	ErrText = errors.New("text is not valid UTF-8")
	// ErrValue: a value of the right type that its field does not admit.
	ErrValue = errors.New("value is not allowed")
)

// DecodeError says why a frame, or one operation in it, cannot be understood.
// Sending it again fails identically.
type DecodeError struct {
	// Kind is the message's kind, or KindInvalid if it was not readable.
	Kind Kind
	// Field is the path of the offending field, such as
	// "payload.record.timestamp.millis"; empty for the frame as a whole. In the
	// Err of a ClientOp the path starts at the operation.
	Field string
	// Correlation is the message's correlation id as far as it was readable.
	Correlation string
	// Err is the cause, one of this package's sentinels.
	Err error
}

// Error implements error.
func (e *DecodeError) Error() string {
	var b strings.Builder
	b.WriteString("decode")
	if e.Kind != KindInvalid {
		b.WriteByte(' ')
		b.WriteString(e.Kind.String())
	}
	if e.Field != "" {
		b.WriteString(": ")
		b.WriteString(e.Field)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// Code is the code with which a client is told: 413 for an exceeded limit,
// otherwise 400.
func (e *DecodeError) Code() Code {
	for _, limit := range []error{ErrFrameSize, ErrElements, ErrTooManyItems} {
		if errors.Is(e.Err, limit) {
			return CodeTooLarge
		}
	}
	return CodeMalformed
}

// decodeError returns err as a *DecodeError.
func decodeError(err error) *DecodeError {
	if inner := (*DecodeError)(nil); errors.As(err, &inner) {
		return inner
	}
	return &DecodeError{Err: err}
}

// atField puts a field name in front of the path of err.
func atField(name string, err error) error {
	e := *decodeError(err)
	switch {
	case e.Field == "":
		e.Field = name
	case e.Field[0] == '[':
		e.Field = name + e.Field
	default:
		e.Field = name + "." + e.Field
	}
	return &e
}

// atIndex puts an array index in front of the path of err.
func atIndex(i int, err error) error {
	return atField("["+strconv.Itoa(i)+"]", err)
}
