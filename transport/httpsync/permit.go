package httpsync

import (
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// mayRead reports whether the client may read a map, and enters the error if not; context
// is the id of the query. Where only some rows may be read, they are judged one by one.
func (e *exchange) mayRead(mapName, context string) bool {
	resource := policy.Resource{Kind: policy.Map, Name: mapName}
	if e.access.Scope(policy.Read, resource) != policy.Denied {
		return true
	}
	r := judge.Denied(policy.Read, resource)
	e.fail(r.Code, r.Reason, context)
	return false
}
