package config

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		contractExample, driver("lock: {m: 1, n: 1}", "first_poll_window: 0"), connection("base_url: https://${SITE}.x", "token: ${JIRA_TOKEN}"),
		"poll: &p {input_drivers: [&d {type: gitlab-poll, connection: *d}, *d, *d]}\n", "a: &a [*a, *a]\nagents: *a\n", "? {a: b}\n: c\n",
		"poll:\n  <<: {output_driver: x}\n", "agents: [{name: a, enabled: false}, a.yaml]\n", "---\n---\n", "\xff\xfea\x00", "version: !!binary aGk=\n",
		"poll: {gha_dispatch: {ref: \"\\u0000\"}}\n", "poll: {input_drivers: [{type: jira-poll, scan_window: 9999999999999d}]}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		lookup := env("JIRA_TOKEN", secret, "JIRA_USER_EMAIL", "a@b.example", "SITE", "acme", "FULLSEND_FORGE_TOKEN", secret, "CI_PROJECT_PATH", "a/b")
		cfg, problems := Parse(raw, lookup, Options{})
		if cfg == nil && len(problems) == 0 {
			t.Fatal("neither a configuration nor a problem")
		}
		for i, p := range problems {
			s := p.String()
			switch {
			case strings.Contains(s, secret):
				t.Errorf("a report repeats a secret: %q", s)
			case strings.ContainsAny(s, "\r\n") || !utf8.ValidString(s):
				t.Errorf("a problem is not one line of text: %q", s)
			case i > 0 && p.Line != 0 && (problems[i-1].Line == 0 || problems[i-1].Line > p.Line):
				t.Errorf("problems are not in the order of lines: %v", problems)
			}
		}
		if len(problems) > 0 {
			return
		}
		for _, d := range cfg.Poll.InputDrivers {
			if d.Connection.BaseURL == "" || d.Connection.Token == "" || d.Type == JiraPoll && (d.Lock.N < 1 || d.Lock.N > d.Lock.M || d.Lock.Guard <= 0) {
				t.Errorf("a driver that cannot work was accepted: %+v", d)
			}
		}
	})
}
