package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	site    = "https://raw.githubusercontent.com/fullsend-ai/agents/v1/harness/"
	roleOf  = "role: coder\n"
	opening = "trigger: event.transition.kind == 'opened'\n"
)

func TestLoadingASource(t *testing.T) {
	t.Parallel()
	files := tree{
		"harness/a.yaml": roleOf + opening, "a.yaml": roleOf, "dir/x.yaml": roleOf,
		"big.yaml": roleOf + "x: " + strings.Repeat("y", maxBytes), "not.yaml": "role: [", "two.yaml": "---\nrole: a\n---\nrole: b\n",
		"dup.yaml": "role: a\nenv:\n  A: 1\n  A: 2\n", "list.yaml": "- role\n", "empty.yaml": "", "dashes.yaml": "---\n" + roleOf,
		"deep.yaml": roleOf + "x: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n",
		"role.yaml": "role: Coder\n", "number.yaml": "role: 7\n",
		"merge.yaml": "x: &x {role: fix}\n<<: *x\n",
	}
	page := roleOf + opening
	for _, tc := range []struct {
		name, source string
		want         []string
	}{
		{"a path", "harness/a.yaml", nil},
		{"a path that goes up and comes back", "harness/../a.yaml", nil},
		{"a path with its integrity", "a.yaml" + sum(roleOf), nil},
		{"a document that begins with dashes", "dashes.yaml", nil},
		{"a role by a merge key", "merge.yaml", nil},
		{"a path with a wrong integrity", "a.yaml" + sum("x"), []string{"the content of a.yaml has the SHA-256"}},
		{"a path with another fragment", "a.yaml#main", []string{"the fragment of a.yaml is not an integrity"}},
		{"a way out", "../a.yaml", []string{`line 3: agent "a": the path ../a.yaml leads out of the .fullsend directory; write a path relative`}},
		{"a way out by a detour", "harness/../../a.yaml", []string{"leads out of the .fullsend directory"}},
		{"an absolute path", "/etc/passwd", []string{"is absolute"}},
		{"a drive", "C:/a.yaml", []string{"is absolute"}},
		{"backslashes", `harness\a.yaml`, []string{"has a backslash in it"}},
		{"a control character", "a\x00.yaml", []string{"is not the path of a file"}},
		{"a folder", "dir", []string{"dir is not a file"}},
		{"the directory itself", ".", []string{"is not the path of a file"}},
		{"a file that is not there", "harness/b.yaml", []string{`line 3: agent "a": the file harness/b.yaml does not exist`}},
		{"a file that is too long", "big.yaml", []string{"big.yaml is longer than 1 MiB"}},
		{"no YAML", "not.yaml", []string{"not.yaml:1: this is not YAML"}},
		{"two documents", "two.yaml", []string{"two.yaml:3: a second YAML document begins here"}},
		{"a duplicate key anywhere", "dup.yaml", []string{"dup.yaml:4: the key A is here for the second time (first on line 3)"}},
		{"a list", "list.yaml", []string{"a harness must be a mapping"}},
		{"nothing", "empty.yaml", []string{"the harness has no role"}},
		{"depth", "deep.yaml", []string{"nested deeper than 64"}},
		{"a role in capitals", "role.yaml", []string{`role.yaml:1: "Coder" is not a role`}},
		{"a role that is a number", "number.yaml", []string{"number.yaml:1: role must be text"}},

		{"a URL", site + "code.yaml" + sum(page), nil},
		{"a URL with capitals in its host and a port", strings.Replace(site, "raw", "RAW", 1) + "code.yaml" + sum(page), nil},
		{"a URL with dot segments inside the prefix", site + "../harness/code.yaml" + sum(page), nil},
		{"a URL without integrity", site + "code.yaml", []string{"has no integrity; append #sha256="}},
		{"a URL with a short integrity", site + "code.yaml#sha256=12", []string{"is not a SHA-256 of 64 hex digits"}},
		{"a URL with the integrity of something else", site + "code.yaml" + sum("x"), []string{"which is not the one asked for"}},
		{"a URL that is not there", site + "none.yaml" + sum(page), []string{"none.yaml cannot be read: status 404"}},
		{"http", strings.Replace(site, "https", "http", 1) + "code.yaml" + sum(page), []string{"is not https"}},
		{"file", "file:///etc/passwd" + sum(page), []string{"not a URL that can be read"}},
		{"no scheme", "//evil.example/a.yaml", []string{"is not https"}},
		{"another host", "https://evil.example/fullsend-ai/agents/a.yaml" + sum(page), []string{"is under no prefix of allowed_remote_resources"}},
		{"a longer name beside the prefix", "https://raw.githubusercontent.com/fullsend-ai/agents-evil/a.yaml" + sum(page), []string{"is under no prefix"}},
		{"dot segments out of the prefix", site + "../../../../evil/a.yaml" + sum(page), []string{"is under no prefix"}},
		{"encoded dot segments out of the prefix", "https://raw.githubusercontent.com/fullsend-ai/agents/%2e%2e/%2e%2e/evil/a.yaml" + sum(page), []string{"is under no prefix"}},
		{"encoded slashes and dots out of the prefix", "https://raw.githubusercontent.com/fullsend-ai/agents/..%2f..%2fevil/a.yaml" + sum(page), []string{"is under no prefix"}},
		{"double encoding", "https://raw.githubusercontent.com/fullsend-ai/agents/%252e%252e/evil/a.yaml" + sum(page), []string{"is encoded twice"}},
		{"a user", "https://me@raw.githubusercontent.com/fullsend-ai/agents/a.yaml" + sum(page), []string{"has a user in it"}},
		{"a host that only begins alike", "https://raw.githubusercontent.com.evil.example/fullsend-ai/agents/a.yaml" + sum(page), []string{"is under no prefix"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := Loader{FS: files.fs(), Fetch: web(map[string]string{site + "code.yaml": page})}
			set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: tc.source, Line: 3}})
			if (set == nil) != (len(tc.want) > 0) {
				t.Errorf("set %v with problems %q", set, lines(problems))
			}
			expectParts(t, tc.want, problems)
		})
	}
}

