package jira

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// witness answers by lock ids and notes what it was asked.
type witness struct {
	standing map[string]lease.Standing
	asked    [][]string
}

func (w *witness) Standings(_ context.Context, locks []lease.Lock) []lease.Standing {
	var ids []string
	var all []lease.Standing
	for _, l := range locks {
		ids = append(ids, l.ID)
		all = append(all, w.standing[l.ID])
	}
	slices.Sort(ids)
	w.asked = append(w.asked, ids)
	return all
}

func (w *witness) Search(_ context.Context, l lease.Lock) lease.Standing { return w.standing[l.ID] }

// judged makes discoveries ask w.
func (s *stage) judged(w *witness) {
	s.o.Judge = &lease.Judge{Rules: lease.Rules{StaleThreshold: 15 * time.Minute}, Evidence: w, ServerNow: time.Now}
}

// lock locks an issue; the lock's id is the issue's key.
func (s *stage) lock(key string, age time.Duration, runs ...int64) {
	s.t.Helper()
	l := lease.Lock{ID: key, TS: time.Now().Add(-age), Phase: lease.Running}
	for _, id := range runs {
		l = l.WithRun(lease.Run{Agent: "a", ID: id})
	}
	raw, err := l.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.w.Jira.SetProperty(key, s.props().Lock, raw)
}

func TestAnIssueIsACandidateByWhatBecameOfTheRunsUnderItsLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		age   time.Duration
		runs  []int64
		s     lease.Standing
		asked bool
		free  bool
	}{
		{"fresh and its run has ended", time.Minute, []int64{7}, lease.Standing{Life: lease.Over}, true, true},
		{"fresh and its run is at work", time.Minute, []int64{7}, lease.Standing{Life: lease.Alive}, true, false},
		{"fresh and nobody knows", time.Minute, []int64{7}, lease.Standing{Err: errors.New("no answer")}, true, false},
		{"just written", time.Second, []int64{7}, lease.Standing{Life: lease.Over}, false, false},
		{"fresh without a run", time.Minute, nil, lease.Standing{Life: lease.Over}, false, false},
		{"stale and its run is at work", time.Hour, []int64{7}, lease.Standing{Life: lease.Alive}, true, false},
		{"stale and its run has ended", time.Hour, []int64{7}, lease.Standing{Life: lease.Over}, true, true},
		{"stale and nobody knows", time.Hour, []int64{7}, lease.Standing{Err: errors.New("no answer")}, true, true},
		{"at work for longer than anything may be", 7 * time.Hour, []int64{7}, lease.Standing{Life: lease.Alive}, true, true},
		{"stale without a run, and none was found", time.Hour, nil, lease.Standing{Life: lease.None}, true, true},
		{"stale without a run, and nobody knows", time.Hour, nil, lease.Standing{Err: errors.New("no answer")}, true, false},
		{"stale, and a run is to be adopted", time.Hour, nil, lease.Standing{Life: lease.Alive, Runs: []lease.Run{{ID: 8}}}, true, true},
		{"stale, and a run that has ended is to be adopted", time.Hour, nil, lease.Standing{Life: lease.Over, Runs: []lease.Run{{ID: 8}}}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				is := s.issue()
				s.lock(is.Key, c.age, c.runs...)
				w := &witness{standing: map[string]lease.Standing{is.Key: c.s}}
				s.judged(w)
				d, _ := s.discover()
				s.equal(c.asked, len(w.asked) == 1, fmt.Sprint("asked ", w.asked))
				s.equal(c.free, len(d.Items) == 1, "candidate")
				held := 1
				if c.free {
					held = 0
				}
				s.equal([]int{1, 1 - held, held}, []int{d.Scanned, d.Pending, d.Held}, "scanned, pending, held")
				noted := len(d.Notes) == 1 && strings.Contains(d.Notes[0], is.Key+": its lock is stale and kept: ")
				s.equal(held == 1 && c.age == time.Hour, noted, fmt.Sprint("notes ", d.Notes))
			})
		})
	}
}

