package actions

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// runner returns a Runner in a job of its own, its log and its files.
func runner(t *testing.T, env map[string]string) (*Runner, *bytes.Buffer, string) {
	t.Helper()
	dir := t.TempDir()
	vars := map[string]string{"GITHUB_ACTIONS": "true"}
	for _, f := range []string{"GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"} {
		vars[f] = filepath.Join(dir, f)
	}
	for k, v := range env {
		vars[k] = v
	}
	var log bytes.Buffer
	return New(&log, func(k string) string { return vars[k] }), &log, dir
}

// commands reads one of the runner's files as the runner does.
func commands(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		name, delimiter, ok := strings.Cut(lines[i], "<<")
		if !ok {
			t.Fatalf("line %d of %s is no command: %q", i+1, filepath.Base(path), lines[i])
		}
		var value []string
		for i++; i < len(lines) && lines[i] != delimiter; i++ {
			value = append(value, lines[i])
		}
		if i == len(lines) {
			t.Fatalf("%s never ends", name)
		}
		out[name] = strings.Join(value, "\n")
	}
	return out
}

func TestInputsAreReadAsTheRunnerWritesThem(t *testing.T) {
	t.Parallel()
	r, _, _ := runner(t, map[string]string{"INPUT_DRY-RUN": " true\n", "INPUT_JIRA-BASE-URL": "", "INPUT_TWO_WORDS": "x", "STATE_lockId": "u-1"})
	got := []string{r.Input("dry-run"), r.Input("jira-base-url"), r.Input("two words"), r.Input("none"), r.GetState("lockId"), r.GetState("LOCKID")}
	if diff := cmp.Diff([]string{"true", "", "x", "", "u-1", ""}, got); diff != "" {
		t.Error(diff)
	}
	if !r.Active() || New(&bytes.Buffer{}, func(string) string { return "" }).Active() {
		t.Error("Active is wrong")
	}
}

func TestValuesArriveAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	r, _, dir := runner(t, nil)
	multi := "{\n \"a\": \"x\"\n}\nPATH<<E\n/evil\nE"
	fixed := libraryDelimiter
	for name, v := range map[string]string{"dispatched": "3", "result": multi, "empty": "", "cycle-id": fixed} {
		if err := r.Output(name, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Env("FULLSEND_POLL_LOCK_ID", "u-1"); err != nil {
		t.Fatal(err)
	}
	if err := r.State("lock", fixed); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"dispatched": "3", "result": multi, "empty": "", "cycle-id": fixed}
	if diff := cmp.Diff(want, commands(t, filepath.Join(dir, "GITHUB_OUTPUT"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"FULLSEND_POLL_LOCK_ID": "u-1"}, commands(t, filepath.Join(dir, "GITHUB_ENV"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"lock": fixed}, commands(t, filepath.Join(dir, "GITHUB_STATE"))); diff != "" {
		t.Error(diff)
	}
}

func TestNoOutputCanSetAnother(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, strconv.Itoa(n))
		r := New(&bytes.Buffer{}, func(k string) string { return map[string]string{"GITHUB_OUTPUT": path}[k] })
		piece := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\n", "<<", libraryDelimiter, "\r", "fullsend_", "x=y", "\x00"}))
		value := strings.Join(rapid.SliceOf(piece).Draw(rt, "value"), "")
		err := r.Output("a", value)
		if strings.ContainsAny(value, "\r\x00") {
			if err == nil {
				rt.Fatalf("%q was written", value)
			}
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		if err := r.Output("b", "after"); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"a": value, "b": "after"}, commands(t, path)); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestADelimiterIsNeverPartOfItsValue(t *testing.T) {
	t.Parallel()
	r, _, dir := runner(t, nil)
	tokens := []string{"AAA", "AAA", "BBB"}
	r.token = func() string { t := tokens[0]; tokens = tokens[1:]; return t }
	value := "x\nfullsend_AAA\ny"
	if err := r.Output("a", value); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": value}, commands(t, filepath.Join(dir, "GITHUB_OUTPUT"))); diff != "" {
		t.Error(diff)
	}
	r.token = func() string { return "AAA" }
	if err := r.Output("a", value); err == nil {
		t.Error("written with a delimiter that the value has")
	}
}

