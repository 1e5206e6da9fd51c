package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

type policiesBody struct {
	Policies []policy.Policy `json:"policies"`
	// Configured: a policy was created once, and what none allows is denied.
	Configured bool   `json:"configured"`
	Version    uint64 `json:"version"`
}

// policyRequest is a policy whose id may be left to the server, and whose condition may be
// a text.
type policyRequest struct {
	policy.Policy
	ConditionExpr string `json:"conditionExpr,omitempty"`
}

func (h *Handler) listPolicies(w http.ResponseWriter, r *http.Request) {
	b, ok := h.backend(w)
	if !ok {
		return
	}
	value, version := b.Document(policy.DocumentName)
	list, err := policy.Decode(value)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	if list == nil {
		list = []policy.Policy{}
	}
	writeJSON(w, http.StatusOK, policiesBody{Policies: list, Configured: version > 0, Version: version})
}

// complete gives a request its id and its condition.
func (p *policyRequest) complete() error {
	if p.ID == "" {
		p.ID = rand.Text()
	}
	if p.Condition == nil && p.ConditionExpr != "" {
		condition, err := policy.ParseExpression(p.ConditionExpr)
		if err != nil {
			return err
		}
		p.Condition = condition
	}
	return p.Validate()
}

func (h *Handler) putPolicy(w http.ResponseWriter, r *http.Request) {
	var request policyRequest
	if !readJSON(w, r, &request) {
		return
	}
	if err := request.complete(); err != nil {
		h.failed(w, r, err)
		return
	}
	err := h.amendPolicies(w, r, func(list []policy.Policy) ([]policy.Policy, error) {
		next := policy.With(list, request.Policy)
		_, err := compilePolicies(next)
		return next, err
	})
	if err != nil {
		return
	}
	h.audit.Warn("policy written", "policy", request.ID, "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
	writeJSON(w, http.StatusCreated, request.Policy)
}

func (h *Handler) deletePolicy(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	// What is left is not compiled: policies that cannot be are deleted one by one.
	err := h.amendPolicies(w, r, func(list []policy.Policy) ([]policy.Policy, error) { return policy.Without(list, id), nil })
	if err != nil {
		return
	}
	h.audit.Warn("policy deleted", "policy", shown(id), "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
	w.WriteHeader(http.StatusNoContent)
}

// amendPolicies replaces the policies by what change makes of them, and answers the request
// if that fails. Nothing is written for no change: a deletion must not be the first policy.
func (h *Handler) amendPolicies(w http.ResponseWriter, r *http.Request, change func([]policy.Policy) ([]policy.Policy, error)) error {
	b, ok := h.backend(w)
	if !ok {
		return errNoBackend
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.ChangeTimeout)
	defer cancel()
	err := amend(ctx, b, policy.DocumentName, func(value []byte) ([]byte, error) {
		list, err := policy.Decode(value)
		if err != nil {
			return nil, err
		}
		next, err := change(list)
		if err != nil || len(next) == 0 && len(value) == 0 {
			return nil, err
		}
		return policy.Encode(next)
	})
	if err != nil {
		h.failed(w, r, err)
		return err
	}
	h.deps.Guard.Update(b.Document(policy.DocumentName))
	return nil
}

// evaluateRequest asks what policies would decide.
type evaluateRequest struct {
	// Policies are tried in place of those in force; nil tries these.
	Policies *[]policyRequest `json:"policies,omitempty"`
	Subject  string           `json:"subject"`
	Roles    []string         `json:"roles"`
	// Action is read, write or remove; Kind map, lock, topic, counter or journal, a map if
	// empty; Name that of the resource.
	Action string `json:"action"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Key    string `json:"key"`
	// Stored and Incoming are the values; absent ones are none.
	Stored   any `json:"stored"`
	Incoming any `json:"incoming"`
}

type evaluateBody struct {
	Allowed bool `json:"allowed"`
	// PolicyID is the policy that decided; empty if none did.
	PolicyID string `json:"policyId,omitempty"`
}

func (h *Handler) evaluate(w http.ResponseWriter, r *http.Request) {
	var request evaluateRequest
	if !readJSON(w, r, &request) {
		return
	}
	action, kind, err := request.what()
	set := h.deps.Guard.Set()
	if err == nil && request.Policies != nil {
		set, err = compileAll(*request.Policies)
	}
	row := policy.Row{Key: request.Key}
	if err == nil {
		row.Stored, err = encodeValue("stored", request.Stored)
	}
	if err == nil {
		row.Incoming, err = encodeValue("incoming", request.Incoming)
	}
	if err != nil {
		h.failed(w, r, err)
		return
	}
	if action == policy.Read {
		row.Incoming = row.Stored
	}
	allowed, id := set.Explain(policy.Caller{ID: request.Subject, Roles: request.Roles}, action, policy.Resource{Kind: kind, Name: request.Name}, row)
	writeJSON(w, http.StatusOK, evaluateBody{Allowed: allowed, PolicyID: id})
}

// what reads the action and the kind of resource.
func (e *evaluateRequest) what() (policy.Action, policy.Kind, error) {
	if e.Kind == "" {
		e.Kind = policy.Map.String()
	}
	for _, action := range []policy.Action{policy.Read, policy.Write, policy.Remove} {
		for kind := policy.Map; kind <= policy.Journal; kind++ {
			if action.String() == e.Action && kind.String() == e.Kind {
				return action, kind, nil
			}
		}
	}
	return 0, 0, &policy.FieldError{Field: "action", Reason: "action or kind is unknown"}
}

func compileAll(list []policyRequest) (*policy.Set, error) {
	plain := make([]policy.Policy, len(list))
	for i := range list {
		if err := list[i].complete(); err != nil {
			return nil, err
		}
		plain[i] = list[i].Policy
	}
	return compilePolicies(plain)
}

// compilePolicies is policy.Compile of what an operator asks for.
func compilePolicies(list []policy.Policy) (*policy.Set, error) {
	set, err := policy.Compile(list, true)
	if err != nil {
		return nil, &policy.FieldError{Field: "policies", Reason: err.Error()}
	}
	return set, nil
}

// encodeValue is a JSON value as records hold it.
func encodeValue(field string, v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	b, err := msgp.AppendIntf(nil, plainNumbers(v))
	if err != nil {
		return nil, &policy.FieldError{Field: field, Reason: "cannot be a value"}
	}
	return b, nil
}

// plainNumbers gives the numbers of a decoded JSON value the types of records.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // the decoder has seen that it is a number
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}

// reserved reports whether a map is the server's own.
func reserved(name string) bool { return judge.Reserved(name) }
