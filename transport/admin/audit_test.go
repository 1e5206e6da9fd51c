package admin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatOperatorsDoIsOnRecord makes every change that an operator can make, and one that is
// refused: the log says what was done, and by whom from where.
func TestWhatOperatorsDoIsOnRecord(t *testing.T) {
	f := start(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		line               string
	}{
		{"POST", "/api/auth/login", loginBody("admin", "open sesame"), 200, "audit: login: user=admin"},
		{"POST", "/api/auth/login", loginBody("admin", "wrong"), 401, "audit: login refused: user=admin"},
		{"PUT", "/api/admin/settings", `{"gcIntervalMs":5000}`, 200, "audit: settings changed: user=admin"},
		{"POST", "/api/admin/policies", `{"id":"p","mapPattern":"*","action":"read","effect":"allow"}`, 201, "audit: policy written: policy=p user=admin"},
		{"DELETE", "/api/admin/policies/p", "", 204, "audit: policy deleted: policy=p user=admin"},
		{"POST", "/api/admin/revocations", `{"subject":"ann"}`, 201, "audit: subject revoked: subject=ann user=admin"},
		{"DELETE", "/api/admin/revocations/ann", "", 204, "audit: revocation lifted: subject=ann user=admin"},
		{"POST", "/api/admin/indexes", `{"mapName":"m","attribute":"a","indexType":"hash"}`, 201, "audit: index created: map=m attribute=a type=hash user=admin"},
		{"DELETE", "/api/admin/indexes/m/a", "", 204, "audit: index dropped: map=m attribute=a user=admin"},
		{"POST", "/api/admin/nodes/n1/drain", "", 202, "of a node begun: node=n1 user=admin"},
		{"POST", "/api/admin/groups/1/transfer?node=n2", "", 200, "audit: leadership of a group moved: group=1 from=n1 to=n2 user=admin"},
	} {
		f.log.Reset()
		status, answer := f.do(c.method, c.path, c.body)
		require.Equal(t, c.status, status, "%s %s: %v", c.method, c.path, answer)
		var records []string
		for line := range strings.Lines(f.log.String()) {
			if strings.Contains(line, " audit: ") {
				records = append(records, line)
			}
		}
		require.Len(t, records, 1, "%s %s", c.method, c.path)
		for _, part := range []string{c.line, "addr=192.0.2.1:1234", "request_id="} {
			require.Contains(t, records[0], part, "%s %s", c.method, c.path)
		}
		require.NotContains(t, records[0], "sesame")
	}
}
