package event

import (
	"bytes"
	_ "embed" // the schema is part of the program
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed normalized-event.schema.json
var schemaJSON []byte

// SchemaJSON returns the JSON Schema of NormalizedEvent v1.
func SchemaJSON() []byte { return bytes.Clone(schemaJSON) }

// Validator checks events against the JSON Schema of NormalizedEvent v1. Make
// it once; it may be used by many goroutines.
type Validator struct {
	schema func() (*jsonschema.Schema, error)
}

// NewValidator makes a validator. The embedded schema is compiled when the first
// event comes: an idle cycle has none.
func NewValidator() (*Validator, error) {
	return &Validator{schema: sync.OnceValues(compile)}, nil
}

func compile() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		return nil, fmt.Errorf("read the NormalizedEvent schema: %w", err)
	}
	const id = "https://fullsend.ai/normative/normalized-event/v1/normalized-event.schema.json"
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(id, doc); err != nil {
		return nil, fmt.Errorf("add the NormalizedEvent schema: %w", err)
	}
	s, err := c.Compile(id)
	if err != nil {
		return nil, fmt.Errorf("compile the NormalizedEvent schema: %w", err)
	}
	return s, nil
}

// ErrInvalid is matched by every error of [Validator.Validate] and [Decode].
var ErrInvalid = errors.New("invalid NormalizedEvent")

// Validate returns nil for a valid event, else an error that matches
// [ErrInvalid] and names the members at fault.
func (v *Validator) Validate(ev NormalizedEvent) error {
	raw, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return v.validateJSON(raw, ev.Repo)
}

// Decode reads one event document (at most 1 MiB) and validates it; members
// that the schema does not know are refused.
func (v *Validator) Decode(raw []byte) (NormalizedEvent, error) {
	var ev NormalizedEvent
	if len(raw) > 1<<20 {
		return ev, fmt.Errorf("%w: longer than 1 MiB", ErrInvalid)
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		return ev, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := v.validateJSON(raw, ev.Repo); err != nil {
		return NormalizedEvent{}, err
	}
	// a member that stands twice is merged into ev, but only its last form was checked
	if err := v.Validate(ev); err != nil {
		return NormalizedEvent{}, err
	}
	return ev, nil
}

func (v *Validator) validateJSON(raw []byte, repo string) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	schema, err := v.schema()
	if err != nil {
		return err
	}
	if err := schema.Validate(doc); err != nil {
		return fmt.Errorf("%w: %s", ErrInvalid, oneLine(err.Error()))
	}
	for seg := range strings.SplitSeq(repo, "/") {
		if seg == "." || seg == ".." {
			return fmt.Errorf("%w: repo %q has a path segment %q", ErrInvalid, repo, seg)
		}
	}
	return nil
}

// oneLine folds the validator's report into one line and bounds it.
func oneLine(s string) string {
	return Truncate(strings.Join(strings.Fields(s), " "), 600)
}
