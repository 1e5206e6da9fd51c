package locks

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
)

// retryAfter is when the end of a lease is proposed again that did not show.
const retryAfter = time.Second

// keeper watches the leases and gateways of the groups that this node leads.
type keeper struct {
	service *Service
	// running is the time that the process has run: a stop of it does not count. Only
	// for the goroutine of run, like groups.
	running time.Duration
	groups  map[uint32]*tenure

	// mu protects noted, what has changed since the last tick.
	mu    sync.Mutex
	noted map[noted]struct{}
}

type noted struct {
	group   uint32
	section storage.Section
	name    string
}

// tenure is the time in which this node leads a group without interruption that it knows
// of: the deadlines are measured by its clock.
type tenure struct {
	leases   map[string]lease
	gateways map[string]silence
}

// lease is the deadline of a token's lease.
type lease struct {
	token, number uint64
	due           time.Duration
}

// silence is the deadline of a gateway that was last heard of at beat.
type silence struct {
	beat uint64
	due  time.Duration
}

func (k *keeper) run(ctx context.Context) {
	watch := k.service.deps.Board.WatchAll(k.note)
	defer watch.Close()
	ticker := time.NewTicker(k.service.cfg.Tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := time.Now() // monotonic
		k.running += min(now.Sub(last), k.service.cfg.Stall)
		last = now
		k.tick()
	}
}

// note takes a notice.
func (k *keeper) note(group uint32, section storage.Section, name string) {
	if section == storage.SectionCounters {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.noted[noted{group, section, name}] = struct{}{}
}

// tick brings the deadlines up to date and has what is due ended.
func (k *keeper) tick() {
	k.mu.Lock()
	changes := k.noted
	k.noted = map[noted]struct{}{}
	k.mu.Unlock()
	for group := uint32(1); group <= k.service.deps.Groups(); group++ {
		if _, held := k.service.deps.Replica(group); !held || !everyNodeExpires && !k.service.deps.Leads(group) {
			delete(k.groups, group)
			continue
		}
		if k.groups[group] == nil {
			// Every deadline begins anew: what another leader has measured is not known.
			k.groups[group] = &tenure{leases: map[string]lease{}, gateways: map[string]silence{}}
			changes[noted{group: group}] = struct{}{}
		}
	}
	for c := range changes {
		if t := k.groups[c.group]; t != nil {
			k.look(t, c)
		}
	}
	for group, t := range k.groups {
		k.end(group, t)
	}
}

// look reads what has become of something that changed.
func (k *keeper) look(t *tenure, c noted) {
	replica, held := k.service.deps.Replica(c.group)
	if !held {
		return
	}
	switch c.section {
	case storage.SectionLocks:
		k.lookAtLock(t, c.name, replica.Lock(c.name))
	case storage.SectionGateways:
		k.lookAtGateways(t, replica.Gateways())
	default:
		for _, name := range replica.Locks() {
			k.lookAtLock(t, name, replica.Lock(name))
		}
		k.lookAtGateways(t, replica.Gateways())
	}
}

func (k *keeper) lookAtLock(t *tenure, name string, l *lock.Lock) {
	if l == nil || l.Holder.TTLMillis <= 0 {
		delete(t.leases, name)
		return
	}
	if known, ok := t.leases[name]; ok && known.token == l.Token && known.number == l.Lease {
		return
	}
	t.leases[name] = lease{token: l.Token, number: l.Lease, due: k.after(l.Holder.TTLMillis)}
}

// after is the deadline in so many milliseconds; a tick is added, because the notice may
// be as old as the last one is new.
func (k *keeper) after(millis int64) time.Duration {
	const most = math.MaxInt64 / 4
	return k.running + k.service.cfg.Tick + time.Duration(min(millis, most/int64(time.Millisecond)))*time.Millisecond
}

func (k *keeper) lookAtGateways(t *tenure, beats map[string]uint64) {
	for name := range t.gateways {
		if _, there := beats[name]; !there {
			delete(t.gateways, name)
		}
	}
	for name, beat := range beats {
		if known, ok := t.gateways[name]; !ok || known.beat != beat {
			t.gateways[name] = silence{beat: beat, due: k.after(k.service.cfg.SilenceLimit.Milliseconds())}
		}
	}
}

// end has what is due ended, and asks again later if it does not show.
func (k *keeper) end(group uint32, t *tenure) {
	for name, l := range t.leases {
		if l.due > k.running {
			continue
		}
		m := command.LockToken{Name: name, Token: l.token, Lease: l.number}
		k.propose(group, command.EncodeLockToken(command.KindExpire, m))
		l.due = k.running + retryAfter
		t.leases[name] = l
	}
	for name, s := range t.gateways {
		if s.due > k.running {
			continue
		}
		m := command.LockSession{Session: lock.Session{Gateway: name}, Beat: s.beat}
		k.propose(group, command.EncodeLockSession(command.KindEndGateway, m))
		s.due = k.running + retryAfter
		t.gateways[name] = s
	}
}

// propose proposes the end of something, which the state machine checks once more.
func (k *keeper) propose(group uint32, cmd command.Raw) {
	k.service.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, retryAfter)
		defer cancel()
		if _, err := k.service.deps.Submit(ctx, group, cmd); err != nil {
			k.service.deps.Logger.Debug("end of a lease was not confirmed", "group", group, "command", cmd.Kind.String(), "err", err)
		}
	})
}
