// Package device gives clients an identity of their own across connections: an id and a
// token that proves it. Tokens are not stored: they carry a keyed hash, so that any node
// of the cluster knows the tokens of all others.
package device

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Issuer makes and checks device tokens. It is safe for concurrent use.
type Issuer struct {
	key []byte
}

// New returns the Issuer of a cluster. secret is the one that signs the tokens of users,
// or empty without authentication; cluster is the cluster's id.
func New(secret []byte, cluster string) *Issuer {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("quorate device\x00" + cluster))
	return &Issuer{key: h.Sum(nil)}
}

// Identity is a device and the token by which it is known again.
type Identity struct {
	ID, Token string
}

// Issue makes a new device of the user subject, who may be nobody.
func (i *Issuer) Issue(subject string) Identity {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return Identity{ID: id, Token: id + "." + i.proof(subject, id)}
}

// Check returns the id of the device that token proves for the user subject; false for a
// token of another user, another cluster or none.
func (i *Issuer) Check(subject, token string) (id string, ok bool) {
	id, proof, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(proof), []byte(i.proof(subject, id))) {
		return "", false
	}
	return id, true
}

func (i *Issuer) proof(subject, id string) string {
	h := hmac.New(sha256.New, i.key)
	h.Write([]byte(subject + "\x00" + id))
	return hex.EncodeToString(h.Sum(nil))
}
