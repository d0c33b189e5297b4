package jira

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/event"
)

// seeds adds the seeds that every run of the tests
// goes through.
func seeds(f *testing.F, written ...string) {
	f.Helper()
	for _, s := range written {
		f.Add([]byte(s))
	}
}

func FuzzADF(f *testing.F) {
	seeds(f,
		doc(para(txt("/fs-code do it"), `{"type":"hardBreak"}`, txt("x"))), `"/fs-code x"`, `null`, `7`, `[]`, `{}`, `{"content":7,"type":"doc"}`,
		doc(`{"type":"blockquote","content":[`+para(txt("a"))+`]}`), doc(para(`{"type":"mention"}`), `{"type":"rule"}`),
		doc(para(`{"type":"date","attrs":{"timestamp":"1"}}`, `{"type":"inlineCard","attrs":{"data":{"url":"u"}}}`)),
		`"[~bob] see [https://a.example|https://a.example|smart-link]\\\\ x\r\n{code}[~x]{code}"`, `"\n \n/fs-code\\\\"`, `"{noformat}{code}[~"`,
		strings.Repeat(`{"type":"panel","content":[`, 100)+strings.Repeat(`]}`, 100), "{\"type\":\"doc\",\"content\":[{\"text\":\"\xff\"}]}",
	)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := readBody(raw)
		if !utf8.ValidString(b.Text) || !utf8.ValidString(b.Lead) {
			t.Errorf("the text is not valid: %q, %q", b.Text, b.Lead)
		}
		if len(b.Text) > 4*maxText+4*len(raw)+maxNodes || len(b.Text) > 2*maxDepth*(maxText+maxNodes)+2*maxText {
			t.Errorf("%d bytes of text from %d", len(b.Text), len(raw))
		}
		if !strings.HasPrefix(b.Text, b.Lead) {
			t.Errorf("the lead %q does not begin the text %q", b.Lead, b.Text)
		}
		c := b.comment("1")
		if len([]rune(c.Body)) > event.MaxBody || len([]rune(c.Instruction)) > event.MaxBody {
			t.Errorf("body of %d, instruction of %d", len(c.Body), len(c.Instruction))
		}
		if c.Command != "" && !strings.HasPrefix(b.Text, c.Command) || strings.ContainsAny(c.Command+c.Instruction, "\r\n") {
			t.Errorf("command %q %q in %q", c.Command, c.Instruction, b.Text)
		}
		if again := readBody(raw); again != b {
			t.Errorf("read twice: %q and %q", b.Text, again.Text)
		}
	})
}

