package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// The bounds of a file. Real ones have under 200 lines; the bounds only keep a
// hostile one from costing memory or time.
const (
	maxBytes    = 1 << 20
	maxDepth    = 64
	maxNodes    = 50_000
	maxProblems = 100
	maxItems    = 500
	maxText     = 4096
)

type node = yaml.Node

const (
	scalarNode   = yaml.ScalarNode
	mappingNode  = yaml.MappingNode
	sequenceNode = yaml.SequenceNode
)

// reader walks a document and collects problems; it never stops at the first.
type reader struct {
	lookup   Lookup
	opts     Options
	problems Problems
}

func newReader(lookup Lookup, opts Options) *reader {
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	return &reader{lookup: lookup, opts: opts}
}

func (r *reader) add(line int, path, what, cure string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{Line: line, Path: path, What: what, Cure: cure})
	}
}

// document returns the root mapping, nil for an empty file or an unusable one
// (then there is a problem).
func (r *reader) document(raw []byte) *node {
	if len(raw) > maxBytes {
		r.add(0, "", "the configuration is longer than 1 MiB", "a configuration has a few hundred lines; check which file this is")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		r.syntax(err)
		return nil
	}
	root := doc.Content[0]
	nodes := 0
	if !r.scan(root, "", 0, &nodes) {
		return nil
	}
	var second node
	if err := dec.Decode(&second); err == nil {
		line := second.Line
		if len(second.Content) > 0 {
			line = second.Content[0].Line
		}
		r.add(line, "", "a second YAML document begins here", "keep one document; nothing after the second --- would be read")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
	}
	if isNull(root) {
		return nil
	}
	if root.Kind != mappingNode {
		r.add(root.Line, "", "the configuration is not a mapping of keys to values", "")
		return nil
	}
	return root
}

// syntax reports a file that is not YAML. The parser's sentence is kept where
// it quotes nothing from the file.
func (r *reader) syntax(err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	if i := strings.IndexAny(msg, "'\"`"); i >= 0 {
		msg = strings.TrimSpace(msg[:i]) + " …"
	}
	r.add(line, "", "this is not YAML: "+msg, "")
}

// scan bounds the tree and reports duplicate keys everywhere. Aliases are not
// followed: what they stand for is scanned where it is written.
func (r *reader) scan(n *node, path string, depth int, nodes *int) bool {
	if *nodes++; *nodes > maxNodes || depth > maxDepth {
		r.add(n.Line, "", fmt.Sprintf("the configuration has more than %d values or is nested deeper than %d", maxNodes, maxDepth), "")
		return false
	}
	seen := map[string]int{}
	for i, c := range n.Content {
		sub := path
		switch {
		case n.Kind == sequenceNode:
			sub = fmt.Sprintf("%s[%d]", path, i)
		case n.Kind == mappingNode && i%2 == 0:
			r.duplicate(c, path, seen)
		case n.Kind == mappingNode && n.Content[i-1].Kind == scalarNode:
			sub = join(path, n.Content[i-1].Value)
		}
		if len(sub) > 200 {
			sub = path
		}
		if !r.scan(c, sub, depth+1, nodes) {
			return false
		}
	}
	return true
}

// duplicate reports a key that was seen before in the same mapping.
func (r *reader) duplicate(key *node, path string, seen map[string]int) {
	if key.Kind != scalarNode {
		return
	}
	id := key.ShortTag() + " " + key.Value
	if first, dup := seen[id]; dup {
		r.add(key.Line, path, fmt.Sprintf("the key %s is here for the second time (first on line %d)", shown(key.Value), first), "remove one of the two")
	}
	seen[id] = key.Line
}

// field is one member of a mapping.
type field struct {
	key   string
	line  int
	path  string
	value *node
}

// open returns the members of a mapping, each key once; what is not a mapping
// is a problem.
func (r *reader) open(n *node, path string) []field {
	if n == nil {
		return nil
	}
	n = deref(n)
	if n.Kind != mappingNode {
		if !isNull(n) {
			r.add(n.Line, path, "this must be a mapping of keys to values, not "+kindName(n), "")
		}
		return nil
	}
	var out []field
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := deref(n.Content[i])
		if k.Kind != scalarNode || seen[k.Value] {
			continue
		}
		seen[k.Value] = true
		out = append(out, field{key: k.Value, line: k.Line, path: join(path, k.Value), value: deref(n.Content[i+1])})
	}
	return out
}

