package quorate_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/protocol"
)

const (
	secret   = "a-secret-that-nobody-may-ever-see-1234"
	password = "another-secret-that-nobody-may-see"
)

// clientToken is a token as the operators of an application sign it.
func clientToken(t *testing.T, subject string, roles ...string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": subject, "roles": roles, "exp": time.Now().Add(time.Hour).Unix()}).
		SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// operator sends admin requests to a node.
type operator struct {
	t     *testing.T
	base  string
	token string
	http  *http.Client
}

func newOperator(t *testing.T, port int) *operator {
	o := &operator{t: t, base: fmt.Sprintf("http://127.0.0.1:%d", port), http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	_, answer := o.do("POST", "/api/auth/login", map[string]string{"username": "admin", "password": password})
	o.token, _ = answer["token"].(string)
	return o
}

func (o *operator) do(method, path string, body any) (status int, answer map[string]any) {
	o.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		o.t.Fatal(err)
	}
	r, err := http.NewRequest(method, o.base+path, bytes.NewReader(b))
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if o.token != "" {
		r.Header.Set("Authorization", "Bearer "+o.token)
	}
	resp, err := o.http.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	answer = map[string]any{"text": string(text)}
	_ = json.Unmarshal(text, &answer) // other bodies stay as they are
	return resp.StatusCode, answer
}

func (o *operator) must(status int, method, path string, body any) map[string]any {
	o.t.Helper()
	got, answer := o.do(method, path, body)
	if got != status {
		o.t.Fatalf("%s %s: %d, want %d: %v", method, path, got, status, answer)
	}
	return answer
}

// signIn opens an authenticated connection.
func signIn(ctx context.Context, t *testing.T, port int, token string) *websocket.Conn {
	t.Helper()
	conn := dial(ctx, t, port)
	exchange[*protocol.AuthAck](ctx, t, conn, &protocol.Auth{Token: token})
	return conn
}

func securedConfig(t *testing.T) quorate.ServerConfig {
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Network.Host = "127.0.0.1"
	cfg.Security.JWTSecret = secret
	cfg.Admin.Password = password
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	return cfg
}

// refused sends a write and reports whether it is refused for lack of permission.
func refused(ctx context.Context, t *testing.T, conn *websocket.Conn, id string) bool {
	t.Helper()
	m := put(id, "v")
	frame, err := protocol.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, websocket.MessageBinary, frame); err != nil {
		t.Fatal(err)
	}
	for denied := false; ; {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := protocol.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		switch answer := answer.(type) {
		case *protocol.OpRejected:
			denied = answer.Code == protocol.CodeForbidden && answer.Permanent
		case *protocol.OpAck:
			return denied
		}
	}
}

