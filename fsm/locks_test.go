package fsm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/fsm/command"
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
