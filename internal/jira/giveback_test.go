package jira

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
)

// signings are the ways in which a site's state is signed.
func (s *stage) signings() map[string]func() *State {
	return map[string]func() *State{
		"unsigned": func() *State { _, state := s.process(); return state },
		"mixed":    func() *State { return s.signed(true) },
		"strict":   func() *State { return s.signed(false) },
	}
}

// eachSigning runs f on every flavour with every way of signing; fresh makes a
// store as a fresh process has it.
func eachSigning(t *testing.T, f func(s *stage, fresh func() *State)) {
	t.Helper()
	for _, mode := range []string{"unsigned", "mixed", "strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) { f(s, s.signings()[mode]) })
		})
	}
}

// journalOf is what a fresh process believes of an issue's journal.
func (s *stage) journalOf(fresh func() *State, is sim.Issue) journalDoc {
	s.t.Helper()
	state := fresh()
	st, doc := state.decode(is.ID, s.raw(is.Key))
	s.equal([]string(nil), st.Notes, "notes")
	return doc
}

const key = "a:comment-1"

func TestAKeyThatARunGivesBackIsInRetryAtItsEventsTime(t *testing.T) {
	t.Parallel()
	eachSigning(t, func(s *stage, fresh func() *State) {
		t, is := s.t, s.issue()
		at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		s.served(fresh(), is, at)
		before := s.raw(is.Key)
		time.Sleep(time.Minute)
		s.reset()
		end, err := fresh().GiveBack(t.Context(), is.Key, key, time.Time{}, 7) // by the issue's key, as a run knows it
		if err != nil {
			t.Fatal(err)
		}
		s.equal(Returned, end, "end")
		s.equal(1, s.count("PUT "), "writes")
		doc := s.journalOf(fresh, is)
		s.equal(map[string]int64{key: at.UnixMilli()}, doc.Retry, "retry")
		s.equal(map[string]entry{key: {T: at.UnixMilli(), Run: 7, N: 1}}, doc.Keys, "keys")
		after := s.raw(is.Key)
		for _, p := range []string{s.props().LastCheck, s.props().Lock} {
			s.equal(string(before[p]), string(after[p]), p)
		}
		st, err := fresh().Load(t.Context(), poll.Ref{ID: is.ID, Key: is.Key})
		s.equal(nil, err, "load")
		s.equal(true, st.Checkpoint.At.Equal(at), "the checkpoint is still believed") // its signature stands in the journal
		s.equal(true, st.Todo(key, at), "to do")
		s.equal(map[int64]bool{7: true}, st.Runs, "runs")

		s.reset()
		end, err = fresh().GiveBack(t.Context(), is.ID, key, at, 7)
		s.equal(true, end == Already && err == nil, "a second time")
		s.equal(1, len(s.requests()), "requests")
	})
}

