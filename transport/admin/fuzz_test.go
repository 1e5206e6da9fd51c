package admin

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/index"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/auth"
)

// FuzzDocuments gives bytes to the decoders of the operators' documents and of the body
// that changes settings: each refuses them, or what it reads keeps its bounds and is the
// same when it is written again.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"format":1,"values":{"logLevel":"debug","gcIntervalMs":1000,"maxConnections":7}}`))
	f.Add([]byte(`{"format":1,"values":{"maxConcurrentOperations":0,"operationsPerSecond":-1,"gcIntervalMs":9223372036854775807}}`))
	f.Add([]byte(`{"format":1,"revocations":[{"subject":"b","sinceMillis":1,"by":"admin"},{"subject":"a"},{"subject":"a"}]}`))
	f.Add([]byte(`{"format":1,"indexes":[{"mapName":"m","attribute":"a.b","indexType":"hash"},{"mapName":"m","attribute":"a.b","indexType":"navigable"}]}`))
	f.Add([]byte(`{"logLevel":"info,ws=debug","gcIntervalMs":1e4,"maxConnections":null}`))
	f.Add([]byte(`{"maxConcurrentOperations":1.5,"port":1,"x":[]}`))
	h := &Handler{deps: Deps{Logger: hclog.NewNullLogger(), Registerer: prometheus.NewRegistry(), Check: func(filter string) error {
		if strings.Contains(filter, "?") {
			return errors.New("no filter")
		}
		return nil
	}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		if stored, err := decodeSettings(b); err == nil {
			checkSettings(t, stored)
		}
		change, field, reason := h.parseChange(b)
		if reason != "" {
			require.Equal(t, strings.ToValidUTF8(field, "�"), field)
		} else {
			checkSettings(t, change)
		}
		checkRevocations(t, b)
		checkIndexes(t, b)
	})
}

// checkSettings holds that c can be put into force and is read back from the document.
func checkSettings(t *testing.T, c Change) {
	t.Helper()
	now := c.on(Runtime{GCIntervalMs: 1000, MaxConcurrentOperations: 1, MaxConnections: 1, OperationsPerSecond: 1})
	for name, value := range map[string]int64{
		"gcIntervalMs": now.GCIntervalMs, "maxConcurrentOperations": int64(now.MaxConcurrentOperations),
		"maxConnections": int64(now.MaxConnections), "operationsPerSecond": int64(now.OperationsPerSecond),
	} {
		require.GreaterOrEqual(t, value, bounds[name][0], name)
		require.LessOrEqual(t, value, bounds[name][1], name)
	}
	b, err := json.Marshal(storedSettings{Format: settingsFormat, Values: Change{}.with(c)})
	require.NoError(t, err)
	again, err := decodeSettings(b)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(c, again))
}

// checkRevocations holds that each subject of a list is revoked until it is lifted.
func checkRevocations(t *testing.T, b []byte) {
	t.Helper()
	var inForce auth.Revocations
	list, err := auth.DecodeRevocations(b)
	changed, updateErr := inForce.Update(b, 1)
	require.True(t, changed)
	require.Equal(t, err == nil, updateErr == nil)
	if err != nil {
		require.True(t, inForce.Revoked(auth.Principal{ID: "anybody"}))
		return
	}
	require.LessOrEqual(t, len(list), auth.MaxRevocations)
	encoded, err := auth.EncodeRevocations(list)
	require.NoError(t, err)
	again, err := auth.DecodeRevocations(encoded)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(list, again, cmpopts.EquateEmpty()))
	for _, r := range list {
		require.True(t, inForce.Revoked(auth.Principal{ID: r.Subject}))
		left := auth.WithoutRevocation(list, r.Subject)
		require.False(t, slices.ContainsFunc(left, func(other auth.Revocation) bool { return other.Subject == r.Subject }), r.Subject)
	}
}

// checkIndexes holds that each definition of a list is found and can be taken off it.
func checkIndexes(t *testing.T, b []byte) {
	t.Helper()
	list, err := partitions.Indexes(b)
	if err != nil {
		require.ErrorIs(t, err, index.ErrFormat)
		return
	}
	require.LessOrEqual(t, len(list), partitions.MaxIndexes)
	encoded, err := index.Encode(list)
	require.NoError(t, err)
	for _, d := range list {
		_, err := partitions.WithIndex(encoded, d)
		require.ErrorIs(t, err, partitions.ErrIndexExists)
		left, err := partitions.WithoutIndex(encoded, d.MapName, d.Attribute)
		require.NoError(t, err)
		_, err = partitions.WithoutIndex(left, d.MapName, d.Attribute)
		require.ErrorIs(t, err, partitions.ErrNoIndex)
	}
}