func FuzzHistory(f *testing.F) {
	seeds(f,
		`{"id":"5","created":"2026-09-01T09:12:44.513+0200","author":{"accountId":"a"},"items":[{"field":"Labels","fromString":"a b","toString":"b c"}]}`,
		`{"id":5,"created":1788246764,"items":[{"fieldId":"status","from":"3","to":6},7,null]}`,
		`{"id":"x"}`, `null`, `[]`, `{"id":"5","created":"soon"}`, `{"id":"5","created":1e12,"author":7,"items":{}}`,
	)
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, ok := decodeHistory(raw)
		if !ok {
			return
		}
		if h.ID == "" || h.Created.UnixMilli() > maxUnixMilli {
			t.Errorf("%+v", h)
		}
		if h.Author != nil && h.Author.AccountID == "" {
			t.Error("an author without an account")
		}
		for _, ch := range h.Items {
			if ch.Field == "" || ch.Field != strings.ToLower(ch.Field) {
				t.Errorf("field %q", ch.Field)
			}
			after := map[string]bool{}
			for _, l := range labelSet(ch.FromString) {
				after[l] = true
			}
			for _, l := range labelChanges(ch) { // applied to the one set they give the other
				if after[l.Name] == (l.Action == event.LabelAdded) {
					t.Errorf("%v where %v", l, after)
				}
				after[l.Name] = l.Action == event.LabelAdded
			}
			var want []string
			for l, has := range after {
				if has {
					want = append(want, l)
				}
			}
			if diff := cmp.Diff(labelSet(strings.Join(want, " ")), labelSet(ch.ToString)); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func FuzzComment(f *testing.F) {
	seeds(f,
		`{"id":"5","created":"2026-09-01T09:12:44.513+0200","updated":"2026-09-01T09:12:45.513+0200","author":{"accountId":"a"},"body":{"type":"doc","content":[]}}`,
		`{"id":5,"created":1,"updated":"x","visibility":{"type":"role"}}`, `{"id":"5","created":5,"jsdPublic":false}`, `null`, `{"id":null}`, `[1]`,
		`{"id":"5","created":"2026-09-01T09:12:44Z","body":"text","author":null,"updateAuthor":"x"}`,
		`{"id":"5","created":"2026-09-01T09:12:44.513+0200","body":"[~a] x","author":{"name":"a"},"properties":[{"key":"sd.public.comment","value":{"internal":true}}]}`,
		`{"id":"5","created":1,"properties":{"sd.public.comment":{}}}`,
	)
	v, err := event.NewValidator()
	if err != nil {
		f.Fatal(err)
	}
	c := &Client{}
	it := &Item{cycle: &cycle{input: &Input{client: c, state: NewState(c, Properties{}), o: InputOptions{Repo: "a/b", RestrictedComments: true}}}, row: issueRow{ID: "7", Key: "PROJ-7"}}
	it.ref.URL = "https://a.example/browse/PROJ-7"
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, ok := decodeComment(raw)
		if !ok {
			return
		}
		if c.Updated.Before(c.Created) || c.ID == "" {
			t.Errorf("%+v", c)
		}
		all, _, _, err := it.occurrences(t.Context(), nil, []comment{c}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			o.Event.Actor.Role = event.RoleExternal
			if err := v.Validate(o.Event); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
		}
	})
}

func FuzzRow(f *testing.F) {
	seeds(f,
		`{"id":"5","key":"P-1","fields":{"created":"2026-09-01T09:12:44.513+0200","updated":1,"reporter":{"accountId":"a"},"labels":["x"],"status":{"id":"3"},"project":{"key":"P"}},"properties":{"a":1}}`,
		`{"id":"0"}`, `{"id":5}`, `null`, `{"id":"5","fields":null,"properties":[]}`, `{"id":"5","fields":{"labels":{},"status":[],"reporter":"x"}}`, `{"key":"P-1\n::error::"}`,
		`{"id":"99999999999999999999"}`,
	)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := decodeRow(raw)
		texts := r.Notes
		if err != nil {
			texts = []string{err.Error()}
		} else if r.ID == "" || r.Reporter != nil && r.Reporter.AccountID == "" || r.Creator != nil && r.Creator.AccountID == "" {
			t.Errorf("%+v", r)
		}
		for _, s := range texts {
			if strings.ContainsAny(s, "\r\n") || len(s) > 8*maxMessage+len(raw)/2 {
				t.Errorf("a note of %d bytes: %.200q", len(s), s)
			}
		}
	})
}

func FuzzLastCheck(f *testing.F) {
	seeds(f, `"2026-09-01T07:12:44.513Z"`, `{"ts":"2026-09-01T07:12:44.513123456+02:00"}`, `7`, `null`, `{"ts":7}`, `""`, `[[[`, `"0000-01-01T00:00:00+23:59"`, `"9999-12-31T23:59:59-23:59"`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		at, err := decodeLastCheck(raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 5*maxMessage {
				t.Errorf("an error of %d bytes: %.200q", len(err.Error()), err)
			}
			return
		}
		if y := at.UTC().Year(); y < 0 || y > 9999 {
			return // cannot be written; judged as future, or as older than any window
		}
		again, err := json.Marshal(at.UTC().Format(time.RFC3339Nano))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeLastCheck(again); err != nil || !back.Equal(at) {
			t.Errorf("%s is written as %s and read as %v (%v)", raw, again, back, err)
		}
	})
}