func TestWhatBecomesOfAKeyThatIsGivenBackDependsOnWhatTheJournalSays(t *testing.T) {
	t.Parallel()
	const then = 946684000000
	for _, c := range []struct {
		name, keys, retry string
		want              GivenBack
		n                 tally
	}{
		{"nothing", `{}`, `{}`, Returned, 1},
		{"our run", `{"t":946684000000,"run":7}`, `{}`, Returned, 1},
		{"no run", `{"t":946684000000,"run":0}`, `{}`, Returned, 1},
		{"twice given back", `{"t":946684000000,"run":7,"n":2}`, `{}`, Returned, 3},
		{"three times given back", `{"t":946684000000,"run":7,"n":3}`, `{}`, Exhausted, 0},
		{"more often than possible", `{"t":946684000000,"run":7,"n":1e999}`, `{}`, Exhausted, 0},
		{"less often than possible", `{"t":946684000000,"run":7,"n":-5}`, `{}`, Returned, 1},
		{"no number", `{"t":946684000000,"run":7,"n":"many"}`, `{}`, Returned, 1},
		{"another run", `{"t":946684000000,"run":8}`, `{}`, Elsewhere, 0},
		{"in retry", `{"t":946684000000,"run":7,"n":1}`, `{"a:comment-1":946684000000}`, Already, 0},
		{"in retry for another run", `{"t":946684000000,"run":8,"n":3}`, `{"a:comment-1":946684000000}`, Already, 0},
		{"dropped", `{"t":946684000000,"run":7,"d":true}`, `{}`, Dropped, 0},
		{"dropped of another run", `{"t":946684000000,"run":8,"d":true,"n":3}`, `{}`, Dropped, 0},
		{"dropped in another way", `{"t":946684000000,"run":7,"d":"true"}`, `{}`, Returned, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t, is := s.t, s.issue()
				keys := fmt.Sprintf(`{%q:%s}`, key, c.keys)
				if c.keys == "{}" {
					keys = "{}"
				}
				seen := fmt.Sprintf(`{"v":1,"keys":%s,"retry":%s}`, keys, c.retry)
				s.w.Jira.SetProperty(is.Key, s.props().Seen, []byte(seen))
				_, state := s.process()
				end, err := state.GiveBack(t.Context(), is.ID, key, time.UnixMilli(then), 7)
				if err != nil {
					t.Fatal(err)
				}
				s.equal(c.want, end, "end")
				if end != Returned {
					s.equal(seen, string(s.raw(is.Key)[s.props().Seen]), "nothing is written")
					return
				}
				doc := s.journalOf(s.signings()["unsigned"], is)
				s.equal(map[string]int64{key: then}, doc.Retry, "retry")
				s.equal(map[string]entry{key: {T: then, Run: 7, N: c.n}}, doc.Keys, "keys")
			})
		})
	}
}

func TestAKeyIsGivenBackThreeTimesHoweverOftenItIsDispatchedBetween(t *testing.T) {
	t.Parallel()
	eachSigning(t, func(s *stage, fresh func() *State) {
		t, is := s.t, s.issue()
		ref, at := poll.Ref{ID: is.ID, Key: is.Key}, time.Now()
		for run, want := range []GivenBack{Returned, Returned, Returned, Exhausted, Exhausted} {
			state := fresh()
			if _, err := state.Load(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			if err := state.Journal(ref).Commit(t.Context(), key, at, dispatch.Receipt{RunID: int64(run + 1)}); err != nil {
				t.Fatal(err)
			}
			end, err := fresh().GiveBack(t.Context(), is.Key, key, at, int64(run+1))
			s.equal(true, err == nil && end == want, fmt.Sprintf("time %d: %s, %v", run, end, err))
		}
		doc := s.journalOf(fresh, is)
		s.equal(0, len(doc.Retry), "retry")
		s.equal(tally(Limit), doc.Keys[key].N, "n")
	})
}

func TestAKeyThatNobodyKnowsTheTimeOfIsGivenBackAsOfNow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored string
		at     time.Time
		want   func(now time.Time) int64
	}{
		"nobody":               {"", time.Time{}, time.Time.UnixMilli},
		"the journal is wrong": {`{"t":-3,"run":7}`, time.Time{}, time.Time.UnixMilli},
		"both are wrong":       {`{"t":99999999999999999,"run":7}`, time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time.UnixMilli},
		"only the journal":     {`{"t":5,"run":7}`, time.Time{}, func(time.Time) int64 { return 5 }},
		"only the caller":      {`{"run":7}`, time.UnixMilli(6), func(time.Time) int64 { return 6 }},
		"the caller earlier":   {`{"t":9,"run":7}`, time.UnixMilli(6), func(time.Time) int64 { return 6 }},
		"the journal earlier":  {`{"t":5,"run":7}`, time.UnixMilli(6), func(time.Time) int64 { return 5 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				is := s.issue()
				if c.stored != "" {
					s.w.Jira.SetProperty(is.Key, s.props().Seen, []byte(`{"v":1,"keys":{"a:comment-1":`+c.stored+`}}`))
				}
				_, state := s.process()
				end, err := state.GiveBack(s.t.Context(), is.ID, key, c.at, 7)
				s.equal(true, err == nil && end == Returned, fmt.Sprint(end, err))
				got := s.journalOf(s.signings()["unsigned"], is).Retry[key] // Jira's clock is known to the second
				if off := got - c.want(time.Now()); off < 0 || off >= 1000 {
					s.t.Errorf("the retry key is of %d, %d ms off", got, off)
				}
			})
		})
	}
}

