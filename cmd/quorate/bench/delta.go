package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/quorate/quorate/protocol"
)

// deltaClient follows the map by POST /sync: since is what the server last told it.
type deltaClient struct {
	url   string
	since protocol.Timestamp
}

// newDeltaClient returns a client of the node with the WebSocket address url.
func newDeltaClient(url string) *deltaClient {
	return &deltaClient{url: strings.TrimSuffix(strings.Replace(url, "ws", "http", 1), "/ws") + "/sync"}
}

// follow asks for changes until none are left. Found counts them, and Requests the
// requests that brought some.
func (d *deltaClient) follow(ctx context.Context) (w Walk, err error) {
	started := time.Now()
	for {
		found, received, err := d.round(ctx)
		if err != nil {
			return w, err
		}
		if found == 0 {
			return w, nil
		}
		w.Found, w.Received = w.Found+found, w.Received+received
		w.Requests++
		w.Seconds = time.Since(started).Seconds()
	}
}

// round asks once.
func (d *deltaClient) round(ctx context.Context) (found, received int, err error) {
	body := protocol.AppendHTTPSync(nil, &protocol.HTTPSync{
		ClientID: "bench", SyncMaps: []protocol.HTTPSyncMap{{MapName: syncMap, LastSyncTimestamp: d.since}},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("delta: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-msgpack")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, fmt.Errorf("delta: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, fmt.Errorf("delta: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%w: delta: status %d", errSync, resp.StatusCode)
	}
	m, err := protocol.DecodeHTTPSyncResponse(answer)
	if err != nil {
		return 0, 0, fmt.Errorf("delta: %w", err)
	}
	if len(m.Deltas) != 1 {
		return 0, 0, fmt.Errorf("%w: %d deltas for one map: %v", errSync, len(m.Deltas), m.Errors)
	}
	d.since = m.Deltas[0].ServerSyncTimestamp
	return len(m.Deltas[0].Records), len(answer), nil
}
