package sim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// markup is a body as the site stores it: on Data Center an ADF document
// becomes the wiki markup that its editor would have written; anything else is
// kept, broken or not.
func (j *Jira) markup(body any) any {
	doc, isDoc := body.(map[string]any)
	if !j.dc || !isDoc || doc["type"] != "doc" {
		return body
	}
	// Tests write documents with typed slices as well.
	raw, err := json.Marshal(doc)
	if err != nil {
		return body
	}
	var n adf
	if json.Unmarshal(raw, &n) != nil {
		return body
	}
	return strings.TrimRight(j.wikiBlocks(n.Content, ""), "\n")
}

// adf is a node of a document.
type adf struct {
	Type    string         `json:"type"`
	Text    string         `json:"text"`
	Attrs   map[string]any `json:"attrs"`
	Content []adf          `json:"content"`
	Marks   []adf          `json:"marks"`
}

func (n adf) attr(name string) string {
	if n.Attrs[name] == nil {
		return ""
	}
	return fmt.Sprint(n.Attrs[name])
}

// wikiBlocks writes blocks, each with a line's end; bullets is the prefix of
// list items.
func (j *Jira) wikiBlocks(nodes []adf, bullets string) string {
	var b strings.Builder
	for i, n := range nodes {
		if i > 0 && bullets == "" {
			b.WriteString("\n")
		}
		switch n.Type {
		case "heading":
			b.WriteString("h" + n.attr("level") + ". " + j.wikiInline(n.Content) + "\n")
		case "codeBlock":
			b.WriteString("{code}\n" + j.wikiInline(n.Content) + "\n{code}\n")
		case "blockquote":
			b.WriteString("{quote}\n" + j.wikiBlocks(n.Content, "") + "{quote}\n")
		case "panel":
			b.WriteString("{panel}\n" + j.wikiBlocks(n.Content, "") + "{panel}\n")
		case "rule":
			b.WriteString("----\n")
		case "bulletList":
			b.WriteString(j.wikiBlocks(n.Content, bullets+"*"))
		case "orderedList":
			b.WriteString(j.wikiBlocks(n.Content, bullets+"#"))
		case "listItem":
			b.WriteString(bullets + " " + strings.TrimPrefix(j.wikiBlocks(n.Content, bullets), bullets+" "))
		case "paragraph":
			b.WriteString(j.wikiInline(n.Content) + "\n")
		default:
			if len(n.Content) > 0 && n.Content[0].Type != "text" {
				b.WriteString(j.wikiBlocks(n.Content, bullets))
			} else {
				b.WriteString(j.wikiInline(append([]adf{n}, n.Content...)) + "\n")
			}
		}
	}
	return b.String()
}

// wikiInline writes a line's nodes.
func (j *Jira) wikiInline(nodes []adf) string {
	var b strings.Builder
	for _, n := range nodes {
		switch n.Type {
		case "hardBreak":
			b.WriteString("\n")
		case "mention":
			b.WriteString("[~" + j.AccountName(n.attr("id")) + "]")
		case "inlineCard", "blockCard":
			b.WriteString("[" + n.attr("url") + "]")
		case "emoji":
			b.WriteString(n.attr("shortName"))
		default:
			b.WriteString(marked(n))
		}
	}
	return b.String()
}

// marked is a text in its marks.
func marked(n adf) string {
	text := n.Text
	for _, m := range n.Marks {
		switch m.Type {
		case "strong":
			text = "*" + text + "*"
		case "em":
			text = "_" + text + "_"
		case "strike":
			text = "-" + text + "-"
		case "code":
			text = "{{" + text + "}}"
		case "link":
			text = "[" + text + "|" + m.attr("href") + "]"
		}
	}
	return text
}