func TestPoliciesStandAcrossARestart(t *testing.T) {
	noLeaks(t)
	cfg := securedConfig(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	o := newOperator(t, port)
	ann := signIn(ctx, t, port, clientToken(t, "ann", "editor"))
	if refused(ctx, t, ann, "1") {
		t.Error("refused without any policy")
	}
	o.must(201, "POST", "/api/admin/policies", map[string]any{"id": "p", "mapPattern": "m", "action": "write", "effect": "allow", "roles": []string{"editor"}})
	o.must(200, "PUT", "/api/admin/settings", map[string]any{"maxConnections": 123})
	eve := signIn(ctx, t, port, clientToken(t, "eve", "admin"))
	if refused(ctx, t, ann, "2") || !refused(ctx, t, eve, "3") {
		t.Error("the policy is not in force when it is answered")
	}
	boss := signIn(ctx, t, port, o.token)
	if refused(ctx, t, boss, "4") {
		t.Error("the operator has no permission")
	}
	maps, _ := o.must(200, "GET", "/api/admin/maps", nil)["maps"].([]any)
	if len(maps) != 1 || maps[0].(map[string]any)["entryCount"] != 3.0 {
		t.Errorf("maps %v, want one with 3 entries", maps)
	}
	o.must(204, "DELETE", "/api/admin/policies/p", nil)
	for _, c := range []*websocket.Conn{ann, eve, boss} {
		_ = c.CloseNow()
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}

	port, end = embed(t, cfg)
	awaitReady(t, port)
	o = newOperator(t, port)
	if got := o.must(200, "GET", "/api/admin/settings", nil)["maxConnections"]; got != 123.0 {
		t.Errorf("setting %v after the restart, want 123", got)
	}
	ann = signIn(ctx, t, port, clientToken(t, "ann", "editor"))
	if !refused(ctx, t, ann, "5") {
		t.Error("allowed after all policies were deleted and a restart")
	}
	_ = ann.CloseNow()
	// The drain of an operator ends the server as a signal does.
	o.must(202, "POST", "/api/admin/nodes/n1/drain", nil)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := o.http.Get(o.base + "/health")
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ State string }
		err = json.NewDecoder(resp.Body).Decode(&body)
		_ = resp.Body.Close()
		if err == nil && body.State == "draining" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("state %q after the drain", body.State)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// syncBuffer is a buffer for a log.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestNothingThatIsPrintedHoldsASecret greps the log at its finest level and every answer
// for secrets, tokens and values.
func TestNothingThatIsPrintedHoldsASecret(t *testing.T) {
	noLeaks(t)
	log := &syncBuffer{}
	cfg := securedConfig(t)
	s, err := quorate.New(cfg, quorate.Deps{Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: log})})
	if err != nil {
		t.Fatal(err)
	}
	port, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	awaitReady(t, port)
	o := newOperator(t, port)
	token := clientToken(t, "ann")
	conn := signIn(ctx, t, port, token)
	batch := put("k", "a value that is nobody's business")
	exchange[*protocol.OpAck](ctx, t, conn, batch)
	exchange[*protocol.QueryResp](ctx, t, conn, &protocol.QuerySub{QueryID: "q", MapName: "m"})
	_ = conn.CloseNow()
	bad := dial(ctx, t, port)
	exchange[*protocol.AuthFail](ctx, t, bad, &protocol.Auth{Token: token + "x"})
	_ = bad.CloseNow()
	o.do("POST", "/api/auth/login", map[string]string{"username": "admin", "password": password + "x"})
	var shown strings.Builder
	for _, path := range []string{"/metrics", "/health", "/api/status", "/api/admin/settings", "/api/admin/cluster/status", "/api/admin/maps", "/api/admin/policies", "/api/openapi.json"} {
		fmt.Fprintln(&shown, o.must(200, "GET", path, nil))
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{secret, password, token, o.token, "nobody's business"} {
		for from, all := range map[string]string{"log": log.String(), "answers": shown.String()} {
			if i := strings.Index(all, text); i >= 0 {
				t.Errorf("the %s shows a secret: ...%s", from, all[max(0, i-200):i])
			}
		}
	}
}

// certificate writes a certificate for 127.0.0.1 and returns who trusts it.
func certificate(t *testing.T, dir string) (*quorate.TLSConfig, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := &quorate.TLSConfig{CertPath: filepath.Join(dir, "cert.pem"), KeyPath: filepath.Join(dir, "key.pem")}
	pool := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{files.CertPath: {Type: "CERTIFICATE", Bytes: der}, files.KeyPath: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return files, pool
}

func TestClientsConnectOverTLS(t *testing.T) {
	noLeaks(t)
	cfg := securedConfig(t)
	cfg.Storage.Backend = quorate.BackendNull
	var pool *x509.CertPool
	cfg.Network.TLS, pool = certificate(t, t.TempDir())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}}
	client := &http.Client{Transport: transport}
	for {
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/health/ready", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.Header.Get("Strict-Transport-Security") == "" {
			t.Fatal("no HSTS over TLS")
		}
		if resp.StatusCode == 200 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	conn, _, err := websocket.Dial(ctx, fmt.Sprintf("wss://127.0.0.1:%d/ws", port), &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	exchange[*protocol.AuthAck](ctx, t, conn, &protocol.Auth{Token: clientToken(t, "ann")})
	if ack := exchange[*protocol.OpAck](ctx, t, conn, put("k", "v")); ack.LastID != "op-k" {
		t.Errorf("%+v", ack)
	}
	m := exchange[*protocol.PartitionMap](ctx, t, conn, &protocol.PartitionMapRequest{})
	if url := m.Nodes[0].Endpoints.WebSocket; !strings.HasPrefix(url, "wss://") {
		t.Errorf("clients are told to dial %s", url)
	}
	closed := make(chan websocket.StatusCode, 1)
	go func() {
		_, _, err := conn.Read(ctx)
		closed <- websocket.CloseStatus(err)
	}()
	if err := end(); err != nil {
		t.Error(err)
	}
	if code := <-closed; code != websocket.StatusGoingAway {
		t.Errorf("close code %d at the drain", code)
	}
}

