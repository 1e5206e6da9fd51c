package ws

import (
	"net/http"
	"testing"
)

// FuzzOrigin holds that a header which names an origin is allowed by that origin alone, and
// that what names none is allowed by nothing but the wildcard.
func FuzzOrigin(f *testing.F) {
	for _, text := range []string{"https://app.example", "HTTP://App.Example:80/", "null", "https://u@h", "https://[::1]:443", "file://", "https://h?q", "https://h:443:443", "//h", "https://h#", "*"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &http.Request{Host: "other.invalid", Header: http.Header{"Origin": {text}}}
		if !OriginAllowed(r, []string{anyOrigin}) {
			t.Fatalf("%q is not allowed by the wildcard", text)
		}
		from, ok := parseOrigin(text)
		ok = ok || text == anyOrigin
		if OriginAllowed(r, []string{"https://listed.invalid"}) && from != (origin{"https", "listed.invalid"}) {
			t.Fatalf("%q passes for another origin", text)
		}
		if allowed := OriginAllowed(r, []string{text}); allowed != ok {
			t.Fatalf("%q, an origin %v, is allowed by itself %v", text, ok, allowed)
		}
		if again, whole := parseOrigin(from.scheme + "://" + from.host); whole && canonicalHost(again.host, again.scheme) != canonicalHost(from.host, from.scheme) {
			t.Fatalf("%q is %+v, which is %+v", text, from, again)
		}
	})
}
