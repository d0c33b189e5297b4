// Package ledger is the signed state that the GitLab drivers share: the document
// state.json of a state branch, its canonical bytes and signature, the entries
// that newer pollers carry inside the failed keys so that older ones keep them,
// the keys of occurrences, and the rules by which two writers' changes merge.
//
// It is pure: bytes and values in, bytes and values out, no clock, no I/O. A
// driver makes a [Seal] once, turns a stored file into a [State] with
// [Seal.Decode], asks it questions, collects what it did in a [Delta], and on
// every attempt to commit merges that onto the state just loaded with [Apply]
// and stores [Seal.Encode] of the result (ADR 132; docs/adr/0012).
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// FileName is the document's name on its branch (specification, section 1.1).
const FileName = "state.json"

// The caps of a document, for reading and for writing. The specification has none;
// a document of 8 MiB holds about 30,000 dispatched keys with their replay entries.
const (
	// MaxBytes bounds the file.
	MaxBytes = 8 << 20
	// MaxKeys bounds each of the document's maps.
	MaxKeys = 100_000
	// MaxLabels bounds the labels of one issue.
	MaxLabels = 1000
)

// Mode selects one of the two documents, and with it the branch and the fields.
type Mode string

// The modes (specification, section 6.1).
const (
	// Slash is the document of slash commands: the fields that end in _fast.
	Slash Mode = "slash"
	// Events is the document of everything else: label_state and the fields that
	// end in _full.
	Events Mode = "events"
)

// Branch is the name of the branch that holds the mode's document
// (specification, section 1.1).
func (m Mode) Branch() string { return "fullsend-poll-state-" + string(m) }

// failedField is the name of the mode's map of failed keys.
func (m Mode) failedField() string {
	if m == Slash {
		return "failed_keys_fast"
	}
	return "failed_keys_full"
}

// Errors that callers branch on.
var (
	// ErrMalformed says that the file is not a document within the caps. Its branch is
	// deleted and the cycle fails (specification, section 1.3).
	ErrMalformed = errors.New("malformed")
	// ErrTampered says that the signature is absent or wrong. The branch is deleted and the
	// cycle fails (specification, section 1.3).
	ErrTampered = errors.New("tampered")
	// ErrNoSecret says that there is no key to sign with. Nothing is read or written
	// (specification, section 1.3).
	ErrNoSecret = errors.New("no dispatch secret")
	// ErrTooLarge says that the state does not fit into the caps. Nothing is written.
	ErrTooLarge = errors.New("too large")
)

// document is state.json. The order of the fields is that of the signed bytes
// (specification, section 2).
type document struct {
	LastPollAtFast     string             `json:"last_poll_at_fast,omitempty"`
	LastPollAtFull     string             `json:"last_poll_at_full,omitempty"`
	LabelState         map[int64][]string `json:"label_state,omitempty"`
	DispatchedKeysFast map[string]int64   `json:"dispatched_keys_fast,omitempty"`
	DispatchedKeysFull map[string]int64   `json:"dispatched_keys_full,omitempty"`
	FailedKeysFast     map[string]int     `json:"failed_keys_fast,omitempty"`
	FailedKeysFull     map[string]int     `json:"failed_keys_full,omitempty"`
	HMAC               string             `json:"hmac,omitempty"`
}

// bytes is the document as stored: compact, map keys sorted as bytes, HTML
// characters escaped, empty fields absent, no newline at the end.
func (d document) bytes() []byte {
	raw, _ := json.Marshal(d) //nolint:errchkjson // strings, integers, maps and lists of them always encode
	return raw
}

// canonical is what the signature covers: the document without its hmac, in the
// form that a reader finds when it encodes what it has decoded. That differs from
// bytes for text that is not UTF-8, which is written \ufffd and read as one rune.
func (d document) canonical() []byte {
	d.HMAC = ""
	return d.bytes()
}

// normal is the document as a reader decodes it.
func (d document) normal() (document, error) {
	var n document
	err := json.Unmarshal(d.bytes(), &n)
	return n, err
}

// parse reads a stored document; unknown fields are ignored.
func parse(raw []byte) (document, error) {
	if len(raw) > MaxBytes {
		return document{}, fmt.Errorf("%w: it has %d bytes, and at most %d are read", ErrMalformed, len(raw), MaxBytes)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return document{}, fmt.Errorf("%w: it is not JSON of the state's schema", ErrMalformed)
	}
	if excess := d.excess(); excess != "" {
		return document{}, fmt.Errorf("%w: %s", ErrMalformed, excess)
	}
	return d, nil
}

