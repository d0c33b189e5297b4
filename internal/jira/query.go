package jira

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// CheckQuery refuses a JQL text that could not be wrapped in parentheses safely:
// unbalanced quotes or parentheses would let it escape the wrapping.
func CheckQuery(jql string) error {
	where, _, err := splitOrderBy(jql)
	if err != nil {
		return err
	}
	if where == "" {
		return errors.New("the query has no condition, only an order")
	}
	return nil
}

const maxQuery = 10_000

// splitOrderBy splits a JQL text into its condition and its own order (without
// the words ORDER BY). Quoted text is skipped; parentheses must balance.
func splitOrderBy(jql string) (where, order string, err error) {
	if len(jql) > maxQuery {
		return "", "", fmt.Errorf("the query has %d characters, at most %d are sent", len(jql), maxQuery)
	}
	depth, at := 0, -1
	for i := 0; i < len(jql); i++ {
		switch c := jql[i]; c {
		case '"', '\'':
			end := closing(jql, i)
			if end < 0 {
				return "", "", errors.New("the query has a quote that is not closed")
			}
			i = end
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return "", "", errors.New("the query closes a parenthesis that it did not open")
			}
		case '\\':
			i++ // the next character is meant literally
		default:
			if at < 0 && depth == 0 && (c == 'o' || c == 'O') && orderBy(jql, i) > 0 {
				at = i
			}
		}
	}
	if depth != 0 {
		return "", "", errors.New("the query opens a parenthesis that it does not close")
	}
	where = strings.TrimSpace(jql)
	if at >= 0 {
		where, order = strings.TrimSpace(jql[:at]), strings.TrimSpace(jql[at+orderBy(jql, at):])
		if order == "" {
			return "", "", errors.New("the query ends with ORDER BY and names no field")
		}
	}
	if escaping(where) || escaping(order) {
		return "", "", errors.New("the query ends with a backslash, which would escape what follows")
	}
	return where, order, nil
}

// escaping reports whether s ends with a backslash that is not escaped itself.
func escaping(s string) bool { return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1 }

// closing returns the index of the quote that closes the one at i, or -1.
func closing(s string, i int) int {
	for j := i + 1; j < len(s); j++ {
		switch s[j] {
		case '\\':
			j++
		case s[i]:
			return j
		}
	}
	return -1
}

// orderBy returns the length of the words ORDER BY at i, 0 when they are not
// there as words of their own.
func orderBy(s string, i int) int {
	if before, _ := utf8.DecodeLastRuneInString(s[:i]); i > 0 && !separator(before) {
		return 0
	}
	rest := s[i:]
	if len(rest) < 5 || !strings.EqualFold(rest[:5], "order") {
		return 0
	}
	trimmed := strings.TrimLeftFunc(rest[5:], unicode.IsSpace)
	if len(trimmed) == len(rest)-5 || len(trimmed) < 2 || !strings.EqualFold(trimmed[:2], "by") {
		return 0
	}
	if after, _ := utf8.DecodeRuneInString(trimmed[2:]); len(trimmed) > 2 && !separator(after) {
		return 0
	}
	return len(rest) - len(trimmed) + 2
}

func separator(r rune) bool {
	return unicode.IsSpace(r) || r == ')' || r == '(' || r == '"' || r == '\''
}

// searchQuery wraps the user's condition once in parentheses and bounds it to
// what was updated since a time, given as a number of milliseconds: text dates
// are read in the account's own zone and to the minute. A query that brings its
// own order keeps it. A zero since adds no bound.
func searchQuery(jql string, since time.Time) (query string, ownOrder bool, err error) {
	where, order, err := splitOrderBy(jql)
	if err != nil {
		return "", false, err
	}
	var parts []string
	if where != "" {
		parts = append(parts, "("+where+")")
	}
	if !since.IsZero() {
		parts = append(parts, "updated >= "+strconv.FormatInt(since.UnixMilli(), 10))
	}
	if len(parts) == 0 {
		parts = []string{"updated >= 0"} // Jira refuses a query without a condition
	}
	ownOrder = order != ""
	if !ownOrder {
		order = "updated DESC"
	}
	return strings.Join(parts, " AND ") + " ORDER BY " + order, ownOrder, nil
}

// stableQuery wraps the user's condition like [searchQuery], without a bound and in
// an order that nothing changes while the pages are read.
func stableQuery(jql string) (string, error) {
	where, _, err := splitOrderBy(jql)
	if err != nil {
		return "", err
	}
	query, _, err := searchQuery(where+" ORDER BY created ASC", time.Time{})
	return query, err
}
