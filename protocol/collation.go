package protocol

import (
	"strings"
	"unicode/utf8"
)

// collationOrder lists printable ASCII in the order in which clients collate node
// ids (CLDR root order, punctuation not ignored). A letter's two cases share one
// position; see collationRank.
const collationOrder = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ"

// collationRank holds the first-level position of each printable ASCII character,
// from 1; both cases of a letter have the same rank. Zero marks any other byte.
var collationRank = func() (rank [128]uint8) {
	for i := range len(collationOrder) {
		c := collationOrder[i]
		rank[c] = uint8(i + 1)
		if c >= 'A' && c <= 'Z' {
			rank[c] = rank[c-'A'+'a']
		}
	}
	return rank
}()

// CompareNodeIDs orders two node ids as clients do and returns -1, 0 or 1. For
// printable ASCII it is the platform collation of the clients: characters by
// position with both letter cases equal, then the shorter text, then lower case
// before upper case. If either id holds anything else the order is by UTF-16
// code unit, because collation beyond ASCII depends on each user's locale.
func CompareNodeIDs(a, b string) int {
	if a == b {
		return 0
	}
	if !printableASCII(a) || !printableASCII(b) {
		return CompareText(a, b)
	}
	n := min(len(a), len(b))
	for i := range n {
		if ra, rb := collationRank[a[i]], collationRank[b[i]]; ra != rb {
			return sign(ra < rb)
		}
	}
	if len(a) != len(b) {
		return sign(len(a) < len(b))
	}
	for i := range n {
		if a[i] != b[i] {
			// Equal rank and different bytes: the two cases of one letter.
			return sign(a[i] > b[i])
		}
	}
	return 0
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 128 || collationRank[s[i]] == 0 {
			return false
		}
	}
	return true
}

// CompareText orders texts by UTF-16 code unit, the shorter prefix first, and returns
// -1, 0 or 1. It is the order of tags and keys in what clients hash.
func CompareText(a, b string) int {
	at := 0
	for at < len(a) && at < len(b) && a[at] < utf8.RuneSelf && b[at] < utf8.RuneSelf {
		if a[at] != b[at] {
			return sign(a[at] < b[at])
		}
		at++
	}
	for x, y := a[at:], b[at:]; ; {
		if x == "" || y == "" {
			if len(x) != len(y) {
				return sign(x == "")
			}
			return strings.Compare(a, b) // bytes that are not text count alike
		}
		r, n := utf8.DecodeRuneInString(x)
		s, m := utf8.DecodeRuneInString(y)
		if r != s {
			return sign(unitRank(r) < unitRank(s))
		}
		x, y = x[n:], y[m:]
	}
}

// unitRank is the place of a character in the order of UTF-16 code units, in which those of
// two units come before the last ones of one.
func unitRank(r rune) rune {
	if r >= 0xe000 && r <= 0xffff {
		return r + utf8.MaxRune
	}
	return r
}
