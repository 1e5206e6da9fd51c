package fsm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
)

// tokensAscendAcrossRestarts holds that a token is given once in the life of the data,
// whether the machine is opened again or made from a snapshot.
func tokensAscendAcrossRestarts(t *testing.T) error {
	r, last := newRig(t, 1), uint64(0)
	for round := range uint64(6) {
		index, _ := r.machine.Applied()
		res := r.apply(entry(index+1, ts(int64(round), 0), request(round, round, 0)))[0][0]
		outcome, err := command.DecodeOutcome(res.Value)
		r.must(err)
		if outcome.Token <= last {
			return fmt.Errorf("token %d after %d", outcome.Token, last)
		}
		last = outcome.Token
		r.apply(entry(index+2, ts(int64(round), 1), byToken(command.KindUnlock, last)))
		r.flush()
		if round%2 == 0 {
			r = r.crash()
		} else {
			r = restored(t, 1, r.snapshot())
		}
	}
	return nil
}

// repeatsCountOnce holds that an addition, and a release, say again what they said first.
func repeatsCountOnce(t *testing.T) error {
	r := newRig(t, 1)
	for range 3 {
		index, _ := r.machine.Applied()
		res := r.apply(entry(index+1, ts(1, 0), add("c", 5, "id"), request(1, 1, 0), byToken(command.KindUnlock, 1)))[0]
		if total, err := command.DecodeTotal(res[0].Value); err != nil || total != 5 {
			return fmt.Errorf("total %v: %w", total, err)
		}
		if res[2].Code != 0 {
			return fmt.Errorf("release of a released lock: %+v", res[2])
		}
		if l := r.machine.Lock(goldenLock); l != nil {
			return fmt.Errorf("a repeated request holds the lock: %+v", l)
		}
	}
	return nil
}

func TestTokensAscendAndRepeatsCountOnce(t *testing.T) {
	if err := errors.Join(tokensAscendAcrossRestarts(t), repeatsCountOnce(t)); err != nil {
		t.Error(err)
	}
}

func TestLocksDoNotMakeAnAdditionForgotten(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), add("c", 5, "id")))
	var cycles []command.Raw
	for i := range uint64(fsm.WindowSize) {
		cycles = append(cycles, request(1, i+1, 0), byToken(command.KindUnlock, i+1))
	}
	r.apply(entry(2, ts(2, 0), cycles...))
	r.flush()
	snapshot := r.snapshot()
	for name, again := range map[string]*rig{"restart": r.crash(), "snapshot": restored(t, 1, snapshot)} {
		res := again.apply(entry(3, ts(3, 0), add("c", 5, "id")))[0][0]
		if total, err := command.DecodeTotal(res.Value); err != nil || total != 5 || res.Changed {
			t.Errorf("%s: the repeat of an addition answers %v %+v %v, want 5 unchanged", name, total, res, err)
		}
	}
}

func TestARequestThatWaitsForLongIsQueuedOnce(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), requestOnce(1, 1), requestOnce(2, 2)))
	others := make([]command.Raw, fsm.WindowSize+1)
	for i := range others {
		others[i] = command.EncodeLockRequest(command.KindCancel, waiting(3, uint64(i), 0))
	}
	r.apply(entry(2, ts(2, 0), others...))
	res := r.apply(entry(3, ts(3, 0), requestOnce(2, 2)))[0][0]
	if outcome, err := command.DecodeOutcome(res.Value); err != nil || outcome.State != lock.Waiting {
		t.Errorf("repeat: %+v %v", outcome, err)
	}
	if l := r.machine.Lock(goldenLock); len(l.Waiters) != 1 {
		t.Errorf("%d places for one request", len(l.Waiters))
	}
}
