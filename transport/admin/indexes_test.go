package admin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/partitions"
)

func indexJSON(mapName, attribute, kind string) string {
	return fmt.Sprintf(`{"mapName":%q,"attribute":%q,"indexType":%q}`, mapName, attribute, kind)
}

func TestIndexesAreDefinedListedAndDropped(t *testing.T) {
	f := start(t)
	status, answer := f.do("GET", "/api/admin/indexes", "")
	require.Equal(t, 200, status)
	require.Equal(t, map[string]any{"indexes": []any{}}, answer)
	f.cluster.conflicts = 1
	status, answer = f.do("POST", "/api/admin/indexes", indexJSON("todos", "owner.id", "hash"))
	require.Equal(t, 201, status)
	require.Equal(t, map[string]any{"mapName": "todos", "attribute": "owner.id", "indexType": "hash", "entryCount": 0.0}, answer)
	require.Contains(t, f.log.String(), "index created")
	status, _ = f.do("POST", "/api/admin/indexes", indexJSON("todos", "owner.id", "navigable"))
	require.Equal(t, 409, status)
	status, _ = f.do("POST", "/api/admin/indexes", indexJSON("a/b c", "x y", "navigable"))
	require.Equal(t, 201, status)
	status, answer = f.do("GET", "/api/admin/indexes", "")
	require.Equal(t, 200, status)
	require.Equal(t, []any{
		map[string]any{"mapName": "todos", "attribute": "owner.id", "indexType": "hash", "entryCount": 3.0},
		map[string]any{"mapName": "a/b c", "attribute": "x y", "indexType": "navigable", "entryCount": 3.0},
	}, answer["indexes"])
	status, answer = f.do("GET", "/api/admin/indexes/a%2Fb%20c/x%20y/status", "")
	require.Equal(t, 200, status)
	require.Equal(t, map[string]any{
		"mapName": "a/b c", "attribute": "x y", "total": 5.0, "processed": 4.0, "done": false, "rebuildType": "backfill",
	}, answer)
	for path, want := range map[string]int{"todos/owner": 404, "todos/owner.id": 204, "a%2Fb%20c/x%20y": 204} {
		status, _ = f.do("DELETE", "/api/admin/indexes/"+path, "")
		require.Equal(t, want, status, path)
	}
	status, _ = f.do("DELETE", "/api/admin/indexes/todos/owner.id", "")
	require.Equal(t, 404, status)
	status, _ = f.do("GET", "/api/admin/indexes/todos/owner.id/status", "")
	require.Equal(t, 404, status)
}

func TestTheStatusOfAnIndexSaysWhyItIsBuilt(t *testing.T) {
	f := start(t)
	status, _ := f.do("POST", "/api/admin/indexes", indexJSON("old", "a", "hash"))
	require.Equal(t, 201, status)
	_, answer := f.do("GET", "/api/admin/indexes/old/a/status", "")
	require.Equal(t, "startupRebuild", answer["rebuildType"])
	require.Equal(t, true, answer["incomplete"])
}

func TestIndexesThatCannotBeAreRefused(t *testing.T) {
	f := start(t)
	for body, want := range map[string]struct {
		status int
		field  any
	}{
		indexJSON("", "a", "hash"):                           {400, "mapName"},
		indexJSON("$sys/x", "a", "hash"):                     {400, "mapName"},
		indexJSON("m", "", "hash"):                           {400, "attribute"},
		indexJSON("m", "_key", "hash"):                       {400, "attribute"},
		indexJSON("m", "a\nb", "hash"):                       {400, "attribute"},
		indexJSON("m", strings.Repeat("x", 256), "hash"):     {400, "attribute"},
		indexJSON("m", strings.Repeat("x.", 32)+"x", "hash"): {400, "attribute"},
		indexJSON("m", "a", "vector"):                        {400, "indexType"},
		indexJSON("m", "a", ""):                              {400, "indexType"},
		indexJSON("m", "a", "inverted"):                      {501, nil},
		`{"mapName":1}`:                                      {422, "mapName"},
		`{`:                                                  {400, nil},
	} {
		status, answer := f.do("POST", "/api/admin/indexes", body)
		require.Equal(t, want.status, status, body)
		require.Equal(t, want.field, answer["field"], body)
	}
	require.Empty(t, f.cluster.documents)
	for i := range partitions.MaxIndexes {
		status, _ := f.do("POST", "/api/admin/indexes", indexJSON("m", fmt.Sprint("a", i), "hash"))
		require.Equal(t, 201, status)
	}
	status, _ := f.do("POST", "/api/admin/indexes", indexJSON("m", "more", "hash"))
	require.Equal(t, 409, status)
}

func TestIndexesNeedAClusterThatCanChange(t *testing.T) {
	f := start(t)
	f.cluster.fail = partitions.ErrUnavailable
	status, _ := f.do("POST", "/api/admin/indexes", indexJSON("m", "a", "hash"))
	require.Equal(t, 503, status)
	f.cluster.fail = partitions.ErrUnknown
	status, _ = f.do("POST", "/api/admin/indexes", indexJSON("m", "a", "hash"))
	require.Equal(t, 504, status)
	f.cluster.fail = nil
	f.cluster.documents[partitions.IndexDocument] = []byte(`{"format":9}`)
	for _, method := range []string{"GET", "POST"} {
		status, _ = f.do(method, "/api/admin/indexes", indexJSON("m", "a", "hash"))
		require.Equal(t, 500, status, "what cannot be read is not written over")
	}
	none := start(t, func(_ *Config, d *Deps) { d.Backend = func() Backend { return nil } })
	for method, path := range map[string]string{"GET": "", "POST": "", "DELETE": "/m/a"} {
		status, _ = none.do(method, "/api/admin/indexes"+path, indexJSON("m", "a", "hash"))
		require.Equal(t, 503, status, method)
	}
	status, _, _ = f.send("GET", "/api/admin/indexes", "", "")
	require.Equal(t, 401, status)
	status, _, _ = f.send("GET", "/api/admin/indexes", "client", "")
	require.Equal(t, 403, status)
}
