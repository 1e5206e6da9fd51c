package transport

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOriginsAreToldWhatTheyMay(t *testing.T) {
	f := start(t, func(c *Config) { c.WebSocket.AllowedOrigins = []string{"https://app.example"} })
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	ask := func(method, origin string) *http.Response {
		resp, _ := f.do(method, "/sync", nil, http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}})
		return resp
	}
	resp := ask("OPTIONS", "https://app.example")
	require.Equal(t, 204, resp.StatusCode)
	require.Equal(t, "https://app.example", resp.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "true", resp.Header.Get("Access-Control-Allow-Credentials"))
	require.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Equal(t, "86400", resp.Header.Get("Access-Control-Max-Age"))
	for _, bad := range []string{"https://evil.example", "https://app.example.evil.example", "http://app.example", "null"} {
		resp = ask("OPTIONS", bad)
		require.Equal(t, 204, resp.StatusCode)
		require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"), bad)
		require.Equal(t, 403, ask("POST", bad).StatusCode, "a page can send some requests without asking: %s", bad)
	}
	require.Equal(t, 200, ask("POST", "https://app.example").StatusCode)
	require.Equal(t, 200, ask("POST", "http://"+f.addr).StatusCode, "the server's own pages")
	all := start(t, func(c *Config) { c.WebSocket.AllowedOrigins = []string{"*"} })
	resp, _ = all.do("GET", "/health", nil, http.Header{"Origin": {"https://any.example"}})
	require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
	require.Empty(t, resp.Header.Get("Access-Control-Allow-Credentials"))
}

// TestPagesDoNotGetInByANameOfTheirOwn has a page whose name DNS led to this machine, so that
// the server seems to be its own host.
func TestPagesDoNotGetInByANameOfTheirOwn(t *testing.T) {
	for _, open := range []bool{true, false} {
		f := start(t, func(c *Config) {
			c.Admin.Open, c.WebSocket.AllowedOrigins = open, []string{"https://app.example"}
		})
		f.Open(noCluster{})
		f.caughtUp.Store(true)
		_, port, err := net.SplitHostPort(f.addr)
		require.NoError(t, err)
		for _, c := range []struct {
			host, origin string
			refused      bool
		}{
			{"evil.example:" + port, "http://evil.example:" + port, open},
			{"evil.example:" + port, "", false}, // no page
			{"evil.example:" + port, "https://app.example", false},
			{f.addr, "http://" + f.addr, false},
			{"localhost:" + port, "http://localhost:" + port, false},
			{"[::1]:" + port, "http://[::1]:" + port, false},
		} {
			for path, want := range map[string]int{"POST /sync": 200, "GET /ws": 426} {
				method, path, _ := strings.Cut(path, " ")
				r, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.addr+path, nil)
				require.NoError(t, err)
				if r.Host = c.host; c.origin != "" {
					r.Header.Set("Origin", c.origin)
				}
				resp, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				if c.refused {
					want = 403
				}
				require.Equal(t, want, resp.StatusCode, "%s %s open %v: host %s origin %q", method, path, open, c.host, c.origin)
			}
		}
	}
}

func TestAnswersAreCompressedForWhoAsks(t *testing.T) {
	f := start(t, nil)
	resp, body := f.do("GET", "/api/openapi.json", nil, http.Header{"Accept-Encoding": {"gzip"}})
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	r, err := gzip.NewReader(strings.NewReader(body))
	require.NoError(t, err)
	plain, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, json.Valid(plain))
	resp, _ = f.do("GET", "/api/openapi.json", nil, http.Header{"Accept-Encoding": {"identity"}})
	require.Empty(t, resp.Header.Get("Content-Encoding"))
}

// TestEveryRouteIsDescribed compares the description with what the listener takes.
func TestEveryRouteIsDescribed(t *testing.T) {
	f := start(t, nil)
	_, body := f.get("/api/openapi.json")
	var doc struct {
		Paths map[string]map[string]struct{ Responses map[string]any }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	for path, operations := range doc.Paths {
		real := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "docs.js")
		for method, op := range operations {
			resp, _ := f.do(strings.ToUpper(method), real, nil, nil)
			require.NotEqual(t, 405, resp.StatusCode, "%s %s is described and not served", method, path)
			require.NotEmpty(t, op.Responses)
			_, ok := op.Responses[fmt.Sprint(resp.StatusCode)]
			require.True(t, ok, "%s %s answered %d, which is not described", method, path, resp.StatusCode)
		}
	}
	for _, pattern := range f.patterns {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("...}", "}", "{$}", "").Replace(path)
		require.Contains(t, doc.Paths[path], strings.ToLower(method), "%s is served and not described", pattern)
	}
	require.Greater(t, len(f.patterns), 20)
}
