package ws

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

// TestAFrameThatWasNotReadIsNotAcknowledgedByALaterOne holds that an acknowledgement after a
// frame without verdicts lists what it covers: without a list it would cover what was in that
// frame.
func TestAFrameThatWasNotReadIsNotAcknowledgedByALaterOne(t *testing.T) {
	whole := encode(t, batch(put("1", "m", "a", 1)))
	cut := protocol.AppendBatch(nil, encode(t, &protocol.QueryUnsub{QueryID: "q"}))
	for name, frame := range map[string][]byte{
		"cut":                  whole[:len(whole)-3],
		"no MsgPack":           {0xc1},
		"of an op batch":       {0x82, 0xa4, 't', 'y', 'p', 'e', 0xa8, 'O', 'P', '_', 'B', 'A', 'T', 'C', 'H', 0xa7, 'p', 'a', 'y', 'l', 'o', 'a', 'd', 1},
		"a BATCH that is cut":  encode(t, &protocol.Batch{Data: append(cut, 0, 0, 1, 0, 0x81)}),
		"an item of a BATCH":   encode(t, &protocol.Batch{Data: protocol.AppendBatch(nil, whole[:len(whole)-3])}),
		"before authenticated": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var c *client
			if frame == nil {
				c = start(t, withAuth).dial()
				expect[*protocol.AuthRequired](c)
				c.sendRaw(whole)
				c.send(&protocol.Auth{Token: "ann"})
				expect[*protocol.AuthAck](c)
			} else {
				c = start(t).dial()
				c.sendRaw(frame)
				require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code)
			}
			c.send(batch(put("2", "m", "b", 1)))
			ack := expect[*protocol.OpAck](c)
			require.Equal(t, "2", ack.LastID)
			require.Equal(t, []string{"2"}, resultIDs(ack))
		})
	}
}
