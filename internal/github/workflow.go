package github

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxWorkflow bounds a workflow file; GitHub's own limit is 512 KiB.
const maxWorkflow = 1 << 20

// maxAliases bounds a chain of YAML aliases.
const maxAliases = 8

// workflow is what a dispatch needs to know of a workflow file.
type workflow struct {
	dispatchable bool
	inputs       []workflowInput
	runName      string
	// refreshes: some step has the command that refreshes the lock.
	refreshes bool
}

type workflowInput struct {
	name       string
	kind       string // boolean, choice, number, environment, string; "" is string
	required   bool
	hasDefault bool
}

func (w workflow) declared() []string {
	names := make([]string, len(w.inputs))
	for i, in := range w.inputs {
		names[i] = in.name
	}
	return names
}

// readWorkflow reads a workflow file. It is lenient about everything that a
// dispatch does not depend on.
func readWorkflow(data []byte) (workflow, error) {
	if len(data) > maxWorkflow {
		return workflow{}, fmt.Errorf("longer than %d bytes", maxWorkflow)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return workflow{}, err
	}
	if len(doc.Content) == 0 {
		return workflow{}, errors.New("empty")
	}
	root := follow(doc.Content[0])
	if root == nil || root.Kind != yaml.MappingNode {
		return workflow{}, errors.New("not a workflow: no mapping at the top")
	}
	w := workflow{refreshes: bytes.Contains(data, []byte("lock-refresh")) || bytes.Contains(data, []byte("lock refresh"))}
	if n := lookup(root, "run-name"); n != nil && n.Kind == yaml.ScalarNode {
		w.runName = n.Value
	}
	on := lookup(root, "on")
	if on == nil {
		return w, errors.New(`no "on"`)
	}
	const trigger = "workflow_dispatch"
	switch on.Kind {
	case yaml.ScalarNode:
		w.dispatchable = on.Value == trigger
	case yaml.SequenceNode:
		for _, n := range on.Content {
			if n = follow(n); n != nil && n.Kind == yaml.ScalarNode && n.Value == trigger {
				w.dispatchable = true
			}
		}
	case yaml.MappingNode:
		w.dispatchable = has(on, trigger)
		w.inputs = readInputs(lookup(lookup(on, trigger), "inputs"))
	case yaml.DocumentNode, yaml.AliasNode: // follow leaves none
	}
	return w, nil
}

func readInputs(inputs *yaml.Node) []workflowInput {
	if inputs == nil || inputs.Kind != yaml.MappingNode {
		return nil
	}
	var out []workflowInput
	for i := 0; i+1 < len(inputs.Content); i += 2 {
		name, def := follow(inputs.Content[i]), follow(inputs.Content[i+1])
		if name == nil || name.Kind != yaml.ScalarNode {
			continue
		}
		in := workflowInput{name: name.Value, hasDefault: has(def, "default")}
		if n := lookup(def, "type"); n != nil {
			in.kind = n.Value
		}
		if n := lookup(def, "required"); n != nil {
			in.required = strings.EqualFold(n.Value, "true")
		}
		out = append(out, in)
	}
	return out
}

// has says that m is a mapping with key, whatever its value.
func has(m *yaml.Node, key string) bool {
	_, ok := find(m, key)
	return ok
}

// lookup returns m's value under key; nil where there is none.
func lookup(m *yaml.Node, key string) *yaml.Node {
	v, _ := find(m, key)
	return v
}

func find(m *yaml.Node, key string) (*yaml.Node, bool) {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if k := follow(m.Content[i]); k != nil && k.Kind == yaml.ScalarNode && k.Value == key {
			return follow(m.Content[i+1]), true
		}
	}
	return nil, false
}

// follow returns what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for range maxAliases {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}
