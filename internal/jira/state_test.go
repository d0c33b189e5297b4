package jira

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestPropertiesOfTwoRepositoriesNeverShareAName(t *testing.T) {
	t.Parallel()
	a, err := PropertiesFor("a.b/c")
	if err != nil {
		t.Fatal(err)
	}
	want := Properties{Lock: "fullsend.poll.a%2Eb.c.lock", LastCheck: "fullsend.poll.a%2Eb.c.lastCheck", Seen: "fullsend.poll.a%2Eb.c.seen"}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
	b, err := PropertiesFor("a/b.c")
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Errorf("a.b/c and a/b.c share %v", a)
	}
	for _, bad := range []string{"", "a", "a/", "/b", "a/b/c"} {
		if _, err := PropertiesFor(bad); err == nil {
			t.Errorf("%q is taken for a repository", bad)
		}
	}
}

func TestANameWithAnEscapeReachesTheServerAsItIs(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.process()
		p, err := PropertiesFor("a.b/c.d")
		if err != nil {
			t.Fatal(err)
		}
		state := NewState(s.client, p)
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		at := time.Now().Add(-time.Hour)
		if err := state.Advance(t.Context(), ref, poll.Checkpoint{At: at}); err != nil {
			t.Fatal(err)
		}
		if _, err := state.Put(t.Context(), is.ID, []byte(`{"id":"1"}`)); err != nil {
			t.Fatal(err)
		}
		if err := state.Journal(ref).Commit(t.Context(), "k", at, dispatch.Receipt{RunID: 1}); err != nil {
			t.Fatal(err)
		}
		s.equal([]string{"fullsend.poll.a%2Eb.c%2Ed.lastCheck", "fullsend.poll.a%2Eb.c%2Ed.lock", "fullsend.poll.a%2Eb.c%2Ed.seen"}, s.w.Jira.Properties(is.Key), "properties")
		st, err := state.Load(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		s.equal(true, st.Checkpoint.At.Equal(at), "the checkpoint comes back")
		s.equal(map[string]bool{"k": true}, st.Keys, "the journal comes back")
	})
}

func TestACheckpointHasItsNanoseconds(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		_, state := s.process()
		at := time.Date(1999, 12, 31, 23, 0, 0, 123456789, time.FixedZone("", 3600))
		if err := state.Advance(t.Context(), poll.Ref{ID: is.ID}, poll.Checkpoint{At: at}); err != nil {
			t.Fatal(err)
		}
		raw, _ := s.w.Jira.Property(is.Key, s.props().LastCheck)
		s.equal(flavoured(s, `"1999-12-31T22:00:00.123456789Z"`, `{"ts":"1999-12-31T22:00:00.123456789Z"}`), string(raw), "stored")
	})
}

func TestBothFormsOfACheckpointAreRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 9, 1, 7, 12, 44, 513e6, time.UTC)
	for in, ok := range map[string]bool{
		`"2026-09-01T07:12:44.513Z"`:                       true,
		`"2026-09-01T09:12:44.513000000+02:00"`:            true,
		`{"ts":"2026-09-01T07:12:44.513Z"}`:                true,
		`{"ts":"2026-09-01T07:12:44.513Z","by":{"a":[1]}}`: true,
		`{"ts":1788246764513}`:                             false,
		`{"TS2":"x"}`:                                      false,
		`"2026-09-01"`:                                     false,
		`"2026-09-01T09:12:44.513+0200"`:                   false,
		`""`:                                               false,
		`1788246764513`:                                    false,
		`[]`:                                               false,
		`true`:                                             false,
		`{"a":1}`:                                          false,
		`"` + strings.Repeat("x", maxProperty) + `"`:          false,
		`{"ts":"2026-09-01T07:12:44.513Z","ts":"yesterday"}`:  false,
		`"2026-09-01T07:12:44.513Z` + "\\n" + `::error::boo"`: false,
	} {
		got, err := decodeLastCheck([]byte(in))
		if ok != (err == nil) || ok && !got.Equal(at) {
			t.Errorf("%.60s: %v, %v", in, got, err)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 2*maxMessage) {
			t.Errorf("%.60s: error of %d bytes %.100q", in, len(err.Error()), err)
		}
	}
}

