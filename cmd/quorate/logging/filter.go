package logging

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// Filter decides which events are logged, by the name of their logger. The zero
// Filter logs nothing; use ParseFilter.
type Filter struct {
	fallback   hclog.Level
	directives []directive
}

// directive sets the level of the loggers at and below a target.
type directive struct {
	target string
	level  hclog.Level
}

// ParseFilter reads a filter expression: directives separated by commas, each a
// level (for everything that no other directive names) or target=level, or a
// target alone, which logs all of it. Levels are off, error, warn, info, debug and
// trace in any case, or 0 to 5. Segments of a target are separated by "." or "::".
// Without a bare level, unnamed targets log errors only. An empty expression means
// info. Directives on spans ("[...]") are an error.
func ParseFilter(text string) (Filter, error) {
	f := Filter{fallback: hclog.Error}
	if strings.TrimSpace(text) == "" {
		f.fallback = hclog.Info
		return f, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := f.add(part); err != nil {
			return Filter{}, fmt.Errorf("directive %q: %w", part, err)
		}
	}
	return f, nil
}

func (f *Filter) add(part string) error {
	target, levelText, pair := strings.Cut(part, "=")
	if !pair {
		if level, ok := parseLevel(part); ok {
			f.fallback = level
			return nil
		}
		levelText = "trace"
	}
	level, ok := parseLevel(levelText)
	if !ok {
		return fmt.Errorf("unknown level %q", levelText)
	}
	target = normalize(target)
	if !validTarget(target) {
		return fmt.Errorf("unreadable target %q", target)
	}
	f.directives = append(f.directives, directive{target, level})
	return nil
}

func parseLevel(text string) (hclog.Level, bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "off", "0":
		return hclog.Off, true
	case "error", "1":
		return hclog.Error, true
	case "warn", "2":
		return hclog.Warn, true
	case "info", "3":
		return hclog.Info, true
	case "debug", "4":
		return hclog.Debug, true
	case "trace", "5":
		return hclog.Trace, true
	default:
		return hclog.NoLevel, false
	}
}

func normalize(target string) string {
	return strings.ReplaceAll(strings.TrimSpace(target), "::", ".")
}

func validTarget(target string) bool {
	return target != "" && !strings.ContainsFunc(target, func(c rune) bool {
		return c <= ' ' || strings.ContainsRune("[]{}\"'=", c)
	})
}

// Level is the lowest level that the logger called name emits: the longest target
// that covers name wins, the later of equals.
func (f Filter) Level(name string) hclog.Level {
	level, best := f.fallback, -1
	for _, d := range f.directives {
		if n := d.covers(name); n >= 0 && n >= best {
			level, best = d.level, n
		}
	}
	return level
}

// covers returns how many bytes of name the target stands for, -1 if it does not
// cover name. Filters written for other servers of this protocol begin their
// targets with that program's name, so the first segment may be one that we do not
// have; the program's own name alone stands for all loggers.
func (d directive) covers(name string) int {
	target := d.target
	if target == program {
		return 0
	}
	if within(name, target) {
		return len(target)
	}
	if _, rest, ok := strings.Cut(target, "."); ok && within(name, rest) {
		return len(rest)
	}
	return -1
}

func within(name, target string) bool {
	rest, ok := strings.CutPrefix(name, target)
	return ok && (rest == "" || rest[0] == '.')
}