func TestTheAllowList(t *testing.T) {
	t.Parallel()
	const own = "https://git.example/team/fullsend"
	for _, tc := range []struct {
		name    string
		allowed []string
		source  string
		ok      bool
	}{
		{"the default", nil, site + "code.yaml", true},
		{"the other default", nil, "https://raw.githubusercontent.com/fullsend-ai/fullsend/main/a.yaml", true},
		{"none", []string{}, site + "code.yaml", false},
		{"a prefix without slash", []string{own}, own + "/a.yaml", true},
		{"a prefix without slash ends at a segment", []string{own}, own + "-evil/a.yaml", false},
		{"a whole host", []string{"https://git.example"}, own + "/a.yaml", true},
		{"an entry that is no https URL allows nothing", []string{"http://git.example/", "%", ""}, own + "/a.yaml", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := Loader{Allowed: tc.allowed, Fetch: func(context.Context, string) ([]byte, error) { return []byte(roleOf), nil }}
			set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: tc.source + sum(roleOf)}})
			if (set != nil) != tc.ok {
				t.Error(lines(problems))
			}
		})
	}
}

func TestInheritance(t *testing.T) {
	t.Parallel()
	chain := func(n int) tree {
		files := tree{}
		for i := range n {
			files[name(i)] = "base: " + name(i+1) + "\n"
		}
		files[name(n)] = roleOf
		return files
	}
	remoteBase := roleOf
	remoteChild := "base: base.yaml" + sum(remoteBase) + "\n"
	loose := "base: base.yaml\n"
	for _, tc := range []struct {
		name  string
		files tree
		start string
		role  string
		want  []string
	}{
		{"the role of the base", tree{"a.yaml": "base: b.yaml\n" + opening, "b.yaml": roleOf}, "a.yaml", "coder", nil},
		{"the child's role wins", tree{"a.yaml": "role: fix\nbase: b.yaml\n", "b.yaml": roleOf}, "a.yaml", "fix", nil},
		{"the role of the base's base", tree{"a.yaml": "base: b.yaml\n", "b.yaml": "base: c.yaml", "c.yaml": roleOf}, "a.yaml", "coder", nil},
		{"a base beside the child", tree{"harness/a.yaml": "base: b.yaml\n", "harness/b.yaml": "role: beside\n", "b.yaml": "role: root\n"}, "harness/a.yaml", "beside", nil},
		{"a base from the root", tree{"harness/a.yaml": "base: harness/b.yaml\n", "harness/b.yaml": roleOf}, "harness/a.yaml", "coder", nil},
		{"a base by dots is never from the root", tree{"harness/a.yaml": "base: ./b.yaml\n", "b.yaml": roleOf}, "harness/a.yaml", "", []string{"harness/a.yaml:1: base: the file harness/b.yaml does not exist"}},
		{"a base one folder up", tree{"harness/a.yaml": "base: ../common/b.yaml\n", "common/b.yaml": roleOf}, "harness/a.yaml", "coder", nil},
		{"a base outside", tree{"harness/a.yaml": "role: x\nbase: ../../b.yaml\n"}, "harness/a.yaml", "", []string{"harness/a.yaml:2: the path ../../b.yaml leads out"}},
		{"a base that is absolute", tree{"a.yaml": "base: /b.yaml\n"}, "a.yaml", "", []string{"is absolute"}},
		{"a base that is missing though the role is known", tree{"a.yaml": "role: x\nbase: b.yaml\n"}, "a.yaml", "", []string{"a.yaml:2: base: the file b.yaml does not exist"}},
		{"a circle", tree{"a.yaml": "base: b.yaml\n", "b.yaml": "base: a.yaml\n"}, "a.yaml", "", []string{"b.yaml:1: the base a.yaml goes round in a circle"}},
		{"a circle of one", tree{"a.yaml": "base: a.yaml\n"}, "a.yaml", "", []string{"a.yaml:1: the base a.yaml goes round in a circle"}},
		{"five bases", chain(5), name(0), "coder", nil},
		{"six bases", chain(6), name(0), "", []string{"inherits from more than 5 files"}},
		{"no role anywhere", tree{"a.yaml": "base: b.yaml\n", "b.yaml": "model: opus\n"}, "a.yaml", "", []string{"a.yaml: the harness has no role, nor has a base of it"}},
		{"a bad role is the base's", tree{"a.yaml": "base: b.yaml\n", "b.yaml": "\nrole: 1a\n"}, "a.yaml", "", []string{`b.yaml:2: "1a" is not a role`}},
		{"a broken base", tree{"a.yaml": "role: x\nbase: b.yaml\n", "b.yaml": "role: [\n"}, "a.yaml", "", []string{"b.yaml:1: this is not YAML"}},
		{"a remote base", tree{"a.yaml": "base: " + site + "base.yaml" + sum(remoteBase) + "\n"}, "a.yaml", "coder", nil},
		{"a remote base without integrity", tree{"a.yaml": "base: " + site + "base.yaml\n"}, "a.yaml", "", []string{"a.yaml:1: https://raw.githubusercontent.com/fullsend-ai/agents/v1/harness/base.yaml has no integrity"}},
		{"the base of a remote child is relative to its URL", nil, site + "child.yaml" + sum(remoteChild), "coder", nil},
		{"the base of a remote child needs integrity", nil, site + "loose.yaml" + sum(loose), "", []string{"loose.yaml:1: ", "has no integrity"}[:1]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := Loader{FS: tc.files.fs(), Fetch: web(map[string]string{
				site + "base.yaml": remoteBase, site + "child.yaml": remoteChild, site + "loose.yaml": loose,
			})}
			set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: tc.start}})
			expectParts(t, tc.want, problems)
			if len(tc.want) > 0 {
				return
			}
			if got := set.Match(t.Context(), examples(t)["jira-opened"])[0].Role; got != tc.role {
				t.Errorf("role %q, want %q", got, tc.role)
			}
		})
	}
}

