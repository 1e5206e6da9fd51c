package auth

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// adminAudience is the audience of operators' tokens, adminRole their role, adminLife how
// long they are good for.
const (
	adminAudience = "admin"
	adminRole     = "admin"
	adminLife     = 8 * time.Hour
)

// Admin issues and verifies the tokens of operators. They are signed with a key of their
// own, which follows from the secret, so that whoever signs tokens of clients cannot make
// one, whatever roles he writes into it. It is safe for concurrent use.
type Admin struct {
	key    []byte
	now    func() int64
	parser *jwt.Parser
}

// NewAdmin returns an Admin for the cluster's secret. Without a secret the key is random:
// tokens are good on this node until it stops. now is the wall clock in milliseconds since
// 1970.
func NewAdmin(secret []byte, now func() int64) (*Admin, error) {
	if len(secret) == 0 {
		secret = []byte(rand.Text())
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "quorate admin tokens", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key of admin tokens: %w", err)
	}
	return &Admin{key: key, now: now, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(), jwt.WithAudience(adminAudience), jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(func() time.Time { return time.UnixMilli(now()) }),
	)}, nil
}

// Issue returns a token for an operator who has shown who he is.
func (a *Admin) Issue(username string) (string, error) {
	now := time.UnixMilli(a.now())
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": username, "roles": []string{adminRole}, "aud": adminAudience, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(adminLife).Unix(),
	}).SignedString(a.key)
	if err != nil {
		return "", fmt.Errorf("sign admin token: %w", err)
	}
	return token, nil
}

// Verify checks a token of Issue and returns its bearer. The error wraps ErrRefused.
func (a *Admin) Verify(token string) (Principal, error) {
	if len(token) > DefaultConfig().MaxTokenBytes || !compact(token) {
		return Principal{}, fmt.Errorf("%w: not a signed token in compact form", ErrRefused)
	}
	var c adminClaims
	if _, err := a.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return a.key, nil }); err != nil {
		return Principal{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if c.Subject == "" {
		return Principal{}, fmt.Errorf("%w: no subject", ErrRefused)
	}
	return Principal{ID: c.Subject, Roles: c.Roles, ValidUntil: c.Expires.Time, Admin: true}, nil
}

// adminClaims are claims whose audience is looked at.
type adminClaims struct {
	claims
	Audience jwt.ClaimStrings `json:"aud"`
}

// GetAudience implements jwt.Claims.
func (c *adminClaims) GetAudience() (jwt.ClaimStrings, error) { return c.Audience, nil }
