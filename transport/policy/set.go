package policy

import (
	"fmt"
	"slices"
)

// Caller is who asks. The zero value is a client without a token.
type Caller struct {
	// ID is the token's subject, empty for none, and Roles its roles.
	ID    string
	Roles []string
	// Admin marks a bearer of the operators' own tokens, who could give himself any
	// permission and has them all.
	Admin bool
}

// Row is the record that an action is about.
type Row struct {
	Key string
	// Stored is the encoded value that is there, Incoming the one that takes its place;
	// nil is none. Who reads a row is shown Stored, which conditions see as Incoming too.
	Stored, Incoming []byte
	// StoredUnknown: what is stored cannot be told.
	StoredUnknown bool
}

// Decision is what policies say to an action.
type Decision uint8

// The decisions.
const (
	Denied Decision = iota
	// Depends: some rows of the resource may be allowed and others not.
	Depends
	Allowed
)

// Set is all policies, compiled. It is immutable and safe for concurrent use.
type Set struct {
	// configured: a policy was created once, so that what none allows is denied.
	configured bool
	rules      []rule
}

// rule is one policy, compiled.
type rule struct {
	id              string
	deny            bool
	pattern         pattern
	actions         []Action
	roles, subjects []string
	condition       *condition
}

// Compile returns the Set of a list of policies. configured says whether there ever was
// one. The error is that of the first policy that is not valid.
func Compile(list []Policy, configured bool) (*Set, error) {
	if len(list) > maxPolicies {
		return nil, fmt.Errorf("more than %d policies", maxPolicies)
	}
	s, b := &Set{configured: configured || len(list) > 0}, newBudget()
	for i := range list {
		r, err := compile(&list[i], b)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", list[i].ID, err)
		}
		s.rules = append(s.rules, r)
	}
	return s, nil
}

func compile(p *Policy, b *budget) (rule, error) {
	r := rule{id: p.ID, actions: actionNames[p.Action], roles: p.Roles, subjects: p.Subjects, deny: p.Effect == "deny"}
	var err error
	switch {
	case !validID.MatchString(p.ID):
		return r, wrong("id", "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
	case len(r.actions) == 0:
		return r, wrong("action", "must be read, write, remove or all")
	case p.Effect != "allow" && p.Effect != "deny":
		return r, wrong("effect", "must be allow or deny")
	case !validNames(p.Roles):
		return r, wrong("roles", "must be 1 to %d names, or be left out", maxNames)
	case !validNames(p.Subjects):
		return r, wrong("subjects", "must be 1 to %d names, or be left out", maxNames)
	}
	if r.pattern, err = parsePattern(p.MapPattern); err != nil {
		return r, err
	}
	if p.Condition != nil {
		r.condition, err = compileCondition(p.Condition, b)
	}
	return r, err
}

// validNames accepts no list, which is no restriction, and refuses an empty one: whoever names
// nobody does not mean everybody.
func validNames(list []string) bool {
	return list == nil || 0 < len(list) && len(list) <= maxNames && !slices.Contains(list, "")
}

// denyAll is in force while the policies cannot be read.
var denyAll = &Set{configured: true}

// Restricts reports whether s can deny anything at all.
func (s *Set) Restricts() bool { return s.configured }

// Judge decides an action on a row.
func (s *Set) Judge(who Caller, a Action, r Resource, row Row) Decision {
	allowed, _ := s.judge(who, a, r, &subject{caller: who, row: &row})
	if allowed {
		return Allowed
	}
	return Denied
}

// Explain is Judge that names the policy which decided, empty if none did.
func (s *Set) Explain(who Caller, a Action, r Resource, row Row) (allowed bool, policyID string) {
	return s.judge(who, a, r, &subject{caller: who, row: &row})
}

func (s *Set) judge(who Caller, a Action, r Resource, sub *subject) (allowed bool, policyID string) {
	if !s.configured || who.Admin {
		return true, ""
	}
	for i := range s.rules {
		rule := &s.rules[i]
		if allowed && !rule.deny || !rule.concerns(who, a, r) {
			continue
		}
		holds := rule.condition.holds(sub)
		switch {
		case rule.deny && holds != no: // what cannot be told is denied
			return false, rule.id
		case !rule.deny && holds == yes:
			allowed, policyID = true, rule.id
		}
	}
	return allowed, policyID
}

// Scope decides an action on a resource before any row of it is known.
func (s *Set) Scope(who Caller, a Action, r Resource) Decision {
	return s.scope(who, a, r, &subject{caller: who})
}

// ScopeOf is Scope for one row of which nothing but the key is known.
func (s *Set) ScopeOf(who Caller, a Action, r Resource, key string) Decision {
	return s.scope(who, a, r, &subject{caller: who, key: &key})
}

func (s *Set) scope(who Caller, a Action, r Resource, sub *subject) Decision {
	if !s.configured || who.Admin {
		return Allowed
	}
	decision := Denied
	depends := false
	for i := range s.rules {
		rule := &s.rules[i]
		if !rule.concerns(who, a, r) {
			continue
		}
		holds := rule.condition.holds(sub)
		switch {
		case rule.deny && holds == yes:
			return Denied
		case rule.deny && holds == maybe:
			depends = true
		case !rule.deny && holds == yes:
			decision = Allowed
		case !rule.deny && holds == maybe:
			decision = max(decision, Depends)
		}
	}
	if depends {
		return min(decision, Depends)
	}
	return decision
}

// SeesStored reports whether a condition that concerns the action looks at what is
// stored, so that it must be read before the action is judged.
func (s *Set) SeesStored(who Caller, a Action, r Resource) bool {
	if !s.configured || who.Admin {
		return false
	}
	return slices.ContainsFunc(s.rules, func(rule rule) bool {
		return rule.condition != nil && rule.condition.stored && rule.concerns(who, a, r)
	})
}

func (r *rule) concerns(who Caller, a Action, res Resource) bool {
	return slices.Contains(r.actions, a) && r.pattern.matches(res) &&
		(len(r.roles) == 0 || slices.ContainsFunc(r.roles, func(role string) bool { return slices.Contains(who.Roles, role) })) &&
		(len(r.subjects) == 0 || who.ID != "" && slices.Contains(r.subjects, who.ID))
}
