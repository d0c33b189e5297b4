package jira

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/event"
)

// doc is a document of the given blocks, each written as JSON.
func doc(blocks ...string) string {
	return `{"type":"doc","version":1,"content":[` + strings.Join(blocks, ",") + `]}`
}

// para is a paragraph of the given inline nodes.
func para(nodes ...string) string {
	return `{"type":"paragraph","content":[` + strings.Join(nodes, ",") + `]}`
}

func txt(s string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, s) }

func TestEveryInlineNodeHasItsText(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ node, want string }{
		"text":                          {txt("b"), "a b c"},
		"text with marks":               {`{"type":"text","text":"b","marks":[{"type":"strong"},7]}`, "a b c"},
		"hard break":                    {`{"type":"hardBreak"}`, "a \n c"},
		"mention":                       {`{"type":"mention","attrs":{"id":"1","text":"@Bob"}}`, "a @Bob c"},
		"mention without an at":         {`{"type":"mention","attrs":{"id":"1","text":"Bob"}}`, "a @Bob c"},
		"mention by id":                 {`{"type":"mention","attrs":{"id":"1"}}`, "a @1 c"},
		"mention without attributes":    {`{"type":"mention"}`, "a @unknown c"},
		"emoji":                         {`{"type":"emoji","attrs":{"shortName":":x:","text":"☺"}}`, "a ☺ c"},
		"emoji by its short name":       {`{"type":"emoji","attrs":{"shortName":":x:"}}`, "a :x: c"},
		"card":                          {`{"type":"inlineCard","attrs":{"url":"https://a.example/b?c=d"}}`, "a https://a.example/b?c=d c"},
		"card with data":                {`{"type":"inlineCard","attrs":{"data":{"url":"https://a.example","name":"n"}}}`, "a https://a.example c"},
		"card with a name only":         {`{"type":"inlineCard","attrs":{"data":{"name":"n"}}}`, "a n c"},
		"date":                          {`{"type":"date","attrs":{"timestamp":"1787222400000"}}`, "a 2026-08-20 c"},
		"date that is none":             {`{"type":"date","attrs":{"timestamp":"soon"}}`, "a soon c"},
		"date far away":                 {`{"type":"date","attrs":{"timestamp":"99999999999999999"}}`, "a 99999999999999999 c"},
		"status":                        {`{"type":"status","attrs":{"text":"DONE","color":"green"}}`, "a DONE c"},
		"placeholder":                   {`{"type":"placeholder","attrs":{"text":"type here"}}`, "a type here c"},
		"inline extension":              {`{"type":"inlineExtension","attrs":{"text":"ext","extensionKey":"k"}}`, "a ext c"},
		"inline media":                  {`{"type":"mediaInline","attrs":{"alt":"pic"}}`, "a pic c"},
		"unsupported":                   {`{"type":"unsupportedInline","attrs":{"title":"t"}}`, "a t c"},
		"attributes of the wrong types": {`{"type":"status","attrs":{"text":7}}`, "a  c"},
		"attributes that are none":      {`{"type":"emoji","attrs":"x"}`, "a  c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := readBody([]byte(doc(para(txt("a "), tt.node, txt(" c")))))
			if b.Text != tt.want || b.Lead != tt.want {
				t.Errorf("text %q, lead %q, want %q", b.Text, b.Lead, tt.want)
			}
		})
	}
}

func TestUnknownNodesAreReadByTheirText(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ raw, want string }{
		"a block with a text":            {doc(`{"type":"new","text":"x"}`), "x"},
		"a block with attributes":        {doc(`{"type":"new","attrs":{"title":"x"}}`), "x"},
		"a block with content":           {doc(`{"type":"new","content":[` + para(txt("x")) + `,` + para(txt("y")) + `]}`), "x\ny"},
		"an inline node within text":     {doc(para(txt("a"), `{"type":"new","content":[`+txt("b")+`]}`)), "a\nb"},
		"an unsupported inline node":     {doc(para(txt("a"), `{"type":"unsupportedInline","content":[`+txt("b")+`,{"type":"unsupportedInline","content":[`+txt("c")+`]}]}`)), "abc"},
		"a node without a type":          {doc(`{"content":[` + txt("x") + `]}`), "x"},
		"a text whose type is a number":  {doc(`{"type":7,"text":"x"}`), "x"},
		"content that is none":           {doc(`{"type":"paragraph","content":"x","text":"y"}`), "y"},
		"nodes that are none":            {doc(`7`, `null`, `"x"`, `[]`, para(`7`, txt("z"))), "z"},
		"a table":                        {doc(`{"type":"table","content":[{"type":"tableRow","content":[{"type":"tableCell","content":[` + para(txt("1")) + `]},{"type":"tableCell","content":[` + para(txt("2")) + `]}]}]}`), "1\n2"},
		"a card block":                   {doc(`{"type":"blockCard","attrs":{"url":"https://a.example"}}`), "https://a.example"},
		"an embedded card":               {doc(`{"type":"embedCard","attrs":{"url":"https://a.example"}}`), "https://a.example"},
		"pictures and rules say nothing": {doc(`{"type":"mediaSingle","content":[{"type":"media","attrs":{"alt":"x"}}]}`, `{"type":"rule"}`, para(txt("x"))), "x"},
		"a quote":                        {doc(`{"type":"blockquote","content":[` + para(txt("a"), `{"type":"hardBreak"}`, txt("b")) + `]}`), "> a\n> b"},
		"a list with text beside blocks": {doc(`{"type":"listItem","content":[` + txt("a") + `,` + para(txt("b")) + `,` + txt("c") + `]}`), "a\nb\nc"},
		"two texts in a code block":      {doc(`{"type":"codeBlock","content":[` + txt("ab") + `,` + txt("cd") + `]}`), "abcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := readBody([]byte(tt.raw)).Text; got != tt.want {
				t.Errorf("text %q, want %q", got, tt.want)
			}
		})
	}
}

