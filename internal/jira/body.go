package jira

import (
	"encoding/json"
	"errors"
	"io"
)

// decodeBody reads a JSON document into out. Where it is nested too deep for the
// decoder, its deepest parts count as null: anybody who may edit an issue can
// store such a value, and one issue must not hide all others.
func decodeBody(r io.Reader, out any) error {
	raw, err := io.ReadAll(r) // httpx bounds it
	if err != nil {
		return err
	}
	err = json.Unmarshal(raw, out)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		if flat := flatten(raw, maxNesting); len(flat) < len(raw) {
			return json.Unmarshal(flat, out)
		}
	}
	return err
}

// maxNesting is deeper than any document of Jira's own.
const maxNesting = 1000

// flatten replaces every array and object that lies deeper than depth by null.
func flatten(raw []byte, depth int) []byte {
	flat := make([]byte, 0, len(raw))
	level, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		keep := level <= depth
		switch {
		case quoted && c == '\\' && i+1 < len(raw):
			if keep {
				flat = append(flat, c)
			}
			i++
			c = raw[i]
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if level++; level == depth+1 {
				flat = append(flat, "null"...)
			}
			keep = level <= depth
		case c == ']' || c == '}':
			level--
		}
		if keep {
			flat = append(flat, c)
		}
	}
	return flat
}
