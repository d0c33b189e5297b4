package lease_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/lease"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	ts := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	base := lease.Lock{ID: "a", TS: ts, Phase: lease.Pending}
	with := func(f func(l *lease.Lock)) *lease.Lock {
		l := base
		f(&l)
		return &l
	}
	const head = `"id":"a","ts":"2026-05-04T10:00:00Z"`
	for _, tc := range []struct {
		name, raw string
		want      *lease.Lock // nil: refused
	}{
		{"id and time are enough", `{` + head + `}`, &base},
		{"phase running", `{` + head + `,"phase":"running"}`, with(func(l *lease.Lock) { l.Phase = lease.Running })},
		{"another word for a phase is pending", `{` + head + `,"phase":"claimed"}`, &base},
		{"a phase of another type is pending", `{` + head + `,"phase":{"a":1}}`, &base},
		{"a time with a zone", `{"id":"a","ts":"2026-05-04T12:00:00.5+02:00"}`, with(func(l *lease.Lock) { l.TS = ts.Add(500 * time.Millisecond) })},
		{"unknown members are ignored", `{` + head + `,"owner":[1,{"x":null}]}`, &base},
		{"a run", `{` + head + `,"run_id":7,"run_url":"u","runs":[{"agent":"t","run_id":7,"run_url":"u"}]}`, with(func(l *lease.Lock) {
			l.RunID, l.RunURL, l.Runs = 7, "u", []lease.Run{{Agent: "t", ID: 7, URL: "u"}}
		})},
		{"a run of another poller, without runs", `{` + head + `,"run_id":7,"run_url":"u"}`, with(func(l *lease.Lock) {
			l.RunID, l.RunURL, l.Runs = 7, "u", []lease.Run{{ID: 7, URL: "u"}}
		})},
		{"runs that make no sense are dropped", `{` + head + `,"runs":[1,null,{},{"run_id":0},{"run_id":-1},{"run_id":"7"},{"run_id":1.5},[],{"run_id":9,"agent":3}]}`, with(func(l *lease.Lock) { l.Runs = []lease.Run{{ID: 9}} })},
		{"runs of another type are dropped", `{` + head + `,"runs":{"a":1},"run_id":"7","run_url":[],"driver":7}`, &base},
		{"the same run twice is one run", `{` + head + `,"runs":[{"run_id":9,"agent":"a"},{"run_id":9,"agent":"b"}]}`, with(func(l *lease.Lock) { l.Runs = []lease.Run{{ID: 9, Agent: "a"}} })},
		{"nothing", ``, nil},
		{"null", `null`, nil},
		{"a text", `"locked"`, nil},
		{"a number", `1`, nil},
		{"an array", `[` + `{` + head + `}` + `]`, nil},
		{"an empty object", `{}`, nil},
		{"half an object", `{` + head, nil},
		{"two objects", `{` + head + `}{}`, nil},
		{"no id", `{"ts":"2026-05-04T10:00:00Z"}`, nil},
		{"an empty id", `{"id":"","ts":"2026-05-04T10:00:00Z"}`, nil},
		{"a numeric id", `{"id":1,"ts":"2026-05-04T10:00:00Z"}`, nil},
		{"an id with a line feed", `{"id":"a\n::error::","ts":"2026-05-04T10:00:00Z"}`, nil},
		{"an id of 129 bytes", `{"id":"` + strings.Repeat("a", 129) + `","ts":"2026-05-04T10:00:00Z"}`, nil},
		{"no time", `{"id":"a"}`, nil},
		{"a numeric time", `{"id":"a","ts":1777881600}`, nil},
		{"a time without a zone", `{"id":"a","ts":"2026-05-04T10:00:00"}`, nil},
		{"an impossible time", `{"id":"a","ts":"2026-02-30T10:00:00Z"}`, nil},
		{"more than 32 KiB", `{` + head + `,"x":"` + strings.Repeat("x", 33<<10) + `"}`, nil},
		{"deep nesting", `{` + head + `,"x":` + strings.Repeat("[", 15000) + strings.Repeat("]", 15000) + `}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := lease.Decode([]byte(tc.raw))
			if tc.want == nil {
				if !errors.Is(err, lease.ErrMalformed) {
					t.Fatalf("got %+v and %v, want ErrMalformed", got, err)
				}
				return
			}
			if diff := cmp.Diff(*tc.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestDecodeBelievesAtMost64Runs(t *testing.T) {
	t.Parallel()
	var runs []string
	for i := range 500 {
		runs = append(runs, fmt.Sprintf(`{"run_id":%d}`, i+1))
	}
	l, err := lease.Decode([]byte(`{"id":"a","ts":"2026-05-04T10:00:00Z","runs":[` + strings.Join(runs, ",") + `]}`))
	if err != nil || len(l.Runs) != 64 {
		t.Fatalf("got %d runs and %v", len(l.Runs), err)
	}
	if more := l.WithRun(lease.Run{ID: 1000}); len(more.Runs) != 64 {
		t.Errorf("a 65th run makes %d", len(more.Runs))
	}
}

// anyJSON draws any JSON value, with a liking for the members of a lock.
func anyJSON(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(n float64) any { return n }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.SampledFrom([]string{"pending", "running", "2026-05-04T10:00:00Z", "9999-12-31T23:59:59-14:00", "0000-01-01T00:00:00+14:00", "a"}), func(s string) any { return s }),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(
		leaf,
		rapid.Map(rapid.SliceOfN(anyJSON(depth-1), 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"id", "ts", "phase", "driver", "run_id", "run_url", "runs", "agent", "x"}), anyJSON(depth-1), 0, 9), func(m map[string]any) any { return m }),
	)
}

// believable fails unless a decoded lock keeps every promise of Decode.
func believable(l lease.Lock) error {
	ids := map[int64]bool{}
	for _, r := range l.Runs {
		if r.ID <= 0 || ids[r.ID] {
			return fmt.Errorf("run %d is no run or stands twice", r.ID)
		}
		ids[r.ID] = true
	}
	switch {
	case l.ID == "" || len(l.ID) > 128:
		return errors.New("no usable id")
	case l.Phase != lease.Pending && l.Phase != lease.Running:
		return fmt.Errorf("phase %q", l.Phase)
	case len(l.Runs) > 64 || l.RunID < 0:
		return errors.New("runs beyond the caps")
	}
	l.TS = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC) // whoever writes a lock dates it anew
	raw, err := l.WithRun(lease.Run{Agent: "a", ID: 1 << 50}).Encode()
	if err != nil {
		return err
	}
	if _, err := lease.Decode(raw); err != nil {
		return fmt.Errorf("written again it is not believed: %w", err)
	}
	return nil
}

func TestDecodeSurvivesAnyJSON(t *testing.T) {
	t.Parallel()
	believed := 0
	rapid.Check(t, func(t *rapid.T) {
		doc := anyJSON(3).Draw(t, "document")
		if m, ok := doc.(map[string]any); ok && rapid.Bool().Draw(t, "plausible") {
			m["id"], m["ts"] = "a", "2026-05-04T10:00:00Z"
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Skip("not JSON")
		}
		l, err := lease.Decode(raw)
		if err != nil {
			if !errors.Is(err, lease.ErrMalformed) {
				t.Fatalf("not ErrMalformed: %v", err)
			}
			return
		}
		believed++
		if err := believable(l); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
	})
	if believed == 0 {
		t.Error("no document was believed: the test tests nothing")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","ts":"2026-05-04T10:00:00Z","phase":"running","driver":"jira-poll","run_id":7,"run_url":"https://x/7","runs":[{"agent":"t","run_id":7,"run_url":"https://x/7"}]}`,
		`{"id":"a","ts":"9999-12-31T23:59:59-14:00"}`, `{"id":"a","ts":"2026-05-04T10:00:00Z","runs":[{"run_id":1},{"run_id":1}]}`,
		`null`, `[]`, `"x"`, `{`, `{"id":{},"ts":[]}`, `{"ID":"a","Ts":"2026-05-04T10:00:00Z"}`, `{"id":"a","ts":"2026-05-04T10:00:00Z","driver":"` + strings.Repeat("<", 8000) + `"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := lease.Decode(raw)
		if err != nil {
			if !errors.Is(err, lease.ErrMalformed) {
				t.Fatalf("not ErrMalformed: %v", err)
			}
			return
		}
		if err := believable(l); err != nil {
			t.Fatal(err)
		}
	})
}

func locks() *rapid.Generator[lease.Lock] {
	return rapid.Custom(func(t *rapid.T) lease.Lock {
		l := lease.Lock{
			ID:     rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}`).Draw(t, "id"),
			TS:     time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "ts")).UTC(),
			Phase:  rapid.SampledFrom([]lease.Phase{lease.Pending, lease.Running}).Draw(t, "phase"),
			Driver: rapid.SampledFrom([]string{"", "jira-poll"}).Draw(t, "driver"),
		}
		for _, id := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 9), 0, 5, rapid.ID).Draw(t, "runs") {
			l = l.WithRun(lease.Run{ID: id, Agent: rapid.SampledFrom([]string{"", "triage", "é<&>"}).Draw(t, "agent"), URL: rapid.SampledFrom([]string{"", "https://x/1"}).Draw(t, "url")})
		}
		return l
	})
}

func TestALockComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := locks().Draw(t, "lock")
		raw, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := lease.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTheStoredFormIsTheContracts(t *testing.T) {
	t.Parallel()
	l := lease.Lock{ID: "u", TS: time.Date(2026, 5, 4, 12, 0, 0, 5e6, time.FixedZone("", 7200)), Phase: lease.Running, Driver: "jira-poll"}
	for _, tc := range []struct {
		lock lease.Lock
		want string
	}{
		{l, `{"id":"u","ts":"2026-05-04T10:00:00.005Z","phase":"running","driver":"jira-poll"}`},
		{
			l.WithRun(lease.Run{Agent: "a", ID: 1, URL: "x"}).WithRun(lease.Run{Agent: "b", ID: 2}),
			`{"id":"u","ts":"2026-05-04T10:00:00.005Z","phase":"running","driver":"jira-poll","run_id":1,"run_url":"x","runs":[{"agent":"a","run_id":1,"run_url":"x"},{"agent":"b","run_id":2}]}`,
		},
	} {
		got, err := tc.lock.Encode()
		if err != nil || string(got) != tc.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, tc.want)
		}
	}
}

func TestWithRunNeverDoublesARunAndChangesNoOtherLock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := locks().Draw(t, "lock")
		before, beforeRuns := l, slices.Clone(l.Runs)
		r := lease.Run{ID: rapid.Int64Range(1, 9).Draw(t, "run"), Agent: rapid.SampledFrom([]string{"", "code"}).Draw(t, "its agent")}
		got := l.WithRun(r).WithRun(r)
		ids := map[int64]int{}
		for _, x := range got.Runs {
			ids[x.ID]++
		}
		for _, x := range beforeRuns {
			if ids[x.ID] != 1 {
				t.Fatalf("run %d stands %d times", x.ID, ids[x.ID])
			}
		}
		if ids[r.ID] != 1 || got.RunID != got.Runs[0].ID || got.RunURL != got.Runs[0].URL {
			t.Fatalf("got %+v", got)
		}
		for _, old := range beforeRuns {
			for _, x := range got.Runs {
				if old.ID == r.ID && x.ID == r.ID && r.Agent == "" && x.Agent != old.Agent {
					t.Fatalf("the agent %q was forgotten", old.Agent)
				}
			}
		}
		if diff := cmp.Diff(beforeRuns, before.Runs); diff != "" {
			t.Fatalf("the lock it was made from changed:\n%s", diff)
		}
	})
}

func TestFresh(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		ts   time.Time
		want bool
	}{
		{"of now", now, true},
		{"just younger than the threshold", now.Add(-10*time.Minute + time.Nanosecond), true},
		{"exactly as old as the threshold", now.Add(-10 * time.Minute), false},
		{"older", now.Add(-time.Hour), false},
		{"a little ahead, as clocks differ", now.Add(lease.MaxSkew - time.Nanosecond), true},
		{"ahead by the whole skew", now.Add(lease.MaxSkew), false},
		{"dated into the future, to lock for ever", now.Add(1000 * time.Hour), false},
		{"further ahead than a duration can say", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), false},
		{"further back than a duration can say", time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		if got := (lease.Lock{TS: tc.ts}).Fresh(now, 10*time.Minute); got != tc.want {
			t.Errorf("%s: got %t", tc.name, got)
		}
	}
}
