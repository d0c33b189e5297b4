package actions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxEvent bounds the event file; GitHub's own payloads end at 25 MB, those
// that an action is started with are far smaller.
const maxEvent = 10 << 20

// Event is the event that started the workflow.
type Event struct {
	// Name is the event's name, for example "workflow_dispatch".
	Name string
	// Action is the payload's action, if it has one.
	Action string
	// Inputs are those of a workflow_dispatch, as text; never nil.
	Inputs map[string]string
	// Payload is everything; numbers are [json.Number].
	Payload map[string]any
}

// Event reads the event file that GITHUB_EVENT_PATH names, at most 10 MiB.
func (r *Runner) Event() (Event, error) {
	path := r.getenv("GITHUB_EVENT_PATH")
	if path == "" {
		return Event{}, errors.New("GITHUB_EVENT_PATH is not set; this works in a workflow run only")
	}
	f, err := os.Open(path)
	if err != nil {
		return Event{}, fileError("GITHUB_EVENT_PATH", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxEvent+1))
	if err != nil {
		return Event{}, fileError("GITHUB_EVENT_PATH", err)
	}
	if len(data) > maxEvent {
		return Event{}, fmt.Errorf("GITHUB_EVENT_PATH: the event is longer than %d bytes", maxEvent)
	}
	ev, err := parseEvent(data)
	if err != nil {
		return Event{}, fmt.Errorf("GITHUB_EVENT_PATH: %w", err)
	}
	ev.Name = r.getenv("GITHUB_EVENT_NAME")
	return ev, nil
}

func parseEvent(data []byte) (Event, error) {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	dec.UseNumber()
	ev := Event{Inputs: map[string]string{}}
	if err := dec.Decode(&ev.Payload); err != nil {
		return Event{}, fmt.Errorf("the event is not a JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Event{}, errors.New("the event is followed by something else")
	}
	ev.Action, _ = ev.Payload["action"].(string)
	inputs, ok := ev.Payload["inputs"].(map[string]any)
	if v := ev.Payload["inputs"]; v != nil && !ok {
		return Event{}, errors.New("the event's inputs are not an object")
	}
	for name, v := range inputs {
		switch v := v.(type) {
		case nil:
		case string:
			ev.Inputs[name] = v
		case bool, json.Number:
			ev.Inputs[name] = fmt.Sprint(v)
		default:
			return Event{}, fmt.Errorf("the event's input %q is neither text, number nor boolean", name)
		}
	}
	return ev, nil
}
