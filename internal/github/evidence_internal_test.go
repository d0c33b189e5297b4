package github

import (
	"strings"
	"testing"
)

func TestTheAgentIsTheFirstWordOfARunsName(t *testing.T) {
	t.Parallel()
	const id = "0b5e6f9e-7d3a-4f1e-9a46-5d0f3f6f0c11"
	for title, want := range map[string]string{
		"triage PROJ-7 " + id:        "triage",
		"triage " + id:               "triage",
		"  triage\t" + id:            "triage",
		"code_review-2 [" + id + "]": "code_review-2",
		"QA " + id:                   "QA",
		"triage PROJ-7":              "", // not the lock's
		id + " triage":               "",
		id:                           "",
		"x-" + id + " triage":        "",
		"PROJ-7 triage " + id:        "", // an issue, not an agent
		"2 " + id:                    "",
		"poll: triage " + id:         "",
		"<b>triage</b> " + id:        "",
		"trïage " + id:               "",
		"::error::x " + id:           "",
		"\u202etriage " + id:         "",
		"":                           "",
	} {
		if got := firstAgent(title, id); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
	if got := firstAgent("triage x", ""); got != "" {
		t.Errorf("without an id: %q", got)
	}
}

func FuzzFirstAgent(f *testing.F) {
	f.Add("triage PROJ-7 0b5e6f9e-7d3a", "0b5e6f9e-7d3a")
	f.Add("0b5e6f9e-7d3a triage", "0b5e6f9e-7d3a")
	f.Add("\xff\x00 a", "a")
	f.Fuzz(func(t *testing.T, title, id string) {
		got := firstAgent(title, id)
		if got == "" {
			return
		}
		if !strings.HasPrefix(strings.TrimSpace(title), got) || !hasWord(title, got) || id == "" || strings.Contains(got, id) || !strings.Contains(title, id) {
			t.Errorf("%q, %q: %q", title, id, got)
		}
		if rest := strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"); rest != "" {
			t.Errorf("%q, %q: %q has %q", title, id, got, rest)
		}
	})
}
