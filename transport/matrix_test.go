package transport

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
)

// callers are a Verifier of clients: "plain" has no role, "limited" one, "boss" claims to be
// an administrator. Operators' tokens are taken too, as the server's own verifier does.
type callers struct{ operators *auth.Admin }

func (c callers) Verify(token string) (auth.Principal, error) {
	if p, err := c.operators.Verify(token); err == nil {
		return p, nil
	}
	roles, known := map[string][]string{"plain": nil, "limited": {"reader"}, "boss": {"admin"}}[token]
	if !known {
		return auth.Principal{}, auth.ErrRefused
	}
	return auth.Principal{ID: token, Roles: roles}, nil
}

func (callers) Message(error) string { return "credentials refused" }

// TestEveryRouteKnowsItsCallers is the matrix of callers and routes, generated from what the
// listener takes: a route without a rule here fails.
func TestEveryRouteKnowsItsCallers(t *testing.T) {
	f := start(t, func(c *Config) { c.Admin.Password, c.Admin.RequestsPerSecond = "p", 1_000_000 }, func(d *Deps) { d.Verifier = callers{d.Tokens} })
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	operator, err := f.deps.Tokens.Issue("admin")
	require.NoError(t, err)
	body := string(protocol.AppendHTTPSync(nil, &protocol.HTTPSync{ClientID: "c"}))
	rules := []struct {
		prefix    string
		anonymous int
		client    int
	}{ // 0 is any status but 401 and 403
		{"POST /sync", 401, 0},
		{"GET /ws", 0, 0}, {"GET /{$}", 0, 0}, // the conversation asks who it is
		{"GET /health", 0, 0}, {"GET /healthz", 0, 0}, {"GET /metrics", 0, 0},
		{"GET /api/status", 0, 0}, {"GET /api/auth/status", 0, 0}, {"POST /api/auth/login", 401, 401},
		{"GET /api/openapi.json", 0, 0}, {"GET /api/docs", 0, 0}, {"GET /admin", 0, 0},
		{"GET /api/admin/", 401, 403}, {"PUT /api/admin/", 401, 403}, {"POST /api/admin/", 401, 403}, {"DELETE /api/admin/", 401, 403},
	}
	for _, pattern := range f.patterns {
		ruled := false
		for _, rule := range rules {
			if !strings.HasPrefix(pattern, rule.prefix) {
				continue
			}
			ruled = true
			method, path, _ := strings.Cut(pattern, " ")
			path = strings.NewReplacer("{$}", "", "{path...}", "x", "{file}", "docs.js", "{group}", "1").Replace(path)
			for token, want := range map[string]int{"": rule.anonymous, "forged": rule.anonymous, "plain": rule.client, "limited": rule.client, "boss": rule.client, operator: 0} {
				content := body
				header := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/x-msgpack"}}
				if strings.HasPrefix(path, "/api/") {
					content, header["Content-Type"] = `{"username":"admin","password":"no"}`, []string{"application/json"}
				}
				resp, text := f.do(method, path, strings.NewReader(content), header)
				if pattern == "POST /api/auth/login" && want == 0 {
					want = 401 // a token is no password
				}
				if pattern == "POST /api/auth/login" && resp.StatusCode == http.StatusTooManyRequests {
					want = http.StatusTooManyRequests
				}
				if want == 0 {
					require.NotContains(t, []int{401, 403}, resp.StatusCode, "%s by %q: %s", pattern, token, text)
				} else {
					require.Equal(t, want, resp.StatusCode, "%s by %q: %s", pattern, token, text)
				}
			}
		}
		require.True(t, ruled, "nobody has said who may use %s", pattern)
	}
}

func TestABodyThatDripsEndsWithItsTime(t *testing.T) {
	f := start(t, func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	drip, err := net.Dial("tcp", f.addr)
	require.NoError(t, err)
	defer drip.Close()
	require.NoError(t, drip.SetDeadline(time.Now().Add(patience)))
	_, err = drip.Write([]byte("POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(drip), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
}

// TestCompressedRequestsAreNotInflated sends what would be 64 MiB.
func TestCompressedRequestsAreNotInflated(t *testing.T) {
	f := start(t, nil)
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, err := io.CopyN(w, zeros{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	resp, text := f.do(http.MethodPost, "/sync", &bomb, http.Header{"Content-Encoding": {"gzip"}})
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, text)
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