// strict is [reader.open] for a mapping in which every key must be known.
// elsewhere are keys that exist, but not here, with the place they belong to.
func (r *reader) strict(n *node, path string, elsewhere map[string]string, known ...string) []field {
	var out []field
	for _, f := range r.open(n, path) {
		if slices.Contains(known, f.key) {
			out = append(out, f)
			continue
		}
		cure := "the keys here are " + strings.Join(known, ", ")
		near := nearest(f.key, known)
		switch {
		case elsewhere[f.key] != "":
			cure = "this key belongs to " + elsewhere[f.key]
		case f.key == "<<":
			cure = "merge keys are not read in this section; write the keys out"
		case near != "":
			cure = fmt.Sprintf("did you mean %q?", near)
		}
		word := shown(f.key)
		if strings.HasSuffix(path, ".connection") && near == "" && elsewhere[f.key] == "" {
			word = "(not repeated here: it may be a secret)"
		}
		r.add(f.line, path, "unknown key "+word, cure)
	}
	return out
}

func (r *reader) list(n *node, path string) []*node {
	if isNull(n) {
		return nil
	}
	if n.Kind != sequenceNode {
		r.add(n.Line, path, "this must be a list, not "+kindName(n), "begin each entry with \"- \"")
		return nil
	}
	if len(n.Content) > maxItems {
		r.add(n.Line, path, fmt.Sprintf("the list has more than %d entries", maxItems), "")
		return nil
	}
	out := make([]*node, len(n.Content))
	for i, c := range n.Content {
		out[i] = deref(c)
	}
	return out
}

// text returns a string value of a moderate length; ok is false (and there is a
// problem) for everything else and for a blank one.
func (r *reader) text(n *node, path string) (string, bool) { return r.textUpTo(maxText, n, path) }

// textUpTo is [reader.text] with the longest length in characters.
func (r *reader) textUpTo(most int, n *node, path string) (string, bool) {
	switch {
	case n.Kind != scalarNode || n.ShortTag() != "!!str" && !isNull(n):
		r.add(n.Line, path, "this must be text, not "+kindName(n), "put it in quotes")
	case strings.TrimSpace(n.Value) == "" || isNull(n):
		r.add(n.Line, path, "this is empty", "write a value or remove the key")
	case utf8.RuneCountInString(n.Value) > most:
		r.add(n.Line, path, fmt.Sprintf("this is longer than %d characters", most), "")
	default:
		return strings.TrimSpace(n.Value), true
	}
	return "", false
}

func (r *reader) boolean(n *node, path string) bool {
	var b bool
	if n.Kind != scalarNode || n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
		r.add(n.Line, path, "this must be true or false, not "+kindName(n), "write true or false without quotes")
	}
	return b
}

// integer reads a whole number between 1 and hi into dst.
func (r *reader) integer(f field, hi int, dst *int) {
	var i int
	n := f.value
	if n.Kind != scalarNode || n.ShortTag() != "!!int" || n.Decode(&i) != nil {
		r.add(n.Line, f.path, "this must be a whole number, not "+kindName(n), "")
		return
	}
	if i < 1 || i > hi {
		r.add(n.Line, f.path, fmt.Sprintf("%d is not between 1 and %d", i, hi), "")
		return
	}
	*dst = i
}

// choice reads one of a closed set of words into dst.
func (r *reader) choice(f field, dst *string, words ...string) {
	v, ok := r.text(f.value, f.path)
	if !ok {
		return
	}
	if !slices.Contains(words, v) {
		cure := "the choices are " + strings.Join(words, ", ")
		r.add(f.value.Line, f.path, shown(v)+" is not one of the choices", cure)
		return
	}
	*dst = v
}

func deref(n *node) *node {
	for range maxDepth {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			return n
		}
		n = n.Alias
	}
	return &node{Kind: scalarNode, Tag: "!!null", Line: n.Line}
}

func isNull(n *node) bool { return n.Kind == scalarNode && n.ShortTag() == "!!null" }

func kindName(n *node) string {
	if n.Kind == mappingNode {
		return "a mapping"
	}
	if n.Kind == sequenceNode {
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!timestamp":
		return "a date"
	}
	return "text"
}

func join(path, key string) string {
	if len(key) >= maxShown {
		key = "…"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// maxShown is the length from which a word of the file is not repeated in a
// report: a secret that slipped into the wrong place is longer.
const maxShown = 24

// shown quotes a word of the file for a report. Longer ones are repeated where
// they look like the name of a key.
func shown(s string) string {
	if len(s) >= maxShown && !regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`).MatchString(s) || len(s) > 2*maxShown {
		return fmt.Sprintf("(%d bytes, not repeated here)", len(s))
	}
	return strconv.Quote(s)
}

// nearest returns the word with the smallest edit distance, "" when none is
// near enough to be a misspelling.
func nearest(s string, words []string) string {
	best, at := "", 4
	if len(s) > 2*maxShown {
		return ""
	}
	for _, w := range words {
		if d := distance(s, w); d < at && d < max(2, len(w)) {
			best, at = w, d
		}
	}
	return best
}

// distance is the edit distance of two short words.
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
