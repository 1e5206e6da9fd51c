package mux

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fullHello = hello{
		version: version, kind: kindStream, clusterID: "c1", nodeID: "n1", incarnation: "7f",
		advertise: "h:1", target: "n2#8", group: 6,
	}
	fullReply = reply{
		version: version, clusterID: "c1", nodeID: "n2", incarnation: "8",
		advertise: "h:2", window: 1024, text: "",
	}
	refusal = reply{version: version, code: RefusedRemoved, nodeID: "n2", incarnation: "8", text: "gone"}
)

// readHello decodes a whole hello as the accepting side does.
func readHello(r io.Reader) (hello, error) {
	p, err := readPrefix(r, nil)
	if err != nil {
		return hello{}, err
	}
	body, err := p.readBody(r)
	if err != nil {
		return hello{}, err
	}
	return decodeHello(p.version, kind(p.what), body)
}

func TestGreetingBytesDoNotChange(t *testing.T) {
	for want, got := range map[string][]byte{
		"51524154" + "01" + "02" + "0016" + "026331" + "026e31" + "023766" + "03683a31" + "046e322338" + "00000006": fullHello.append(nil),
		"51524154" + "01" + "00" + "000e" + "026331" + "026e32" + "0138" + "03683a32" + "0400":                      fullReply.append(nil),
		"51524154" + "01" + "03" + "000d" + "00" + "026e32" + "0138" + "00" + "0000" + "676f6e65":                   refusal.append(nil),
	} {
		require.Equal(t, want, hex.EncodeToString(got))
	}
}

func TestGreetingsSurviveTheWire(t *testing.T) {
	long := strings.Repeat("x", maxName)
	for _, h := range []hello{
		fullHello,
		{version: version, kind: kindCalls},
		{version: version, kind: kindCalls, clusterID: long, nodeID: long, incarnation: long, advertise: long, target: long},
	} {
		got, err := readHello(bytes.NewReader(h.append(nil)))
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	for _, r := range []reply{
		fullReply, refusal,
		{version: version, code: RefusedBusy, clusterID: long, nodeID: long, incarnation: long, advertise: long, text: strings.Repeat("y", maxText)},
	} {
		got, err := readReply(bytes.NewReader(r.append(nil)))
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
}

func TestGreetingToleratesFieldsOfLaterVersions(t *testing.T) {
	b := append(fullHello.append(nil), "more"...)
	got, err := readHello(bytes.NewReader(closePrefix(b, 0)))
	require.NoError(t, err)
	require.Equal(t, fullHello, got)
}

func TestShortenedGreetingsFail(t *testing.T) {
	whole := fullHello.append(nil)
	for n := range whole {
		_, err := readHello(bytes.NewReader(whole[:n]))
		require.Error(t, err, "%d bytes", n)
	}
	// The same with a prefix that admits to the size.
	for n := prefixSize; n < len(whole); n++ {
		_, err := readHello(bytes.NewReader(closePrefix(bytes.Clone(whole[:n]), 0)))
		require.ErrorIs(t, err, errMalformed, "%d bytes", n)
	}
	whole = fullReply.append(nil)
	for n := prefixSize; n < len(whole); n++ {
		_, err := readReply(bytes.NewReader(closePrefix(bytes.Clone(whole[:n]), 0)))
		require.ErrorIs(t, err, errMalformed, "%d bytes", n)
	}
}

func TestForeignGreetingsFail(t *testing.T) {
	for name, b := range map[string][]byte{
		"http":         []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"too long":     append([]byte(magic), version, 1, 0xff, 0xff),
		"kind 0":       {'Q', 'R', 'A', 'T', version, 0, 0, 0},
		"unknown kind": {'Q', 'R', 'A', 'T', version, 3, 0, 0},
	} {
		_, err := readHello(bytes.NewReader(b))
		require.ErrorIs(t, err, errMalformed, name)
	}
	for name, r := range map[string]reply{
		"no window":     {version: version},
		"other version": {version: version + 1, window: 1},
	} {
		_, err := readReply(bytes.NewReader(r.append(nil)))
		require.ErrorIs(t, err, errMalformed, name)
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add(fullHello.append(nil))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := readHello(bytes.NewReader(h.append(nil)))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

func FuzzReadReply(f *testing.F) {
	f.Add(fullReply.append(nil))
	f.Add(refusal.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readReply(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := readReply(bytes.NewReader(r.append(nil)))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func TestRefusalCodesHaveNames(t *testing.T) {
	for code := RefusedWrongCluster; code <= RefusedBusy; code++ {
		require.NotContains(t, code.String(), "REFUSAL")
	}
	require.Equal(t, "REFUSAL_200", RefusalCode(200).String())
	require.Equal(t, "REFUSAL_0", RefusalCode(0).String())
	require.True(t, errors.Is(&RefusedError{Code: RefusedSecret}, ErrWrongSecret))
	require.False(t, errors.Is(&RefusedError{Code: RefusedBusy}, ErrWrongSecret))
}