func TestAForgedCheckpointIsAbsentAndOverwritten(t *testing.T) {
	t.Parallel()
	for name, forged := range map[string]string{
		"an object": `{"a":1}`, "a number": `7`, "null": `null`, "a list": `[[[]]]`, "false": `false`,
		"the far future": `"9999-01-01T00:00:00Z"`, "the year one": `"0001-01-01T00:00:00Z"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				is := s.issue()
				time.Sleep(time.Minute)
				for _, p := range s.props().list() {
					s.w.Jira.SetProperty(is.Key, p, []byte(forged))
				}
				s.equal([]string{"opened-10001"}, occurrenceKeys(s.cycle()), "events")
				raw, _ := s.w.Jira.Property(is.Key, s.props().LastCheck)
				s.equal(s.checkpoint(s.w.Jira.Updated(is.Key)), string(raw), "overwritten")
				time.Sleep(time.Minute)
				d, _ := s.discover()
				s.equal([]string{}, keysOf(d), "pending afterwards")
			})
		})
	}
}

// anyJSON draws JSON documents: what anybody who may edit an issue can store.
func anyJSON(depth int) *rapid.Generator[string] {
	scalars := []*rapid.Generator[string]{
		rapid.SampledFrom([]string{`null`, `true`, `0`, `-1`, `1e99`, `9223372036854775807`, `""`, `"2026-09-01T07:12:44Z"`, `"running"`, `"\u0000\n::error::"`}),
		rapid.Custom(func(t *rapid.T) string {
			b, err := json.Marshal(rapid.String().Draw(t, "text"))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := anyJSON(depth - 1)
	list := rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(inner, 0, 4).Draw(t, "items"), ",") + "]"
	})
	object := rapid.Custom(func(t *rapid.T) string {
		var parts []string
		for range rapid.IntRange(0, 5).Draw(t, "members") {
			name := rapid.SampledFrom([]string{"id", "ts", "phase", "v", "keys", "retry", "t", "run", "runs", "run_id", "a:comment-1", "KEYS", "x"}).Draw(t, "name")
			parts = append(parts, fmt.Sprintf("%q:%s", name, inner.Draw(t, "value")))
		}
		return "{" + strings.Join(parts, ",") + "}"
	})
	return rapid.OneOf(append(scalars, list, object, object)...)
}

func TestAnyJSONInThePropertiesIsSurvived(t *testing.T) {
	t.Parallel()
	t.Run("Cloud", func(t *testing.T) { t.Parallel(); anyProperties(t) })
	t.Run("Data Center", func(t *testing.T) { t.Parallel(); anyProperties(t, simtest.DataCenter()) })
}

// anyProperties stores any JSON whatever in all properties of an issue.
func anyProperties(t *testing.T, opts ...simtest.Option) {
	t.Helper()
	s := newStage(t, opts...) // rapid cannot run in a bubble; nothing here waits
	is := s.issue()
	s.w.Jira.Comment(is.Key, simtest.Alice, "x")
	rapid.Check(t, func(rt *rapid.T) {
		doc := anyJSON(4)
		for _, p := range s.props().list() {
			s.w.Jira.SetProperty(is.Key, p, []byte(doc.Draw(rt, p)))
		}
		in, state := s.process()
		d, err := in.Discover(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		if len(d.Items) == 0 && d.Held == 0 && !state.Peek(ref).Checkpoint.At.After(time.Now().Add(-time.Minute)) {
			rt.Fatal("the issue is silenced")
		}
		st, err := state.Load(t.Context(), ref)
		if err != nil {
			rt.Fatal(err)
		}
		if st.Checkpoint.At.After(time.Now().Add(lease.MaxSkew + time.Second)) {
			rt.Fatalf("checkpoint %v", st.Checkpoint.At)
		}
		for _, n := range st.Notes {
			if strings.ContainsAny(n, "\r\n") || len(n) > 3*maxMessage {
				rt.Fatalf("note %q", n)
			}
		}
		// whatever stood there, the journal works afterwards
		j := state.Journal(ref)
		if err := j.Commit(t.Context(), "agent:key", time.Now(), dispatch.Receipt{RunID: 3}); err != nil {
			rt.Fatal(err)
		}
		st, err = state.Load(t.Context(), ref)
		if err != nil || !st.Keys["agent:key"] || st.Retry["agent:key"] != (time.Time{}) {
			rt.Fatalf("after a commit: %v, %v", st, err)
		}
	})
}

func TestTheLockReadAlsoServesTheLoadThatFollows(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.checked(is.Key, time.Now())
		_, state := s.process()
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		if _, err := state.Get(t.Context(), is.ID); !errors.Is(err, lease.ErrAbsent) {
			t.Errorf("no lock: %v", err)
		}
		created, err := state.Put(t.Context(), is.ID, []byte(`{"id":"1"}`))
		s.equal(true, created && err == nil, "created")
		s.set(is.Key, s.props().LastCheck, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)) // before the verify
		raw, err := state.Get(t.Context(), is.ID)
		s.equal(`{"id":"1"}`, string(raw), "lock")
		s.equal(true, err == nil, "no error")
		s.reset()
		st, err := state.Load(t.Context(), ref)
		s.equal(true, err == nil && st.Checkpoint.At.Equal(time.Now().Add(-time.Hour)), "the state as of the verify")
		s.equal([]string{}, append([]string{}, s.requests()...), "requests of the load")
		if _, err := state.Load(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		s.equal([]string{"GET /issue/10001"}, s.requests(), "requests of a second load")
		created, err = state.Put(t.Context(), is.ID, []byte(`{"id":"2"}`))
		s.equal(true, !created && err == nil, "replaced")
		s.reset()
		if _, err := state.Load(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		s.equal(1, len(s.requests()), "what was read before a write is not believed")
	})
}

func TestAGoneLockAndAGoneIssueAreToldApart(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		_, state := s.process()
		if err := state.Delete(t.Context(), is.ID); err != nil {
			t.Errorf("deleting a lock that is not there: %v", err)
		}
		if _, err := state.Get(t.Context(), is.ID); !errors.Is(err, lease.ErrAbsent) {
			t.Errorf("no lock: %v", err)
		}
		s.w.Jira.DeleteIssue(is.Key)
		if _, err := state.Get(t.Context(), is.ID); !errors.Is(err, errGone) || errors.Is(err, lease.ErrAbsent) {
			t.Errorf("no issue: %v", err)
		}
		if _, err := state.Put(t.Context(), is.ID, []byte(`{}`)); !errors.Is(err, errGone) {
			t.Errorf("writing to no issue: %v", err)
		}
		if _, err := state.Load(t.Context(), poll.Ref{ID: is.ID}); !errors.Is(err, errGone) {
			t.Errorf("loading from no issue: %v", err)
		}
		if err := state.Advance(t.Context(), poll.Ref{ID: is.ID}, poll.Checkpoint{At: time.Now()}); !errors.Is(err, errGone) {
			t.Errorf("advancing no issue: %v", err)
		}
	})
}

func TestAWriteThatIsNotAllowedNamesTheRight(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.w.Jira.SetReadOnly(is.Key, true)
		_, state := s.process()
		ref := poll.Ref{ID: is.ID}
		_, put := state.Put(t.Context(), is.ID, []byte(`{}`))
		for what, err := range map[string]error{
			"lock":       put,
			"checkpoint": state.Advance(t.Context(), ref, poll.Checkpoint{At: time.Now()}),
			"journal":    state.Journal(ref).Commit(t.Context(), "k", time.Now(), dispatch.Receipt{}),
		} {
			if err == nil {
				t.Errorf("the %s is written", what)
				continue
			}
			mentions(t, err.Error(), "403", "Edit Issues")
			s.equal(dispatch.Transient, dispatch.ClassOf(err), "class")
		}
	})
}

func TestTheLockIsWrittenOnceAndTheRestUntilItStands(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		ref := poll.Ref{ID: is.ID}
		tries := map[string]int{}
		s.w.Net.Fault = func(r *http.Request) sim.Fault {
			part := r.URL.Path[strings.LastIndex(r.URL.Path, ".")+1:]
			if r.Method == http.MethodGet {
				return sim.Fault{}
			}
			tries[r.Method+" "+part]++
			return sim.Fault{DropAfter: tries[r.Method+" "+part] == 1}
		}
		_, state := s.process()
		if _, err := state.Put(t.Context(), is.ID, []byte(`{"id":"1"}`)); err == nil {
			t.Error("a lost answer is no error")
		}
		s.equal(nil, state.Advance(t.Context(), ref, poll.Checkpoint{At: time.Now()}), "advance")
		s.equal(nil, state.Journal(ref).Commit(t.Context(), "k", time.Now(), dispatch.Receipt{}), "commit")
		s.equal(nil, state.Delete(t.Context(), is.ID), "delete, the second time of what is gone")
		s.equal(map[string]int{"PUT lock": 1, "PUT lastCheck": 2, "PUT seen": 2, "DELETE lock": 2}, tries, "tries")
	})
}

func TestAJournalRemembersWhatWasCommittedAndWhatIsToBeRepeated(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		at := time.UnixMilli(1_700_000_000_123)
		s.set(is.Key, s.props().Seen, map[string]any{
			"v": 1, "keys": map[string]any{"old": map[string]any{"t": 5, "run": 6}, "again": map[string]any{"t": 7, "run": 8}},
			"retry": map[string]any{"again": at.UnixMilli(), "orphan": 9},
		})
		_, state := s.process()
		st, err := state.Load(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		s.equal(map[string]bool{"old": true, "again": true}, st.Keys, "keys")
		s.equal(map[string]time.Time{"again": at, "orphan": time.UnixMilli(9)}, st.Retry, "retry")
		j := state.Journal(ref)
		fresh := func(key string) bool {
			f, err := j.Begin(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		s.equal([]bool{true, false, true}, []bool{fresh("new"), fresh("old"), fresh("again")}, "fresh: new, old, again")
		stored := func(want string) {
			t.Helper()
			raw, _ := s.w.Jira.Property(is.Key, s.props().Seen)
			s.equal(want, string(raw), "stored")
		}
		writes := s.w.Jira.PropertyWrites()
		for _, cause := range []error{errors.New("later"), &dispatch.Error{Class: dispatch.Unknown, Err: errors.New("?")}, &dispatch.Error{Class: dispatch.Fatal, Err: errors.New("all")}} {
			s.equal(nil, j.Abort(t.Context(), "new", at, cause), "abort")
		}
		s.equal(writes, s.w.Jira.PropertyWrites(), "writes of orders that are tried again")
		s.equal(true, fresh("new"), "an aborted key")
		s.equal(nil, j.Commit(t.Context(), "again", at, dispatch.Receipt{RunID: 42}), "commit")
		stored(`{"v":1,"keys":{"again":{"t":1700000000123,"run":42},"old":{"t":5,"run":6}},"retry":{"orphan":9}}`)
		s.equal(false, fresh("again"), "a key that was committed again")
		s.equal(nil, j.Abort(t.Context(), "new", at, &dispatch.Error{Class: dispatch.Permanent, Err: errors.New("never")}), "refused")
		s.equal(false, fresh("new"), "a refused key")
		s.equal(nil, j.Forget(t.Context(), []string{"orphan", "unknown"}), "forget")
		stored(`{"v":1,"keys":{"again":{"t":1700000000123,"run":42},"new":{"t":1700000000123,"run":0,"d":true},"old":{"t":5,"run":6}}}`)
	})
}

func TestAnIssueWithARetryIsPendingThoughItsCheckpointIsPastIt(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		s.set(key, s.props().Seen, map[string]any{"v": 1, "keys": map[string]any{}, "retry": map[string]any{"a:opened-10001": time.Now().UnixMilli()}})
		d, _ := s.discover()
		s.equal([]string{key}, keysOf(d), "items")
	})
}

func TestSingleEntriesOfAJournalThatMakeNoSenseAreDropped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", maxKey+1)
	doc, err := decodeJournal([]byte(`{"v":1,"extra":[],"keys":{"a":{"t":1,"run":2},"b":7,"c":null,"d":{"t":"x"},"e":{},"` + long + `":{}},
		"retry":{"f":5,"g":"x","h":-1,"i":0,"j":99999999999999999,"k":1.5,"l":null,"` + long + `":5}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := journalDoc{V: 1, Keys: map[string]entry{"a": {T: 1, Run: 2}, "e": {}}, Retry: map[string]int64{"f": 5}}
	if diff := cmp.Diff(want, doc); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`7`, `[]`, `"x"`, `{}`, `{"v":2,"keys":{}}`, `{"v":"1"}`, `{"keys":{}}`, `{"v":null}`, `{"v":1,"keys":{"` + strings.Repeat("x", maxProperty) + `":{}}}`} {
		if _, err := decodeJournal([]byte(bad)); err == nil {
			t.Errorf("%.50s is a journal", bad)
		}
	}
	for _, odd := range []string{`{"v":1}`, `{"v":1,"keys":[],"retry":7}`, `{"v":1,"keys":null}`} {
		if doc, err := decodeJournal([]byte(odd)); err != nil || len(doc.Keys) != 0 {
			t.Errorf("%s: %v, %v", odd, doc, err)
		}
	}
}

func TestAJournalThatIsFullKeepsTheNewest(t *testing.T) {
	t.Parallel()
	d := newJournalDoc()
	for i := range 5000 {
		d.Keys[fmt.Sprintf("agent-%d:comment-%d", i%7, i)] = entry{T: int64(1_700_000_000_000 + i), Run: int64(i)}
	}
	d.Retry["again"] = 5
	raw, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeJournal(raw)
	if err != nil || len(raw) > maxProperty {
		t.Fatalf("%d bytes, err %v", len(raw), err)
	}
	if len(got.Keys) < 300 || len(got.Retry) != 1 {
		t.Errorf("%d keys and %d retries are kept", len(got.Keys), len(got.Retry))
	}
	for i := 5000 - len(got.Keys); i < 5000; i++ {
		if _, ok := got.Keys[fmt.Sprintf("agent-%d:comment-%d", i%7, i)]; !ok {
			t.Fatalf("the %dth of the newest %d is not kept", i, len(got.Keys))
		}
	}
	// One more costs about one.
	before := len(got.Keys)
	got.Keys["agent:new"] = entry{T: 1_800_000_000_000, Run: 1}
	if raw, err = got.encode(); err != nil {
		t.Fatal(err)
	}
	if got, err = decodeJournal(raw); err != nil || len(got.Keys) < before-4 || got.Keys["agent:new"].Run != 1 {
		t.Errorf("%d of %d keys, err %v", len(got.Keys), before, err)
	}
	retries := newJournalDoc()
	for i := range 5000 {
		retries.Retry[fmt.Sprintf("key-%d", i)] = int64(i + 1)
	}
	if raw, err = retries.encode(); err != nil || len(raw) > maxProperty {
		t.Fatalf("%d bytes, err %v", len(raw), err)
	}
	if got, err = decodeJournal(raw); err != nil || got.Retry["key-4999"] != 5000 || got.Retry["key-0"] != 0 {
		t.Errorf("retries: %d, err %v", len(got.Retry), err)
	}
}

func TestAJournalIsWrittenInTheSameBytesEveryTime(t *testing.T) {
	t.Parallel()
	var first []byte
	for n := range 5 {
		d := newJournalDoc()
		for i := range 3000 {
			k := (i*7919 + n*13) % 3000 // another order of insertion
			d.Keys[fmt.Sprintf("k%d", k)] = entry{T: int64(k / 10), Run: int64(k)}
		}
		raw, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = raw
		}
		if !bytes.Equal(first, raw) {
			t.Fatal("the bytes differ")
		}
	}
}

