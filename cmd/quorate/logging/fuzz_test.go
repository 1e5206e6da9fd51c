package logging

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// FuzzParseFilter holds that a filter is refused, or gives each logger a level: the same
// one when the filter is written twice, and of a filter that is one level that one.
func FuzzParseFilter(f *testing.F) {
	for _, text := range []string{"", "info", "OFF", "5", "warn,transport=debug", "quorate::transport=trace,quorate=error", "ws", "a=", "=", "[span]=info", " , ,", "transport.ws=4"} {
		f.Add(text, "transport.ws")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		filter, err := ParseFilter(text)
		if err != nil {
			if len(filter.directives) > 0 {
				t.Fatalf("%q: %v with %d directives", text, err, len(filter.directives))
			}
			return
		}
		level := filter.Level(name)
		if level < hclog.Trace || level > hclog.Off {
			t.Fatalf("%q gives %q level %v", text, name, level)
		}
		if strings.TrimSpace(text) == "" {
			return
		}
		twice, err := ParseFilter(text + "," + text)
		if err != nil || twice.Level(name) != level {
			t.Fatalf("%q twice gives %q level %v, not %v: %v", text, name, twice.Level(name), level, err)
		}
		if only, ok := parseLevel(text); ok && level != only {
			t.Fatalf("%q gives %q level %v", text, name, level)
		}
	})
}
