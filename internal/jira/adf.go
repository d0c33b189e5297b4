package jira

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/event"
)

// Caps on a document of the Atlassian Document Format: it comes from anybody who
// may comment. What lies beyond them is left out of the text.
const (
	maxDepth = 64
	maxNodes = 20_000
	maxText  = 64 << 10
	// maxWork bounds the bytes that are parsed, each level's anew.
	maxWork = 8 << 20
)

// node is one ADF node, read tolerantly: attributes of the wrong type are
// treated as absent.
type node struct {
	Type    string            `json:"type"`
	Text    string            `json:"text"`
	Attrs   json.RawMessage   `json:"attrs"`
	Content []json.RawMessage `json:"content"`
}

func parseNode(raw json.RawMessage) (node, bool) {
	var n node
	if json.Unmarshal(raw, &n) == nil {
		return n, true
	}
	// one member of the wrong type must not hide the others
	var loose struct {
		Type    json.RawMessage `json:"type"`
		Text    json.RawMessage `json:"text"`
		Attrs   json.RawMessage `json:"attrs"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &loose) != nil {
		return node{}, false
	}
	_ = json.Unmarshal(loose.Type, &n.Type)
	_ = json.Unmarshal(loose.Text, &n.Text)
	_ = json.Unmarshal(loose.Content, &n.Content)
	n.Attrs = loose.Attrs
	return n, true
}

// attr returns the first of the named attributes that is a non-empty text.
func (n node) attr(names ...string) string {
	attrs := members(n.Attrs)
	for _, name := range names {
		var s string
		if json.Unmarshal(attrs[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// body is a comment's body as text.
type body struct {
	// Text is the whole document as plain text.
	Text string
	// Lead is the text of the first paragraph when the document begins with one,
	// else empty: only there can a command stand, not in a quote, a list, a
	// panel or a code block.
	Lead string
}

// readBody reads a comment's body: an ADF document, or a text in wiki markup (API
// version 2). Anything else reads as empty.
func readBody(raw json.RawMessage) body {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return readWiki(s)
	}
	w := &walker{}
	doc, ok := w.parse(raw)
	if !ok {
		return body{}
	}
	b := body{}
	blocks := make([]string, 0, len(doc.Content))
	for _, c := range doc.Content {
		n, ok := w.parse(c)
		if !ok {
			continue
		}
		text := strings.TrimRight(w.block(n, 1), " \t\n")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(blocks) == 0 && n.Type == "paragraph" {
			b.Lead = text
		}
		blocks = append(blocks, text)
	}
	b.Text = strings.Join(blocks, "\n")
	return b
}

// comment makes the transition's comment: the command is read from the leading
// paragraph only.
func (b body) comment(id string) *event.Comment {
	c := event.NewComment(id, b.Text)
	c.Command, c.Instruction = event.ParseCommand(b.Lead)
	c.Instruction = event.Truncate(c.Instruction, event.MaxBody)
	return c
}

type walker struct{ nodes, bytes, work int }

// parse reads a node, as long as the work's bound allows.
func (w *walker) parse(raw json.RawMessage) (node, bool) {
	if w.work += len(raw); w.work > maxWork {
		return node{}, false
	}
	return parseNode(raw)
}

// block returns a block node's text; its own blocks stand on lines of their own.
func (w *walker) block(n node, depth int) string {
	if !w.enter(depth) {
		return ""
	}
	switch n.Type {
	case "rule":
		return ""
	case "mediaSingle", "mediaGroup", "media":
		return ""
	case "blockCard", "embedCard":
		return w.take(card(n))
	}
	var out strings.Builder
	inline := true
	for _, raw := range n.Content {
		c, ok := w.parse(raw)
		if !ok {
			continue
		}
		if isInline(c) {
			if !inline {
				out.WriteByte('\n')
			}
			inline = true
			out.WriteString(w.inline(c, depth+1))
			continue
		}
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
		inline = false
		out.WriteString(w.block(c, depth+1))
	}
	if out.Len() == 0 && len(n.Content) == 0 {
		return w.take(n.fallback())
	}
	if n.Type == "blockquote" {
		return cut("> "+strings.ReplaceAll(out.String(), "\n", "\n> "), maxText)
	}
	return out.String()
}

// inline returns an inline node's text.
func (w *walker) inline(n node, depth int) string {
	if !w.enter(depth) {
		return ""
	}
	switch n.Type {
	case "text":
		return w.take(n.Text)
	case "hardBreak":
		return "\n"
	case "mention":
		text := n.attr("text", "id")
		if text != "" && !strings.HasPrefix(text, "@") {
			text = "@" + text
		}
		if text == "" {
			text = "@unknown"
		}
		return w.take(text)
	case "emoji":
		return w.take(n.attr("text", "shortName", "id"))
	case "inlineCard":
		return w.take(card(n))
	case "date":
		return w.take(date(n))
	case "status", "placeholder":
		return w.take(n.attr("text"))
	}
	if len(n.Content) > 0 { // an inline node that we do not know, with content
		var out strings.Builder
		for _, raw := range n.Content {
			if c, ok := w.parse(raw); ok {
				out.WriteString(w.inline(c, depth+1))
			}
		}
		return out.String()
	}
	return w.take(n.fallback())
}

// fallback is the text of a node that we do not know.
func (n node) fallback() string {
	if n.Text != "" {
		return n.Text
	}
	return n.attr("text", "title", "url", "shortName", "alt")
}

func card(n node) string {
	if url := n.attr("url"); url != "" {
		return url
	}
	var data struct {
		URL  string `json:"url"`
		Name string `json:"name"`
	}
	_ = json.Unmarshal(members(n.Attrs)["data"], &data)
	if data.URL != "" {
		return data.URL
	}
	return data.Name
}

// date renders a date node: its time stamp is Unix milliseconds as text.
func date(n node) string {
	ts := n.attr("timestamp")
	ms, err := strconv.ParseInt(ts, 10, 64)
	if err != nil || ms < 0 || ms > maxUnixMilli {
		return ts
	}
	return time.UnixMilli(ms).UTC().Format(time.DateOnly)
}

func isInline(n node) bool {
	switch n.Type {
	case "text", "hardBreak", "mention", "emoji", "inlineCard", "date", "status", "placeholder",
		"inlineExtension", "mediaInline", "unsupportedInline", "confluenceUnsupportedInline":
		return true
	}
	return false
}

func (w *walker) enter(depth int) bool {
	w.nodes++
	return depth <= maxDepth && w.nodes <= maxNodes
}

func (w *walker) take(s string) string {
	left := maxText - w.bytes
	if left <= 0 {
		return ""
	}
	s = cut(s, left)
	w.bytes += len(s)
	return s
}

// cut returns at most n bytes of s.
func cut(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}
