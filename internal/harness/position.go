package harness

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// lineOf returns the line of the file for a place in the trigger's text (line
// from 1, column from 0). YAML may have folded the text, so lines cannot simply
// be added; but folding changes blanks only, and the n-th other character of
// the text is the n-th of the file. Where an escape breaks that, the line that
// was reached is near enough.
func (f *file) lineOf(line, column int) int {
	n := f.trigger.node
	rest := f.raw
	for at := 1; at < n.Line; at++ {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return n.Line
		}
		rest = rest[i+1:]
	}
	at := n.Line
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return at
		}
		rest, at = rest[i+1:], at+1
	default:
		rest = skip(rest, n.Column-1)
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			rest = skip(rest, 1)
		}
	}
	for _, want := range before(n.Value, line, column) {
		if unicode.IsSpace(want) {
			continue
		}
		for {
			got, size := utf8.DecodeRune(rest)
			if size == 0 || !unicode.IsSpace(got) && got != want {
				return at
			}
			rest = rest[size:]
			if got == want {
				break
			}
			if got == '\n' {
				at++
			}
		}
	}
	return at
}

// before returns the text up to and including a place; that character's own
// line is wanted, so it is included.
func before(text string, line, column int) string {
	lines := strings.SplitAfter(text, "\n")
	if line < 1 || line > len(lines) {
		return text
	}
	last := lines[line-1]
	end := len(last)
	for i := range last {
		if column < 0 {
			end = i
			break
		}
		column--
	}
	return strings.Join(lines[:line-1], "") + last[:end]
}

// skip drops n runes.
func skip(b []byte, n int) []byte {
	for ; n > 0 && len(b) > 0; n-- {
		_, size := utf8.DecodeRune(b)
		b = b[size:]
	}
	return b
}
