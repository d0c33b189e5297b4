package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// The bounds of a harness file; real ones have a few hundred lines.
const (
	maxBytes = 1 << 20
	maxDepth = 64
	maxNodes = 50_000
)

// file is what routing needs of one harness file.
type file struct {
	loc     location
	raw     []byte
	role    text
	trigger text
	base    text
}

// text is a string of the file; node is nil where the key is absent or null.
type text struct {
	value string
	node  *yaml.Node
}

func (t text) set() bool { return t.node != nil && strings.TrimSpace(t.value) != "" }

func (t text) line() int {
	if t.node == nil {
		return 0
	}
	return t.node.Line
}

// parse reads a harness file. Keys that routing does not need are ignored, but
// duplicate keys are errors wherever they are: which of the two holds would
// depend on the reader.
func parse(loc location, raw []byte) (*file, []Problem) {
	p := parser{source: loc.String()}
	f := &file{loc: loc, raw: raw}
	root := p.document(raw)
	if root == nil {
		return f, p.problems
	}
	f.role = p.text(root, "role")
	f.trigger = p.text(root, "trigger")
	f.base = p.text(root, "base")
	return f, p.problems
}

type parser struct {
	source   string
	problems []Problem
	nodes    int
}

func (p *parser) add(line int, what, cure string) {
	if len(p.problems) < 100 {
		p.problems = append(p.problems, Problem{Source: p.source, Line: line, What: what, Cure: cure})
	}
}

func (p *parser) document(raw []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		p.syntax(err)
		return nil
	}
	root := doc.Content[0]
	if !p.scan(root, 0) {
		return nil
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		p.add(second.Line, "a second YAML document begins here", "keep one document; nothing after the second --- would be read")
	} else if !errors.Is(err, io.EOF) {
		p.syntax(err)
	}
	if root.Kind != yaml.MappingNode {
		if root.ShortTag() != "!!null" {
			p.add(root.Line, "a harness must be a mapping of keys to values", "")
		}
		return nil
	}
	return root
}

func (p *parser) syntax(err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	p.add(line, "this is not YAML: "+brief(msg), "")
}

// scan bounds the tree and reports duplicate keys. Aliases are not followed.
func (p *parser) scan(n *yaml.Node, depth int) bool {
	if p.nodes++; p.nodes > maxNodes || depth > maxDepth {
		p.add(n.Line, fmt.Sprintf("the harness has more than %d values or is nested deeper than %d", maxNodes, maxDepth), "")
		return false
	}
	seen := map[string]int{}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Kind == yaml.ScalarNode {
			id := c.ShortTag() + " " + c.Value
			if first, dup := seen[id]; dup {
				p.add(c.Line, fmt.Sprintf("the key %s is here for the second time (first on line %d)", brief(c.Value), first), "remove one of the two")
			}
			seen[id] = c.Line
		}
		if !p.scan(c, depth+1) {
			return false
		}
	}
	return true
}

// text returns a member of the root that must be text, through aliases and
// merge keys.
func (p *parser) text(root *yaml.Node, key string) text {
	n := member(root, key, 0)
	if n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return text{}
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		p.add(n.Line, key+" must be text", "put it in quotes")
		return text{}
	}
	return text{value: n.Value, node: n}
}

// member finds a key, its own before one that is merged in.
func member(n *yaml.Node, key string, depth int) *yaml.Node {
	n = deref(n)
	if n == nil || n.Kind != yaml.MappingNode || depth > 2 {
		return nil
	}
	var merged *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch k := n.Content[i]; {
		case k.Kind == yaml.ScalarNode && k.Value == key:
			return deref(n.Content[i+1])
		case k.ShortTag() == "!!merge":
			merged = deref(n.Content[i+1])
		}
	}
	if merged == nil || merged.Kind != yaml.SequenceNode {
		return member(merged, key, depth+1)
	}
	for i, c := range merged.Content {
		if found := member(c, key, depth+1); found != nil || i > 16 {
			return found
		}
	}
	return nil
}

func deref(n *yaml.Node) *yaml.Node {
	for range 8 {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}
