package main

import (
	"strings"
	"syscall"
	"testing"
)

func TestDataCommandsUseANode(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"JWT_SECRET=" + dataSecret, "SERVICE_BIND_ADDR=127.0.0.1", "STORAGE_BACKEND=null"}, "--port=0")
	s.awaitReady()
	env := []string{"JWT_SECRET=" + dataSecret, "PORT=" + s.port}
	url := "--url=ws://127.0.0.1:1,127.0.0.1:" + s.port
	for _, step := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"put m k {\"n\":1.5,\"a\":[1]}", 0, `{"level":"REPLICATED"}`, ""},
		{"get m k", 0, `{"a":[1],"n":1.5}`, ""},
		{"put m neg -5 --level=APPLIED --server-stamp --ttl 1h", 0, `{"level":"REPLICATED"}`, ""},
		{"get --linearizable m", 0, `{"key":"k","value":{"a":[1],"n":1.5}}` + "\n" + `{"key":"neg","value":-5}`, ""},
		{"put --remove m k", 0, `{"level":"REPLICATED"}`, ""},
		{"get m k", 1, "", `"k" of map "m": no such record`},
		{"put $sys/m k 1", 3, "", "reserved"},
		{"put m k not-json", 2, "", "not JSON"},
		{"put m k 1 --level=STRONG", 2, "", "unknown level"},
		{"put m k 1 --remove", 2, "", "usage: quorate put"},
		{"put m k 1 --fence l=x", 2, "", "not a number"},
		{"put m k 1 --fence l", 2, "", "LOCK=TOKEN"},
		{"put m", 2, "", "usage: quorate put"},
		{"get", 2, "", "usage: quorate get"},
		{"get m k --frobnicate", 2, "", "frobnicate"},
		{"counter n add 2.5", 0, "2.5", ""},
		{"counter n add -1", 0, "1.5", ""},
		{"counter n " + url, 0, "1.5", ""},
		{"counter n subtract 1", 2, "", "usage: quorate counter"},
		{"publish t {} --token=forged", 3, "", "refused"},
		{"publish t {}", 0, "", ""},
		{"publish not/a/topic! {}", 3, "", "topic name"},
		{"get m --url 127.0.0.1:1 --timeout 100ms", 1, "", "not available"},
		{"get m --url ftp://h", 1, "", "neither"},
		{"lock l", 2, "", "usage: quorate lock"},
		{"lock l -- quorate counter n", 0, "1.5", ""},
		{"lock l -- quorate get m missing", 1, "", "no such record"},
		{"lock l -- quorate put m", 2, "", "usage"},
		{"lock l -- no-such-command", 127, "", "no-such-command"},
		{"lock l -- quorate put m fenced 1 --fence l", 0, `{"level":"REPLICATED"}`, ""},
		{"put m fenced 2 --fence l=1", 3, "", "refused"},
		{"watch --help", 0, "Usage: quorate watch", ""},
	} {
		code, stdout, stderr := tool(t, append([]string{"QUORATE_LOCK_TOKEN="}, env...), strings.Fields(step.args)...)
		if code != step.code || !strings.HasPrefix(stdout, step.stdout) || step.stdout == "" && stdout != "" ||
			!strings.Contains(stderr, step.stderr) || step.stderr == "" && stderr != "" {
			t.Errorf("quorate %s: exit code %d, %q, %q; want %d, %q, %q", step.args, code, stdout, stderr, step.code, step.stdout, step.stderr)
		}
	}
	code, _, stderr := tool(t, []string{"PORT=" + s.port}, "get", "m")
	if code != exitRefused {
		t.Errorf("without a token: exit code %d, %s", code, stderr)
	}
}

const dataSecret = "a-secret-of-more-than-thirty-two-bytes"

func TestStreamsAreLinesUntilASignal(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"SERVICE_NO_AUTH=true", "STORAGE_BACKEND=null"}, "--port=0")
	s.awaitReady()
	env := []string{"PORT=" + s.port}
	run := func(args ...string) {
		t.Helper()
		if code, _, stderr := tool(t, env, args...); code != 0 {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	run("put", "m", "a", "1")
	watch, messages := launch(t, env, "watch", "m"), launch(t, env, "subscribe", "t")
	watch.await("the snapshot", func() bool {
		return watch.out() == `{"type":"SNAPSHOT","records":[{"key":"a","value":1}]}`+"\n"
	})
	run("put", "m", "b", "null")
	run("put", "m", "b", "2")
	run("put", "m", "b", "3")
	run("put", "m", "b", "--remove")
	watch.await("the changes", func() bool { return strings.Count(watch.out(), "\n") == 4 })
	want := `{"type":"ENTER","key":"b","value":2}
{"type":"UPDATE","key":"b","value":3}
{"type":"LEAVE","key":"b"}
`
	if _, changes, _ := strings.Cut(watch.out(), "\n"); changes != want {
		t.Errorf("changes:\n%s", changes)
	}
	// Nothing says when it listens, so a message is published until one has come.
	messages.await("a message", func() bool {
		run("publish", "t", `{"x":1}`)
		return strings.Contains(messages.out(), `{"data":{"x":1},"publisher":"`)
	})
	for _, stream := range []*server{watch, messages} {
		stream.signal(syscall.SIGTERM)
		if code := stream.exitCode(); code != 0 {
			t.Errorf("exit code %d: %s", code, stream.err())
		}
	}
}

func TestTheCommandEndsWhenItsLockIsLost(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"SERVICE_NO_AUTH=true", "STORAGE_BACKEND=null"}, "--port=0")
	s.awaitReady()
	env := []string{"PORT=" + s.port}
	held := func(script string) *server {
		t.Helper()
		l := launch(t, env, "lock", "l", "--", "sh", "-c", script)
		l.await("the command", func() bool { return strings.Contains(l.out(), "held\n") })
		return l
	}
	script := `echo held; trap 'echo ends; exit 7' TERM; while :; do sleep 0.1; done`
	l := held(script)
	if code, _, stderr := tool(t, env, "lock", "l", "--wait=1s", "--", "true"); code != 1 || !strings.Contains(stderr, "not granted") {
		t.Errorf("while it is held: exit code %d, %s", code, stderr)
	}
	l.signal(syscall.SIGTERM)
	if code := l.exitCode(); code != 7 || !strings.HasSuffix(l.out(), "ends\n") {
		t.Errorf("exit code %d after SIGTERM, %s", code, l.out())
	}
	l = held(`echo held; kill -9 $$`)
	if code := l.exitCode(); code != 128+9 {
		t.Errorf("exit code %d of a command that was killed", code)
	}
	l = held(script)
	s.signal(syscall.SIGKILL)
	if code := l.exitCode(); code != 1 || !strings.HasSuffix(l.out(), "ends\n") || !strings.Contains(l.err(), "lock is lost") {
		t.Errorf("exit code %d, %s, %s", code, l.out(), l.err())
	}
}
