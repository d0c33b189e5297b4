package jira

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/harness"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// The tests in this file run whole cycles over an issue whose events are given
// back, with an output that only counts.

// starter is an output; its runs are numbered from 1.
type starter struct{ orders []dispatch.Order }

func (o *starter) Name() string { return "starter" }

func (o *starter) Dispatch(_ context.Context, order dispatch.Order) (dispatch.Receipt, error) {
	o.orders = append(o.orders, order)
	return dispatch.Receipt{RunID: int64(len(o.orders))}, nil
}

func (o *starter) keys() []string {
	keys := []string{}
	for _, order := range o.orders {
		keys = append(keys, order.Key)
	}
	return keys
}

// commands is a matcher with one agent, which every command starts.
type commands struct{}

func (commands) Match(_ context.Context, ev event.NormalizedEvent) []harness.Decision {
	c := ev.Transition.Comment
	return []harness.Decision{{Agent: "triage", Matched: c != nil && c.Command == "/fs-triage"}}
}

// poll runs one whole cycle in a fresh process.
func (s *stage) poll(state *State, out *starter) *poll.Report {
	s.t.Helper()
	ids := 0
	newID := func() string { ids++; return fmt.Sprintf("%d-%d", time.Now().UnixNano(), ids) }
	rep := poll.New(poll.Options{
		Driver: DriverType, Property: s.props().Lock, Input: NewInput(s.client, state, s.o), Checkpoints: state,
		Locker: lease.New(lease.Options{
			Register: state, Driver: DriverType, Rules: lease.Rules{StaleThreshold: 15 * time.Minute}, Guard: time.Second, JitterMin: time.Second / 2, JitterMax: time.Second,
			CleanUp: time.Second, Now: time.Now, ServerNow: s.client.ServerNow, Rand: func() float64 { return 0 }, NewID: newID,
		}),
		Core: dispatch.New(dispatch.Options{Validator: s.events, Matcher: commands{}}), Output: out,
		N: 5, Now: time.Now, IntN: func(int) int { return 1 }, NewID: newID,
	}).Run(s.t.Context())
	if !rep.OK() {
		s.t.Errorf("the cycle failed: %+v", rep)
	}
	return rep
}

// commanded is an issue with a command of the given time, dispatched as run 1,
// whose run has then lost its lock, and the command's key.
func (s *stage) commanded(fresh func() *State, out *starter) (is sim.Issue, key string) {
	s.t.Helper()
	is = s.issue()
	time.Sleep(time.Minute)
	key = "triage:comment-" + s.w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage go")
	time.Sleep(time.Minute)
	s.poll(fresh(), out)
	s.equal([]string{key}, out.keys(), "dispatched")
	s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
	return is, key
}

// giveBack gives a key back, by the issue's key as a run does.
func (s *stage) giveBack(state *State, is sim.Issue, key string, run int64, want GivenBack) {
	s.t.Helper()
	end, err := state.GiveBack(s.t.Context(), is.Key, key, time.Time{}, run)
	s.equal(true, err == nil && end == want, fmt.Sprintf("run %d: %s, want %s (%v)", run, end, want, err))
}

func TestAnEventThatIsGivenBackIsDispatchedAgainOnceUntilItWasGivenBackThreeTimes(t *testing.T) {
	t.Parallel()
	eachSigning(t, func(s *stage, fresh func() *State) {
		out := &starter{}
		is, key := s.commanded(fresh, out)
		for range 3 { // the checkpoint goes past the event
			time.Sleep(5 * time.Minute)
			s.poll(fresh(), out)
		}
		d, err := NewInput(s.client, fresh(), s.o).Discover(s.t.Context())
		s.equal(true, err == nil && d.Pending == 0 && len(out.orders) == 1, "settled")
		want := []string{key}
		for run := int64(1); run <= Limit; run++ {
			s.giveBack(fresh(), is, key, run, Returned)
			want = append(want, key)
			for range 3 {
				time.Sleep(5 * time.Minute)
				s.poll(fresh(), out)
				s.equal(want, out.keys(), fmt.Sprintf("dispatched after run %d", run))
				s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
			}
			doc := s.journalOf(fresh, is)
			s.equal(0, len(doc.Retry), "retry")
			s.equal(entry{T: doc.Keys[key].T, Run: run + 1, H: doc.Keys[key].H, N: tally(run)}, doc.Keys[key], "entry")
			s.giveBack(fresh(), is, key, run, Elsewhere)
		}
		s.giveBack(fresh(), is, key, Limit+1, Exhausted)
		time.Sleep(5 * time.Minute)
		s.poll(fresh(), out)
		s.equal(want, out.keys(), "in the end")
	})
}

