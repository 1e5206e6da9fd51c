package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapsComeInPages(t *testing.T) {
	f := start(t)
	f.cluster.maps = []string{"$sys/members", "_service_x", "a", "b", "c"}
	status, answer := f.do("GET", "/api/admin/maps?limit=2", "")
	require.Equal(t, 200, status)
	require.Equal(t, "b", answer["after"])
	list, _ := answer["maps"].([]any)
	require.Len(t, list, 2)
	require.Equal(t, map[string]any{
		"name": "a", "entryCount": 3.0, "tombstoneCount": 1.0, "bytes": 99.0, "type": "lww",
		"partitions": []any{map[string]any{"id": 7.0, "ownerNodeId": "n1", "entryCount": 3.0}},
	}, list[0])
	_, answer = f.do("GET", "/api/admin/maps?limit=2&after=b", "")
	require.Len(t, answer["maps"], 1)
	require.Nil(t, answer["after"])
	status, _ = f.do("GET", "/api/admin/maps?limit=0", "")
	require.Equal(t, 400, status)
}

func TestNodesAndCluster(t *testing.T) {
	f := start(t)
	status, answer := f.do("GET", "/api/admin/cluster/status", "")
	require.Equal(t, 200, status)
	require.EqualValues(t, 271, answer["totalPartitions"])
	require.Len(t, answer["partitions"], 271)
	require.EqualValues(t, 271, answer["nodes"].([]any)[0].(map[string]any)["partitionCount"])
	require.Equal(t, false, answer["isRebalancing"])

	status, _ = f.do("POST", "/api/admin/nodes/n1/drain", "")
	require.Equal(t, 202, status)
	require.Equal(t, "n1", f.cluster.drained)
	status, _ = f.do("POST", "/api/admin/nodes/n9/drain", "")
	require.Equal(t, 404, status)
	status, answer = f.do("DELETE", "/api/admin/nodes/n1", "")
	require.Equal(t, 502, status)
	require.Contains(t, answer["message"], "last member")
	status, answer = f.do("POST", "/api/admin/groups/1/transfer?node=n2", "")
	require.Equal(t, 200, status)
	require.Equal(t, map[string]any{"group": 1.0, "from": "n1", "to": "n2", "term": 7.0}, answer)
	for path, want := range map[string]int{"1/transfer?node=slow": 409, "99/transfer": 404, "x/transfer": 400, "2/transfer": 504} {
		status, _ = f.do("POST", "/api/admin/groups/"+path, "")
		require.Equal(t, want, status, path)
	}
}

func TestPagesStayBelowTheirDirectory(t *testing.T) {
	dir := t.TempDir()
	site := filepath.Join(dir, "site")
	require.NoError(t, os.MkdirAll(filepath.Join(site, "assets"), 0o700))
	for name, text := range map[string]string{
		"secret.txt": "SECRET", "site/index.html": "<html>INDEX", "site/assets/app-1a2b3c4d.js": "HASHED", "site/assets/app.js": "PLAIN",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "secret.txt"), filepath.Join(site, "link.txt")))
	f := start(t, func(c *Config, _ *Deps) { c.Dir = site })
	get := func(path string) (int, string, http.Header) {
		r := httptest.NewRequest("GET", "/admin", nil)
		r.URL.Path, r.URL.RawPath = path, ""
		w := httptest.NewRecorder()
		f.mux.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header()
	}
	for path, want := range map[string]string{"/admin": "INDEX", "/admin/": "INDEX", "/admin/maps/todos": "INDEX", "/admin/assets/app-1a2b3c4d.js": "HASHED", "/admin/assets/app.js": "PLAIN"} {
		status, body, header := get(path)
		require.Equal(t, 200, status, path)
		require.Contains(t, body, want, path)
		require.Equal(t, contentPolicy, header.Get("Content-Security-Policy"))
		require.Equal(t, "DENY", header.Get("X-Frame-Options"))
		require.Equal(t, want == "HASHED", strings.Contains(header.Get("Cache-Control"), "immutable"), path)
	}
	for _, path := range []string{"/admin/../secret.txt", "/admin/..\\secret.txt", "/admin/link.txt", "/admin/missing.js", "/admin//etc/passwd", "/admin/./index.html/../../secret.txt"} {
		status, body, _ := get(path)
		require.NotEqual(t, 200, status, path)
		require.NotContains(t, body, "SECRET", path)
	}
	for _, path := range []string{"/admin/%2e%2e/secret.txt", "/admin/%2e%2e%2fsecret.txt", "/admin/..%2fsecret.txt"} {
		_, answer, _ := f.send("GET", path, "", "")
		require.NotContains(t, fmt.Sprint(answer), "SECRET", path)
	}
	gone := start(t, func(c *Config, _ *Deps) { c.Dir = filepath.Join(dir, "nowhere") })
	status, _, _ := gone.send("GET", "/admin", "", "")
	require.Equal(t, 404, status)
}