func TestAllLocksOfPendingIssuesAreJudgedAtOnceAndNoOthers(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		keys := s.issues(130) // more than one page
		for i, k := range keys[:126] {
			s.lock(k, time.Minute+time.Duration(i)*time.Second, int64(i+1))
		}
		s.w.Jira.SetProperty(keys[126], s.props().Lock, []byte(`{"id":7}`))
		s.w.Jira.SetProperty(keys[127], s.props().Lock, []byte(`null`))
		s.settle(keys[:120]...)
		w := &witness{standing: map[string]lease.Standing{}}
		for i, k := range keys {
			w.standing[k] = lease.Standing{Life: []lease.Life{lease.Alive, lease.Over}[i%2]}
		}
		s.judged(w)
		s.reset()
		d, _ := s.discover()
		want := slices.Sorted(slices.Values(keys[120:126]))
		s.equal([][]string{want}, w.asked, "asked")
		s.equal([]string{keys[121], keys[123], keys[125], keys[126], keys[127], keys[128], keys[129]}, keysOf(d), "items")
		s.equal([]int{7, 3}, []int{d.Pending, d.Held}, "pending, held")
	})
}

func TestAnIdleDiscoveryOverLockedIssuesIsOneRequestAndJudgesNothing(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		keys := s.issues(10)
		for i, k := range keys {
			s.lock(k, time.Duration(i)*10*time.Minute, 7)
		}
		s.settle(keys...)
		w := &witness{}
		s.judged(w)
		s.reset()
		d, _ := s.discover()
		s.equal([]string{s.search()}, s.requests(), "requests")
		s.equal([]int{0, 0, 0}, []int{len(w.asked), d.Pending, d.Held}, "asked, pending, held")
	})
}

func TestALockThatIsNotTrustedKeepsNoIssueBack(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t, is := s.t, s.issue()
		s.lock(is.Key, time.Minute, 7)
		w := &witness{standing: map[string]lease.Standing{is.Key: {Life: lease.Alive}}}
		s.judged(w)
		for accept, want := range map[bool]int{true: 0, false: 1} {
			state := s.signed(accept)
			d, err := NewInput(s.client, state, s.o).Discover(t.Context())
			s.equal(true, err == nil && len(d.Items) == want, fmt.Sprint("accept_unsigned ", accept, keysOf(d), err))
		}
		s.equal(1, len(w.asked), "asked")
	})
}

func TestWithoutAJudgeAndForABaselineNoIssueIsHeld(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t, is := s.t, s.issue()
		s.lock(is.Key, time.Minute, 7)
		w := &witness{}
		s.judged(w)
		in, _ := s.process()
		seeds, err := in.Baseline(t.Context())
		s.equal(true, err == nil && len(seeds) == 1 && len(w.asked) == 0, fmt.Sprint(seeds, err, w.asked))
		s.o.Judge = nil
		d, _ := s.discover()
		s.equal([]string{is.Key}, keysOf(d), "items")
	})
}

func TestAnIssueWithARetryKeyIsPendingAndReadFromItsEventOn(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t, is := s.t, s.issue()
		id := s.w.Jira.Comment(is.Key, simtest.Alice, "early")
		at := s.w.Jira.Updated(is.Key)
		time.Sleep(time.Hour)
		s.settle(is.Key)
		d, _ := s.discover()
		s.equal(0, d.Pending, "settled")
		_, state := s.process()
		if end, err := state.GiveBack(t.Context(), is.Key, "a:comment-"+id, at, 7); err != nil || end != Returned {
			t.Fatal(end, err)
		}
		d, state = s.discover()
		s.equal([]string{is.Key}, keysOf(d), "items")
		st := state.Peek(poll.Ref{ID: is.ID})
		s.equal(true, st.Retry["a:comment-"+id].Equal(at), "retry")
	})
}
