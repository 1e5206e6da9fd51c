package protocol

// LockRequest is LOCK_REQUEST.
type LockRequest struct {
	RequestID string `wire:"requestId"`
	Name      string `wire:"name"`
	// TTLMillis is the lease in milliseconds: absent for none, zero is refused.
	TTLMillis *int64 `wire:"ttl,optional"`
	// WaitMillis is how long the client waits for the answer; absent for 5 seconds more
	// than the lease, or 5 seconds. Zero asks whether the lock is free, however long that
	// takes to find out. It is an extension of this server.
	WaitMillis *int64 `wire:"waitMs,optional"`
	// FencingToken asks for the renewal of the lease of this token, with TTLMillis. It is
	// an extension of this server.
	FencingToken *uint64 `wire:"fencingToken,optional"`
}

// Kind implements Message.
func (*LockRequest) Kind() Kind { return KindLockRequest }

// Correlation is the request id.
func (m *LockRequest) Correlation() string { return m.RequestID }

// LockRelease is LOCK_RELEASE.
type LockRelease struct {
	RequestID    string `wire:"requestId,optional"`
	Name         string `wire:"name"`
	FencingToken uint64 `wire:"fencingToken"`
}

// Kind implements Message.
func (*LockRelease) Kind() Kind { return KindLockRelease }

// Correlation is the request id, or the lock's name if there is none.
func (m *LockRelease) Correlation() string {
	if m.RequestID == "" {
		return m.Name
	}
	return m.RequestID
}

// LockGranted is LOCK_GRANTED.
type LockGranted struct {
	RequestID string `wire:"requestId"`
	Name      string `wire:"name"`
	// FencingToken grows with every grant of the lock, for as long as its data live.
	FencingToken uint64 `wire:"fencingToken"`
}

// Kind implements Message.
func (*LockGranted) Kind() Kind { return KindLockGranted }

// LockReleased is LOCK_RELEASED: the outcome of a LockRelease, or the end of a
// wait. Clients take one with the id of their LockRequest for a grant, whatever
// Success says.
type LockReleased struct {
	// RequestID is empty if the release had none.
	RequestID string `wire:"requestId"`
	Name      string `wire:"name"`
	Success   bool   `wire:"success"`
	// Reason says why Success is false. It is an extension of this server.
	Reason string `wire:"reason,optional"`
}

// Kind implements Message.
func (*LockReleased) Kind() Kind { return KindLockReleased }