func TestPagesInTheBinaryNeedNothingFromElsewhere(t *testing.T) {
	f := start(t)
	for _, path := range []string{"/admin", "/admin/status.js", "/admin/status.css", "/api/docs", "/api/docs/docs.js", "/api/docs/docs.css"} {
		status, answer, header := f.send("GET", path, "", "")
		require.Equal(t, 200, status, path)
		require.Equal(t, "no-cache", header.Get("Cache-Control"))
		text, _ := answer["text"].(string)
		for _, bad := range []string{"http://", "https://", "innerHTML", "eval(", "<style", "style=", "onclick"} {
			require.NotContains(t, text, bad, path)
		}
	}
	status, _, _ := f.send("GET", "/api/docs/nothing.js", "", "")
	require.Equal(t, 404, status)
}

// markup is what a hostile client or node may call something.
const markup = `"><img src=x onerror=alert(1)><script>alert(2)</script>`

// The pages get what they show from these answers, so a browser that is led to one of them must
// not take it for a page.
func TestAnswersWithMarkupAreNoPages(t *testing.T) {
	f := start(t)
	f.cluster.node, f.cluster.maps = markup, []string{markup}
	f.do("POST", "/api/admin/indexes", fmt.Sprintf(`{"mapName":%q,"attribute":%q,"indexType":"hash"}`, markup, markup))
	shown := 0
	for _, route := range f.routes {
		if strings.HasPrefix(route.Path, "/admin") || strings.HasPrefix(route.Path, "/api/docs") {
			continue // these are pages
		}
		path := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllLiteralString(route.Path, url.PathEscape(markup))
		for _, query := range []string{"", "?limit=" + url.QueryEscape(markup)} {
			r := httptest.NewRequest(route.Method, path+query, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+f.token)
			w := httptest.NewRecorder()
			f.mux.ServeHTTP(w, r)
			name := route.Method + " " + route.Path + query
			require.NotContains(t, w.Body.String(), "<", name)
			if w.Body.Len() > 0 {
				require.Equal(t, "application/json", w.Header().Get("Content-Type"), name)
			}
			if strings.Contains(w.Body.String(), "onerror") {
				shown++
			}
		}
	}
	require.Greater(t, shown, 3, "answers that show it")
}

func TestPagesShowEverythingAsText(t *testing.T) {
	f := start(t)
	f.cluster.node, f.cluster.maps = markup, []string{markup}
	sinks := regexp.MustCompile(`(?i)(inner|outer)HTML|insertAdjacent|document\.write|createContextualFragment|DOMParser|setHTML|` +
		`srcdoc|setAttribute|eval\(|Function\(|javascript:|\.(src|href|on[a-z]+)\s*=|location\b`)
	inline := regexp.MustCompile(`(?i)<script(>|\s[^>]*>[^<])|\son[a-z]+\s*=|<style`)
	for _, path := range []string{"/admin", "/admin/status.js", "/admin/" + url.PathEscape(markup), "/api/docs", "/api/docs/docs.js"} {
		_, answer, header := f.send("GET", path, "", "")
		text, _ := answer["text"].(string)
		require.NotEmpty(t, text, path)
		require.NotContains(t, text, "onerror", path)
		policy := header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'self'", path)
		require.NotContains(t, policy, "unsafe", path)
		if strings.HasSuffix(path, ".js") {
			require.Empty(t, sinks.FindString(text), path)
		} else {
			require.Empty(t, inline.FindString(text), path)
		}
	}
}

func TestTheDescriptionHasEveryRoute(t *testing.T) {
	f := start(t)
	status, answer, _ := f.send("GET", "/api/openapi.json", "", "")
	require.Equal(t, 200, status)
	require.Equal(t, "3.1.0", answer["openapi"])
	paths, _ := answer["paths"].(map[string]any)
	schemas := answer["components"].(map[string]any)["schemas"].(map[string]any)
	for _, r := range f.routes {
		path := strings.ReplaceAll(r.Path, "...}", "}")
		op, _ := paths[path].(map[string]any)[strings.ToLower(r.Method)].(map[string]any)
		require.NotEmpty(t, op["summary"], r.Method+" "+r.Path)
		require.Equal(t, r.access == operator, op["security"] != nil, path)
	}
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		require.NotNil(t, schemas[name], "%s is referred to", name)
	}
}
