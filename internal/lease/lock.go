// Package lease is a write-then-verify lock over a store that can only get, put
// and delete, such as an entity property of a work item. It promises that never
// two holders pass [Lease.Verify] for the same item at the same time, as long
// as a read sees every completed write and every contender keeps the rule of
// [Locker] (Fischer's mutual exclusion; docs/adr/0003-lock-protocol.md).
package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Phase is where a lock is in its life.
type Phase string

// The phases of a lock.
const (
	// Pending: taken by a poller, or dispatched and not yet refreshed by its run.
	Pending Phase = "pending"
	// Running: refreshed by the run it was handed to.
	Running Phase = "running"
)

// Run is one workflow run that works under a lock.
type Run struct {
	Agent string `json:"agent"`
	ID    int64  `json:"run_id"`
	URL   string `json:"run_url,omitempty"`
	// Created is when the output says that the run was created; zero where that is
	// not known. It is not stored.
	Created time.Time `json:"-"`
}

// Lock is the value kept in the store (contract, section 4). ID, TS and Phase
// are always present; RunID and RunURL repeat the first of Runs.
type Lock struct {
	ID     string    `json:"id"`
	TS     time.Time `json:"ts"`
	Phase  Phase     `json:"phase"`
	Driver string    `json:"driver,omitempty"`
	RunID  int64     `json:"run_id,omitempty"`
	RunURL string    `json:"run_url,omitempty"`
	Runs   []Run     `json:"runs,omitempty"`
}

// Caps on what is believed of a stored lock: anybody who may edit the work item
// can write it.
const (
	maxLockBytes = 32 << 10
	maxIDLen     = 128
	maxRuns      = 64
	// MaxSkew is how far ahead of the server's clock a time stamp may lie and
	// still be believed.
	MaxSkew = time.Minute
)

// ErrMalformed is matched by every error of [Decode].
var ErrMalformed = errors.New("malformed lock")

// Decode reads a stored lock. Whatever it refuses counts as no lock at all.
// Unknown members are ignored and members of the wrong type are dropped where
// the lock can be understood without them.
func Decode(raw []byte) (Lock, error) {
	if len(raw) > maxLockBytes {
		return Lock{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(raw))
	}
	var wire struct {
		ID     json.RawMessage `json:"id"`
		TS     json.RawMessage `json:"ts"`
		Phase  json.RawMessage `json:"phase"`
		Driver json.RawMessage `json:"driver"`
		RunID  json.RawMessage `json:"run_id"`
		RunURL json.RawMessage `json:"run_url"`
		Runs   json.RawMessage `json:"runs"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return Lock{}, fmt.Errorf("%w: not a JSON object", ErrMalformed)
	}
	l := Lock{ID: text(wire.ID), Phase: Phase(text(wire.Phase)), Driver: text(wire.Driver)}
	if l.ID == "" || len(l.ID) > maxIDLen || strings.ContainsFunc(l.ID, func(r rune) bool { return r < ' ' }) {
		return Lock{}, fmt.Errorf("%w: no usable id", ErrMalformed)
	}
	ts, err := time.Parse(time.RFC3339Nano, text(wire.TS))
	if err != nil {
		return Lock{}, fmt.Errorf("%w: ts is no RFC 3339 time", ErrMalformed)
	}
	l.TS = ts
	if l.Phase != Running {
		l.Phase = Pending // other pollers may know other words for "not yet running"
	}
	l.RunID = integer(wire.RunID)
	l.RunURL = text(wire.RunURL)
	var runs []json.RawMessage
	if json.Unmarshal(wire.Runs, &runs) == nil {
		for _, r := range runs[:min(len(runs), maxRuns)] {
			run, ok := decodeRun(r)
			if ok && !slices.ContainsFunc(l.Runs, func(have Run) bool { return have.ID == run.ID }) {
				l.Runs = append(l.Runs, run)
			}
		}
	}
	if len(l.Runs) == 0 && l.RunID > 0 {
		l.Runs = []Run{{ID: l.RunID, URL: l.RunURL}}
	}
	return l, nil
}

func decodeRun(raw json.RawMessage) (Run, bool) {
	var wire struct {
		Agent json.RawMessage `json:"agent"`
		ID    json.RawMessage `json:"run_id"`
		URL   json.RawMessage `json:"run_url"`
	}
	if json.Unmarshal(raw, &wire) != nil {
		return Run{}, false
	}
	r := Run{Agent: text(wire.Agent), ID: integer(wire.ID), URL: text(wire.URL)}
	return r, r.ID > 0
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func integer(raw json.RawMessage) int64 {
	var n int64
	if json.Unmarshal(raw, &n) != nil || n < 0 {
		return 0
	}
	return n
}

// Encode writes the lock as it is stored. Texts that somebody blew up beyond
// what [Decode] would believe are left out; ids are always kept.
func (l Lock) Encode() ([]byte, error) {
	l.TS = l.TS.UTC()
	if len(l.Runs) > 0 {
		l.RunID, l.RunURL = l.Runs[0].ID, l.Runs[0].URL
	}
	raw, err := json.Marshal(l)
	if err != nil || len(raw) <= maxLockBytes {
		return raw, err
	}
	l.Driver, l.RunURL, l.Runs = "", "", slices.Clone(l.Runs)
	for i, r := range l.Runs {
		l.Runs[i] = Run{ID: r.ID}
	}
	return json.Marshal(l)
}

// WithRun returns the lock with r among its runs; a run that is already there
// is replaced, never doubled. A run without an id cannot be told from others and
// is left out.
func (l Lock) WithRun(r Run) Lock {
	if r.ID <= 0 {
		return l
	}
	runs := make([]Run, 0, len(l.Runs)+1)
	found := false
	for _, have := range l.Runs {
		if have.ID == r.ID {
			if r.Agent == "" {
				r.Agent = have.Agent
			}
			have, found = r, true
		}
		runs = append(runs, have)
	}
	if !found && len(runs) < maxRuns {
		runs = append(runs, r)
	}
	l.Runs = runs
	l.RunID, l.RunURL = runs[0].ID, runs[0].URL
	return l
}

// without returns the lock without the given runs.
func (l Lock) without(gone []Run) Lock {
	runs := make([]Run, 0, len(l.Runs))
	for _, have := range l.Runs {
		if !slices.ContainsFunc(gone, func(r Run) bool { return r.ID == have.ID }) {
			runs = append(runs, have)
		}
	}
	l.Runs, l.RunID, l.RunURL = runs, 0, ""
	if len(runs) > 0 {
		l.RunID, l.RunURL = runs[0].ID, runs[0].URL
	}
	return l
}

// Names reports whether the lock names the run.
func (l Lock) Names(id int64) bool {
	return slices.ContainsFunc(l.Runs, func(r Run) bool { return r.ID == id })
}

// Fresh reports whether the lock still keeps others out at now (the server's
// clock): younger than threshold, and not dated further ahead than clocks
// differ.
func (l Lock) Fresh(now time.Time, threshold time.Duration) bool {
	age := now.Sub(l.TS)
	return age < threshold && age > -MaxSkew
}
