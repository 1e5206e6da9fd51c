package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// ErrHelp is returned when the command line asks for help.
var ErrHelp = flag.ErrHelp

// parseFlags returns the text of each flag that was given, by name. Values are
// looked at later, by the table.
func parseFlags(args []string) (map[string]string, error) {
	given := make(map[string]string)
	fs := flag.NewFlagSet("quorate", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for i := range table {
		name := table[i].flag
		if name == "" {
			continue
		}
		fs.Func(name, table[i].meaning, func(text string) error {
			if _, twice := given[name]; twice {
				return errors.New("given more than once")
			}
			given[name] = text
			return nil
		})
	}
	if err := fs.Parse(args); err != nil {
		return given, err
	}
	if fs.NArg() > 0 {
		return given, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return given, nil
}