func TestARunsEndIsJournalledWhereItsPollerHasNotDoneSo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, keys, retry string
		want              entry // none: nothing is written
		again             bool  // the key is in retry afterwards
	}{
		{"nothing", ``, ``, entry{T: 1000, Run: 7}, false},
		{"our run", `"a:comment-1":{"t":5,"run":7}`, ``, entry{}, false},
		{"another run", `"a:comment-1":{"t":5,"run":8}`, ``, entry{}, false},
		{"a run that was not known", `"a:comment-1":{"t":5,"run":0,"h":"x"}`, ``, entry{T: 5, Run: 7, H: "x"}, false},
		{"given back by this run or taken from it", `"a:comment-1":{"t":5,"run":7,"n":1}`, `"a:comment-1":5`, entry{}, true},
		{"given back by the run before", `"a:comment-1":{"t":5,"run":8,"n":1}`, `"a:comment-1":5`, entry{T: 5, Run: 7, N: 1}, false},
		{"put into retry by hand", ``, `"a:comment-1":5`, entry{}, true},
		{"dropped", `"a:comment-1":{"t":5,"run":7,"d":true}`, ``, entry{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t, is, fresh := s.t, s.issue(), s.signings()["strict"]
				plain := json.RawMessage(fmt.Sprintf(`{"v":1,"keys":{%s},"retry":{%s}}`, c.keys, c.retry))
				seen, err := fresh().signer.object(is.ID, s.props().Seen, plain)
				if err != nil {
					t.Fatal(err)
				}
				s.w.Jira.SetProperty(is.Key, s.props().Seen, seen)
				s.equal(nil, fresh().Ran(t.Context(), is.Key, key, time.UnixMilli(1000), 7), "error")
				if c.want == (entry{}) {
					s.equal(string(seen), string(s.raw(is.Key)[s.props().Seen]), "nothing is written")
				}
				doc := s.journalOf(fresh, is)
				_, again := doc.Retry[key]
				s.equal(c.again, again, "in retry")
				if c.want != (entry{}) {
					s.equal(map[string]entry{key: c.want}, doc.Keys, "keys")
				}
			})
		})
	}
}

