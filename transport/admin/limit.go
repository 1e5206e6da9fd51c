package admin

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/quorate/quorate/transport/quota"
)

// limited bounds the requests of an address.
func (h *Handler) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ok, wait := h.request.Take(quota.Address(r), 1, h.now()); !ok {
			quota.Refuse(w, wait)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// now is the wall clock. A step forward lets somebody try earlier, one back later.
func (h *Handler) now() time.Time { return time.UnixMilli(h.deps.Now()) }

// LocalHost reports whether the Host of a request is an address or localhost, which no
// name service can lead elsewhere.
func LocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}
