package policy

import (
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
)

// normalize gives values that were decoded from JSON and from MsgPack one form: whole
// numbers are int64, others float64, lists []any, maps map[string]any.
func normalize(v any) any {
	switch v := v.(type) {
	case nil, bool, string, int64:
		return v
	case int:
		return int64(v)
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
		return float64(v)
	case float32:
		return normalize(float64(v))
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v)
		}
		return v
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return nil
		}
		return normalize(f)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = normalize(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for k := range v {
			m[k] = normalize(v[k])
		}
		return m
	default:
		return nil // binary data and extensions are no values of conditions
	}
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func has(list []any, v any) bool {
	return slices.ContainsFunc(list, func(item any) bool { return equal(item, v) })
}

// contains tells of a list whether v is in it, of a text whether it is a part.
func contains(in, v any) bool {
	switch in := in.(type) {
	case []any:
		return has(in, v)
	case string:
		part, ok := v.(string)
		return ok && strings.Contains(in, part)
	default:
		return false
	}
}

// containsList tells whether all, or any, of a list are in something.
func containsList(in, values any, all bool) bool {
	list, ok := values.([]any)
	if !ok {
		return false
	}
	for _, v := range list {
		if contains(in, v) != all {
			return !all
		}
	}
	return all
}

// ordered compares two numbers or two texts; values of other types have no order.
func ordered(a, b any, op string) bool {
	order, ok := order(a, b)
	if !ok {
		return false
	}
	switch op {
	case "gt":
		return order > 0
	case "gte":
		return order >= 0
	case "lt":
		return order < 0
	default:
		return order <= 0
	}
}

func order(a, b any) (int, bool) {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	case int64:
		switch b := b.(type) {
		case int64:
			return cmp.Compare(a, b), true
		case float64:
			return cmp.Compare(float64(a), b), !math.IsNaN(b)
		}
	case float64:
		switch b := b.(type) {
		case int64:
			return cmp.Compare(a, float64(b)), !math.IsNaN(a)
		case float64:
			return cmp.Compare(a, b), !math.IsNaN(a) && !math.IsNaN(b)
		}
	}
	return 0, false
}