func TestWhatIsTakenBackFromRunsIsRetriedOrDropped(t *testing.T) {
	t.Parallel()
	eachSigning(t, func(s *stage, fresh func() *State) {
		t, is := s.t, s.issue()
		ref, at := poll.Ref{ID: is.ID, Key: is.Key}, time.Now().Truncate(time.Millisecond)
		state := fresh()
		if _, err := state.Load(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		for run, key := range []string{"a:zero", "b:comment-2", "a:one", "a:other"} { // the first has no run
			if err := state.Journal(ref).Commit(t.Context(), key, at, dispatch.Receipt{RunID: int64(run)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := state.Advance(t.Context(), ref, poll.Checkpoint{At: at}); err != nil {
			t.Fatal(err)
		}
		lastCheck := string(s.raw(is.Key)[s.props().LastCheck])
		revoke := func(drop bool, want []string, runs ...int64) {
			t.Helper()
			keys, err := fresh().Revoke(t.Context(), is.Key, runs, drop)
			s.equal(nil, err, "error")
			s.equal(want, keys, "keys")
		}
		ms := at.UnixMilli()
		revoke(false, []string{"a:one", "b:comment-2"}, 0, 2, 1, -1)
		s.equal(map[string]int64{"a:one": ms, "b:comment-2": ms}, s.journalOf(fresh, is).Retry, "retry")
		s.reset()
		revoke(false, []string{"a:one", "b:comment-2"}, 1, 2)
		s.equal(1, len(s.requests()), "requests of what is done already")
		revoke(true, []string{"a:one"}, 2)
		doc := s.journalOf(fresh, is)
		s.equal(map[string]int64{"b:comment-2": ms}, doc.Retry, "retry")
		s.equal(map[string]entry{
			"a:zero": {T: ms}, "b:comment-2": {T: ms, Run: 1}, "a:one": {T: ms, Run: 2, D: true}, "a:other": {T: ms, Run: 3},
		}, doc.Keys, "keys")
		st, err := fresh().Load(t.Context(), ref)
		s.equal(nil, err, "load")
		s.equal([]bool{false, true}, []bool{st.Todo("a:one", at.Add(time.Hour)), st.Todo("b:comment-2", at)}, "to do")
		end, err := fresh().GiveBack(t.Context(), is.Key, "a:one", at, 2)
		s.equal(true, err == nil && end == Dropped, "a dropped key is not given back")
		revoke(false, []string{"a:one"}, 2) // the operator's last word counts
		doc = s.journalOf(fresh, is)
		s.equal(entry{T: ms, Run: 2}, doc.Keys["a:one"], "no longer dropped")
		s.equal(ms, doc.Retry["a:one"], "in retry")
		revoke(false, nil, 99)
		revoke(true, nil)
		s.equal(lastCheck, string(s.raw(is.Key)[s.props().LastCheck]), "lastCheck")
		st, err = fresh().Load(t.Context(), ref)
		s.equal(true, err == nil && st.Checkpoint.At.Equal(at), "the checkpoint is still believed")
	})
}

// intruder overwrites the journal after each of the first n writes.
func (s *stage) intruder(n int, seen string) {
	s.answer = func(req *http.Request, _ []byte) *http.Response {
		if req.Method != http.MethodPut || n == 0 || !strings.HasSuffix(req.URL.Path, ".seen") {
			return nil
		}
		n--
		resp := s.pass(req)
		s.w.Jira.SetProperty("PROJ-1", s.props().Seen, []byte(seen))
		return resp
	}
}

func TestAJournalThatSomebodyElseOverwritesIsWrittenAgain(t *testing.T) {
	t.Parallel()
	const old = `{"v":1,"keys":{"a:comment-1":{"t":5,"run":7,"n":1},"b:x":{"t":6,"run":9}}}`
	calls := map[string]func(*stage, *State) error{
		"give back": func(s *stage, state *State) error {
			end, err := state.GiveBack(s.t.Context(), "PROJ-1", key, time.UnixMilli(5), 7)
			if err == nil && end != Returned {
				s.t.Errorf("the end is %s", end)
			}
			return err
		},
		"revoke": func(s *stage, state *State) error {
			_, err := state.Revoke(s.t.Context(), "PROJ-1", []int64{7}, false)
			return err
		},
		"ran": func(s *stage, state *State) error {
			return state.Ran(s.t.Context(), "PROJ-1", "c:new", time.UnixMilli(5), 7)
		},
	}
	for name, call := range calls {
		for _, c := range []struct {
			times, writes int
			want          error
		}{{0, 1, nil}, {1, 2, nil}, {2, 3, nil}, {3, 3, ErrOverwritten}} {
			t.Run(fmt.Sprintf("%s, %d times", name, c.times), func(t *testing.T) {
				t.Parallel()
				eachFlavour(t, func(s *stage) {
					is := s.issue()
					s.w.Jira.SetProperty(is.Key, s.props().Seen, []byte(old))
					s.intruder(c.times, old)
					_, state := s.process()
					err := call(s, state)
					s.equal(true, errors.Is(err, c.want), fmt.Sprint("error ", err))
					s.equal(c.writes, s.count("PUT "), "writes")
					doc := s.journalOf(s.signings()["unsigned"], is)
					_, again := doc.Retry[key]
					_, ran := doc.Keys["c:new"]
					s.equal(c.want == nil, again || ran, "it stands")
					s.equal(int64(9), doc.Keys["b:x"].Run, "what else stood there")
				})
			})
		}
	}
}

func TestAKeyThatIsDispatchedAgainAtOnceIsNotGivenBackTwice(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		is := s.issue()
		s.intruder(1, `{"v":1,"keys":{"a:comment-1":{"t":5,"run":8,"n":1}}}`) // the poller was quick
		_, state := s.process()
		end, err := state.GiveBack(s.t.Context(), is.Key, key, time.UnixMilli(5), 7)
		s.equal(true, err == nil && end == Elsewhere, fmt.Sprint(end, err))
		s.equal(1, s.count("PUT "), "writes")
	})
}

func TestAForgedJournalIsReplacedWhenAKeyIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, forged := range []string{
		`null`, `7`, `[]`, `{}`, `"x"`, `{"v":2}`, `{"v":1,"keys":7,"retry":[]}`, `{"v":1,"keys":{"a:comment-1":null}}`, `{"v":1,"keys":{"a:comment-1":{"t":"x","d":true}}}`,
		`{"v":1,"keys":{"a:comment-1":{"n":{},"d":[]}},"lastCheckSigs":7,"sig":null}`, `{"v":1,"retry":{"a:comment-1":-1}}`, `{"v":1,"keys":{"a:comment-1":{"run":9223372036854775808}}}`,
		`{"v":1,"keys":{"a:comment-1":{"t":1,"run":8,"d":true,"n":3}},"retry":{"a:comment-1":1},"sig":"` + strings.Repeat("ab", 32) + `"}`,
	} {
		t.Run(forged, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t, is := s.t, s.issue()
				for mode, fresh := range s.signings() {
					if mode == "unsigned" && strings.Contains(forged, `"sig":"`) {
						continue // without a key it says what it says
					}
					s.w.Jira.SetProperty(is.Key, s.props().Seen, []byte(forged))
					keys, err := fresh().Revoke(t.Context(), is.Key, []int64{7}, true)
					s.equal(true, err == nil && len(keys) == 0, fmt.Sprint(mode, keys, err))
					end, err := fresh().GiveBack(t.Context(), is.Key, key, time.UnixMilli(5), 7)
					s.equal(true, err == nil && end == Returned, fmt.Sprint(mode, end, err))
					doc := s.journalOf(fresh, is)
					s.equal(map[string]entry{key: {T: 5, Run: 7, N: 1}}, doc.Keys, mode)
					s.equal(map[string]int64{key: 5}, doc.Retry, mode)
				}
			})
		})
	}
}

