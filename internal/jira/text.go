package jira

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fullsend/poll-action/internal/event"
)

// quoted returns text from outside so that it can stand in a log line: one
// line, quoted, cut.
func quoted(s string) string {
	return strconv.Quote(event.Truncate(strings.TrimSpace(s), maxMessage))
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
