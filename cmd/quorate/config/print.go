package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes every setting with its effective value, where it came from, and
// what it means. Secrets are masked. The error is that of w.
func (s *Settings) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SETTING\tVALUE\tSOURCE\tMEANING")
	for i := range table {
		r := &table[i]
		meaning := r.meaning
		if r.inert != "" {
			meaning += " (no effect: " + r.inert + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.title(), s.value(r), s.source(r), meaning)
	}
	return t.Flush()
}

// title is the spelling of r in documents.
func (r *row) title() string {
	switch {
	case r.name == "":
		return "--" + r.flag
	case r.flag == "":
		return r.name
	default:
		return "--" + r.flag + ", " + r.name
	}
}

// value is the effective value of r, safe to print on one line.
func (s *Settings) value(r *row) string {
	text := r.show(s)
	switch {
	case r.secret && text != "":
		return "(set)"
	case text == "":
		return "(none)"
	case strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }):
		return fmt.Sprintf("%q", text)
	default:
		return text
	}
}

func (s *Settings) source(r *row) string {
	switch g, ok := s.given[r]; {
	case !ok:
		return "default"
	case g.flag:
		return "flag"
	default:
		return "environment"
	}
}

// Usage writes the help text of the server: its flags and variables with type,
// default and meaning. The error is that of w.
func Usage(w io.Writer) error {
	b := bufio.NewWriter(w)
	s := defaults()
	fmt.Fprintln(b, "Flags:")
	for i := range table {
		if r := &table[i]; r.flag != "" {
			describe(b, s, r, "--"+r.flag+" <"+r.kind+">")
		}
	}
	fmt.Fprintln(b, "\nEnvironment (a flag wins over its variable; an empty variable counts as not set;")
	fmt.Fprintln(b, "no other variable is read, except by the Go runtime, such as GOMAXPROCS):")
	for i := range table {
		if r := &table[i]; r.name != "" {
			describe(b, s, r, r.name+" <"+r.kind+">")
		}
	}
	return b.Flush()
}

func describe(w io.Writer, s *Settings, r *row, head string) {
	fallback := "no default"
	if r.show(s) != "" {
		fallback = "default " + s.value(r)
	}
	meaning := r.meaning
	if r.inert != "" {
		meaning += "; no effect: " + r.inert
	}
	fmt.Fprintf(w, "  %s\n      %s (%s)\n", head, meaning, fallback)
}
