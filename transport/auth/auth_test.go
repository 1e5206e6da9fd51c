package auth

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

const nowSeconds = 1_800_000_000

var secret = []byte("0123456789abcdef0123456789abcdef")

func verifier(t *testing.T, change func(*Config)) *Verifier {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Secret = secret
	if change != nil {
		change(&cfg)
	}
	v, err := New(cfg, Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return nowSeconds * 1000 }})
	require.NoError(t, err)
	return v
}

func signed(t *testing.T, method jwt.SigningMethod, key any, header map[string]any, body string) string {
	t.Helper()
	tok := jwt.New(method)
	for k, val := range header {
		tok.Header[k] = val
	}
	// The body is spliced in as text, so that any JSON can be signed.
	plain, err := tok.SigningString()
	require.NoError(t, err)
	head, _, _ := strings.Cut(plain, ".")
	signing := head + "." + base64.RawURLEncoding.EncodeToString([]byte(body))
	sig, err := method.Sign(signing, key)
	require.NoError(t, err)
	return signing + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func hs256(t *testing.T, body string) string {
	t.Helper()
	return signed(t, jwt.SigningMethodHS256, secret, nil, body)
}

func TestVerifyAccepts(t *testing.T) {
	cases := []struct {
		name, body string
		want       Principal
	}{
		{"plain", `{"sub":"u1","exp":1800000100}`, Principal{ID: "u1"}},
		{"roles", `{"sub":"u1","exp":1800000100,"roles":["a","b"]}`, Principal{ID: "u1", Roles: []string{"a", "b"}}},
		{"roles that are not texts", `{"sub":"u1","exp":1800000100,"roles":["a",1,null,{},"b"]}`, Principal{ID: "u1", Roles: []string{"a", "b"}}},
		{"roles that are no list", `{"sub":"u1","exp":1800000100,"roles":"admin"}`, Principal{ID: "u1"}},
		{"roles null", `{"sub":"u1","exp":1800000100,"roles":null}`, Principal{ID: "u1"}},
		{"expired within the leeway", `{"sub":"u1","exp":1799999941}`, Principal{ID: "u1"}},
		{"foreign claims", `{"sub":"u1","exp":1800000100,"aud":["x"],"iss":7,"iat":9999999999,"jti":{}}`, Principal{ID: "u1"}},
		{"nbf within the leeway", `{"sub":"u1","exp":1800000100,"nbf":1800000059}`, Principal{ID: "u1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := verifier(t, nil).Verify(hs256(t, c.body))
			require.NoError(t, err)
			require.Equal(t, c.want.ID, got.ID)
			require.Equal(t, c.want.Roles, []string(got.Roles))
		})
	}
}

func TestValidUntilIsExpiryAndLeeway(t *testing.T) {
	p, err := verifier(t, nil).Verify(hs256(t, `{"sub":"u1","exp":1800000100}`))
	require.NoError(t, err)
	require.Equal(t, time.Unix(1800000160, 0).UTC(), p.ValidUntil.UTC())
}

func TestVerifyRefuses(t *testing.T) {
	good := hs256(t, `{"sub":"u1","exp":1800000100}`)
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	cases := map[string]string{
		"empty":                     "",
		"no token":                  "hello",
		"two segments":              head + "." + body,
		"four segments":             good + ".x",
		"no exp":                    hs256(t, `{"sub":"u1"}`),
		"exp null":                  hs256(t, `{"sub":"u1","exp":null}`),
		"exp text":                  hs256(t, `{"sub":"u1","exp":"soon"}`),
		"exp infinite":              hs256(t, `{"sub":"u1","exp":1e999}`),
		"expired past the leeway":   hs256(t, `{"sub":"u1","exp":1799999940}`),
		"no sub":                    hs256(t, `{"exp":1800000100}`),
		"sub empty":                 hs256(t, `{"sub":"","exp":1800000100}`),
		"sub not a text":            hs256(t, `{"sub":17,"exp":1800000100}`),
		"not yet valid":             hs256(t, `{"sub":"u1","exp":1800000900,"nbf":1800000061}`),
		"body not an object":        hs256(t, `[]`),
		"body null":                 hs256(t, `null`),
		"wrong secret":              signed(t, jwt.SigningMethodHS256, []byte("another secret of thirty-two byte"), nil, `{"sub":"u1","exp":1800000100}`),
		"HS384":                     signed(t, jwt.SigningMethodHS384, secret, nil, `{"sub":"u1","exp":1800000100}`),
		"HS512":                     signed(t, jwt.SigningMethodHS512, secret, nil, `{"sub":"u1","exp":1800000100}`),
		"none with signature":       none + "." + body + "." + sig,
		"none without signature":    none + "." + body + ".",
		"none by method":            signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, `{"sub":"u1","exp":1800000100}`),
		"critical extension":        signed(t, jwt.SigningMethodHS256, secret, map[string]any{"crit": []string{"b64"}, "b64": false}, `{"sub":"u1","exp":1800000100}`),
		"padded signature":          good + "=",
		"line break in signature":   good[:len(good)-4] + "\n" + good[len(good)-4:],
		"trailing space":            good + " ",
		"bearer prefix":             "Bearer " + good,
		"loose bits of the last 64": good[:len(good)-1] + string(loosen(good[len(good)-1])),
		"body changed":              head + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root","exp":1800000100}`)) + "." + sig,
		"one megabyte":              strings.Repeat("a", 1<<20),
	}
	for name, token := range cases {
		t.Run(name, func(t *testing.T) {
			v := verifier(t, nil)
			p, err := v.Verify(token)
			require.ErrorIs(t, err, ErrRefused)
			require.Zero(t, p)
			require.Equal(t, genericRefusal, v.Message(err))
		})
	}
}

