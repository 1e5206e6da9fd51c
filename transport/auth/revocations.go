package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// RevocationsDocument is the name of the replicated document of revocations.
const RevocationsDocument = "revocations"

// Bounds of revocations: how many there may be, and the bytes of a subject.
const (
	MaxRevocations   = 10_000
	MaxRevokedLength = 1024
)

// Errors of changing revocations. Refusals: the same change is refused again.
var (
	ErrBadSubject         = errors.New("a subject must be a text of 1 to 1024 bytes")
	ErrTooManyRevocations = errors.New("there are too many revocations, lift some first")
)

const revocationsFormat = 1

// Revocation shuts a subject out: its tokens are refused, however long they are good for.
type Revocation struct {
	Subject string `json:"subject"`
	// SinceMillis is when it was revoked, in milliseconds since 1970; By is the operator.
	SinceMillis int64  `json:"sinceMillis"`
	By          string `json:"by"`
}

type storedRevocations struct {
	Format      int          `json:"format"`
	Revocations []Revocation `json:"revocations"`
}

// DecodeRevocations reads the document; an empty one is none. The list is sorted by subject,
// and has each once.
func DecodeRevocations(value []byte) ([]Revocation, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var s storedRevocations
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, fmt.Errorf("decode revocations: %w", err)
	}
	if s.Format != revocationsFormat || len(s.Revocations) > MaxRevocations {
		return nil, fmt.Errorf("decode revocations: format %d with %d of them", s.Format, len(s.Revocations))
	}
	// One that the search does not find could not be lifted.
	slices.SortStableFunc(s.Revocations, func(a, b Revocation) int { return strings.Compare(a.Subject, b.Subject) })
	return slices.CompactFunc(s.Revocations, func(a, b Revocation) bool { return a.Subject == b.Subject }), nil
}

// EncodeRevocations writes the document. The error wraps ErrTooManyRevocations.
func EncodeRevocations(list []Revocation) ([]byte, error) {
	if len(list) > MaxRevocations {
		return nil, ErrTooManyRevocations
	}
	b, err := json.Marshal(storedRevocations{Format: revocationsFormat, Revocations: list})
	if err != nil {
		return nil, fmt.Errorf("encode revocations: %w", err)
	}
	return b, nil
}

// WithRevocation is list with a subject revoked; one that is revoked already stays as it
// is. The error wraps ErrBadSubject.
func WithRevocation(list []Revocation, r Revocation) ([]Revocation, error) {
	if r.Subject == "" || len(r.Subject) > MaxRevokedLength || strings.ToValidUTF8(r.Subject, "") != r.Subject {
		return nil, ErrBadSubject
	}
	i, found := findRevocation(list, r.Subject)
	if found {
		return list, nil
	}
	return slices.Insert(slices.Clone(list), i, r), nil
}

// WithoutRevocation is list without a subject.
func WithoutRevocation(list []Revocation, subject string) []Revocation {
	i, found := findRevocation(list, subject)
	if !found {
		return list
	}
	return slices.Delete(slices.Clone(list), i, i+1)
}

func findRevocation(list []Revocation, subject string) (int, bool) {
	return slices.BinarySearchFunc(list, subject, func(r Revocation, subject string) int { return strings.Compare(r.Subject, subject) })
}

// Revocations are those in force on a node. The zero value revokes nobody. It is safe for
// concurrent use.
type Revocations struct {
	present atomic.Pointer[revoked]
}

// revoked is one version of the document.
type revoked struct {
	version  uint64
	subjects map[string]struct{}
	// all: the document cannot be read, so that nobody is known to be welcome.
	all bool
}

// Update puts a version of the document into force, unless that or a later one is, and
// reports whether it did. One that cannot be read revokes everybody, and is the error.
func (r *Revocations) Update(value []byte, version uint64) (changed bool, err error) {
	next := &revoked{version: version, subjects: map[string]struct{}{}}
	for {
		old := r.present.Load()
		if version == 0 || old != nil && version <= old.version {
			return false, nil
		}
		list, err := DecodeRevocations(value)
		for i := range list {
			next.subjects[list[i].Subject] = struct{}{}
		}
		next.all = err != nil
		if r.present.CompareAndSwap(old, next) {
			return true, err
		}
	}
}

// Revoked reports whether the tokens of p are refused. Operators are not subjects.
func (r *Revocations) Revoked(p Principal) bool {
	now := r.present.Load()
	if now == nil || p.Admin {
		return false
	}
	_, found := now.subjects[p.ID]
	return found || now.all
}
