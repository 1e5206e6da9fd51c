package httpsync

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/quorate/quorate/transport/httperr"
)

// errBodies: bodies take as much memory as they may.
var errBodies = errors.New("bodies of requests take too much memory")

// body counts what is read of it among all bodies. Slow clients hold what they sent and
// nothing else.
type body struct {
	io.Reader
	held  *atomic.Int64
	limit int64
	taken int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.taken += int64(n)
	if b.held.Add(int64(n)) > b.limit {
		return n, errBodies
	}
	return n, err
}

// release gives back what was counted.
func (b *body) release() { b.held.Add(-b.taken) }

// refuseBody answers a request whose body could not be read.
func refuseBody(w http.ResponseWriter, err error) {
	var tooLarge *http.MaxBytesError
	var slow interface{ Timeout() bool }
	switch {
	case errors.Is(err, errBodies):
		httperr.Unavailable(w, "too many requests at once")
	case errors.As(err, &tooLarge):
		httperr.Write(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("request body is larger than %d bytes", tooLarge.Limit))
	case errors.As(err, &slow) && slow.Timeout():
		httperr.Write(w, http.StatusRequestTimeout, "request body came too slowly")
	default:
		httperr.Write(w, http.StatusBadRequest, "request body could not be read")
	}
}
