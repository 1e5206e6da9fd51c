// Package policy decides who may do what to which data. A Set is compiled from the
// document of policies that the cluster replicates and never changes; a Guard holds the
// present one; an Access is one caller asking. Decisions are pure functions of the Set, the
// caller, the resource and the two values that an operation is about: the stored and the
// incoming one.
//
// Without any policy ever created everything is allowed. From the first one on, what no
// policy allows is denied, also when all policies are deleted again. A policy that denies
// wins over those that allow.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Action is what somebody wants to do.
type Action uint8

// The actions. Locks are written by whoever asks for or releases them, topics by whoever
// publishes, counters by whoever changes them.
const (
	Read Action = iota + 1
	Write
	Remove
)

var actionNames = map[string][]Action{
	"read": {Read}, "write": {Write}, "remove": {Remove}, "all": {Read, Write, Remove},
}

// String is the action's name in policies.
func (a Action) String() string {
	for name, list := range actionNames {
		if len(list) == 1 && list[0] == a {
			return name
		}
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Kind is what a resource is.
type Kind uint8

// The kinds of resources.
const (
	Map Kind = iota
	Lock
	Topic
	Counter
	Journal
)

// kindNames are the prefixes of patterns for the kinds; a pattern without one is for maps.
var kindNames = [...]string{Map: "map", Lock: "lock", Topic: "topic", Counter: "counter", Journal: "journal"}

// String is the kind's name.
func (k Kind) String() string { return kindNames[k] }

// Resource is what an action is about. The journal's resources are maps.
type Resource struct {
	Kind Kind
	Name string
}

// String names the resource for people.
func (r Resource) String() string { return fmt.Sprintf("%s %q", r.Kind, r.Name) }

// Bounds of policies.
const (
	maxPolicies   = 1000
	maxPattern    = 512
	maxNames      = 256
	maxRegexp     = 1024
	maxNodes      = 256
	maxDepth      = 32
	maxExpression = 4096
	// maxWork and maxProgram bound what all patterns of all policies take to compile, in
	// microseconds, about, and their instructions.
	maxWork    = 1 << 17
	maxProgram = 1 << 17
)

// Policy is one rule, as operators write it.
type Policy struct {
	ID string `json:"id"`
	// MapPattern selects resources: segments separated by dots, of which "*" stands for
	// one and "**" for any number; "*" or "**" alone for everything. A prefix "lock:",
	// "topic:", "counter:" or "journal:" selects those instead of maps.
	MapPattern string `json:"mapPattern"`
	// Action is read, write, remove or all; Effect is allow or deny.
	Action string `json:"action"`
	Effect string `json:"effect"`
	// Roles and Subjects restrict the policy to callers with one of the roles, and to
	// those subjects. Nil means everybody; a list that is empty is not valid.
	Roles    []string `json:"roles,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
	// Condition is a tree of comparisons that must hold. Nil means none.
	Condition *Node `json:"condition,omitempty"`
}

// FieldError says what is wrong with one field of a policy.
type FieldError struct {
	Field, Reason string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

var validID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// Validate reports the first problem of p, as *FieldError.
func (p *Policy) Validate() error {
	_, err := compile(p, newBudget())
	return err
}

// document is the stored form of all policies.
type document struct {
	Format   int      `json:"format"`
	Policies []Policy `json:"policies"`
}

const documentFormat = 1

// ErrFormat says that the document of policies was written by a newer server, or is damaged.
var ErrFormat = errors.New("policies cannot be read")

// Decode reads the document of policies; of none, it returns none.
func Decode(value []byte) ([]Policy, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var d document
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	decoder.DisallowUnknownFields() // a rule must not be taken for one without what is not understood
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if d.Format != documentFormat {
		return nil, fmt.Errorf("%w: format %d", ErrFormat, d.Format)
	}
	return d.Policies, nil
}

// Encode writes the document of policies.
func Encode(list []Policy) ([]byte, error) {
	if list == nil {
		list = []Policy{}
	}
	b, err := json.Marshal(document{Format: documentFormat, Policies: list})
	if err != nil {
		return nil, fmt.Errorf("encode policies: %w", err)
	}
	return b, nil
}

// With returns list with p in place of the policy of its id, or behind the others.
func With(list []Policy, p Policy) []Policy {
	list = slices.Clone(list)
	if i := slices.IndexFunc(list, func(q Policy) bool { return q.ID == p.ID }); i >= 0 {
		list[i] = p
		return list
	}
	return append(list, p)
}

// Without returns list without the policy of an id.
func Without(list []Policy, id string) []Policy {
	return slices.DeleteFunc(slices.Clone(list), func(p Policy) bool { return p.ID == id })
}