func TestNamesAndValuesThatCouldDoHarmAreRefused(t *testing.T) {
	t.Parallel()
	r, _, dir := runner(t, nil)
	for _, name := range []string{
		"NODE_OPTIONS", "node_options", "PATH", "PYTHONPATH", "GOPATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
		"GITHUB_TOKEN", "RUNNER_TEMP", "ACTIONS_RUNTIME_TOKEN", "INPUT_X", "STATE_x", "BASH_ENV", "HOME", "GIT_SSH_COMMAND",
		"JAVA_TOOL_OPTIONS", "HTTPS_PROXY", "PERL5OPT", "", "A B", "A=B", "A\nB", "1A", "A-B", "Ä", "A<<B",
	} {
		if r.Env(name, "x") == nil {
			t.Errorf("variable %q was set", name)
		}
	}
	for _, value := range []string{"a\nb", "a\rb", "a\x00b", "\n"} {
		if r.Env("FULLSEND_X", value) == nil || r.State("x", value) == nil {
			t.Errorf("%q was set", value)
		}
	}
	if r.Output("a b", "x") == nil || r.Output("a\n", "x") == nil || r.Output("", "x") == nil || r.Output("a", strings.Repeat("x", maxValue+1)) == nil {
		t.Error("an output was set that must not be")
	}
	if got, _ := os.ReadDir(dir); len(got) != 0 {
		t.Errorf("files were made: %v", got)
	}
}

func TestAMissingFileIsAnErrorInARunAndNothingElsewhere(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	r := New(&bytes.Buffer{}, func(k string) string { return env[k] })
	calls := map[string]func() error{
		"GITHUB_OUTPUT":       func() error { return r.Output("a", "b") },
		"GITHUB_ENV":          func() error { return r.Env("FULLSEND_A", "b") },
		"GITHUB_STATE":        func() error { return r.State("a", "b") },
		"GITHUB_STEP_SUMMARY": func() error { return r.Summary("# x") },
	}
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s outside Actions: %v", name, err)
		}
	}
	env["GITHUB_ACTIONS"] = "true"
	for name, call := range calls {
		if err := call(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s in a run: %v", name, err)
		}
		env[name] = filepath.Join(t.TempDir(), "no", "such", "folder", "x")
		if err := call(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s without a folder: %v", name, err)
		}
	}
}

