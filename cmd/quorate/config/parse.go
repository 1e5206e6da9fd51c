package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// whole parses a decimal number of at most bits bits.
func whole(bits int, set func(s *Settings, n uint64)) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		n, err := parseWhole(text, bits)
		if err == nil {
			set(s, n)
		}
		return err
	}
}

func parseWhole(text string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number from 0 to %d", text, uint64(math.MaxUint64)>>(64-bits))
	}
	return n, nil
}

func port(field func(*Settings) *uint16) func(*Settings, string) error {
	return whole(16, func(s *Settings, n uint64) { *field(s) = uint16(n) })
}

// millis parses milliseconds that a time.Duration can hold.
func millis(field func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		n, err := parseWhole(text, 64)
		if err != nil {
			return err
		}
		if n > math.MaxInt64/uint64(time.Millisecond) {
			return fmt.Errorf("%q milliseconds is too long", text)
		}
		*field(s) = time.Duration(n) * time.Millisecond
		return nil
	}
}

// truthy parses a security switch. A value that is neither clearly on nor clearly
// off is refused: guessing could turn authentication off, or leave it off.
func truthy(field func(*Settings) *bool) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "true", "1":
			*field(s) = true
		case "", "false", "0":
			*field(s) = false
		default:
			return fmt.Errorf("%q is neither true or 1 nor false or 0", text)
		}
		return nil
	}
}

// list parses comma-separated items; blanks around items and empty items count
// for nothing.
func list(field func(*Settings) *[]string) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		var items []string
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		*field(s) = items
		return nil
	}
}

func number[N ~int | ~int64 | ~uint8 | ~uint16 | ~uint64](n N) string { return fmt.Sprint(n) }

// inertRow is a setting of the contract that is read and shown but changes
// nothing yet, for the reason given.
func inertRow(name, kind, fallback, meaning, inert string) row {
	r := row{name: name, kind: kind, meaning: meaning, inert: inert}
	r.set = func(s *Settings, text string) error { s.inert[name] = text; return nil }
	r.show = func(s *Settings) string { return orDefault(s.inert[name], fallback) }
	return r
}