func FuzzJournal(f *testing.F) {
	const key = "a:comment-1"
	seeds(f, `{"v":1,"keys":{"a:comment-1":{"t":1,"run":2,"n":2,"d":true}},"retry":{"b":3}}`, `{"v":1,"keys":{"a:comment-1":{"t":1,"run":7,"h":"x","n":1e999},"b":{"run":7,"n":-1,"d":1},"c":{"n":"x","d":"true"},"d":{"n":[],"d":{}}}}`,
		`{"v":1,"keys":{"a:comment-1":{"run":7,"n":null,"d":null,"t":-5}},"retry":{"a:comment-1":5}}`, `{"v":1,"keys":{"a:comment-1":{"t":1,"N":2.9,"D":true,"n":"2"}}}`, `{"v":1,"keys":{"a:comment-1":{"t":1,"run":2}},"retry":{"b":3}}`, `{"v":1}`, `{"v":2}`, `null`, `[]`, `{"v":1,"keys":{"a":null,"b":7},"retry":[]}`, `{"v":1,"keys":{"\ud800":{}}}`,
		`{"v":1,"keys":{"`+strings.Repeat("<", 1000)+`":{"t":9}}}`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := decodeJournal(raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") || len(doc.Keys)+len(doc.Retry) > 0 {
				t.Errorf("%v, %v", doc, err)
			}
			return
		}
		first, err := doc.encode()
		if err != nil || len(first) > maxProperty {
			t.Fatalf("%d bytes, %v", len(first), err)
		}
		back, err := decodeJournal(first)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", first, err)
		}
		second, err := back.encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("written as %s, then as %s (%v)", first, second, err)
		}
		for k, e := range doc.Keys {
			if e.N < 0 || e.N > Limit {
				t.Errorf("%s was given back %d times", k, e.N)
			}
		}
		if len(raw) > maxJournal/4 { // else what was given back need not have room
			return
		}
		again := func() {
			t.Helper()
			written, err := back.encode()
			if err == nil {
				back, err = decodeJournal(written)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		when := func(int64) int64 { return 5 }
		before := back.Keys[key]
		switch end := back.giveBack(key, 7, when); end {
		case Returned:
			again()
			if e := back.Keys[key]; e.N != before.N+1 || e.Run != 7 || back.Retry[key] != 5 || before.D || before.Run != 0 && before.Run != 7 {
				t.Errorf("%+v was given back as %+v, retry %v", before, e, back.Retry)
			}
			if end = back.giveBack(key, 7, when); end != Already {
				t.Errorf("a second time: %s", end)
			}
		case Already, Dropped, Exhausted, Elsewhere:
			if unchanged, err := back.encode(); err != nil || !bytes.Equal(unchanged, second) {
				t.Errorf("%s, and written as %s (%v)", end, unchanged, err)
			}
		}
		for _, drop := range []bool{true, false} {
			keys, _ := back.revoke([]int64{7, 0, -1}, drop, when)
			again()
			for _, k := range keys {
				_, retried := back.Retry[k]
				if e := back.Keys[k]; e.Run != 7 || bool(e.D) != drop || retried == drop {
					t.Errorf("taken back (drop %t): %s %+v, retry %t", drop, k, e, retried)
				}
			}
			if more, changed := back.revoke([]int64{7}, drop, when); changed || len(more) != len(keys) {
				t.Errorf("taken back again (drop %t): %q, then %q", drop, keys, more)
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		`project = PROJ`, `a = "b ) order by c" OR (x = 1) ORDER BY key`, `a) OR (b`, `"`, `'it"s'`, `\`, `a = \`, `a = \) ORDER BY b`, `ORDER BY x`, ``,
		"order\u00a0by x", "\xff order by \xff", `a = b order by c \ `,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, jql string) {
		if bad := wrapped(jql); bad != "" {
			t.Errorf("%q: %s", jql, bad)
		}
	})
}

func FuzzFlatten(f *testing.F) {
	seeds(f, `{"a":[1,[2,{"b":"]}"}]]}`, `[[[["\\"]]]]`, `]]`, `"[`, `{"a":"\"["}`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		flat := flatten(raw, 3)
		if json.Valid(raw) && !json.Valid(flat) {
			t.Errorf("%s becomes %s", raw, flat)
		}
		if again := flatten(flat, 3); json.Valid(raw) && !bytes.Equal(flat, again) {
			t.Errorf("%s becomes %s, then %s", raw, flat, again)
		}
	})
}
