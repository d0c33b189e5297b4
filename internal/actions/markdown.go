package actions

import (
	"strconv"
	"strings"
	"unicode"
)

// EscapeMarkdown makes text from outside safe in a cell of a Markdown table:
// it shows as it is, on one line, without links, mentions, markup or HTML.
func EscapeMarkdown(s string) string {
	var b strings.Builder
	for _, c := range oneLine(s) {
		switch {
		case c == '@':
			// GitHub looks for mentions after entities are decoded; a zero-width
			// space keeps the name apart.
			b.WriteString("&#64;&#8203;")
		case c < unicode.MaxASCII && !plain(c):
			b.WriteString("&#" + strconv.Itoa(int(c)) + ";")
		case unicode.IsPrint(c):
			b.WriteRune(c)
		default:
			b.WriteByte(' ') // among them those that turn the direction of text
		}
	}
	// GitHub makes a link of what begins with www. even without a scheme.
	return strings.NewReplacer("www.", "www&#46;", "WWW.", "WWW&#46;").Replace(b.String())
}

func plain(c rune) bool {
	return c == ' ' || unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("-.,/()'\"+=?%;", c)
}