func name(i int) string { return "h" + string(rune('a'+i)) + ".yaml" }

func TestATriggerIsNotInherited(t *testing.T) {
	t.Parallel()
	l := Loader{FS: tree{"a.yaml": "base: b.yaml\n", "b.yaml": roleOf + opening}.fs()}
	set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: "a.yaml"}, {Name: "b", Source: "b.yaml"}})
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	got := set.Match(t.Context(), examples(t)["jira-opened"])
	if got[0].Matched || !got[1].Matched {
		t.Errorf("the child matched: %v, the base: %v; want false and true", got[0].Matched, got[1].Matched)
	}
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	l := Loader{FS: tree{
		"a.yaml": "role: A\ntrigger: event.\n", "b.yaml": roleOf + "trigger: event.type == 'x'\n",
		"c.yaml": "base: shared.yaml\n", "d.yaml": "base: shared.yaml\n", "shared.yaml": "role: x\nrole: y\n",
	}.fs()}
	set, problems := l.Load(t.Context(), []Agent{
		{Name: "a", Source: "a.yaml", Line: 2},
		{Name: "A", Source: "b.yaml", Line: 3},
		{Name: "b", Source: "b.yaml", Line: 4},
		{Name: "c", Source: "c.yaml", Line: 5},
		{Name: "d", Source: "d.yaml", Line: 6},
		{Name: "review", Line: 7},
	})
	if set != nil {
		t.Error("there is a set in spite of errors")
	}
	want := []string{
		"a.yaml:2: the trigger does not compile", `a.yaml:1: "A" is not a role`, `line 3: the agent "A" is registered for the second time`,
		"warning: b.yaml:2: the trigger reads event.type", "shared.yaml:2: the key role is here for the second time",
		`warning: line 7: the agent "review" has no source`,
	}
	expectParts(t, want, problems)
	if len(problems) != len(want) {
		t.Errorf("problems %q, want %d", lines(problems), len(want))
	}
}

