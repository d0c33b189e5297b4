package jira

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAQueryIsSplitFromItsOwnOrder(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		`project = PROJ`:                                   {`project = PROJ`, ``},
		`  project = PROJ  `:                               {`project = PROJ`, ``},
		`project = PROJ ORDER BY key`:                      {`project = PROJ`, `key`},
		`project = PROJ order by key DESC, updated`:        {`project = PROJ`, `key DESC, updated`},
		"project = PROJ\nOrDeR\t\n by\nkey":                {`project = PROJ`, `key`},
		`(project = PROJ)ORDER BY key`:                     {`(project = PROJ)`, `key`},
		`summary ~ "x"ORDER BY key`:                        {`summary ~ "x"`, `key`},
		`ORDER BY key`:                                     {``, `key`},
		``:                                                 {``, ``},
		`summary ~ "order by key"`:                         {`summary ~ "order by key"`, ``},
		`summary ~ 'it is (an order by'`:                   {`summary ~ 'it is (an order by'`, ``},
		`summary ~ "a \" order by b"`:                      {`summary ~ "a \" order by b"`, ``},
		`summary ~ "it's"`:                                 {`summary ~ "it's"`, ``},
		`summary ~ reorder by x`:                           {`summary ~ reorder by x`, ``},
		`summary ~ order`:                                  {`summary ~ order`, ``},
		`"order" = by`:                                     {`"order" = by`, ``},
		`x = order_by`:                                     {`x = order_by`, ``},
		`x = order bye`:                                    {`x = order bye`, ``},
		`x = border by`:                                    {`x = border by`, ``},
		"summary ~ voil\u00e0order by x":                   {"summary ~ voil\u00e0order by x", ``},
		`summary ~ a\"b ORDER BY key`:                      {`summary ~ a\"b`, `key`},
		`project = A OR (labels in (b, "c)") AND (x = 1))`: {`project = A OR (labels in (b, "c)") AND (x = 1))`, ``},
		"summary ~ \"gr\u00f6\u00dfe\" ORDER BY \"Gr\u00f6\u00dfe[Zahl]\" ASC": {"summary ~ \"gr\u00f6\u00dfe\"", "\"Gr\u00f6\u00dfe[Zahl]\" ASC"},
		`status = "In (progress" ORDER BY cf[10001], "a (b" x`:                 {`status = "In (progress"`, `cf[10001], "a (b" x`},
		`labels = x AND updated >= "2026/01/01" ORDER BY Rank`:                 {`labels = x AND updated >= "2026/01/01"`, `Rank`},
		`assignee = currentUser() AND sprint in openSprints() `:                {`assignee = currentUser() AND sprint in openSprints()`, ``},
	} {
		where, order, err := splitOrderBy(in)
		if err != nil || where != want[0] || order != want[1] {
			t.Errorf("%q is split into %q and %q (%v)", in, where, order, err)
		}
	}
}

func TestAQueryThatCouldEscapeItsParenthesesIsRefused(t *testing.T) {
	t.Parallel()
	for in, why := range map[string]string{
		`project = PROJ) OR (labels = x`:        "closes a parenthesis that it did not open",
		`(project = PROJ`:                       "does not close",
		`project = PROJ)`:                       "did not open",
		`summary ~ "x`:                          "not closed",
		`summary ~ 'x`:                          "not closed",
		`summary ~ "x\"`:                        "not closed",
		`summary ~ "x') OR (y ~ 'z`:             "not closed",
		`project = PROJ ORDER BY key) OR (x`:    "did not open",
		`project = PROJ ORDER BY (key`:          "does not close",
		`project = PROJ ORDER BY`:               "names no field",
		`project = PROJ order by   `:            "names no field",
		strings.Repeat("x", maxQuery+1):         "at most 10000",
		`a = \) OR (b = \(`:                     "does not close",
		"ORDER BY key":                          "no condition",
		"":                                      "no condition",
		"   ":                                   "no condition",
		`project = PROJ AND "a\\" OR x = 1) OR`: "did not open",
		`a = \`:                                 "backslash",
		`a = \ `:                                "backslash",
		`a = \\\ ORDER BY b`:                    "backslash",
		`a = b ORDER BY c\`:                     "backslash",
	} {
		if err := CheckQuery(in); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.60q: %v, want %q", in, err, why)
		}
	}
	if err := CheckQuery("project = PROJ ORDER BY key"); err != nil {
		t.Error(err)
	}
}

func TestAQueryIsWrappedOnceAndBounded(t *testing.T) {
	t.Parallel()
	since := time.UnixMilli(1_787_222_400_123)
	for name, tt := range map[string]struct {
		jql   string
		since time.Time
		want  string
		own   bool
	}{
		"plain":             {`a = 1 OR b = 2`, since, `(a = 1 OR b = 2) AND updated >= 1787222400123 ORDER BY updated DESC`, false},
		"its own order":     {`a = 1 ORDER BY key`, since, `(a = 1) AND updated >= 1787222400123 ORDER BY key`, true},
		"only an order":     {`ORDER BY key`, since, `updated >= 1787222400123 ORDER BY key`, true},
		"none":              {``, since, `updated >= 1787222400123 ORDER BY updated DESC`, false},
		"no bound":          {`a = 1`, time.Time{}, `(a = 1) ORDER BY updated DESC`, false},
		"none and no bound": {``, time.Time{}, `updated >= 0 ORDER BY updated DESC`, false},
		"its own bound":     {`updated >= -1d`, since, `(updated >= -1d) AND updated >= 1787222400123 ORDER BY updated DESC`, false},
	} {
		got, own, err := searchQuery(tt.jql, tt.since)
		if err != nil || got != tt.want || own != tt.own {
			t.Errorf("%s: %q, %v, %v", name, got, own, err)
		}
	}
	if _, _, err := searchQuery("(", since); err == nil {
		t.Error("an open parenthesis passes")
	}
}

// wrapped checks an accepted query: outside of quotes the wrapping parenthesis
// stays open until its own end, so what is added holds for all of the condition.
func wrapped(jql string) string {
	got, _, err := searchQuery(jql, time.UnixMilli(7))
	if err != nil {
		return ""
	}
	where, order, err := splitOrderBy(got)
	if err != nil {
		return "the result cannot be read again: " + err.Error()
	}
	inner, wantOrder, _ := splitOrderBy(jql)
	if wantOrder == "" {
		wantOrder = "updated DESC"
	}
	if order != wantOrder {
		return "the order changes: " + order
	}
	if inner == "" {
		return ""
	}
	if where != "("+inner+") AND updated >= 7" {
		return "the condition changes: " + where
	}
	depth, quote := 0, byte(0)
	for i := 0; i < len(where); i++ {
		switch c := where[i]; {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && i != len(inner)+1 {
				return "the wrapping ends early"
			}
		}
	}
	if depth != 0 || quote != 0 {
		return "the result is not balanced"
	}
	return ""
}

func TestNoQueryEscapesItsWrapping(t *testing.T) {
	t.Parallel()
	token := rapid.SampledFrom([]string{`(`, `)`, `"`, `'`, `\`, ` `, `order by`, `ORDER`, `BY`, `OR`, `x = 1`, `,`, "\n", `é`, "\u00a0", "à"})
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		jql := strings.Join(rapid.SliceOfN(token, 0, 12).Draw(rt, "tokens"), "")
		if bad := wrapped(jql); bad != "" {
			rt.Fatalf("%q: %s", jql, bad)
		}
		if CheckQuery(jql) == nil {
			accepted++
		}
	})
	if accepted == 0 {
		t.Error("no query was accepted; the property was not tested")
	}
}
