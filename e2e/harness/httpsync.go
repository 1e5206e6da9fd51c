package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/quorate/quorate/protocol"
)

// PostSync sends one POST /sync to the node and returns its answer.
func (n *Node) PostSync(ctx context.Context, m *protocol.HTTPSync) (*protocol.HTTPSyncResponse, error) {
	body := protocol.AppendHTTPSync(nil, m)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.clientAddr()+"/sync", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-msgpack")
	if secret := n.cluster.cfg.Secret; secret != "" {
		token, err := Token(secret, "tester")
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("post to %s: %w", n.Name, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", n.Name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %d: %s", errDevice, resp.StatusCode, answer)
	}
	return protocol.DecodeHTTPSyncResponse(answer)
}