func TestASharedBaseIsFetchedOnce(t *testing.T) {
	t.Parallel()
	fetched := 0
	base := "base: " + site + "base.yaml" + sum(roleOf) + "\n"
	l := Loader{
		FS: tree{"a.yaml": base, "b.yaml": base}.fs(),
		Fetch: func(context.Context, string) ([]byte, error) {
			fetched++
			return []byte(roleOf), nil
		},
	}
	if _, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: "a.yaml"}, {Name: "b", Source: "b.yaml"}}); len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	if fetched != 1 {
		t.Errorf("the base was fetched %d times", fetched)
	}
}

func TestASymbolicLinkLeadsNowhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret.yaml"), []byte(roleOf), 0o600); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "fullsend")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret.yaml", filepath.Join(inner, "a.yaml")); err != nil {
		t.Skip("this system has no symbolic links:", err)
	}
	root, err := os.OpenRoot(inner)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l := Loader{FS: root.FS()}
	set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: "a.yaml"}})
	if set != nil {
		t.Error("a link out of the directory was followed")
	}
	expectParts(t, []string{"the file a.yaml cannot be read"}, problems)
	if strings.Contains(strings.Join(lines(problems), ""), dir) {
		t.Error("the report has a path of this machine in it")
	}
}

func TestAQueryOfAURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	l := Loader{Fetch: web(nil)}
	_, problems := l.Load(t.Context(), []Agent{
		{Name: "a", Source: site + "a.yaml?token=hunter2" + sum("x")},
		{Name: "b", Source: "https://evil.example/a.yaml?token=hunter2" + sum("x")},
		{Name: "c", Source: site + "a.yaml?token=hunter2#sha256=1"},
		{Name: "d", Source: site + "%252e?token=hunter2" + sum("x")},
		{Name: "e", Source: "https://hunter2@x.example/a.yaml" + sum("x")},
	})
	if len(problems) != 5 {
		t.Fatal(lines(problems))
	}
	if all := strings.Join(lines(problems), "\n"); strings.Contains(all, "hunter2") {
		t.Error("a report repeats a secret:", all)
	}
}

func TestLinesOfATrigger(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, yaml string
		want       int
	}{
		{"a folded block with a blank line", "trigger: >-\n  true\n\n  && BAD\n", 4},
		{"a literal block after comments", "# one\n\ntrigger: |\n  true &&\n  true && // note\n  BAD\n", 6},
		{"a quoted text with an escape stays near", "trigger: \"'\\t' == event.repo &&\n  BAD\"\n", 1},
		{"a plain text", "trigger: BAD\n", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, problems := one(t, tc.yaml+"role: x\n")
			if len(problems) == 0 || problems[0].Line != tc.want {
				t.Errorf("problems %q, want line %d", lines(problems), tc.want)
			}
		})
	}
}

func TestProblemsOfASetAreComparable(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff("a.yaml:2: what; cure", Problem{Source: "a.yaml", Line: 2, What: "what", Cure: "cure"}.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("a.yaml: what", Problem{Source: "a.yaml", What: "what"}.String()); diff != "" {
		t.Error(diff)
	}
}
