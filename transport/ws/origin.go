package ws

import (
	"net/http"
	"net/url"
	"strings"
)

// anyOrigin in Config.AllowedOrigins admits every web page.
const anyOrigin = "*"

// defaultPorts are the ports that an origin leaves out.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// origin is a parsed Origin header: where the page that opens a connection comes
// from.
type origin struct {
	scheme, host string // host with its port unless it is the scheme's default
}

// parseOrigin reads "scheme://host[:port]" and nothing longer. "null", which pages
// without an origin send, is none.
func parseOrigin(s string) (origin, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil ||
		(u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return origin{}, false
	}
	scheme := strings.ToLower(u.Scheme)
	return origin{scheme: scheme, host: canonicalHost(u.Host, scheme)}, true
}

// canonicalHost is host in lower case, without the default port of scheme.
func canonicalHost(host, scheme string) string {
	host = strings.ToLower(host)
	if port, ok := defaultPorts[scheme]; ok {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return host
}

// OriginAllowed decides whether the page that sent r may connect. A request
// without Origin does not come from a page. Browsers do not apply their
// same-origin rule to WebSocket, so this is what keeps a foreign page from using
// the server with its visitor's network.
func OriginAllowed(r *http.Request, allowed []string) bool {
	headers := r.Header.Values("Origin")
	if len(headers) == 0 {
		return true
	}
	for _, a := range allowed {
		if a == anyOrigin {
			return true
		}
	}
	if len(headers) > 1 {
		return false
	}
	from, ok := parseOrigin(headers[0])
	if !ok {
		return false
	}
	// The scheme is not compared with ours: TLS may end at a proxy before us.
	if from.host == canonicalHost(r.Host, from.scheme) {
		return true
	}
	for _, a := range allowed {
		if o, ok := parseOrigin(a); ok && o == from {
			return true
		}
	}
	return false
}