// loosen returns a base64 character whose unused low bits differ from those of c,
// which stands for the same bytes to a lenient decoder.
func loosen(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

func TestKeyIDChoosesNoKey(t *testing.T) {
	body := `{"sub":"u1","exp":1800000100}`
	header := map[string]any{"kid": "../../dev/null", "jku": "http://attacker", "x5u": "http://attacker"}
	_, err := verifier(t, nil).Verify(signed(t, jwt.SigningMethodHS256, []byte{}, header, body))
	require.ErrorIs(t, err, ErrRefused)
	_, err = verifier(t, nil).Verify(signed(t, jwt.SigningMethodHS256, secret, header, body))
	require.NoError(t, err)
}

func TestMessageForwardsDetailOnRequest(t *testing.T) {
	v := verifier(t, func(c *Config) { c.ForwardErrors = true })
	_, err := v.Verify(hs256(t, `{"sub":"u1","exp":1}`))
	require.Contains(t, v.Message(err), "expired")
}

func TestShortSecretWarnsWithoutShowingIt(t *testing.T) {
	var out bytes.Buffer
	cfg := DefaultConfig()
	cfg.Secret = []byte("hunter2")
	_, err := New(cfg, Deps{Logger: hclog.New(&hclog.LoggerOptions{Output: &out}), Now: func() int64 { return 0 }})
	require.NoError(t, err)
	require.Contains(t, out.String(), "[WARN]")
	require.NotContains(t, out.String(), "hunter2")
}

func TestNoSecretIsAnError(t *testing.T) {
	_, err := New(DefaultConfig(), Deps{Logger: hclog.NewNullLogger()})
	require.ErrorIs(t, err, ErrNoSecret)
}

func FuzzVerify(f *testing.F) {
	cfg := DefaultConfig()
	cfg.Secret = secret
	v, err := New(cfg, Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return nowSeconds * 1000 }})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add("a.b.c")
	f.Add(fmt.Sprintf("%s.%s.", base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)), "e30"))
	f.Fuzz(func(t *testing.T, token string) {
		if p, err := v.Verify(token); err == nil {
			t.Fatalf("accepted %q as %q", token, p.ID)
		}
	})
}