func TestTheJournalIsNotTouchedForWhatIsNoKeyOrByWhoDoesNotKnowItsName(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t, is := s.t, s.issue()
		_, state := s.process()
		for _, bad := range []string{"", strings.Repeat("x", maxKey+1), "a:\xff"} {
			_, err := state.GiveBack(t.Context(), is.ID, bad, time.Now(), 7)
			mentions(t, fmt.Sprint(err), "is no dispatch key", "pass the input dispatch_key on")
			mentions(t, fmt.Sprint(state.Ran(t.Context(), is.ID, bad, time.Now(), 7)), "is no dispatch key")
		}
		state.props = Properties{Lock: s.props().Lock}
		_, err := state.Revoke(t.Context(), is.ID, []int64{7}, false)
		mentions(t, fmt.Sprint(err), "is not known", "GITHUB_REPOSITORY")
		s.equal(0, len(s.requests()), "requests")
	})
}

func TestWhatCannotBeReadOrWrittenIsSaidAndNothingIsClaimed(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t, is := s.t, s.issue()
		_, state := s.process()
		s.w.Jira.SetReadOnly(is.Key, true)
		end, err := state.GiveBack(t.Context(), is.Key, key, time.Now(), 7)
		mentions(t, fmt.Sprint(err), "store the journal (seen)", "Edit Issues")
		s.equal(GivenBack(""), end, "end")
		s.w.Jira.DeleteIssue(is.Key)
		_, err = state.Revoke(t.Context(), is.Key, []int64{7}, false)
		s.equal(true, errors.Is(err, errGone), fmt.Sprint(err))
		mentions(t, fmt.Sprint(state.Ran(cancelled(t), is.Key, key, time.Now(), 7)), "read the journal (seen)")
	})
}

