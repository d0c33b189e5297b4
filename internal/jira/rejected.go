package jira

import "bytes"

// Rejected reports whether a value that [State.Get] returned stands for a lock
// that is there and is not trusted: its signature is missing or wrong.
func Rejected(value []byte) bool { return bytes.Equal(value, []byte(rejected)) }
