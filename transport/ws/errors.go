package ws

import "errors"

// errClosed: the connection takes no more frames to send. Nobody is told.
var errClosed = errors.New("connection is closing")

// errSlow: the client did not make room for an answer within the send timeout.
// The connection is closed.
var errSlow = errors.New("client does not read its answers")

// errOverloaded: the server has as many operations under way as it may. Transient,
// nothing was applied.
var errOverloaded = errors.New("server overloaded, try again later")

// ErrDrainTimeout is returned by Server.Drain when connections had to be cut.
var ErrDrainTimeout = errors.New("connections were cut before they finished")