// TestOwnRowsOnly has policies look at what is stored, on a real node.
func TestOwnRowsOnly(t *testing.T) {
	noLeaks(t)
	cfg := securedConfig(t)
	cfg.Storage.Backend = quorate.BackendNull
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	o := newOperator(t, port)
	o.must(201, "POST", "/api/admin/policies", map[string]any{
		"id": "own", "mapPattern": "m", "action": "all", "effect": "allow",
		"conditionExpr": "(stored == null || stored.owner == auth.id) && (data == null || data.owner == auth.id)",
	})
	write := func(conn *websocket.Conn, id, owner string) (accepted bool) {
		m := put("k", "v")
		m.Ops[0].ID = id
		m.Ops[0].Record.Value = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "owner"), owner)
		ack := exchange[*protocol.OpAck](ctx, t, conn, m)
		return ack.Results == nil || len(ack.Results) == 1
	}
	ann, bob := signIn(ctx, t, port, clientToken(t, "ann")), signIn(ctx, t, port, clientToken(t, "bob"))
	for _, step := range []struct {
		conn  *websocket.Conn
		owner string
		want  bool
	}{{ann, "bob", false}, {ann, "ann", true}, {bob, "bob", false}, {bob, "ann", false}, {ann, "ann", true}} {
		if got := write(step.conn, "op", step.owner); got != step.want {
			t.Errorf("write as %s accepted: %v, want %v", step.owner, got, step.want)
		}
	}
	_, _ = ann.CloseNow(), bob.CloseNow()
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestARecordThatManyClaimAtOnceGoesToOne has clients race for records that belong to the
// first who writes them.
func TestARecordThatManyClaimAtOnceGoesToOne(t *testing.T) {
	noLeaks(t)
	cfg := securedConfig(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	o := newOperator(t, port)
	o.must(201, "POST", "/api/admin/policies", map[string]any{
		"id": "own", "mapPattern": "m", "action": "all", "effect": "allow", "conditionExpr": "stored == null || stored.owner == auth.id",
	})
	const clients, records = 4, 30
	var accepted [records][clients]bool
	var conns [clients]*websocket.Conn
	for i := range conns {
		conns[i] = signIn(ctx, t, port, clientToken(t, fmt.Sprint("client-", i)))
	}
	for record := range records {
		var race sync.WaitGroup
		for i := range conns {
			m := put(fmt.Sprint("record-", record), "v")
			m.Ops[0].ID = fmt.Sprint("op-", record)
			m.Ops[0].Record = protocol.Record{ // without a timestamp: whatever is written last stands
				Value: msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "owner"), fmt.Sprint("client-", i)),
			}
			race.Go(func() {
				ack := exchange[*protocol.OpAck](ctx, t, conns[i], m)
				accepted[record][i] = ack.Results == nil || len(ack.Results) == 1
			})
		}
		race.Wait()
	}
	for record := range accepted {
		winners := 0
		for _, won := range accepted[record] {
			if won {
				winners++
			}
		}
		if winners != 1 {
			t.Errorf("record %d was given to %d clients", record, winners)
		}
	}
	for _, conn := range conns {
		_ = conn.CloseNow()
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