func TestARunWhosePollerDiedBeforeItsJournalGivesItsEventBackOrKeepsIt(t *testing.T) {
	t.Parallel()
	for _, worked := range []bool{false, true} {
		t.Run(fmt.Sprintf("worked %t", worked), func(t *testing.T) {
			t.Parallel()
			eachSigning(t, func(s *stage, fresh func() *State) {
				out := &starter{}
				is := s.issue()
				time.Sleep(time.Minute)
				key := "triage:comment-" + s.w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage go")
				time.Sleep(time.Minute)
				if worked {
					s.equal(nil, fresh().Ran(s.t.Context(), is.Key, key, time.Time{}, 9), "ran")
				} else {
					s.giveBack(fresh(), is, key, 9, Returned)
				}
				for range 3 {
					s.poll(fresh(), out)
					s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
					time.Sleep(5 * time.Minute)
				}
				want := []string{key}
				if worked {
					want = []string{}
				}
				s.equal(want, out.keys(), "dispatched")
			})
		})
	}
}

func TestAnEventThatIsTakenBackFromItsRunIsDispatchedAgainUnlessItIsDropped(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop %t", drop), func(t *testing.T) {
			t.Parallel()
			eachSigning(t, func(s *stage, fresh func() *State) {
				out := &starter{}
				is, key := s.commanded(fresh, out)
				keys, err := fresh().Revoke(s.t.Context(), is.Key, []int64{1}, drop)
				s.equal(true, err == nil && slices.Equal(keys, []string{key}), fmt.Sprint(keys, err))
				want := []string{key, key}
				if drop {
					s.giveBack(fresh(), is, key, 1, Dropped)
					want = []string{key}
				}
				for range 3 {
					time.Sleep(5 * time.Minute)
					s.poll(fresh(), out)
					s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
				}
				s.equal(want, out.keys(), "dispatched")
			})
		})
	}
}

func TestAnEventThatIsGivenBackAfterTheReplayWindowIsReportedAndForgotten(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		fresh := s.signings()["unsigned"]
		out := &starter{}
		is, key := s.commanded(fresh, out)
		time.Sleep(5 * time.Minute)
		s.poll(fresh(), out)
		time.Sleep(8 * day)
		s.o.ScanWindow = 30 * day
		s.giveBack(fresh(), is, key, 1, Returned)
		rep := s.poll(fresh(), out)
		s.equal(1, len(out.orders), "dispatched")
		if len(rep.Items) != 1 || len(rep.Items[0].Skipped) != 1 || "triage:"+rep.Items[0].Skipped[0].Key != key {
			s.t.Errorf("the items are %+v, want one that says what is skipped", rep.Items)
		}
		doc := s.journalOf(fresh, is)
		s.equal(0, len(doc.Retry), "retry")
		s.equal(tally(1), doc.Keys[key].N, "n")
		s.reset()
		s.poll(fresh(), out)
		s.equal([]string{s.search()}, s.requests(), "requests of the cycle after that")
	})
}

func TestACommentThatIsDeletedOrEditedAfterItWasGivenBackHoldsNothingUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *stage, is sim.Issue, id string)
		again  int
	}{
		"deleted": {func(s *stage, is sim.Issue, id string) { s.w.Jira.DeleteComment(is.Key, id) }, 0},
		"edited": {func(s *stage, is sim.Issue, id string) {
			s.w.Jira.EditComment(is.Key, id, simtest.Alice, "/fs-triage else")
		}, 1},
		"edited to the same": {func(s *stage, is sim.Issue, id string) {
			s.w.Jira.EditComment(is.Key, id, simtest.Alice, "/fs-triage go")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				fresh := s.signings()["unsigned"]
				out := &starter{}
				is, key := s.commanded(fresh, out)
				id := strings.TrimPrefix(key, "triage:comment-")
				s.giveBack(fresh(), is, key, 1, Returned)
				c.change(s, is, id)
				for range 3 {
					time.Sleep(5 * time.Minute)
					s.poll(fresh(), out)
					s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
				}
				s.equal(1+c.again, len(out.orders), fmt.Sprint("dispatched ", out.keys()))
				s.equal(0, len(s.journalOf(fresh, is).Retry), "retry")
			})
		})
	}
}

func TestARetryKeyWithoutAnEventHoldsUpNoIssueThatIsFullOfEvents(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		fresh := s.signings()["unsigned"]
		out := &starter{}
		s.o.MaxEvents = 5
		is, key := s.commanded(fresh, out)
		s.giveBack(fresh(), is, key, 1, Returned)
		s.w.Jira.DeleteComment(is.Key, strings.TrimPrefix(key, "triage:comment-"))
		for range 12 {
			time.Sleep(time.Second)
			s.w.Jira.Comment(is.Key, simtest.Bob, "chatter")
		}
		time.Sleep(time.Second)
		last := "triage:comment-" + s.w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage at last")
		for range 6 {
			time.Sleep(5 * time.Minute)
			s.poll(fresh(), out)
			s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
		}
		s.equal([]string{key, last}, out.keys(), "dispatched")
		s.equal(0, len(s.journalOf(fresh, is).Retry), "retry")
	})
}
