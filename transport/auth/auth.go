package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/hashicorp/go-hclog"
)

// genericRefusal is what a client is told when details are not forwarded.
const genericRefusal = "credentials refused"

// minSecret is the number of bytes below which a secret is weaker than the
// signature it makes (RFC 7518 section 3.2).
const minSecret = 32

// Config tunes a Verifier. Use DefaultConfig and set Secret.
type Config struct {
	// Secret is the HMAC key. Required.
	Secret []byte
	// Leeway is how long a token is still taken after its "exp", and how much
	// before its "nbf". Zero means none.
	Leeway time.Duration
	// MaxTokenBytes bounds a token; longer ones are refused unread.
	MaxTokenBytes int
	// ForwardErrors tells clients why a token was refused. Insecure: it tells an
	// attacker how far a forged token came.
	ForwardErrors bool
}

// DefaultConfig is the configuration for production, without Secret.
func DefaultConfig() Config {
	return Config{Leeway: time.Minute, MaxTokenBytes: 16 << 10}
}

// Deps are the collaborators of a Verifier. Logger and Now are required.
type Deps struct {
	Logger hclog.Logger
	// Admin verifies the tokens of operators, which open connections too. Nil takes none.
	Admin *Admin
	// Now is the wall clock in milliseconds since 1970.
	Now func() int64
}

// Principal is the bearer of a verified token.
type Principal struct {
	// ID is the token's subject, never empty.
	ID string
	// Roles are the token's roles in their order; empty if it has none.
	Roles []string
	// Admin marks the bearer of a token for operators, which login gives out.
	Admin bool
	// ValidUntil is the moment from which the token is refused: its expiry and the
	// leeway.
	ValidUntil time.Time
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	now    func() int64
	admin  *Admin
	parser *jwt.Parser
}

// New returns a Verifier, or ErrNoSecret. A secret shorter than 32 bytes is taken
// with a warning.
func New(cfg Config, deps Deps) (*Verifier, error) {
	if len(cfg.Secret) == 0 {
		return nil, ErrNoSecret
	}
	if len(cfg.Secret) < minSecret {
		deps.Logger.Named("auth").Warn("the token secret is short enough to be guessed, use at least 32 random bytes",
			"bytes", len(cfg.Secret))
	}
	v := &Verifier{cfg: cfg, now: deps.Now, admin: deps.Admin}
	v.parser = jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(),
		jwt.WithLeeway(cfg.Leeway),
		jwt.WithTimeFunc(func() time.Time { return time.UnixMilli(deps.Now()) }),
	)
	return v, nil
}

// Verify checks a token and returns its bearer. Required are the algorithm HS256,
// a valid signature, an expiry "exp" that is not over and a subject "sub" that is
// a text of at least one character; "nbf", if there, must have come. Issuer,
// audience and every other claim are not looked at. The token of an operator is taken as
// well. The error wraps ErrRefused and
// holds the reason; show clients only what Message makes of it.
func (v *Verifier) Verify(token string) (Principal, error) {
	if len(token) > v.cfg.MaxTokenBytes {
		return Principal{}, fmt.Errorf("%w: longer than %d bytes", ErrRefused, v.cfg.MaxTokenBytes)
	}
	if !compact(token) {
		return Principal{}, fmt.Errorf("%w: not a signed token in compact form", ErrRefused)
	}
	var c claims
	parsed, err := v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return v.cfg.Secret, nil })
	if err != nil {
		if v.admin != nil {
			if p, err := v.admin.Verify(token); err == nil {
				return p, nil
			}
		}
		return Principal{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if _, critical := parsed.Header["crit"]; critical {
		// RFC 7515 4.1.11: extensions that must be understood are not.
		return Principal{}, fmt.Errorf("%w: critical header extensions are not supported", ErrRefused)
	}
	if c.Subject == "" {
		return Principal{}, fmt.Errorf("%w: no subject", ErrRefused)
	}
	return Principal{ID: c.Subject, Roles: c.Roles, ValidUntil: c.Expires.Add(v.cfg.Leeway)}, nil
}

// Message is the text for the client that a refusal by Verify deserves: one fixed
// sentence, or the reason if ForwardErrors is set.
func (v *Verifier) Message(err error) string {
	if v.cfg.ForwardErrors && err != nil {
		return err.Error()
	}
	return genericRefusal
}

// compact reports whether token consists of the characters of base64url and dots
// only. The base64 decoder passes over line breaks, so that without this check one
// signature would have many spellings.
func compact(token string) bool {
	for i := range len(token) {
		switch c := token[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return token != ""
}

// claims are the parts of a token that are read.
type claims struct {
	Expires   *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	Subject   string           `json:"sub"`
	Roles     roles            `json:"roles"`
}

// roles takes the texts of an array and nothing of any other value.
type roles []string

// UnmarshalJSON implements json.Unmarshaler.
func (r *roles) UnmarshalJSON(b []byte) error {
	var list []any
	if err := json.Unmarshal(b, &list); err != nil {
		var other *json.UnmarshalTypeError
		if errors.As(err, &other) {
			return nil
		}
		return fmt.Errorf("read roles: %w", err)
	}
	for _, item := range list {
		if name, ok := item.(string); ok {
			*r = append(*r, name)
		}
	}
	return nil
}

// GetExpirationTime implements jwt.Claims.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.Expires, nil }

// GetNotBefore implements jwt.Claims.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return c.NotBefore, nil }

// GetIssuedAt implements jwt.Claims.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil }

// GetAudience implements jwt.Claims.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }

// GetIssuer implements jwt.Claims.
func (c *claims) GetIssuer() (string, error) { return "", nil }

// GetSubject implements jwt.Claims.
func (c *claims) GetSubject() (string, error) { return c.Subject, nil }
