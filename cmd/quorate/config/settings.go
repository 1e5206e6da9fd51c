package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate"
)

// Settings is what the command line and the environment ask for.
type Settings struct {
	// Server configures the node.
	Server quorate.ServerConfig
	// LogFilter is the RUST_LOG expression, LogJSON the choice of JSON lines.
	LogFilter string
	LogJSON   bool
	// Embedding is the parsed provider of semantic search.
	Embedding Embedding

	// given holds, by row, what was set and where; inert, by variable, the text of
	// settings that nothing reads yet.
	given map[*row]given
	inert map[string]string
}

// given is the text of one setting and where it came from.
type given struct {
	text string
	flag bool
}

// Problem is one reason why the settings cannot be used.
type Problem struct {
	// Name is the flag or variable at fault, as the operator spelled it. Empty for
	// a command line that cannot be read at all.
	Name string
	// Reason says what is wrong. It never contains a secret.
	Reason string
}

// String renders p on one line.
func (p Problem) String() string {
	if p.Name == "" {
		return p.Reason
	}
	return p.Name + ": " + p.Reason
}

// Load reads the settings from args (without the program's name) and from the
// environment through lookup, which returns "" for a variable that is not set; an
// empty variable counts as not set. A flag wins over its variable, a variable over
// the default. All problems are reported together; the settings are usable only if
// there are none. The error is ErrHelp, when args ask for help, or nil.
func Load(args []string, lookup func(string) string) (*Settings, []Problem, error) {
	s := defaults()
	flags, err := parseFlags(args)
	if errors.Is(err, ErrHelp) {
		return nil, nil, err
	}
	var problems []Problem
	if err != nil {
		problems = append(problems, Problem{Reason: err.Error()})
	}
	for i := range table {
		r := &table[i]
		g, ok := find(r, flags, lookup)
		if !ok {
			continue
		}
		s.given[r] = g
		if err := r.set(s, g.text); err != nil {
			problems = append(problems, Problem{Name: s.label(r), Reason: err.Error()})
		}
	}
	for _, p := range append(s.checkServer(), s.checkCombination()...) {
		// A value that could not be read left its default behind, which must not be
		// blamed on the operator.
		if !slices.ContainsFunc(problems, func(q Problem) bool { return q.Name == p.Name }) {
			problems = append(problems, p)
		}
	}
	return s, problems, nil
}

func defaults() *Settings {
	s := &Settings{
		Server:    quorate.DefaultServerConfig(),
		LogFilter: "info",
		given:     make(map[*row]given),
		inert:     make(map[string]string),
	}
	s.Server.NodeID = "service-server-node"
	s.Server.Network.Port = 8080
	return s
}

func find(r *row, flags map[string]string, lookup func(string) string) (given, bool) {
	if text, ok := flags[r.flag]; ok && r.flag != "" {
		return given{text: text, flag: true}, true
	}
	if r.name == "" {
		return given{}, false
	}
	text := lookup(r.name)
	return given{text: text}, text != ""
}

// label is the spelling of r that the operator used, or should use.
func (s *Settings) label(r *row) string {
	if g, ok := s.given[r]; r.name == "" || ok && g.flag {
		return "--" + r.flag
	}
	return r.name
}

// checkServer gives the problems of the server configuration the names of the
// settings that fill its fields.
func (s *Settings) checkServer() []Problem {
	var problems []Problem
	for _, err := range joined(s.Server.Validate()) {
		var field *quorate.FieldError
		if !errors.As(err, &field) {
			problems = append(problems, Problem{Reason: err.Error()})
			continue
		}
		problems = append(problems, s.fieldProblem(field))
	}
	return problems
}

func (s *Settings) fieldProblem(field *quorate.FieldError) Problem {
	for i := range table {
		r := &table[i]
		if r.field != field.Field {
			continue
		}
		reason := field.Reason
		if r.hint != "" {
			reason = fmt.Sprintf("%s (%s)", reason, r.hint)
		}
		return Problem{Name: s.label(r), Reason: reason}
	}
	return Problem{Reason: field.Error()}
}

// joined returns the errors that errors.Join put together.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	return []error{err}
}

// isGiven reports whether the named variable or flag was set.
func (s *Settings) isGiven(name string) bool {
	for r := range s.given {
		if r.name == name || r.flag == name {
			return true
		}
	}
	return false
}
