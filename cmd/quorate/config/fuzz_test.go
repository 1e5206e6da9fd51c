package config

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzSettings gives any text to each setting, as a variable and as a flag, beside other
// arguments: it is a problem that the setting's name stands at and no secret is in, or a
// value that reads back from what is shown of it.
func FuzzSettings(f *testing.F) {
	for i := range table {
		for _, text := range []string{"", " 18446744073709551616", "1", "true", "info,ws=debug", "https://u:hunter2@h", `{"m":{"fields":["a"],"dimension":4}}`, "postgres://u:hunter2@h/d"} {
			f.Add(byte(i), text, "")
		}
	}
	f.Add(byte(0), "x", "--port=1\x00--node-id\x00a\x00-h")
	f.Add(byte(0), "x", "--\x00--port\x00=\x00stray")
	f.Fuzz(func(t *testing.T, which byte, text, line string) {
		r := &table[int(which)%len(table)]
		args := strings.Split(line, "\x00")
		if line == "" {
			args = nil
		}
		if r.flag != "" {
			checkLoad(t, r, text, append([]string{"--" + r.flag + "=" + text}, args...), func(string) string { return "" })
		}
		checkLoad(t, r, text, args, func(name string) string {
			if name == r.name {
				return text
			}
			return ""
		})
	})
}

func checkLoad(t *testing.T, r *row, text string, args []string, lookup func(string) string) {
	t.Helper()
	s, problems, err := Load(args, lookup)
	if err != nil {
		if !errors.Is(err, ErrHelp) {
			t.Fatalf("untyped error %v", err)
		}
		return
	}
	readable := true
	for _, p := range problems {
		if p.Reason == "" {
			t.Fatalf("no reason: %+v", p)
		}
		// Shorter ones are parts of words.
		if r.secret && len(text) > 12 && strings.Contains(p.String(), text) {
			t.Fatalf("%s tells %q", p, text)
		}
		readable = readable && p.Name != "" && p.Name != r.name && p.Name != "--"+r.flag
	}
	if err := s.Print(io.Discard); err != nil {
		t.Fatal(err)
	}
	if !readable || text == "" || !utf8.ValidString(text) || r.inert != "" {
		return
	}
	shown := r.show(s)
	again := defaults()
	if err := r.set(again, shown); err != nil || r.show(again) != shown {
		t.Fatalf("%s = %q is shown as %q, which reads back as %q: %v", r.title(), text, shown, r.show(again), err)
	}
}
