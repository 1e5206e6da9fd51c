package command

import "errors"

// ErrMalformed is wrapped by every decoding error: the bytes are not what this
// package encodes. For a committed entry that is corruption, and the group stops.
var ErrMalformed = errors.New("malformed log entry")

// ErrFormat is wrapped when an entry, a command body or a result list has a format
// or version that this build does not know: it was written by a newer one.
var ErrFormat = errors.New("unknown log entry format")