func TestAFileOfAnotherUserGetsASentence(t *testing.T) {
	t.Parallel()
	err := fileError("GITHUB_OUTPUT", &os.PathError{Op: "open", Path: "/github/file_commands/x", Err: os.ErrPermission})
	for _, want := range []string{"GITHUB_OUTPUT", "root", "USER"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestALongSummaryIsCutAtALineWithANote(t *testing.T) {
	t.Parallel()
	r, _, dir := runner(t, nil)
	line := strings.Repeat("ä", 500) + "\n"
	for range 3 {
		if err := r.Summary(strings.Repeat(line, 700)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "GITHUB_STEP_SUMMARY"))
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > maxSummary {
		t.Errorf("%d bytes, the runner takes %d", len(data), maxSummary)
	}
	if got := strings.Count(string(data), "was cut here"); got != 1 {
		t.Errorf("the note stands there %d times", got)
	}
	for _, l := range strings.Split(string(data), "\n") {
		if l != "" && l+"\n" != line && !strings.Contains(l, "cut here") {
			t.Fatalf("a line was cut: %q", l[:min(len(l), 80)])
		}
	}
}

func TestAnnotationsAreOneEscapedLineEach(t *testing.T) {
	t.Parallel()
	r, log, _ := runner(t, nil)
	r.Mask("hunter22")
	log.Reset()
	r.Warning("100% of\r\n::error::PROJ-1 hunter22")
	r.Error(strings.Repeat("x", 5000))
	r.Notice("ok")
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	if len(lines) != 3 || lines[0] != "::warning::100%25 of ::error::PROJ-1 ***" || lines[2] != "::notice::ok" {
		t.Fatalf("got %q", lines)
	}
	if n := utf8.RuneCountInString(strings.TrimPrefix(lines[1], "::error::")); n != maxAnnotation {
		t.Errorf("%d characters, want %d", n, maxAnnotation)
	}
}

func TestWhatFindsNoRoomAmongTheAnnotationsIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	r, log, _ := runner(t, nil)
	for range 13 {
		r.Warning("::stop-commands::x")
	}
	r.Error("e")
	r.Flush()
	r.Flush()
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	var annotated, plain int
	for _, l := range lines {
		switch {
		case strings.HasPrefix(l, "::warning::"):
			annotated++
		case strings.HasPrefix(l, `warning: "`):
			plain++
		}
	}
	if annotated != 10 || plain != 3 || len(lines) != 15 || !strings.Contains(lines[14], "3 warning(s)") {
		t.Errorf("%d annotated, %d plain: %q", annotated, plain, lines)
	}
}

func TestOutsideActionsNoCommandIsPrinted(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := New(&log, func(string) string { return "" })
	r.Mask("hunter22")
	r.Warning("w")
	r.Error("e")
	r.Notice("n")
	r.Flush()
	if log.Len() != 0 {
		t.Errorf("printed %q: a mask command shows its secret to whoever is not a runner", log.String())
	}
	slog.New(r.Handler("text", slog.LevelInfo)).Info("token hunter22")
	if strings.Contains(log.String(), "hunter22") {
		t.Error("not masked")
	}
}

func TestMasksPassOverWhatWouldBlankTheLog(t *testing.T) {
	t.Parallel()
	r, log, _ := runner(t, nil)
	r.Mask("", "a", "abc", " \n", "hunter22", "hunter22", "line-one\nline-two")
	want := "::add-mask::hunter22\n::add-mask::line-one%0Aline-two\n::add-mask::line-one\n::add-mask::line-two\n"
	if diff := cmp.Diff(want, log.String()); diff != "" {
		t.Error(diff)
	}
}

// hostile is text that tries to be a command.
func hostile() *rapid.Generator[string] {
	piece := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"\n", "\r", "::error::x", "  ::add-mask::y", "##[error]z", "\u2028", "\u0085", `"`, `\`, "hunter22", "=", "\x1b[31m", "\xff",
	}))
	return rapid.Map(rapid.SliceOf(piece), func(p []string) string { return strings.Join(p, "") })
}

func TestNoLogLineIsACommandAndNoneShowsASecret(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				var out bytes.Buffer
				r := New(&out, func(string) string { return "" })
				r.Mask("hunter22")
				text := hostile()
				h := r.Handler(format, slog.LevelDebug).
					WithAttrs([]slog.Attr{slog.String(text.Draw(rt, "key"), text.Draw(rt, "value"))}).
					WithGroup(text.Draw(rt, "group"))
				record := slog.NewRecord(time.Unix(0, 0), slog.LevelInfo, text.Draw(rt, "msg"), 0)
				record.AddAttrs(
					slog.Any("err", errors.New(text.Draw(rt, "err"))),
					slog.Any("raw", json.RawMessage("{\n\"a\":\n1}")),
					slog.Any("bytes", []byte(text.Draw(rt, "bytes"))),
					slog.Any("list", []string{text.Draw(rt, "item")}),
					slog.Group(text.Draw(rt, "inner"), slog.String("k", text.Draw(rt, "deep"))))
				if err := h.Handle(t.Context(), record); err != nil {
					rt.Fatal(err)
				}
				got := out.String()
				if strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n") {
					rt.Fatalf("not one line: %q", got)
				}
				if strings.HasPrefix(strings.TrimSpace(got), "::") || strings.Contains(got, "##[") {
					rt.Fatalf("a command: %q", got)
				}
				if strings.ContainsAny(got, "\r\u2028\u0085") && format == "text" {
					rt.Fatalf("another kind of line break: %q", got)
				}
				if strings.Contains(got, "hunter22") {
					rt.Fatalf("the secret: %q", got)
				}
				if format == "json" && !json.Valid([]byte(got)) {
					rt.Fatalf("not JSON: %q", got)
				}
			})
		})
	}
}

func TestASecretIsMaskedInEverySpellingALogGivesIt(t *testing.T) {
	t.Parallel()
	const secret = `p"a\s<s&w/or d`
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		r := New(&out, func(string) string { return "" })
		r.Mask(secret)
		slog.New(r.Handler(format, slog.LevelInfo)).Info("m", "plain", secret, "url", "https://x.test/?t=p%22a%5Cs%3Cs%26w%2For+d")
		if got := out.String(); strings.Count(got, "***") != 2 {
			t.Errorf("%s: %s", format, got)
		}
	}
}

func TestTheEventIsReadWithItsNumbersWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "event.json")
	body := `{"action":"x","inputs":{"a":"1","b":true,"c":9007199254740993,"d":null},"run":{"id":9007199254740993}}`
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _, _ := runner(t, map[string]string{"GITHUB_EVENT_PATH": path, "GITHUB_EVENT_NAME": "workflow_dispatch"})
	ev, err := r.Event()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "true", "c": "9007199254740993"}, ev.Inputs); diff != "" {
		t.Error(diff)
	}
	run, _ := ev.Payload["run"].(map[string]any)
	if ev.Name != "workflow_dispatch" || ev.Action != "x" || run["id"] != json.Number("9007199254740993") {
		t.Errorf("got %+v", ev)
	}
}

func TestAnEventThatIsNoneIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing": "", "a list": "[]", "half": `{"a":`, "two": "{} {}", "inputs as a list": `{"inputs":[]}`,
		"an input that is an object": `{"inputs":{"a":{}}}`, "too long": `{"a":"` + strings.Repeat("x", maxEvent) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "event.json")
			if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			r, _, _ := runner(t, map[string]string{"GITHUB_EVENT_PATH": path})
			if ev, err := r.Event(); err == nil || !strings.Contains(err.Error(), "GITHUB_EVENT_PATH") {
				t.Errorf("got %+v, %v", ev, err)
			}
		})
	}
	r, _, dir := runner(t, nil)
	if _, err := r.Event(); err == nil {
		t.Error("no path, no error")
	}
	r, _, _ = runner(t, map[string]string{"GITHUB_EVENT_PATH": filepath.Join(dir, "none")})
	if _, err := r.Event(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRealEventsAreRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../shared/realdata/github/payload/*.json")
	if err != nil || len(files) == 0 {
		t.Skip("the shared real payloads are not here")
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseEvent(data); err != nil {
			t.Errorf("%s: %v", filepath.Base(f), err)
		}
	}
}

func TestMarkdownOfOthersShowsAsText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain text, 1.5 (ok)":      "plain text, 1.5 (ok)",
		"a|b":                       "a&#124;b",
		"`x`":                       "&#96;x&#96;",
		"@octocat":                  "&#64;&#8203;octocat",
		"[a](https://evil.test)":    "&#91;a&#93;(https&#58;//evil.test)",
		"<img src=x onerror=1>":     "&#60;img src=x onerror=1&#62;",
		"&lt;":                      "&#38;lt;",
		"one\r\n\ntwo\u2028three":   "one two three",
		"www.evil.test":             "www&#46;evil.test",
		"*b* _i_ ~s~ #1 \\ ![i](x)": "&#42;b&#42; &#95;i&#95; &#126;s&#126; &#35;1 &#92; &#33;&#91;i&#93;(x)",
		"\u202eright":               " right",
		"Ünï 日本":                    "Ünï 日本",
	} {
		if got := EscapeMarkdown(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestEscapedMarkdownHasNothingLeftToInterpret(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		got := EscapeMarkdown(hostile().Draw(rt, "text"))
		if strings.ContainsAny(got, "|`@<>[]!*_~\\:$\n\r\u2028") || !utf8.ValidString(got) {
			rt.Fatalf("%q", got)
		}
	})
}

func FuzzEvent(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"inputs":null}`, `{"inputs":{"a":"1","b":true,"c":1e999,"d":null}}`, "\xef\xbb\xbf{}", `{"inputs":{"a":[]}}`,
		strings.Repeat(`{"a":`, 20000), `{} x`, `{"action":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := parseEvent(data)
		if err == nil && ev.Inputs == nil {
			t.Error("inputs are nil")
		}
		if err != nil && (ev.Payload != nil || ev.Inputs != nil) {
			t.Error("an event beside an error")
		}
	})
}
