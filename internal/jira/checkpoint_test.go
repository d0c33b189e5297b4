package jira

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestFirstSightOfAnIssueIsBoundedByItsWindow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		window        time.Duration
		want, skipped []string
	}{
		"a day":    {day, []string{"comment-10003", "comment-10004"}, []string{"opened-10001", "comment-10002"}},
		"an hour":  {time.Hour, []string{"comment-10004"}, []string{"opened-10001", "comment-10002", "comment-10003"}},
		"no bound": {0, []string{"opened-10001", "comment-10002", "comment-10003", "comment-10004"}, []string{}},
		"longer":   {30 * day, []string{"opened-10001", "comment-10002", "comment-10003", "comment-10004"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				s.o.FirstPollWindow = tt.window
				key := s.issue().Key
				for _, wait := range []time.Duration{day, 40 * time.Hour, 3 * time.Hour} {
					time.Sleep(wait)
					s.w.Jira.Comment(key, simtest.Alice, "x")
				}
				time.Sleep(time.Minute)
				delta := s.detect(key)
				s.equal(tt.want, occurrenceKeys(delta.Events), "events")
				skipped := []string{}
				for _, sk := range delta.Skipped {
					skipped = append(skipped, sk.Key)
					mentions(t, sk.Why, "first_poll_window")
				}
				s.equal(tt.skipped, skipped, "skipped")
				s.equal(s.w.Jira.Updated(key).UnixMilli(), delta.Next.At.UnixMilli(), "next checkpoint")
			})
		})
	}
}

func TestAPollerThatWasAwayForDaysLosesNothing(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(day)
		id := s.w.Jira.Comment(key, simtest.Alice, "/fs-code")
		time.Sleep(5 * day)
		s.w.Jira.Edit(key, simtest.Alice, "summary", "a", "b")
		time.Sleep(time.Minute)
		delta := s.detect(key)
		s.equal([]string{"comment-" + id, "edited-10003"}, occurrenceKeys(delta.Events), "events")
		s.equal(0, len(delta.Skipped), "skipped")
	})
}

func TestWhatARewoundCheckpointBringsBackIsReportedAndNotReplayed(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		for range 30 {
			time.Sleep(time.Hour)
			s.w.Jira.Comment(key, simtest.Alice, "/fs-code")
		}
		time.Sleep(8 * day)
		id := s.w.Jira.Comment(key, simtest.Alice, "/fs-code")
		s.checked(key, time.Now().Add(-60*day))
		time.Sleep(time.Minute)
		delta := s.detect(key)
		s.equal([]string{"comment-" + id}, occurrenceKeys(delta.Events), "events")
		s.equal(maxSkipped, len(delta.Skipped), "skipped ones that are named")
		s.equal("comment-10031", delta.Skipped[maxSkipped-1].Key, "the last of them")
		mentions(t, delta.Skipped[0].Why, "replay_window")
		mentions(t, strings.Join(delta.Notes, "|"), "11 more occurrences are skipped")
	})
}

func TestACheckpointInTheFutureCountsAsAbsent(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		time.Sleep(time.Minute)
		s.w.Jira.Comment(key, simtest.Alice, "/fs-code")
		s.checked(key, time.Now().Add(24*365*time.Hour))
		d, state := s.discover()
		it := s.item(d, key)
		st := state.Peek(it.Ref())
		s.equal(true, st.Checkpoint.IsZero(), "absent")
		mentions(t, strings.Join(st.Notes, "|"), "lies in the future")
		s.equal([]string{"opened-10001", "comment-10002"}, occurrenceKeys(s.detectItem(it, st.Checkpoint).Events), "events")
	})
}

func TestTheCapOnEventsLosesNothingOverTheCycles(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.o.MaxEvents = 4
		key := s.issue().Key
		want := []string{"opened-10001"}
		for i := range 20 {
			if i%6 != 0 { // several at one moment
				time.Sleep(time.Second)
			}
			want = append(want, "comment-"+s.w.Jira.Comment(key, simtest.Alice, "x"))
		}
		time.Sleep(time.Minute)
		got := []string{}
		for n := range 10 {
			delta := s.detect(key)
			if len(delta.Events) > s.o.MaxEvents+2 {
				t.Errorf("cycle %d has %d events", n, len(delta.Events))
			}
			got = append(got, occurrenceKeys(delta.Events)...)
			s.equal(!delta.Complete, strings.Contains(strings.Join(delta.Notes, ""), "more than 4 events"), "note of an incomplete one")
			s.checked(key, delta.Next.At)
			if delta.Complete {
				break
			}
		}
		s.equal(want, got, "events, each once")
	})
}

// TestACutNeverSeparatesEventsOfOneTime holds the rule for any times and caps.
func TestACutNeverSeparatesEventsOfOneTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 40).Draw(t, "times")
		n := rapid.IntRange(1, 10).Draw(t, "cap")
		slices.Sort(times)
		var all []found
		for i, at := range times {
			all = append(all, found{Occurrence: event.Occurrence{Key: strconv.Itoa(i), At: time.Unix(int64(at), 0)}})
		}
		var got []string
		for since := (time.Time{}); ; {
			var after []found
			for _, f := range all {
				if f.At.After(since) {
					after = append(after, f)
				}
			}
			kept, cut := capped(after, n)
			for _, f := range kept {
				got = append(got, f.Key)
			}
			if cut != (len(kept) < len(after)) {
				t.Fatalf("cut is %v with %d of %d", cut, len(kept), len(after))
			}
			if !cut {
				break
			}
			since = kept[len(kept)-1].At
		}
		for i := range all {
			if i >= len(got) || got[i] != strconv.Itoa(i) {
				t.Fatalf("got %v of %d", got, len(all))
			}
		}
		if len(got) != len(all) {
			t.Fatalf("%d of %d", len(got), len(all))
		}
	})
}

