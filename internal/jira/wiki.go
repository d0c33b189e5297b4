package jira

import (
	"regexp"
	"strings"

	"github.com/fullsend/poll-action/internal/event"
)

// wikiMarkup finds what is read specially in wiki markup: parts that are taken
// literally, mentions, and links that show their own address. Everything else
// stays as it was written.
var wikiMarkup = regexp.MustCompile(`(?s)\{code(?::[^}\n]*)?\}.*?\{code\}|\{noformat(?::[^}\n]*)?\}.*?\{noformat\}` +
	`|\[~[^\]\n|]+\]|\[https?://[^\]\n|\s]+(?:\|[^\]\n|\s]*)?(?:\|smart-(?:link|card|embed))?\]|\[[^\]\n|]*\|https?://[^\]\n|\s]+\|smart-(?:link|card|embed)\]`)

// readWiki reads a body in wiki markup. A command can stand in its first line
// that is not blank, and only there: what begins with {quote}, {code},
// {noformat}, {panel}, bq., a mention or a bullet does not begin with a command.
func readWiki(s string) body {
	s = event.Truncate(strings.ReplaceAll(s, "\r\n", "\n"), maxText)
	for { // an empty paragraph before the text is none
		line, rest, more := strings.Cut(s, "\n")
		if !more || strings.TrimSpace(line) != "" {
			break
		}
		s = rest
	}
	text := cut(wikiMarkup.ReplaceAllStringFunc(s, plainWiki), maxText)
	lead, _, _ := strings.Cut(text, "\n")
	for i := 0; ; { // a forced line break ends the line too
		n := strings.Index(lead[i:], `\\`)
		if n < 0 {
			break
		}
		i += n + len(`\\`)
		if i == len(lead) || lead[i] == ' ' {
			lead = lead[:i-len(`\\`)]
			break
		}
	}
	return body{Text: text, Lead: lead}
}

// plainWiki is what a reader sees of a mention or a link.
func plainWiki(markup string) string {
	inner := strings.Trim(markup, "[]")
	if name, isMention := strings.CutPrefix(inner, "~"); isMention {
		return "@" + strings.TrimPrefix(name, "accountid:")
	}
	if !strings.HasPrefix(markup, "[") {
		return markup // literal text
	}
	parts := strings.Split(inner, "|")
	shown, target := parts[0], parts[0]
	if len(parts) > 1 {
		target = parts[1]
	}
	switch {
	case len(parts) > 2, shown == target: // a smart link, or one that shows its address
		return target
	case strings.HasPrefix(target, "smart-"): // [address|smart-link]
		return shown
	}
	return markup
}
