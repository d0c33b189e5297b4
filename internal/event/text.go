package event

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxBody is the length in code points to which comment bodies and
// instructions are cut (NormalizedEvent v1).
const MaxBody = 4096

// maxCommand is the longest command the schema allows.
const maxCommand = 64

// CommandPrefix starts every slash command.
const CommandPrefix = "/fs-"

// ParseCommand reads a slash command from a comment's whole text. command is
// the first blank-separated token of the first line when that line starts with
// "/fs-"; instruction is the rest of that line, trimmed. Both are empty where
// there is no command.
func ParseCommand(body string) (command, instruction string) {
	line := body
	if i := strings.IndexAny(line, "\r\n"); i >= 0 {
		line = line[:i]
	}
	if !strings.HasPrefix(line, CommandPrefix) {
		return "", ""
	}
	end := strings.IndexFunc(line, unicode.IsSpace)
	if end < 0 {
		end = len(line)
	}
	command = line[:end]
	if len(command) == len(CommandPrefix) || utf8.RuneCountInString(command) > maxCommand {
		return "", ""
	}
	return command, strings.TrimSpace(line[end:])
}

// NewComment makes the comment of a comment_added transition from its whole
// text: the command is read first, then body and instruction are cut.
func NewComment(id, body string) *Comment {
	command, instruction := ParseCommand(body)
	return &Comment{
		ID:          Truncate(id, 255),
		Command:     command,
		Body:        Truncate(body, MaxBody),
		Instruction: Truncate(instruction, MaxBody),
	}
}

// Truncate returns the first n code points of s; invalid UTF-8 is replaced.
func Truncate(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count == n {
			return s[:i]
		}
		count++
	}
	return s
}
