package judge

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

const (
	// cursorLife is how long a cursor may be used.
	cursorLife = 10 * time.Minute
	// cursorFormat is the first byte of a cursor.
	cursorFormat = 1
	// cursorHead is the format, the time in milliseconds and the query's shape, cursorTag
	// the signature.
	cursorHead, cursorTag = 1 + 8 + 8, 16
	// maxCursor bounds the place in a cursor, in bytes: it comes back in a frame.
	maxCursor = 64 << 10
)

// Cursors makes the cursors of queries and reads them. They are signed, so that only
// places that a node of the cluster has named are read, and all nodes of a cluster take
// each other's.
type Cursors struct {
	key []byte
}

// NewCursors returns the Cursors of a cluster. secret is what signs the tokens of clients;
// without authentication it is empty and everybody may read everything anyway.
func NewCursors(secret []byte, clusterID string) Cursors {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("quorate query cursor\x00" + clusterID))
	return Cursors{key: mac.Sum(nil)}
}

// Cursor is the place in q's rows behind which the next page begins, as text. It is empty
// if the place is too large.
func (c Cursors) Cursor(mapName string, q *partitions.Query, last *partitions.Place, now int64) string {
	shape := q.Shape()
	b := binary.BigEndian.AppendUint64([]byte{cursorFormat}, uint64(now))
	b = q.AppendPlace(append(b, shape[:]...), last)
	if len(b) > maxCursor {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(b, c.sign(mapName, b)...))
}

// Parse reads the cursor that q came with. The place is nil unless the status is
// protocol.CursorValid.
func (c Cursors) Parse(mapName string, q *partitions.Query, now int64) (*partitions.Place, protocol.CursorStatus) {
	if q.Cursor() == "" {
		return nil, protocol.CursorNone
	}
	b, err := base64.RawURLEncoding.DecodeString(q.Cursor())
	if err != nil || len(b) < cursorHead+cursorTag || b[0] != cursorFormat {
		return nil, protocol.CursorInvalid
	}
	b, tag := b[:len(b)-cursorTag], b[len(b)-cursorTag:]
	if subtle.ConstantTimeCompare(tag, c.sign(mapName, b)) == 0 {
		return nil, protocol.CursorInvalid
	}
	if now-int64(binary.BigEndian.Uint64(b[1:])) > cursorLife.Milliseconds() {
		return nil, protocol.CursorExpired
	}
	shape := q.Shape()
	if string(b[9:cursorHead]) != string(shape[:]) {
		return nil, protocol.CursorInvalid
	}
	place, err := q.ParsePlace(b[cursorHead:])
	if err != nil {
		return nil, protocol.CursorInvalid
	}
	return &place, protocol.CursorValid
}

func (c Cursors) sign(mapName string, b []byte) []byte {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(mapName + "\x00"))
	mac.Write(b)
	return mac.Sum(nil)[:cursorTag]
}
