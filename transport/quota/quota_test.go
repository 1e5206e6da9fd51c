package quota

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBucketsRefillAndAreForgotten(t *testing.T) {
	b := New(1, 2)
	now := time.Unix(1000, 0)
	for _, want := range []bool{true, true, false} {
		ok, wait := b.Take("a", 1, now)
		require.Equal(t, want, ok)
		require.Equal(t, !want, wait > 0)
	}
	ok, _ := b.Take("a", 1, now.Add(time.Second))
	require.True(t, ok)
	for i := range maxBuckets {
		b.Take(string(rune(i+1000)), 1, now.Add(2*time.Second))
	}
	ok, wait := b.Take("one more", 1, now.Add(2*time.Second))
	require.False(t, ok, "there is no room")
	require.Positive(t, wait)
	ok, _ = b.Take("one more", 1, now.Add(time.Hour))
	require.True(t, ok, "the full ones were forgotten")
	require.Len(t, b.byName, 1)
}

func TestSeveralTokensAreTakenTogetherOrNotAtAll(t *testing.T) {
	b := New(10, 100)
	now := time.Unix(1000, 0)
	take := func(n int) bool {
		ok, _ := b.Take("a", n, now)
		return ok
	}
	require.True(t, take(60))
	require.False(t, take(60))
	require.True(t, take(40), "what was refused took nothing")
	_, wait := b.Take("a", 5, now)
	require.Equal(t, 500*time.Millisecond, wait)
	b.SetRate(1000)
	now = now.Add(100 * time.Millisecond)
	require.True(t, take(1_000_000), "who asks for more than a bucket holds pays a whole one")
	b.Give("a")
	require.True(t, take(1))
}

func TestAddressesAreThoseOfOnePerson(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:99": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8::1]:9": "2001:db8::/64", "[fe80::1%eth0]:9": "fe80::/64", "pipe": "pipe",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = remote
		require.Equal(t, want, Address(r))
	}
}
