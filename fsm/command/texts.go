package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
)

// maxTexts is the number of texts that one command has at most.
const maxTexts = 5

// appendTexts appends the lengths of texts and then the texts.
func appendTexts(dst []byte, texts []string) []byte {
	for _, s := range texts {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
	}
	for _, s := range texts {
		dst = append(dst, s...)
	}
	return dst
}

// takeTexts takes what appendTexts appended, up to maxTexts. The texts alias the input.
func takeTexts(r *codec.Reader, fields []*string) {
	var ends [maxTexts]int
	total := 0
	for i := range fields {
		// Each length is at most what is left, so the sum cannot overflow.
		total += r.Count(1)
		ends[i] = total
	}
	taken := r.Take(total)
	if r.Err() != nil {
		return
	}
	texts := codec.View(taken)
	start := 0
	for i, field := range fields {
		*field = texts[start:ends[i]]
		start = ends[i]
	}
}