func TestTheCheckpointIsTheUpdatedTimeAndNeverPastTheCeiling(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		time.Sleep(time.Minute)
		s.w.Jira.Comment(key, simtest.Alice, "a")
		updated := s.w.Jira.Updated(key)
		time.Sleep(2 * safetyMargin)
		s.equal(updated.UnixMilli(), s.detect(key).Next.At.UnixMilli(), "old enough: updated")

		id := s.w.Jira.Comment(key, simtest.Alice, "b")
		time.Sleep(3 * time.Second)
		delta := s.detect(key)
		s.equal("comment-"+id, delta.Events[len(delta.Events)-1].Key, "a young event is returned at once")
		about(t, time.Now().Add(-safetyMargin), delta.Next.At, "the ceiling")
		if !delta.Next.At.Before(delta.Events[len(delta.Events)-1].At) {
			t.Errorf("the checkpoint %v passes the young event", delta.Next.At)
		}

		// In the next cycle the overlap is read again and the issue settles.
		s.checked(key, delta.Next.At)
		time.Sleep(time.Minute)
		delta = s.detect(key)
		s.equal([]string{"comment-" + id}, occurrenceKeys(delta.Events), "the overlap")
		s.checked(key, delta.Next.At)
		d, _ := s.discover()
		s.equal([]string{}, keysOf(d), "pending")
	})
}

func TestTheCeilingIsTheStartOfTheReads(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		s.w.Jira.Comment(key, simtest.Alice, "x")
		started := time.Now()
		d, _ := s.discover()
		late := func() {
			time.Sleep(40 * time.Second) // other issues are served first
			s.w.Jira.Comment(key, simtest.Alice, "late")
		}
		if s.dc() { // where the changelog is read with the item
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if strings.HasSuffix(req.URL.Path, "/comment") {
					late()
					s.answer = nil
				}
				return nil
			}
		} else {
			late()
		}
		it := s.item(d, key)
		delta := s.detectItem(it, poll.Checkpoint{})
		if limit := started.Add(-safetyMargin + time.Second); delta.Next.At.After(limit) {
			t.Errorf("next is %v, the changelog was read %v", delta.Next.At, started)
		}
		// A second look reads all again.
		s.reset()
		delta = s.detectItem(it, poll.Checkpoint{})
		s.equal(1, s.count(flavoured(s, "GET /issue/10001/changelog", "GET /issue/10001?expand=changelog")), "own changelog reads")
		about(t, time.Now().Add(-safetyMargin), delta.Next.At, "the ceiling of the second look")
	})
}

func TestAnIssueThatWasTouchedWithoutATraceSettles(t *testing.T) {
	t.Parallel()
	for name, gap := range map[string]time.Duration{"a moment later": 30 * time.Millisecond, "seconds later": 5 * time.Second, "hours later": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				key := s.issue().Key
				s.settle(key)
				time.Sleep(gap)
				s.w.Jira.Touch(key)
				time.Sleep(time.Minute)
				s.equal(0, len(s.cycle()), "events")
				time.Sleep(time.Minute)
				d, _ := s.discover()
				s.equal([]string{}, keysOf(d), "pending")
				s.equal(1, s.w.Jira.PropertyWrites(), "writes")
			})
		})
	}
}

func TestAnIssueWithoutAnUpdatedTimeIsLookedAtAndNotLost(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		s.w.Jira.BreakIssue(key, func(f map[string]any) { delete(f, "updated") })
		time.Sleep(time.Hour)
		id := s.w.Jira.Comment(key, simtest.Alice, "x")
		time.Sleep(time.Minute)
		var got []string
		for range 20 {
			got = append(got, occurrenceKeys(s.cycle())...)
			time.Sleep(time.Minute)
		}
		s.equal([]string{"opened-10001", "comment-" + id}, got, "events")
	})
}

// TestPropertyWritesStayBounded: whatever property writes do to updated, issues
// that nothing happens on are not written for ever.
func TestPropertyWritesStayBounded(t *testing.T) {
	t.Parallel()
	for _, bump := range []bool{false, true} {
		eachFlavour(t, func(s *stage) {
			t := s.t
			s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.BumpUpdatedOnPropertyWrite = bump })
			keys := s.issues(6)
			s.w.Jira.Comment(keys[1], simtest.Alice, "x")
			time.Sleep(time.Hour)
			s.w.Jira.Touch(keys[2])
			time.Sleep(3 * time.Second)
			s.w.Jira.Comment(keys[3], simtest.Alice, "young")
			var events []string
			for n := range 20 {
				events = append(events, occurrenceKeys(s.cycle())...)
				time.Sleep(time.Duration(50+n*7%20) * time.Second)
				if n == 10 {
					s.w.Jira.Touch(keys[4])
				}
			}
			distinct := slices.Compact(slices.Sorted(slices.Values(events)))
			s.equal(8, len(distinct), "distinct events")
			most := map[bool]int{false: 9, true: 2*6 + 4}[bump]
			if got := s.w.Jira.PropertyWrites(); got > most {
				t.Errorf("bump %v: %d writes, want at most %d", bump, got, most)
			}
			before := s.w.Jira.PropertyWrites()
			for range 10 {
				s.cycle()
				time.Sleep(time.Minute)
			}
			s.equal(before, s.w.Jira.PropertyWrites(), "writes in the end")
		})
	}
}
