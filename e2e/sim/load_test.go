package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

const (
	// dataMaps and dataKeys are what the stamped writes go to.
	dataMaps, dataKeys = 2, 60
	// registerKeys are the keys of the map of registers.
	registerKeys = 5
	registerMap  = "registers"
)

var levels = []protocol.WriteConcern{
	protocol.LevelDefault, protocol.LevelMemory, protocol.LevelApplied, protocol.LevelReplicated, protocol.LevelPersisted,
}

// client writes through one node after the other, like an application that
// reconnects. For one goroutine.
type client struct {
	w      *world
	name   string
	number int
	rng    *rand.Rand
	life   *life
	sess   *partitions.Session
	next   int
	// unsettled is a batch without a full set of verdicts, which is sent again.
	unsettled []model.Write
	// tags are those that it added to the sets and may remove.
	tags []string
}

// startLoad starts clients until stop is closed.
func (w *world) startLoad(clients int) {
	for range clients {
		w.clients++
		c := &client{w: w, name: fmt.Sprintf("c%d", w.clients), number: w.clients, rng: rand.New(rand.NewPCG(w.seed, uint64(100+w.clients)))}
		w.busy.Go(c.run)
	}
}

func (c *client) run() {
	for {
		select {
		case <-c.w.stop:
			return
		case <-time.After(c.rest(1)):
		}
		if c.life == nil || c.life.dead.Load() || c.rng.IntN(20) == 0 {
			c.reconnect()
		}
		switch {
		case c.life == nil:
		case c.rng.IntN(5) == 0:
			c.writeRegister()
		case c.rng.IntN(4) == 0:
			c.writeSet()
		default:
			c.writeBatch()
		}
	}
}

func (c *client) reconnect() {
	c.life, c.sess = nil, nil
	if lives := c.w.running(); len(lives) > 0 {
		c.life = lives[c.rng.IntN(len(lives))]
		c.sess = c.life.node.Router().NewSession()
	}
}

// batch makes new operations, or takes the ones that have to be sent again.
func (c *client) batch() []model.Write {
	if len(c.unsettled) > 0 && c.rng.IntN(2) == 0 {
		return c.unsettled
	}
	level := levels[c.rng.IntN(len(levels))]
	var writes []model.Write
	for range 1 + c.rng.IntN(4) {
		c.next++
		write := model.Write{
			Client: c.name, ID: fmt.Sprint(c.next), Level: level,
			Map: fmt.Sprintf("m%d", c.rng.IntN(dataMaps)), Key: fmt.Sprintf("k%d", c.rng.IntN(dataKeys)),
			Value:     fmt.Sprintf("%s/%d", c.name, c.next),
			Timestamp: protocol.Timestamp{Millis: time.Now().UnixMilli(), Counter: int64(c.next), NodeID: c.name},
		}
		if c.rng.IntN(8) == 0 {
			write.Value = ""
		}
		writes = append(writes, write)
	}
	return writes
}

func (c *client) writeBatch() {
	writes := c.batch()
	ops := make([]partitions.Op, len(writes))
	for i, write := range writes {
		c.w.history.Sent(write)
		ops[i] = partitions.Op{
			Map: write.Map, Key: write.Key, Level: write.Level, Dedup: write.Client + "/" + write.ID,
			Record: protocol.Record{Timestamp: write.Timestamp},
		}
		if write.Value != "" {
			ops[i].Record.Value = encode(write.Value)
		}
	}
	verdicts, err := c.send(ops)
	c.unsettled = nil
	for i, write := range writes {
		c.w.history.Resolved(write.Client, write.ID, outcome(verdicts, i, err))
	}
	if err != nil {
		c.unsettled = writes
	}
}

// outcome is what the client knows of operation i.
func outcome(verdicts []partitions.Verdict, i int, err error) model.Outcome {
	switch {
	case errors.Is(err, partitions.ErrUnavailable):
		return model.Outcome{Kind: model.NotApplied}
	case err != nil:
		return model.Outcome{Kind: model.Unknown}
	case verdicts[i].Refused():
		return model.Outcome{Kind: model.Refused}
	default:
		return model.Outcome{Kind: model.Accepted, Level: verdicts[i].Level}
	}
}

// errNeverHeard is the outcome for a client whose node lost power.
var errNeverHeard = errors.New("connection lost")

// send writes through the client's node. A node that is cut off from all others must
// not acknowledge what needs them.
func (c *client) send(ops []partitions.Op) ([]partitions.Verdict, error) {
	m := c.life.machine
	before := m.cut.Load()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	verdicts, err := c.life.node.Router().Write(ctx, c.sess, ops)
	if c.life.dead.Load() {
		return nil, errNeverHeard
	}
	if before%2 == 1 && m.cut.Load() == before {
		for _, v := range verdicts {
			if v.Level >= protocol.LevelApplied {
				c.w.problem("%s is cut off and acknowledged at %s", m.name, v.Level)
			}
		}
	}
	return verdicts, err
}

// writeRegister writes without a timestamp, up to three times until the outcome is
// known: the cluster must count it once.
func (c *client) writeRegister() {
	c.next++
	key, value := fmt.Sprintf("r%d", c.rng.IntN(registerKeys)), fmt.Sprintf("%s/%d", c.name, c.next)
	op := partitions.Op{
		Map: registerMap, Key: key, Level: protocol.LevelApplied, Dedup: c.name + "/" + value,
		Record: protocol.Record{Value: encode(value)},
	}
	called := c.w.registers.Now()
	unknown := false
	for range 3 {
		if c.life == nil {
			break
		}
		verdicts, err := c.send([]partitions.Op{op})
		if err == nil && !verdicts[0].Refused() {
			c.w.registers.Wrote(c.number, key, value, called, c.w.registers.Now())
			return
		}
		unknown = unknown || !errors.Is(err, partitions.ErrUnavailable)
		c.reconnect()
	}
	if unknown {
		c.w.registers.Wrote(c.number, key, value, called, -1)
	}
}

// encode is a short text as MsgPack.
func encode(text string) []byte { return append([]byte{0xa0 | byte(len(text))}, text...) }