func TestACommandStandsAtTheBeginningOfTheFirstParagraphOnly(t *testing.T) {
	t.Parallel()
	cmd := para(txt("/fs-code do it"))
	in := func(kind string) string { return `{"type":"` + kind + `","content":[` + cmd + `]}` }
	for name, tt := range map[string]struct{ raw, command, instruction string }{
		"a plain one":                    {doc(cmd), "/fs-code", "do it"},
		"in two text nodes":              {doc(para(txt("/fs-"), txt("code do"), txt(" it"))), "/fs-code", "do it"},
		"a plain string":                 {`"/fs-code do it\nmore"`, "/fs-code", "do it"},
		"a hard break ends the line":     {doc(para(txt("/fs-code do it"), `{"type":"hardBreak"}`, txt("more"))), "/fs-code", "do it"},
		"a hard break right after it":    {doc(para(txt("/fs-code"), `{"type":"hardBreak"}`, txt("do it"))), "/fs-code", ""},
		"a line end within the text":     {doc(para(txt("/fs-code do it\r\nmore"))), "/fs-code", "do it"},
		"the next paragraph is no part":  {doc(cmd, para(txt("more"))), "/fs-code", "do it"},
		"an empty paragraph before it":   {doc(para(), para(txt("  ")), cmd), "/fs-code", "do it"},
		"a picture before it":            {doc(`{"type":"mediaSingle"}`, cmd), "/fs-code", "do it"},
		"a link in it is kept":           {doc(para(txt("/fs-code see "), `{"type":"inlineCard","attrs":{"url":"https://a.example"}}`)), "/fs-code", "see https://a.example"},
		"a mention in it is kept":        {doc(para(txt("/fs-code ask "), `{"type":"mention","attrs":{"text":"@Bob"}}`)), "/fs-code", "ask @Bob"},
		"a text before it":               {doc(para(txt("please")), cmd), "", ""},
		"a mention before it":            {doc(para(`{"type":"mention","attrs":{"id":"1","text":"@Bob"}}`, txt(" /fs-code do it"))), "", ""},
		"a broken mention before it":     {doc(para(`{"type":"mention"}`, txt("/fs-code do it"))), "", ""},
		"an emoji before it":             {doc(para(`{"type":"emoji","attrs":{"shortName":":x:"}}`, txt("/fs-code do it"))), "", ""},
		"a blank before it":              {doc(para(txt(" /fs-code do it"))), "", ""},
		"a hard break before it":         {doc(para(`{"type":"hardBreak"}`, txt("/fs-code do it"))), "", ""},
		"in a quote":                     {doc(in("blockquote")), "", ""},
		"after a quote":                  {doc(`{"type":"blockquote","content":[`+para(txt("x"))+`]}`, cmd), "", ""},
		"in a code block":                {doc(`{"type":"codeBlock","content":[` + txt("/fs-code do it") + `]}`), "", ""},
		"in a heading":                   {doc(`{"type":"heading","attrs":{"level":1},"content":[` + txt("/fs-code do it") + `]}`), "", ""},
		"in a list":                      {doc(`{"type":"bulletList","content":[` + in("listItem") + `]}`), "", ""},
		"in a task":                      {doc(`{"type":"taskList","content":[{"type":"taskItem","content":[` + txt("/fs-code do it") + `]}]}`), "", ""},
		"in a panel":                     {doc(in("panel")), "", ""},
		"in an expandable part":          {doc(in("expand")), "", ""},
		"in a table":                     {doc(`{"type":"table","content":[{"type":"tableRow","content":[` + in("tableCell") + `]}]}`), "", ""},
		"in a layout":                    {doc(`{"type":"layoutSection","content":[` + in("layoutColumn") + `]}`), "", ""},
		"in a block that we do not know": {doc(in("new")), "", ""},
		"as a text without a paragraph":  {doc(txt("/fs-code do it")), "", ""},
		"in a paragraph within a paragraph": {
			doc(para(cmd)), "/fs-code", "do it", // no editor makes this; the text comes first all the same
		},
		"a body that is null":     {`null`, "", ""},
		"a body that is a number": {`7`, "", ""},
		"a body that is a list":   {`[` + cmd + `]`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := readBody([]byte(tt.raw)).comment("1")
			if c.Command != tt.command || c.Instruction != tt.instruction {
				t.Errorf("command %q %q, want %q %q (body %q)", c.Command, c.Instruction, tt.command, tt.instruction, c.Body)
			}
		})
	}
}

