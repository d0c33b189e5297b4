package github

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
)

const (
	// maxInputs is the number of inputs GitHub takes in one dispatch (since
	// December 2025).
	maxInputs = 25
	// maxInputChars is the size of all inputs of one dispatch. GitHub does not
	// say how it counts; the bytes of the JSON with everything escaped that any
	// encoder escapes are an upper bound.
	maxInputChars = 65535
	// jsonInput is the one input of workflows that take everything as JSON.
	jsonInput = "fullsend"
)

// The names of the inputs (contract, section 6).
const (
	inAgent         = "agent"
	inRole          = "role"
	inSourceRepo    = "source_repo"
	inEventType     = "event_type"
	inEventAction   = "event_action"
	inEventPayload  = "event_payload"
	inTriggerSource = "trigger_source"
	inStatusRepo    = "status_repo"
	inStatusNumber  = "status_number"
	inEvent         = "normalized_event"
	inItemURL       = "work_item_url"
	inItemSource    = "work_item_source"
	inItemKey       = "work_item_key"
	inLockID        = "poll_lock_id"
	inLockDriver    = "poll_lock_driver"
	inLockProperty  = "poll_lock_property"
	inDispatchKey   = "dispatch_key"
)

// InputNames returns the names of all inputs that a dispatch can carry, in the
// contract's order.
func InputNames() []string {
	return []string{
		inAgent, inRole,
		inSourceRepo, inEventType, inEventAction, inEventPayload, inTriggerSource, inStatusRepo, inStatusNumber,
		inEvent,
		inItemURL, inItemSource, inItemKey,
		inLockID, inLockDriver, inLockProperty,
		inDispatchKey,
	}
}

// Inputs makes the inputs of o's dispatch for a workflow that declares
// declared: those of ours that it declares, or, where it declares none of them
// but "fullsend", that one with a JSON object of all, each as text. Where they
// would be too long, text is cut: comment and instruction first, then the
// entity's labels; the JSON stays whole. An order that cannot be made to fit
// is an error of class [dispatch.Permanent].
func Inputs(o dispatch.Order, declared []string) (map[string]string, error) {
	names := ours(declared)
	asJSON := len(names) == 0 && slices.Contains(declared, jsonInput)
	if asJSON {
		names = InputNames()
	}
	if !asJSON && len(names) > maxInputs {
		return nil, permanent(fmt.Errorf("%d inputs, GitHub takes %d", len(names), maxInputs))
	}
	build := func(text, labels int) (map[string]string, error) {
		in, err := allInputs(o, text, labels)
		if err != nil {
			return nil, err
		}
		if asJSON {
			all, err := json.Marshal(in)
			if err != nil {
				return nil, err
			}
			return map[string]string{jsonInput: string(all)}, nil
		}
		picked := make(map[string]string, len(names))
		for _, n := range names {
			picked[n] = in[n]
		}
		return picked, nil
	}
	var buildErr error
	fits := func(text, labels int) bool {
		in, err := build(text, labels)
		if err != nil {
			buildErr = err
			return false
		}
		return inputsSize(in) <= maxInputChars
	}
	text, labels := longestText(o), len(o.Event.State.Labels)
	if !fits(text, labels) {
		text = atMost(text, func(n int) bool { return fits(n, labels) })
		if text < 0 {
			text = 0
			labels = atMost(labels, func(n int) bool { return fits(0, n) })
		}
	}
	switch {
	case buildErr != nil:
		return nil, permanent(fmt.Errorf("inputs of %s: %w", o.Key, buildErr))
	case labels < 0:
		return nil, permanent(fmt.Errorf("inputs of %s: longer than the %d characters GitHub takes, even without comment and labels",
			o.Key, maxInputChars))
	}
	return build(text, labels)
}

// atMost returns the greatest n in [0, limit] that ok, or -1; ok must not
// become true again after it was false.
func atMost(limit int, ok func(int) bool) int {
	return sort.Search(limit+1, func(n int) bool { return !ok(n) }) - 1
}

// allInputs makes every input, with texts of at most text code points and at
// most labels labels of the entity.
func allInputs(o dispatch.Order, text, labels int) (map[string]string, error) {
	ev, ref := o.Event, o.Ref
	if c := ev.Transition.Comment; c != nil {
		short := *c
		short.Body, short.Instruction = event.Truncate(c.Body, text), event.Truncate(c.Instruction, text)
		ev.Transition.Comment = &short
	}
	if c := ref.EventPayload.Comment; c != nil {
		ref.EventPayload.Comment = &dispatch.PayloadComment{Body: event.Truncate(c.Body, text)}
	}
	// Not nil: the document needs a list.
	ev.State.Labels = append([]string{}, ev.State.Labels[:min(labels, len(ev.State.Labels))]...)
	payload, err := json.Marshal(ref.EventPayload)
	if err != nil {
		return nil, fmt.Errorf("event payload: %w", err)
	}
	document, err := json.Marshal(ev)
	if err != nil {
		return nil, fmt.Errorf("normalized event: %w", err)
	}
	key := ev.Entity.Key
	if key == "" {
		key = strconv.FormatInt(ev.Entity.ID, 10)
	}
	in := map[string]string{
		inAgent:         o.Agent,
		inRole:          o.Role,
		inSourceRepo:    ref.SourceRepo,
		inEventType:     ref.EventType,
		inEventAction:   ref.EventAction,
		inEventPayload:  string(payload),
		inTriggerSource: ref.TriggerSource,
		inStatusRepo:    ref.StatusRepo,
		inStatusNumber:  strconv.FormatInt(ref.StatusNumber, 10),
		inEvent:         string(document),
		inItemURL:       ev.Entity.URL,
		inItemSource:    string(ev.Source.System),
		inItemKey:       key,
		inLockID:        o.Lock.ID,
		inLockDriver:    o.Lock.Driver,
		inLockProperty:  o.Lock.Property,
		inDispatchKey:   o.Key,
	}
	for name, v := range in {
		in[name] = strings.ToValidUTF8(v, "\uFFFD")
	}
	return in, nil
}

// longestText is the length in code points of the longest text that may be cut.
func longestText(o dispatch.Order) int {
	n := 0
	if c := o.Event.Transition.Comment; c != nil {
		n = max(utf8.RuneCountInString(c.Body), utf8.RuneCountInString(c.Instruction))
	}
	if c := o.Ref.EventPayload.Comment; c != nil {
		n = max(n, utf8.RuneCountInString(c.Body))
	}
	return n
}

func inputsSize(in map[string]string) int {
	data, err := json.Marshal(in) // escapes <, > and & too
	if err != nil {
		return maxInputChars + 1 // not possible for strings
	}
	return len(data)
}

// ours returns those of declared that are inputs of ours, in our order.
func ours(declared []string) []string {
	var names []string
	for _, n := range InputNames() {
		if slices.Contains(declared, n) {
			names = append(names, n)
		}
	}
	return names
}

func permanent(err error) error { return &dispatch.Error{Class: dispatch.Permanent, Err: err} }
