package jira

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// An edit has a key of its own, also one that leaves the text as it is: whoever
// changes only who may see a comment edits it. So the journal keeps a digest of
// what a comment said when it was dispatched, and an edit that says the same
// dispatches nothing.

// digestBytes is how much of the hash is kept; it tells texts of one comment
// apart and protects nothing.
const digestBytes = 8

// heard remembers what a comment says; a nil State remembers nothing.
func (s *State) heard(issueID, commentID, text string) {
	if s == nil { // a reader without a store
		return
	}
	sum := sha256.Sum256([]byte(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(issueID)
	if r.said == nil {
		r.said = map[string]string{}
	}
	r.said[commentID] = hex.EncodeToString(sum[:digestBytes])
}

// untold reports whether key is that of a comment that says what it said when it
// was last dispatched to the same agent.
func (r *record) untold(key string) bool {
	agent, comment, ok := commentOf(key)
	if !ok || r.said[comment] == "" {
		return false
	}
	var last entry
	for k, e := range r.seen.Keys {
		if a, c, ok := commentOf(k); ok && a == agent && c == comment && e.T >= last.T {
			last = e
		}
	}
	return last.H == r.said[comment]
}

// commentOf takes the dispatch key of a comment or of its edit apart; ok is false
// for the keys of anything else.
func commentOf(key string) (agent, comment string, ok bool) {
	agent, rest, ok := strings.Cut(key, ":comment-")
	comment, _, _ = strings.Cut(rest, "-")
	return agent, comment, ok
}
