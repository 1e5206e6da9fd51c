package protocol

import "github.com/tinylib/msgp/msgp"

// Resolver decides merges of a map, by a built-in name or by code.
type Resolver struct {
	Name string `wire:"name"`
	// Code is JavaScript source; empty for a built-in.
	Code string `wire:"code,optional"`
	// Priority is 0 to 100; absent is 50, and greater runs first.
	Priority *int64 `wire:"priority,optional"`
	// KeyPattern is a glob; empty is every key.
	KeyPattern string `wire:"keyPattern,optional"`
}

// RegisterResolver is REGISTER_RESOLVER.
type RegisterResolver struct {
	RequestID string   `wire:"requestId"`
	MapName   string   `wire:"mapName"`
	Resolver  Resolver `wire:"resolver"`
}

// Kind implements Message.
func (*RegisterResolver) Kind() Kind { return KindRegisterResolver }

// Correlation is the request id.
func (m *RegisterResolver) Correlation() string { return m.RequestID }

// RegisterResolverResponse is REGISTER_RESOLVER_RESPONSE.
type RegisterResolverResponse struct {
	RequestID string `wire:"requestId"`
	Success   bool   `wire:"success"`
	Error     string `wire:"error,optional"`
}

// Kind implements Message.
func (*RegisterResolverResponse) Kind() Kind { return KindRegisterResolverResponse }

// UnregisterResolver is UNREGISTER_RESOLVER.
type UnregisterResolver struct {
	RequestID    string `wire:"requestId"`
	MapName      string `wire:"mapName"`
	ResolverName string `wire:"resolverName"`
}

// Kind implements Message.
func (*UnregisterResolver) Kind() Kind { return KindUnregisterResolver }

// Correlation is the request id.
func (m *UnregisterResolver) Correlation() string { return m.RequestID }

// UnregisterResolverResponse is UNREGISTER_RESOLVER_RESPONSE.
type UnregisterResolverResponse struct {
	RequestID string `wire:"requestId"`
	Success   bool   `wire:"success"`
	Error     string `wire:"error,optional"`
}

// Kind implements Message.
func (*UnregisterResolverResponse) Kind() Kind { return KindUnregisterResolverResponse }

// ListResolvers is LIST_RESOLVERS.
type ListResolvers struct {
	RequestID string `wire:"requestId"`
	// MapName is empty for all maps.
	MapName string `wire:"mapName,optional"`
}

// Kind implements Message.
func (*ListResolvers) Kind() Kind { return KindListResolvers }

// Correlation is the request id.
func (m *ListResolvers) Correlation() string { return m.RequestID }

// ResolverInfo is one registered resolver.
type ResolverInfo struct {
	MapName    string `wire:"mapName"`
	Name       string `wire:"name"`
	Priority   *int64 `wire:"priority,optional"`
	KeyPattern string `wire:"keyPattern,optional"`
}

// ListResolversResponse is LIST_RESOLVERS_RESPONSE.
type ListResolversResponse struct {
	RequestID string         `wire:"requestId"`
	Resolvers []ResolverInfo `wire:"resolvers"`
}

// Kind implements Message.
func (*ListResolversResponse) Kind() Kind { return KindListResolversResponse }

// MergeRejected is MERGE_REJECTED: a resolver refused a write. It is a notice
// beside the verdict, for the writer.
type MergeRejected struct {
	MapName        string    `wire:"mapName"`
	Key            string    `wire:"key"`
	AttemptedValue msgp.Raw  `wire:"attemptedValue"`
	Reason         string    `wire:"reason"`
	Timestamp      Timestamp `wire:"timestamp"`
}

// Kind implements Message.
func (*MergeRejected) Kind() Kind { return KindMergeRejected }
