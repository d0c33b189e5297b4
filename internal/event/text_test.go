package event_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/event"
)

func TestParseCommand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, body, command, instruction string }{
		{"a bare command", "/fs-triage", "/fs-triage", ""},
		{"a command with an instruction", "/fs-triage check acceptance criteria", "/fs-triage", "check acceptance criteria"},
		{"only the first line counts", "/fs-triage one\n/fs-code two", "/fs-triage", "one"},
		{"a carriage return and a line feed end the line", "/fs-triage one\r\ntwo", "/fs-triage", "one"},
		{"a carriage return alone ends the line", "/fs-triage\rtwo", "/fs-triage", ""},
		{"a tab separates", "/fs-triage\tone\ttwo", "/fs-triage", "one\ttwo"},
		{"blanks around the instruction go", "/fs-triage  \t one \t ", "/fs-triage", "one"},
		{"blanks at the end are no instruction", "/fs-triage   ", "/fs-triage", ""},
		{"a no-break space separates", "/fs-triage\u00a0one", "/fs-triage", "one"},
		{"an em space separates", "/fs-triage\u2003one\u2003", "/fs-triage", "one"},
		{"an ideographic space separates", "/fs-triage\u3000one", "/fs-triage", "one"},
		{"a zero-width space does not separate", "/fs-triage\u200bone", "/fs-triage\u200bone", ""},
		{"a command in other letters is a command", "/fs-Prüfung größer", "/fs-Prüfung", "größer"},
		{"the prefix alone is none", "/fs-", "", ""},
		{"the prefix alone with an instruction is none", "/fs- triage", "", ""},
		{"the prefix alone before a no-break space is none", "/fs-\u00a0triage", "", ""},
		{"the prefix in capitals is none", "/FS-triage", "", ""},
		{"half the prefix is none", "/fs", "", ""},
		{"a blank before it makes it text", " /fs-triage", "", ""},
		{"an empty first line makes it text", "\n/fs-triage", "", ""},
		{"a word before it makes it text", "please /fs-triage", "", ""},
		{"a quote makes it text", "> /fs-triage", "", ""},
		{"nothing is none", "", "", ""},
		{"64 code points are a command", "/fs-" + strings.Repeat("x", 60) + " go", "/fs-" + strings.Repeat("x", 60), "go"},
		{"64 code points of more than a byte are a command", "/fs-" + strings.Repeat("é", 60), "/fs-" + strings.Repeat("é", 60), ""},
		{"65 code points are none", "/fs-" + strings.Repeat("x", 61) + " go", "", ""},
		{"65 code points of more than a byte are none", "/fs-" + strings.Repeat("é", 61), "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			command, instruction := event.ParseCommand(tc.body)
			if command != tc.command || instruction != tc.instruction {
				t.Errorf("got %q and %q, want %q and %q", command, instruction, tc.command, tc.instruction)
			}
		})
	}
}

func TestACommandIsReadBeforeTheBodyIsCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 5000)
	got := event.NewComment("20001", "/fs-triage "+long)
	want := &event.Comment{
		ID: "20001", Command: "/fs-triage",
		Body:        "/fs-triage " + strings.Repeat("ä", event.MaxBody-len("/fs-triage ")),
		Instruction: strings.Repeat("ä", event.MaxBody),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		n        int
		want     string
	}{
		{"nothing of nothing", "", 0, ""},
		{"nothing of something", "abc", 0, ""},
		{"shorter stays", "abc", 4, "abc"},
		{"exactly as long stays", "abc", 3, "abc"},
		{"bytes are cut", "abcd", 3, "abc"},
		{"code points are counted, not bytes", "äöüß", 4, "äöüß"},
		{"no code point is halved", "äöüß", 3, "äöü"},
		{"four bytes each", "😀😀😀", 2, "😀😀"},
		{"a combining mark counts by itself", "e\u0301x", 2, "e\u0301"},
		{"invalid bytes are replaced", "a\xffb", 10, "a\uFFFDb"},
		{"a half code point at the end is replaced", "ä"[:1], 1, "\uFFFD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := event.Truncate(tc.in, tc.n); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzParseCommand(f *testing.F) {
	for _, s := range []string{
		"/fs-triage check", "/fs-", "/fs-a\tb\r\nc", "/fs-\u00a0", "/fs-é\u2028x", "text", " /fs-x", "/fs-\xff\xfe x", "/fs-" + strings.Repeat("x", 61),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		command, instruction := event.ParseCommand(body)
		if command == "" {
			if instruction != "" {
				t.Fatalf("an instruction %q without a command", instruction)
			}
			return
		}
		line := body
		if i := strings.IndexAny(line, "\r\n"); i >= 0 {
			line = line[:i]
		}
		switch {
		case !strings.HasPrefix(line, command) || !strings.HasPrefix(command, event.CommandPrefix) || command == event.CommandPrefix:
			t.Fatalf("%q is not the first word of %q", command, line)
		case strings.ContainsFunc(command, unicode.IsSpace):
			t.Fatalf("a blank in %q", command)
		case utf8.RuneCountInString(command) > 64:
			t.Fatalf("%q is too long", command)
		case strings.TrimSpace(strings.TrimPrefix(line, command)) != instruction:
			t.Fatalf("%q is not the rest of %q", instruction, line)
		}
		c := event.NewComment("1", body)
		if utf8.RuneCountInString(c.Body) > event.MaxBody || utf8.RuneCountInString(c.Instruction) > event.MaxBody || !utf8.ValidString(c.Body+c.Instruction) {
			t.Fatal("the comment does not fit the schema")
		}
	})
}
