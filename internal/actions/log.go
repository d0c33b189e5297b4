package actions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// minSecret is the shortest text that is masked.
const minSecret = 4

// Handler returns a log handler that writes to the runner's log: format "json"
// gives a JSON object per line, all others key=value pairs. Whatever a message
// or an attribute holds, a record is one line, the line begins with neither a
// blank nor "::", it has no "##[" (the runner's older command form, which it
// looks for anywhere in a line), and secrets given to [Runner.Mask] are ***.
func (r *Runner) Handler(format string, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.NewJSONHandler(r.out, o)
	}
	return slog.NewTextHandler(r.out, o)
}

// lineWriter writes whole lines, one per Write. It is the last place where
// what a line may look like is looked after.
type lineWriter struct {
	mu     sync.Mutex
	w      io.Writer
	forms  []string
	masker *strings.Replacer
}

// Write implements [io.Writer] for one log record.
func (l *lineWriter) Write(p []byte) (int, error) {
	line := string(bytes.TrimSpace(p))
	line = strings.Map(func(c rune) rune {
		if c == '\n' || c == '\r' {
			return ' '
		}
		return c
	}, line)
	if strings.HasPrefix(line, "::") {
		line = "|" + line
	}
	line = strings.ReplaceAll(l.redact(line), "##[", `\u0023#[`)
	if err := l.raw(line + "\n"); err != nil {
		return 0, err
	}
	return len(p), nil
}

// line writes one line of our own.
func (l *lineWriter) line(s string) { _, _ = l.Write([]byte(s)) }

func (l *lineWriter) raw(s string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, s)
	return err
}

func (l *lineWriter) redact(s string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.masker == nil {
		return s
	}
	return l.masker.Replace(s)
}

// mask adds a secret; false means that it was known.
func (l *lineWriter) mask(secret string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.forms, secret) {
		return false
	}
	l.forms = append(l.forms, secret, strings.Trim(strconv.Quote(secret), `"`),
		url.QueryEscape(secret), url.PathEscape(secret))
	if inJSON, err := json.Marshal(secret); err == nil {
		l.forms = append(l.forms, strings.Trim(string(inJSON), `"`))
	}
	slices.SortFunc(l.forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	l.forms = slices.Compact(l.forms)
	pairs := make([]string, 0, 2*len(l.forms))
	for _, f := range l.forms {
		pairs = append(pairs, f, "***")
	}
	l.masker = strings.NewReplacer(pairs...)
	return true
}

// commandWriter passes the library's workflow commands through as they are.
type commandWriter struct{ l *lineWriter }

// Write implements [io.Writer].
func (c commandWriter) Write(p []byte) (int, error) {
	if err := c.l.raw(string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