func TestAValueThatIsTooLongIsNotSent(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		_, state := s.process()
		value := func(n int) []byte { return []byte(`{"a":"` + strings.Repeat("1", n-len(`{"a":""}`)) + `"}`) }
		_, err := state.Put(t.Context(), is.ID, value(maxProperty+1))
		s.equal(dispatch.Permanent, dispatch.ClassOf(err), "class")
		mentions(t, fmt.Sprint(err), "32769 bytes", "at most 32768")
		s.equal(0, len(s.requests()), "requests")
		if _, err := state.Put(t.Context(), is.ID, value(maxProperty)); err != nil {
			t.Errorf("the longest one: %v", err)
		}
	})
}

func TestACancelledContextStopsEveryCall(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		is := s.issue()
		in, state := s.process()
		ctx := cancelled(t)
		_, discover := in.Discover(ctx)
		_, baseline := in.Baseline(ctx)
		_, get := state.Get(ctx, is.ID)
		_, put := state.Put(ctx, is.ID, []byte(`{}`))
		for what, err := range map[string]error{
			"discover": discover, "baseline": baseline, "get": get, "put": put, "delete": state.Delete(ctx, is.ID),
			"advance": state.Advance(ctx, poll.Ref{ID: is.ID}, poll.Checkpoint{At: time.Now()}),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		}
		s.equal(0, s.w.Net.Count(simtest.JiraHost), "requests")
	})
}