func TestAnEditThatSaysTheSameIsDispatchedInThePlaceOfWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t, is := s.t, s.issue()
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		commit := func() *State {
			_, state := s.process()
			if _, err := state.Load(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			state.heard(is.ID, "1", "/fs-triage go")
			return state
		}
		if err := commit().Journal(ref).Commit(t.Context(), key, time.Now(), dispatch.Receipt{RunID: 7}); err != nil {
			t.Fatal(err)
		}
		fresh, err := commit().Journal(ref).Begin(t.Context(), key+"-5")
		s.equal(true, err == nil && !fresh, "what was done is not done again")
		for name, takeBack := range map[string]func(*State) error{
			"given back": func(st *State) error { _, err := st.GiveBack(t.Context(), is.Key, key, time.Now(), 7); return err },
			"taken back": func(st *State) error { _, err := st.Revoke(t.Context(), is.Key, []int64{7}, false); return err },
		} {
			if err := takeBack(commit()); err != nil {
				t.Fatal(err)
			}
			fresh, err := commit().Journal(ref).Begin(t.Context(), key+"-5")
			s.equal(true, err == nil && fresh, name)
			state := commit()
			if err := state.Journal(ref).Commit(t.Context(), key, time.Now(), dispatch.Receipt{RunID: 7}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAFullJournalKeepsWhatWasGivenBackOrDropped(t *testing.T) {
	t.Parallel()
	d := newJournalDoc()
	for i := range 3000 {
		e := entry{T: int64(1_700_000_000_000 + i), Run: int64(i)}
		switch i {
		case 0:
			e.N = 2
		case 1:
			e.D = true
		}
		d.Keys[fmt.Sprintf("agent:comment-%d", i)] = e
	}
	raw, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeJournal(raw)
	if err != nil || len(got.Keys) > 2500 || got.Keys["agent:comment-0"].N != 2 || !got.Keys["agent:comment-1"].D || got.Keys["agent:comment-2"] != (entry{}) {
		t.Errorf("%d keys, %v, %v, %v (%v)", len(got.Keys), got.Keys["agent:comment-0"], got.Keys["agent:comment-1"], got.Keys["agent:comment-2"], err)
	}
	for k, e := range d.Keys { // also when nothing else is left to go
		e.N, e.D = 3, true
		d.Keys[k] = e
	}
	for i := range 3000 {
		d.Keys[fmt.Sprintf("agent:more-%d", i)] = entry{T: int64(i), N: 1}
	}
	if raw, err = d.encode(); err != nil || len(raw) > maxJournal {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

func TestTheLengthOfAnEntryIsKnownToTheByte(t *testing.T) {
	t.Parallel()
	for _, e := range []entry{{}, {T: -5, Run: 123456}, {T: 1, H: "0011223344556677"}, {N: 3}, {D: true}, {T: 5, Run: 6, H: "x", N: 1, D: true}} {
		raw, err := json.Marshal(e)
		if err != nil || len(raw) != e.size() {
			t.Errorf("%s has %d bytes, not %d (%v)", raw, len(raw), e.size(), err)
		}
	}
}