func TestACommandIsReadBeforeTheBodyIsCut(t *testing.T) {
	t.Parallel()
	c := readBody(raw(t, strings.Repeat("x", 5000))).comment("1")
	if len(c.Body) != event.MaxBody {
		t.Errorf("body of %d", len(c.Body))
	}
	c = readBody([]byte(doc(para(txt("/fs-code " + strings.Repeat("ä", 9000)))))).comment("1")
	if c.Command != "/fs-code" || len([]rune(c.Instruction)) != event.MaxBody {
		t.Errorf("command %q, instruction of %d", c.Command, len([]rune(c.Instruction)))
	}
}

func TestAHugeDocumentIsReadInBoundedTimeAndSpace(t *testing.T) {
	t.Parallel()
	quotes := func(n int, inner string) string {
		return doc(strings.Repeat(`{"type":"blockquote","content":[`, n) + inner + strings.Repeat(`]}`, n))
	}
	long := `{"type":"text","text":"` + strings.Repeat("ä", 1<<19) + `"}`
	for name, doc := range map[string]string{
		"4,000 levels":               quotes(4000, para(txt("x"))),
		"10,000 levels":              quotes(10_000, para(txt("x"))),
		"60 levels with line breaks": quotes(60, para(txt(strings.Repeat("\n", maxText)))),
		"25,000 nodes":               doc(para(strings.Repeat(txt("x")+",", 25_000) + txt("x"))),
		"25,000 paragraphs":          doc(strings.Repeat(para(txt("x"))+",", 25_000) + para()),
		"25,000 line breaks":         quotes(60, para(strings.Repeat(`{"type":"hardBreak"},`, 25_000)+txt("x"))),
		"a megabyte of text":         doc(para(long)),
		"a megabyte, deep":           quotes(60, para(long)),
		"a string of a megabyte":     `"` + strings.Repeat("ä", 1<<19) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			b := readBody([]byte(doc))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if limit := 2*maxDepth*(maxText+maxNodes) + 2*maxText; len(b.Text) > limit {
				t.Errorf("%d bytes of text", len(b.Text))
			}
			if strings.Contains(name, "megabyte of text") || strings.HasPrefix(name, "25,000 p") || strings.HasPrefix(name, "25,000 n") {
				if b.Text == "" || len(b.Text) > 2*maxText {
					t.Errorf("%d bytes of text", len(b.Text))
				}
			}
			if name == "a megabyte, deep" && strings.Contains(b.Text, "ä") {
				t.Error("more was parsed than the bound on work allows")
			}
			if len([]rune(b.comment("1").Body)) > event.MaxBody {
				t.Error("the body is not cut")
			}
		})
	}
}

func TestACommentNestedTooDeepHidesNoOthers(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"type":"panel","content":[`, 10_000) + strings.Repeat(`]}`, 10_000)
	var page struct {
		Comments []json.RawMessage `json:"comments"`
	}
	err := decodeBody(strings.NewReader(`{"comments":[{"id":"1","body":`+deep+`},{"id":"2","body":"]}\"{["}]}`), &page)
	if err != nil || len(page.Comments) != 2 {
		t.Fatalf("%d comments, err %v", len(page.Comments), err)
	}
	if got := string(page.Comments[1]); got != `{"id":"2","body":"]}\"{["}` {
		t.Errorf("the other is %s", got)
	}
}

func TestOnlyWhatLiesTooDeepIsFlattened(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"shallow":               {`{"a":[1,2]}`, `{"a":[1,2]}`},
		"too deep":              {`{"a":[1,[2,{"b":3}]],"c":4}`, `{"a":[1,null],"c":4}`},
		"texts with brackets":   {`{"a":["[{\"[","\\"],"b":"]"}`, `{"a":["[{\"[","\\"],"b":"]"}`},
		"texts in the deep":     {`[[["\"]]]]",["]"]],1]]`, `[[null,1]]`},
		"several":               {`[[[1],[2],[3]],[[4]]]`, `[[null,null,null],[null]]`},
		"more ends than starts": {`]]]1`, `]]]1`},
		"an open text":          {`[["\`, `[["\`},
	} {
		if got := string(flatten([]byte(tt.in), 2)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
