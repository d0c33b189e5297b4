package sim

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// workflow is a workflow file on all refs that have it.
type workflow struct {
	id      int64
	file    string
	state   string
	created time.Time
	at      map[string]definition
}

func (w *workflow) path() string { return ".github/workflows/" + w.file }

// definition is what a workflow file says on one ref.
type definition struct {
	source     string
	name       string
	runName    string
	dispatched bool
	inputs     map[string]inputDecl
}

type inputDecl struct {
	Required bool     `yaml:"required"`
	Default  any      `yaml:"default"`
	Type     string   `yaml:"type"`
	Options  []string `yaml:"options"`
}

// parseWorkflow reads a workflow file. The key "on" arrives as the text "on"
// here whether it is quoted or not; "true" is what other YAML writers make of
// it.
func parseWorkflow(file, source string) definition {
	d := definition{source: source, name: ".github/workflows/" + file}
	var doc struct {
		Name    string    `yaml:"name"`
		RunName string    `yaml:"run-name"`
		On      yaml.Node `yaml:"on"`
		OnTrue  yaml.Node `yaml:"true"`
	}
	if yaml.Unmarshal([]byte(source), &doc) != nil {
		return d
	}
	if doc.Name != "" {
		d.name = doc.Name
	}
	d.runName = doc.RunName
	on := doc.On
	if on.IsZero() {
		on = doc.OnTrue
	}
	if on.Kind == yaml.AliasNode && on.Alias != nil {
		on = *on.Alias
	}
	switch on.Kind {
	case yaml.ScalarNode:
		d.dispatched = on.Value == "workflow_dispatch"
	case yaml.SequenceNode:
		var events []string
		d.dispatched = on.Decode(&events) == nil && slices.Contains(events, "workflow_dispatch")
	case yaml.MappingNode:
		var events map[string]yaml.Node
		if on.Decode(&events) != nil {
			return d
		}
		event, found := events["workflow_dispatch"]
		d.dispatched = found
		var trigger struct {
			Inputs map[string]inputDecl `yaml:"inputs"`
		}
		if found && event.Decode(&trigger) == nil {
			d.inputs = trigger.Inputs
		}
	case yaml.DocumentNode, yaml.AliasNode:
	default: // no trigger, or one that GitHub would refuse
	}
	return d
}

var expression = regexp.MustCompile(`\$\{\{(.*?)\}\}`)

// title renders run-name; without one, a run is titled by its workflow.
// Expressions may be an input, a quoted text, or several of them with ||
// between; anything else is empty.
func (d definition) title(inputs map[string]string) string {
	if d.runName == "" {
		return d.name
	}
	return strings.TrimSpace(expression.ReplaceAllStringFunc(d.runName, func(e string) string {
		for term := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(e, "${{"), "}}"), "||") {
			if value := evaluate(strings.TrimSpace(term), inputs); value != "" {
				return value
			}
		}
		return ""
	}))
}

func evaluate(term string, inputs map[string]string) string {
	if text, ok := strings.CutPrefix(term, "'"); ok {
		return strings.ReplaceAll(strings.TrimSuffix(text, "'"), "''", "'")
	}
	term = strings.TrimPrefix(term, "github.event.")
	if name, ok := strings.CutPrefix(term, "inputs."); ok {
		return inputs[name]
	}
	if name, ok := strings.CutPrefix(term, "inputs['"); ok {
		return inputs[strings.TrimSuffix(name, "']")]
	}
	return ""
}

// resolve checks the inputs of a dispatch against the declarations and adds
// the defaults; problem is GitHub's refusal.
func (d definition) resolve(sent map[string]any) (inputs map[string]string, problem string) {
	inputs = map[string]string{}
	var unexpected []string
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if _, declared := d.inputs[name]; !declared {
			unexpected = append(unexpected, fmt.Sprintf("%q", name))
			continue
		}
		text, isText := sent[name].(string)
		if !isText {
			return nil, fmt.Sprintf("Invalid value for input '%s'", name)
		}
		inputs[name] = text
	}
	if len(unexpected) > 0 {
		return nil, "Unexpected inputs provided: [" + strings.Join(unexpected, ", ") + "]"
	}
	for _, name := range slices.Sorted(maps.Keys(d.inputs)) {
		decl := d.inputs[name]
		value, given := inputs[name]
		if !given && decl.Default != nil {
			value = fmt.Sprint(decl.Default)
			inputs[name] = value
		}
		if decl.Required && value == "" {
			return nil, fmt.Sprintf("Required input '%s' not provided", name)
		}
		allowed := decl.Options
		if decl.Type == "boolean" {
			allowed = []string{"true", "false"}
		}
		if given && (decl.Type == "choice" || decl.Type == "boolean") && !slices.Contains(allowed, value) {
			return nil, fmt.Sprintf("Provided value '%s' for input '%s' not in the list of allowed values", value, name)
		}
	}
	return inputs, ""
}
