package membership

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/fsm/system"
)

// Config has the settings of an Agent. Start from DefaultConfig.
type Config struct {
	// NodeID and Incarnation say who this node is: see LoadIdentity. Required.
	NodeID, Incarnation string
	// ClientURL is what clients dial to reach this node.
	ClientURL string
	// Seeds are host:port texts of nodes to form a cluster with or to join. The
	// node itself may be among them. Empty: a node without a cluster founds one at
	// once.
	Seeds []string
	// Groups is the number of data groups and ReplicationFactor the number of
	// replicas of each, if this node founds the cluster. Later they are read from
	// the cluster.
	Groups            uint32
	ReplicationFactor int
	// Timing holds the waits and intervals.
	Timing Timing
}

// Timing says how long an Agent waits for what. All fields are positive.
type Timing struct {
	// HelloInterval is the pause between rounds of asking the seeds, while the node
	// belongs to no cluster.
	HelloInterval time.Duration
	// ProposeAfter is how long a voter leaves the founding to the one with the
	// lowest id before it tries itself, up to twice as long at random.
	ProposeAfter time.Duration
	// PingInterval is the time between two exchanges with every other member;
	// StepInterval between two looks at what the node has to change as a leader.
	PingInterval, StepInterval time.Duration
	// CallTimeout bounds one exchange, ChangeTimeout one committed change.
	CallTimeout, ChangeTimeout time.Duration
	// SuspectAfter and FailedAfter are the lengths of silence after which a member
	// is called suspect and failed.
	SuspectAfter, FailedAfter time.Duration
	// ReplaceDeadAfter is the length of silence after which the replicas of a failed
	// member move to other nodes, if there are enough.
	ReplaceDeadAfter time.Duration
	// BalanceInterval is the time between two looks at leaderships to hand over,
	// SettleTime how long leaderships stay where they are after the start of this
	// node, and a leadership with a new leader.
	BalanceInterval, SettleTime time.Duration
	// DuplicatePatience is how long a node whose id is in use keeps trying, because
	// its own previous process may still be stopping.
	DuplicatePatience time.Duration
	// RefusalPatience is how long a node keeps trying that meets nothing but
	// refusals, because the seeds may still be changing.
	RefusalPatience time.Duration
}

// DefaultTiming returns the waits of production.
func DefaultTiming() Timing {
	return Timing{
		HelloInterval:     250 * time.Millisecond,
		ProposeAfter:      2 * time.Second,
		PingInterval:      time.Second,
		StepInterval:      250 * time.Millisecond,
		CallTimeout:       time.Second,
		ChangeTimeout:     5 * time.Second,
		SuspectAfter:      3 * time.Second,
		FailedAfter:       8 * time.Second,
		ReplaceDeadAfter:  10 * time.Minute,
		BalanceInterval:   5 * time.Second,
		SettleTime:        10 * time.Second,
		DuplicatePatience: 15 * time.Second,
		RefusalPatience:   15 * time.Second,
	}
}

// DefaultConfig returns the settings of production, without the node's identity,
// ClientURL and Seeds.
func DefaultConfig() Config {
	return Config{Groups: 6, ReplicationFactor: 3, Timing: DefaultTiming()}
}

// Place chooses the voters and the preferred leader of every data group, in order
// of the groups. members are those that may hold replicas. The choice should
// change previous as little as possible.
type Place func(members []system.Member, groups uint32, rf int, previous *system.Table) []system.Placement

const maxGroups = 271

// Validate reports every setting that cannot work, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	t := c.Timing
	check(c.NodeID != "" && c.Incarnation != "", "NodeID or Incarnation is empty")
	check(c.Groups > 0 && c.Groups <= maxGroups, "Groups %d is not between 1 and %d", c.Groups, maxGroups)
	check(c.ReplicationFactor > 0, "ReplicationFactor %d is not positive", c.ReplicationFactor)
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"HelloInterval", t.HelloInterval}, {"ProposeAfter", t.ProposeAfter}, {"PingInterval", t.PingInterval},
		{"StepInterval", t.StepInterval}, {"CallTimeout", t.CallTimeout}, {"ChangeTimeout", t.ChangeTimeout},
		{"ReplaceDeadAfter", t.ReplaceDeadAfter}, {"BalanceInterval", t.BalanceInterval}, {"SettleTime", t.SettleTime},
		{"DuplicatePatience", t.DuplicatePatience}, {"RefusalPatience", t.RefusalPatience},
	} {
		check(f.value > 0, "%s is not positive", f.name)
	}
	check(t.SuspectAfter > t.PingInterval, "SuspectAfter %s is not above PingInterval", t.SuspectAfter)
	check(t.FailedAfter > t.SuspectAfter, "FailedAfter %s is not above SuspectAfter", t.FailedAfter)
	return errors.Join(errs...)
}
