package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// defects is the page that lists every known defect with its tests.
const defects = "docs/known-poller-defects.md"

// noTest is how a row says that it concerns something else.
const noTest = "does not apply: "

// defectRows are the rows that the page must have: D and R from one poller's own
// history, E from public reports elsewhere, X the cases that they suggest. The
// numbers of E have gaps.
func defectRows() []string {
	var rows []string
	add := func(prefix string, ids ...int) {
		for _, id := range ids {
			rows = append(rows, prefix+strconv.Itoa(id))
		}
	}
	for id := 1; id <= 72; id++ {
		add("D", id)
	}
	for id := 1; id <= 17; id++ {
		add("R", id)
	}
	add("E", 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 19, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31, 32, 34, 35,
		36, 37, 41, 42, 43, 45, 46, 48, 49, 50, 52, 53, 54, 55, 56, 58, 59)
	for _, letter := range "beijklmo" {
		rows = append(rows, "X"+string(letter))
	}
	return rows
}

// defectTests are the tests of the tree that show a row, by package folder.
func defectTests(t *testing.T) map[string][]string {
	t.Helper()
	name := regexp.MustCompile(`^Test(Defect|Case)`)
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && name.MatchString(f.Name.Name) {
				found[f.Name.Name] = append(found[f.Name.Name], filepath.Dir(path))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEveryKnownDefectHasATestOrAReason(t *testing.T) {
	t.Parallel()
	exist := defectTests(t)
	row := regexp.MustCompile(`^Test(?:Defect|Case)([DRE][0-9]+|X[a-z])`)
	listed, named := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(read(t, defects)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		if !strings.HasPrefix(line, "|") || id == "row" || strings.HasPrefix(id, "-") {
			continue
		}
		if listed[id] {
			t.Errorf("row %s is there twice", id)
		}
		listed[id] = true
		if len(cells) != 4 {
			t.Errorf("row %s has %d cells, want 4", id, len(cells))
			continue
		}
		shown := strings.TrimSpace(cells[3])
		tests := spans(shown)
		reason, excused := strings.CutPrefix(shown, noTest)
		switch {
		case excused && strings.TrimSpace(reason) == "":
			t.Errorf("row %s does not say why it does not apply", id)
		case !excused && len(tests) == 0:
			t.Errorf("row %s has neither a test nor a reason", id)
		}
		for _, name := range tests {
			named[name] = true
			if len(exist[name]) == 0 {
				t.Errorf("row %s names %s, which does not exist", id, name)
			}
			if m := row.FindStringSubmatch(name); m == nil || m[1] != id {
				t.Errorf("row %s names %s, which is not called after it", id, name)
			}
		}
	}
	for _, id := range defectRows() {
		if !listed[id] {
			t.Errorf("row %s is missing", id)
		}
		delete(listed, id)
	}
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("row %s is none that is known", id)
	}
	for _, name := range slices.Sorted(maps.Keys(exist)) {
		if !named[name] {
			t.Errorf("%s of %v is not named in %s", name, exist[name], defects)
		}
		if len(exist[name]) > 1 {
			t.Errorf("%s is there more than once: %v", name, exist[name])
		}
	}
}