// excess says which cap the document exceeds, if any.
func (d document) excess() string {
	for _, m := range []struct {
		field string
		n     int
	}{
		{"label_state", len(d.LabelState)},
		{"dispatched_keys_fast", len(d.DispatchedKeysFast)},
		{"dispatched_keys_full", len(d.DispatchedKeysFull)},
		{"failed_keys_fast", len(d.FailedKeysFast)},
		{"failed_keys_full", len(d.FailedKeysFull)},
	} {
		if m.n > MaxKeys {
			return fmt.Sprintf("%s has %d keys, and at most %d are allowed", m.field, m.n, MaxKeys)
		}
	}
	for iid, labels := range d.LabelState {
		if len(labels) > MaxLabels {
			return fmt.Sprintf("issue %d has %d labels, and at most %d are allowed", iid, len(labels), MaxLabels)
		}
	}
	return ""
}

// Seal reads and writes the signed documents of one mode and one project. Get one
// from [NewSeal]; the zero value refuses everything with [ErrNoSecret].
type Seal struct {
	mode    Mode
	project string
	secret  string
}

// NewSeal makes a seal before anything is requested. project is the project's full
// path ("group/subgroup/project"); secret is FULLSEND_DISPATCH_SECRET as it is, not
// decoded. Without a secret the error is [ErrNoSecret] (specification, sections 1.3
// and 3).
func NewSeal(mode Mode, project, secret string) (Seal, error) {
	switch {
	case secret == "":
		return Seal{}, fmt.Errorf("the state of project %q is neither read nor written without its key (%w): set FULLSEND_DISPATCH_SECRET", project, ErrNoSecret)
	case mode != Slash && mode != Events:
		return Seal{}, fmt.Errorf("there is no poll mode %q: use %q or %q", mode, Slash, Events)
	case project == "" || strings.ContainsAny(project, "\r\n"):
		return Seal{}, fmt.Errorf("%q is not a project's path: use the form \"group/project\"", project)
	}
	return Seal{mode: mode, project: project, secret: secret}, nil
}

// Mode is the mode whose documents the seal reads and writes.
func (s Seal) Mode() Mode { return s.mode }

// Decode verifies a stored document and returns this mode's part of it. Replay
// entries are back among the dispatched keys, handoffs and the mirror ledger are in
// their fields, and Failed has what is left: real counts and keys that nobody here
// knows. warnings has one sentence for each in-band entry that cannot be decoded and
// is dropped (specification, sections 1.3, 3 and 5). Errors are [ErrMalformed],
// [ErrTampered] and [ErrNoSecret]; after the first two the caller deletes the branch.
func (s Seal) Decode(raw []byte) (state State, warnings []string, err error) {
	if s.secret == "" {
		return State{}, nil, fmt.Errorf("a document cannot be verified without its key (%w): set FULLSEND_DISPATCH_SECRET", ErrNoSecret)
	}
	d, err := parse(raw)
	if err != nil {
		return State{}, nil, fmt.Errorf("the state on branch %q is %w; delete the branch to start from the baseline", s.mode.Branch(), err)
	}
	if !s.genuine(d) {
		return State{}, nil, fmt.Errorf("the state on branch %q is %w, its signature is absent or not that of project %q; delete the branch to start from the baseline", s.mode.Branch(), ErrTampered, s.project)
	}
	state, warnings = open(s.mode, d)
	return state, warnings, nil
}

// Encode returns the signed bytes of a state: this mode's fields, every dispatched
// key once more as a replay entry, handoffs and ledger as entries among the failed
// keys (specification, sections 1.1, 2, 3 and 5). Equal states give equal bytes.
// Errors are [ErrNoSecret], [ErrTooLarge], a state of another mode, and a slash
// state with labels, handoffs or mirrors, which its document has no place for.
func (s Seal) Encode(state State) ([]byte, error) {
	switch {
	case s.secret == "":
		return nil, fmt.Errorf("a document cannot be signed without its key (%w): set FULLSEND_DISPATCH_SECRET", ErrNoSecret)
	case state.Mode != s.mode:
		return nil, fmt.Errorf("the state is of mode %q and the seal of mode %q: use the seal that decoded it", state.Mode, s.mode)
	case s.mode == Slash && len(state.Labels)+len(state.Pending)+len(state.Mirrors) > 0:
		return nil, errors.New("the slash document has no place for labels, handoffs and mirrors: write them to the events document")
	}
	d, err := state.document().normal()
	if err != nil {
		return nil, fmt.Errorf("the state cannot be encoded: report this as a defect: %w", err)
	}
	d.HMAC = s.sign(d)
	raw := d.bytes()
	excess := d.excess()
	if len(raw) > MaxBytes {
		excess = fmt.Sprintf("it has %d bytes, and at most %d are allowed", len(raw), MaxBytes)
	}
	if excess != "" {
		return nil, fmt.Errorf("the state for branch %q is %w, %s; delete the branch to start from the baseline", s.mode.Branch(), ErrTooLarge, excess)
	}
	return raw, nil
}
