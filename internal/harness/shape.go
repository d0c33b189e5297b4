package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fullsend/poll-action/internal/event"
)

// shape is what the JSON Schema says about one member of an event: enough to
// know which paths exist and which objects are optional.
type shape struct {
	kind     string // JSON type
	members  map[string]*shape
	required map[string]bool
}

type schemaNode struct {
	Ref        string                 `json:"$ref"`
	Type       string                 `json:"type"`
	Properties map[string]*schemaNode `json:"properties"`
	Required   []string               `json:"required"`
	Defs       map[string]*schemaNode `json:"$defs"`
}

// newShape reads the schema that the event package carries.
func newShape() (*shape, error) {
	var root schemaNode
	if err := json.Unmarshal(event.SchemaJSON(), &root); err != nil {
		return nil, fmt.Errorf("read the NormalizedEvent schema: %w", err)
	}
	return root.shape(&root, 0)
}

func (n *schemaNode) shape(root *schemaNode, depth int) (*shape, error) {
	if depth > 16 {
		return nil, errors.New("the NormalizedEvent schema refers to itself")
	}
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		if root.Defs[name] == nil {
			return nil, fmt.Errorf("the NormalizedEvent schema has no definition %q", name)
		}
		return root.Defs[name].shape(root, depth+1)
	}
	s := &shape{kind: n.Type, members: map[string]*shape{}, required: map[string]bool{}}
	for name, p := range n.Properties {
		sub, err := p.shape(root, depth+1)
		if err != nil {
			return nil, err
		}
		s.members[name] = sub
	}
	for _, name := range n.Required {
		s.required[name] = true
	}
	return s, nil
}

// optionalObject reports whether a member is an object that an event may lack.
func (s *shape) optionalObject(name string) bool {
	if s == nil {
		return false
	}
	m := s.members[name]
	return m != nil && m.kind == "object" && !s.required[name]
}

// find follows a path of member names; nil where the schema does not know it.
func (s *shape) find(path []string) *shape {
	for _, name := range path {
		if s = s.members[name]; s == nil {
			return nil
		}
	}
	return s
}

// paths lists every path under s, sorted, each beginning with prefix.
func (s *shape) paths(prefix string) []string {
	var out []string
	for name, m := range s.members {
		p := prefix + "." + name
		out = append(append(out, p), m.paths(p)...)
	}
	slices.Sort(out)
	return out
}

// nearest returns the path that somebody who wrote this unknown one most likely
// meant: the same last name elsewhere before a name that contains it, a similar
// name after that, and then the smallest difference of the whole.
func (s *shape) nearest(path string) string {
	leaf := path[strings.LastIndexByte(path, '.')+1:]
	best, bestLeaf, bestWhole := "", 0, 0
	for _, p := range s.paths("event") {
		name := p[strings.LastIndexByte(p, '.')+1:]
		d := 2 * distance(leaf, name)
		if d > 0 && slices.Contains(strings.Split(name, "_"), leaf) {
			d = 1
		}
		whole := distance(path, p)
		if best == "" || d < bestLeaf || d == bestLeaf && whole < bestWhole {
			best, bestLeaf, bestWhole = p, d, whole
		}
	}
	return best
}

// distance is the edit distance of two short texts.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(row[j]+1, row[j-1]+1, diag+cost)
		}
	}
	return row[len(b)]
}
