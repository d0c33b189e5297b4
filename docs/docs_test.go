// Package docs_test holds the documentation to the program: what a table, an
// example, a link or a quoted message says must be so.
package docs_test

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// root is the repository, seen from this package.
const root = ".."

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// pages are all Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range more {
			found = append(found, strings.TrimPrefix(filepath.ToSlash(name), root+"/"))
		}
	}
	return found
}

// section returns what stands under a heading, to the next one of any level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("there is no heading %q", heading)
	}
	if end := regexp.MustCompile(`(?m)^#{1,6} `).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// table returns the cells of a section's table, without its head.
func table(t *testing.T, text string) [][]string {
	t.Helper()
	var rows [][]string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("there is no table in %q", text)
	}
	return rows[2:]
}

// spans returns the code spans of a text.
func spans(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func plain(s string) string { return strings.ReplaceAll(s, "`", "") }

func TestTheReadmesInputsAndOutputsAreThoseOfTheAction(t *testing.T) {
	t.Parallel()
	type member struct{ Default, Description string }
	var action struct{ Inputs, Outputs map[string]member }
	if err := yaml.Unmarshal([]byte(read(t, "action.yml")), &action); err != nil {
		t.Fatal(err)
	}
	page := read(t, "README.md")
	inputs, outputs := map[string]member{}, map[string]member{}
	for _, row := range table(t, section(t, page, "### Inputs")) {
		inputs[plain(row[0])] = member{plain(row[1]), plain(row[2])}
	}
	for _, row := range table(t, section(t, page, "### Outputs")) {
		outputs[plain(row[0])] = member{"", plain(row[1])}
	}
	if diff := cmp.Diff(action.Inputs, inputs); diff != "" {
		t.Errorf("inputs (-action.yml +README.md):\n%s", diff)
	}
	if diff := cmp.Diff(action.Outputs, outputs); diff != "" {
		t.Errorf("outputs (-action.yml +README.md):\n%s", diff)
	}
}

func TestEveryRelativeLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, name := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
				continue
			}
			if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: the link %s names no heading of %s", name, m[1], file)
			}
		}
	}
}

// anchors are the names that GitHub gives to a page's headings.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} (.+)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}

func TestEveryMessageOfTheTroubleshootingTableIsOneOfTheProgram(t *testing.T) {
	t.Parallel()
	texts := literals(t)
	for _, row := range table(t, section(t, read(t, "README.md"), "## Troubleshooting")) {
		quoted := spans(row[0])
		if len(quoted) == 0 {
			t.Errorf("the row %q quotes no message", row[0])
		}
		for _, span := range quoted {
			for part := range strings.SplitSeq(span, "…") {
				if part != "" && !strings.Contains(texts, part) {
					t.Errorf("no text of the program has %q", part)
				}
			}
		}
	}
}

func TestEveryVariableOfTheEnvironmentTableIsReadByTheProgram(t *testing.T) {
	t.Parallel()
	texts := literals(t)
	documented := section(t, read(t, "README.md"), "### Environment")
	for _, row := range table(t, documented) {
		for _, name := range spans(row[0]) {
			if !strings.Contains(texts, "\n"+name+"\n") {
				t.Errorf("no source has the name %s", name)
			}
		}
	}
	asked := regexp.MustCompile(`(?:Getenv|\bvalue|\blookup)\("([A-Z_]+)"\)`)
	for _, source := range sources(t) {
		for _, m := range asked.FindAllSubmatch(source, -1) {
			if name := string(m[1]); name != "GITHUB_ACTIONS" && !strings.Contains(documented, name) {
				t.Errorf("the program reads %s, which the table does not have", name)
			}
		}
	}
}

// sources are the program's own files.
func sources(t *testing.T) [][]byte {
	t.Helper()
	var found [][]byte
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "sim":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		raw, err := os.ReadFile(path)
		found = append(found, raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// literals are all string constants of the program, each between line breaks.
func literals(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	for _, src := range sources(t) {
		var s scanner.Scanner
		files := token.NewFileSet()
		s.Init(files.AddFile("", files.Base(), len(src)), src, nil, 0)
		for tok := token.ILLEGAL; tok != token.EOF; {
			var lit string
			if _, tok, lit = s.Scan(); tok != token.STRING {
				continue
			}
			text, err := strconv.Unquote(lit)
			if err != nil {
				t.Fatal(err)
			}
			out.WriteString("\n" + text + "\n")
		}
	}
	return out.String()
}

func TestEveryDecisionIsListedAndHasItsFourParts(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no decision is found: %v", err)
	}
	index := read(t, "docs/adr/README.md")
	for _, name := range names {
		base := filepath.Base(name)
		page := read(t, "docs/"+filepath.ToSlash(name))
		if !strings.Contains(index, "("+base+")") {
			t.Errorf("docs/adr/README.md does not list %s", base)
		}
		if !strings.HasPrefix(page, "# "+base[:4]+". ") {
			t.Errorf("%s does not begin with its number", base)
		}
		for _, part := range []string{"\nStatus: ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("%s lacks the part %q", base, part)
			}
		}
	}
	for _, src := range sources(t) {
		for _, cited := range regexp.MustCompile(`docs/adr/[a-z0-9-]+\.md`).FindAllString(string(src), -1) {
			if _, err := os.Stat(filepath.Join(root, cited)); err != nil {
				t.Errorf("a source cites %s, which does not exist", cited)
			}
		}
	}
}
