package ws

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestAuthRequiredComesFirstAndAckNamesTheConnection(t *testing.T) {
	f := start(t, withAuth)
	ids := map[string]bool{}
	for range 3 {
		c := f.dial()
		expect[*protocol.AuthRequired](c)
		c.send(&protocol.Auth{Token: "ann"})
		ack := expect[*protocol.AuthAck](c)
		require.Equal(t, "n1", ack.ServerNodeID)
		require.Equal(t, []string{"editor"}, ack.Roles)
		require.Equal(t, "ann", ack.UserID)
		require.NotEmpty(t, ack.ConnectionID)
		require.False(t, ids[ack.ConnectionID], "connection ids are unique")
		ids[ack.ConnectionID] = true
	}
}

func TestNothingButAuthIsHandledBeforeIt(t *testing.T) {
	f := start(t, withAuth)
	c := f.dial()
	expect[*protocol.AuthRequired](c)
	c.send(&protocol.Ping{Timestamp: msgp.AppendInt64(nil, 1)})
	c.send(batch(put("1", "m", "k", 1)))
	c.send(querySub("q", "m"))
	c.send(&protocol.PartitionMapRequest{})
	c.send(&protocol.DeviceHello{})
	c.sendRaw([]byte{0xc1})
	c.sendRaw([]byte("not msgpack"))
	wrapped, err := protocol.Append(nil, &protocol.Auth{Token: "ann"})
	require.NoError(t, err)
	c.send(&protocol.Batch{Count: 1, Data: protocol.AppendBatch(nil, wrapped)})
	c.send(&protocol.Auth{Token: "ann"})
	expect[*protocol.AuthAck](c)
	c.silent()
	require.Empty(t, f.backend.written())
}

func TestLargeFramesBeforeAuthAreDroppedUndecoded(t *testing.T) {
	f := start(t, withAuth)
	c := f.dial()
	expect[*protocol.AuthRequired](c)
	// Valid but too long: its token would be accepted if it were looked at.
	c.send(&protocol.Auth{Token: "ann", DeviceToken: string(bytes.Repeat([]byte("x"), 64<<10))})
	c.send(&protocol.Auth{Token: "bob"})
	require.Equal(t, "bob", expect[*protocol.AuthAck](c).UserID)
}

func TestOneFailedAuthEndsTheConnection(t *testing.T) {
	f := start(t, withAuth)
	c := f.dial()
	expect[*protocol.AuthRequired](c)
	c.send(&protocol.Auth{Token: "bad"})
	fail := expect[*protocol.AuthFail](c)
	require.Equal(t, "credentials refused", fail.Reason)
	require.Equal(t, protocol.CodeUnauthorized, fail.Code)
	require.Equal(t, protocol.CloseAuth, c.expectClose())
}

func TestSilentClientIsClosedAtTheAuthDeadline(t *testing.T) {
	f := start(t, withAuth, func(c *Config, _ *Deps, _ *fakeBackend) { c.AuthTimeout = 200 * time.Millisecond })
	began := time.Now()
	c := f.dial()
	expect[*protocol.AuthRequired](c)
	stop, chatted := make(chan struct{}), make(chan struct{})
	go func() { // traffic does not extend the deadline
		defer close(chatted)
		frame, _ := protocol.Append(nil, &protocol.Ping{})
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_ = c.sock.Write(t.Context(), 2, frame)
			}
		}
	}()
	require.Equal(t, protocol.CloseAuth, c.expectClose())
	close(stop)
	<-chatted
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}

func TestSecondAuthIsSilent(t *testing.T) {
	f := start(t, withAuth)
	c := f.login("ann")
	c.send(&protocol.Auth{Token: "ann"})
	c.send(&protocol.Auth{Token: "bad"})
	c.send(&protocol.Auth{Token: "bob"})
	c.silent()
}

func TestTokenExpiryClosesALiveConnection(t *testing.T) {
	f := start(t, withAuth, withRunningClock)
	c := f.login(token("ann", 150*time.Millisecond))
	require.Equal(t, protocol.CloseAuth, c.expectClose())
}

func TestFreshAuthOfTheSameSubjectExtendsTheConnection(t *testing.T) {
	f := start(t, withAuth, withRunningClock)
	renewed, stolen := f.login(token("ann", 300*time.Millisecond)), f.login(token("ann", 300*time.Millisecond))
	renewed.send(&protocol.Auth{Token: token("ann", time.Hour)})
	renewed.send(&protocol.Auth{Token: token("ann", time.Millisecond)}) // never shortens
	stolen.send(&protocol.Auth{Token: token("eve", time.Hour)})
	require.Equal(t, protocol.CloseAuth, stolen.expectClose())
	renewed.silent()
}

// withRunningClock starts the server's wall clock at testNow.
func withRunningClock(_ *Config, d *Deps, _ *fakeBackend) {
	began := time.Now()
	d.Now = func() int64 { return testNow + time.Since(began).Milliseconds() }
}

func token(subject string, valid time.Duration) string {
	return subject + "@" + strconv.FormatInt(testNow+valid.Milliseconds(), 10)
}

func TestWithoutAuthTheFirstFrameIsHandled(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.silent()
}

func TestWithoutAuthAuthAndHelloAreAnsweredOnce(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(&protocol.Auth{Token: "bad token of any kind"})
	ack := expect[*protocol.AuthAck](c)
	require.Empty(t, ack.Roles)
	require.Empty(t, ack.UserID)
	c.send(&protocol.Auth{Token: "again"})
	c.send(&protocol.DeviceHello{})
	expect[*protocol.DeviceAck](c)
	c.send(&protocol.DeviceHello{})
	c.silent()
}

func TestHelloIsIgnoredWithAuth(t *testing.T) {
	f := start(t, withAuth)
	c := f.login("ann")
	c.send(&protocol.DeviceHello{})
	c.silent()
}

func TestADeviceIsKnownAgainByTheTokenThatItWasGiven(t *testing.T) {
	f := start(t)
	hello := func(token string) (*client, *protocol.DeviceAck) {
		c := f.dial()
		c.send(&protocol.DeviceHello{DeviceToken: token})
		return c, expect[*protocol.DeviceAck](c)
	}
	first, issued := hello("")
	require.NotEmpty(t, issued.DeviceID)
	require.NotEmpty(t, issued.DeviceToken)
	_, again := hello(issued.DeviceToken)
	require.Equal(t, &protocol.DeviceAck{DeviceID: issued.DeviceID}, again)
	_, foreign := hello("of another server")
	require.NotEqual(t, issued.DeviceID, foreign.DeviceID)
	require.NotEmpty(t, foreign.DeviceToken)

	// A write that the server stamps is the same one when the device sends it again.
	unstamped := protocol.ClientOp{ID: "1", MapName: "m", Key: "k", RecordPresence: protocol.Present, Record: protocol.Record{Value: []byte{1}}}
	first.send(batch(unstamped))
	expect[*protocol.OpAck](first)
	second, _ := hello(issued.DeviceToken)
	second.send(batch(unstamped))
	expect[*protocol.OpAck](second)
	written := f.backend.written()
	require.Len(t, written, 2)
	require.NotEmpty(t, written[0].Dedup)
	require.Equal(t, written[0].Dedup, written[1].Dedup)
}
