// Package quota bounds how often something is done, per name: a bucket of tokens each, which
// fills at a steady rate.
package quota

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/transport/httperr"
)

// maxBuckets bounds the names that are counted at a time.
const maxBuckets = 16_384

// Buckets bounds how often something happens per name. Buckets that are full again are
// forgotten; when there is no room for a new name, it has to wait like one that is empty. It
// is safe for concurrent use.
type Buckets struct {
	burst float64

	// mu protects the fields below.
	mu     sync.Mutex
	rate   float64 // tokens a second
	byName map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

// New returns Buckets that hold burst tokens and get perSecond; both must be positive.
func New(perSecond float64, burst int) *Buckets {
	return &Buckets{rate: perSecond, burst: float64(burst), byName: map[string]*bucket{}}
}

// SetRate changes how many tokens a second each bucket gets; it must be positive.
func (b *Buckets) SetRate(perSecond float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate = perSecond
}

// Take takes n tokens of a name, or all that a bucket holds if n is more. Without them it
// takes none and returns how long to wait.
func (b *Buckets) Take(name string, n int, now time.Time) (ok bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := min(float64(n), b.burst)
	own := b.byName[name]
	if own == nil {
		if len(b.byName) >= maxBuckets && !b.sweepLocked(now) {
			return false, time.Duration(float64(time.Second) / b.rate)
		}
		own = &bucket{tokens: b.burst, at: now}
		b.byName[name] = own
	}
	own.tokens = b.at(own, now)
	own.at = now
	if own.tokens < cost {
		return false, time.Duration((cost - own.tokens) / b.rate * float64(time.Second))
	}
	own.tokens -= cost
	return true, 0
}

// Give returns a token that was taken for nothing.
func (b *Buckets) Give(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.byName[name]; own != nil {
		own.tokens = min(own.tokens+1, b.burst)
	}
}

func (b *Buckets) at(own *bucket, now time.Time) float64 {
	return min(b.burst, own.tokens+max(0, now.Sub(own.at).Seconds())*b.rate)
}

// sweepLocked forgets the full buckets, and reports whether there is room now.
func (b *Buckets) sweepLocked(now time.Time) bool {
	for name, own := range b.byName {
		if b.at(own, now) >= b.burst {
			delete(b.byName, name)
		}
	}
	return len(b.byName) < maxBuckets
}

// Refuse answers a request that has to wait: 429 with Retry-After.
func Refuse(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	httperr.Write(w, http.StatusTooManyRequests, "too many attempts, wait "+strconv.Itoa(seconds)+" seconds")
}

// Address is where a request comes from, as far as one person has it: an IPv4 address, or
// the network of an IPv6 one.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
