package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/lock"
)

const lockVersion = 1

// QueuedOnceVersion is the version of KindLock since which a request that waits takes no
// second place in the queue, however long ago it came first.
const QueuedOnceVersion = 2

// requestVersion is the version of the requests of a kind.
func requestVersion(kind Kind) uint8 {
	if kind == KindLock {
		return QueuedOnceVersion
	}
	return lockVersion
}

// LockRequest is the body of KindLock, which asks for a lock, and of KindCancel, which
// gives up the wait for it. Their results hold a lock.Outcome in Value.
type LockRequest struct {
	Name    string
	Request lock.Request
}

// EncodeLockRequest encodes m as a command of its own memory.
func EncodeLockRequest(kind Kind, m LockRequest) Raw {
	return Raw{Kind: kind, Version: requestVersion(kind), Body: lock.AppendRequest(codec.AppendText(nil, m.Name), m.Request)}
}

// DecodeLockRequest decodes what EncodeLockRequest wrote, into memory of its own. Errors
// wrap ErrMalformed or ErrFormat.
func DecodeLockRequest(c Raw) (LockRequest, error) {
	if err := checkVersion(c, requestVersion(c.Kind)); err != nil {
		return LockRequest{}, err
	}
	r := codec.NewReader(c.Body)
	m := LockRequest{Name: r.Text(), Request: lock.ReadRequest(&r)}
	if err := r.End(); err != nil {
		return LockRequest{}, malformed("decode lock request", err)
	}
	return m, nil
}

// LockToken is the body of what a holder or the leader does by token: of KindUnlock, of
// KindExpire, which names the lease that ended, and of KindRenew, which begins one of
// TTLMillis.
type LockToken struct {
	Name         string
	Token, Lease uint64
	TTLMillis    int64
}

// EncodeLockToken encodes m as a command of its own memory.
func EncodeLockToken(kind Kind, m LockToken) Raw {
	b := binary.AppendUvarint(codec.AppendText(nil, m.Name), m.Token)
	b = binary.AppendVarint(binary.AppendUvarint(b, m.Lease), m.TTLMillis)
	return Raw{Kind: kind, Version: lockVersion, Body: b}
}

// DecodeLockToken decodes what EncodeLockToken wrote; see DecodeLockRequest.
func DecodeLockToken(c Raw) (LockToken, error) {
	if err := checkVersion(c, lockVersion); err != nil {
		return LockToken{}, err
	}
	r := codec.NewReader(c.Body)
	m := LockToken{Name: r.Text(), Token: r.Uvarint(), Lease: r.Uvarint(), TTLMillis: r.Varint()}
	if err := r.End(); err != nil {
		return LockToken{}, malformed("decode lock token", err)
	}
	return m, nil
}

// LockSession is the body of KindEndSession, which ends what a session has to do with
// locks, of KindBeat, with which a gateway says that it lives, and of KindEndGateway,
// which ends all sessions of one that was not heard of since Beat.
type LockSession struct {
	Session lock.Session
	Beat    uint64
}

// EncodeLockSession encodes m as a command of its own memory.
func EncodeLockSession(kind Kind, m LockSession) Raw {
	b := codec.AppendText(nil, m.Session.Gateway)
	b = binary.AppendUvarint(binary.AppendUvarint(b, m.Session.Number), m.Beat)
	return Raw{Kind: kind, Version: lockVersion, Body: b}
}

// DecodeLockSession decodes what EncodeLockSession wrote; see DecodeLockRequest.
func DecodeLockSession(c Raw) (LockSession, error) {
	if err := checkVersion(c, lockVersion); err != nil {
		return LockSession{}, err
	}
	r := codec.NewReader(c.Body)
	m := LockSession{Session: lock.Session{Gateway: r.Text(), Number: r.Uvarint()}, Beat: r.Uvarint()}
	if err := r.End(); err != nil {
		return LockSession{}, malformed("decode lock session", err)
	}
	return m, nil
}

// EncodeGreatestToken encodes the Value of the result of KindRead: no lock of the group was
// given a greater token before it.
func EncodeGreatestToken(token uint64) []byte { return binary.AppendUvarint(nil, token) }

// DecodeGreatestToken decodes it. Errors wrap ErrMalformed.
func DecodeGreatestToken(value []byte) (uint64, error) {
	r := codec.NewReader(value)
	token := r.Uvarint()
	if err := r.End(); err != nil {
		return 0, malformed("decode greatest token", err)
	}
	return token, nil
}

// DecodeOutcome decodes the Value of the result of KindLock or KindCancel. Errors wrap
// ErrMalformed.
func DecodeOutcome(value []byte) (lock.Outcome, error) {
	r := codec.NewReader(value)
	o := lock.ReadOutcome(&r)
	if err := r.End(); err != nil {
		return lock.Outcome{}, malformed("decode lock outcome", err)
	}
	return o, nil
}
