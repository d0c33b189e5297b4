package jira

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestEveryKindOfChangeIsOneOccurrence(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue("old").Key // 10001; what follows takes the next ids
		do := func(f func()) {
			time.Sleep(time.Minute)
			f()
		}
		do(func() { s.w.Jira.Comment(key, simtest.Bob, "first") })
		do(func() { s.w.Jira.SetLabels(key, simtest.Alice, "b", "a") })
		do(func() { s.w.Jira.SetLabels(key, simtest.Bob, "b", "c") })
		do(func() { s.w.Jira.Transition(key, simtest.Alice, "Done") })
		do(func() { s.w.Jira.Transition(key, simtest.Alice, "Closed") }) // done to done
		do(func() { s.w.Jira.Transition(key, simtest.Mallory, "To Do") })
		do(func() { s.w.Jira.Transition(key, simtest.Alice, "In Progress") }) // open to open
		do(func() { s.w.Jira.Edit(key, simtest.Alice, "summary", "s", "t") })
		var edited time.Time
		do(func() {
			edited = time.Now()
			s.w.Jira.EditComment(key, "10002", simtest.Alice, "second")
		})
		time.Sleep(time.Minute)
		delta := s.detect(key)
		if diff := cmp.Diff(s.named(
			"opened-10001 opened 5f00:alice write [old]",
			"label-10003-a-added label_changed 5f00:alice write [a b]",
			"label-10003-b-added label_changed 5f00:alice write [a b]",
			"label-10003-old-removed label_changed 5f00:alice write [a b]",
			"label-10004-a-removed label_changed 5f00:bob admin [b c]",
			"label-10004-c-added label_changed 5f00:bob admin [b c]",
			"status-10005 closed 5f00:alice write [b c]",
			"status-10007 reopened 5f00:mallory external [b c]",
			"edited-10009 edited 5f00:alice write [b c]",
			"comment-10002-"+ms(edited)+" comment_added 5f00:alice write [b c]",
		), told(delta)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		s.equal([]string(nil), delta.Notes, "notes")
		s.equal(edited.UnixMilli(), delta.Next.At.UnixMilli(), "next checkpoint")
		s.equal(true, delta.Complete, "complete")
		s.equal(1, s.count("GET /status"), "reads of the statuses")
	})
}

func TestAnEventTellsWhatRoutingNeeds(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		is := s.issue("a")
		time.Sleep(time.Minute)
		id := s.w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage  check it \nand more")
		delta := s.detect(is.Key)
		want := event.NormalizedEvent{
			Repo:   simtest.Repo,
			Entity: event.Entity{Kind: event.WorkItem, ID: 10001, Key: is.Key, URL: s.w.JiraURL() + "/browse/" + is.Key},
			Transition: event.Transition{Kind: event.CommentAdded, Comment: &event.Comment{
				ID: id, Command: "/fs-triage", Instruction: "check it", Body: "/fs-triage  check it \nand more",
			}},
			Actor:  event.Actor{ID: s.w.ID(simtest.Alice), Kind: event.Human, Role: event.RoleWrite, IsEntityAuthor: true},
			State:  event.State{Labels: []string{"a"}},
			Source: event.Source{System: event.Jira, RawType: "comment", RawAction: "created"},
		}
		s.equal(want, delta.Events[1].Event, "event")
	})
}

func TestACommentIsOneOccurrenceUntilItIsEdited(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		time.Sleep(time.Minute)
		id := s.w.Jira.Comment(key, simtest.Mallory, "/fs-code")
		s.equal([]string{"opened-10001", "comment-" + id}, occurrenceKeys(s.detect(key).Events), "before")
		time.Sleep(1234 * time.Millisecond)
		s.w.Jira.EditComment(key, id, simtest.Bob, "/fs-code now")
		delta := s.detect(key)
		s.equal([]string{"opened-10001", "comment-" + id + "-" + ms(time.Now())}, occurrenceKeys(delta.Events), "after")
		last := delta.Events[1].Event
		s.equal([]string{s.w.ID(simtest.Bob), "admin", "updated", "now"},
			[]string{last.Actor.ID, string(last.Actor.Role), last.Source.RawAction, last.Transition.Comment.Instruction}, "the editor is the actor")
		s.equal(false, last.Actor.IsEntityAuthor, "entity author")
	})
}

func TestALabelChangeIsReadInAnySpelling(t *testing.T) {
	t.Parallel()
	for name, item := range map[string]map[string]any{
		"by fieldId":       {"field": "Stichwörter", "fieldId": "labels", "fieldtype": "jira", "fromString": "a b", "toString": "b c"},
		"without fieldId":  {"field": "labels", "fieldtype": "jira", "fromString": "b a", "toString": "c  b"},
		"capitalised":      {"field": "Labels", "fieldtype": "jira", "fromString": "a b", "toString": "c b"},
		"shouted":          {"field": "LABELS", "fieldId": "", "fromString": "a b", "toString": "c b"},
		"fieldId is a nil": {"field": "labels", "fieldId": nil, "fromString": "a b", "toString": "c b c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				key := s.issue("b", "c").Key
				time.Sleep(time.Minute)
				s.w.Jira.AddHistory(key, map[string]any{"created": stamp(time.Now()), "items": []any{item}})
				s.equal(s.named(
					"opened-10001 opened 5f00:alice write [a b]",
					"label-10002-a-removed label_changed unknown external [b c]",
					"label-10002-c-added label_changed unknown external [b c]",
				), told(s.detect(key)), "events")
			})
		})
	}
}

func TestAStatusChangeIsJudgedByTheEntrysOwnIDs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		from, to any
		want     string
		note     string
	}{
		"renamed, into done":       {"10000", "6", "closed", ""},
		"renamed, out of done":     {"10001", "3", "reopened", ""},
		"from one done to another": {"10001", "6", "", ""},
		"from open to open":        {"3", "10002", "", ""},
		"from a deleted one":       {"777", "6", "closed", ""},
		"to a deleted one":         {"6", "777", "", "no active workflow"},
		"between deleted ones":     {"776", "777", "", "no active workflow"},
		"without ids":              {nil, nil, "", "no active workflow"},
		"with numbers for ids":     {10000, 6, "closed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				key := s.issue().Key // in To Do; the entry's names mislead
				time.Sleep(time.Minute)
				s.w.Jira.AddHistory(key, map[string]any{"created": stamp(time.Now()), "items": []any{map[string]any{
					"field": "Status", "from": tt.from, "fromString": "Done\n::error::", "to": tt.to, "toString": "Offen",
				}}})
				delta := s.detect(key)
				want := []string{"opened-10001"}
				if tt.want != "" {
					want = append(want, "status-10002")
				}
				s.equal(want, occurrenceKeys(delta.Events), "events")
				if tt.want != "" {
					s.equal(tt.want, string(delta.Events[1].Event.Transition.Kind), "kind")
				}
				notes := strings.Join(delta.Notes, "|")
				s.equal(tt.note != "", notes != "", "a note: "+notes)
				mentions(t, notes, tt.note)
				if strings.Contains(notes, "\n") {
					t.Errorf("a note of several lines: %q", notes)
				}
			})
		})
	}
}

func TestAStatusThatCannotBeReadIsNoReasonToLoseItsEvent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		note   string
	}{
		"a failure keeps the checkpoint where it is": {500, ""},
		"a missing right is reported":                {403, "needs permission to use Jira"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				key := s.issue().Key
				time.Sleep(time.Minute)
				s.w.Jira.Transition(key, simtest.Alice, "In Progress")
				s.w.Jira.Transition(key, simtest.Alice, "Done")
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if strings.HasSuffix(req.URL.Path, "/status") {
						return reply(req, tt.status, `{"errorMessages":["no"]}`)
					}
					return nil
				}
				if tt.note == "" {
					mentions(t, s.detectError(key).Error(), s.api()+"/status")
					return
				}
				delta := s.detect(key)
				// the issue's own status is known; of the others nothing is
				s.equal([]string{"opened-10001", "status-10003"}, occurrenceKeys(delta.Events), "events")
				mentions(t, strings.Join(delta.Notes, "|"), tt.note)
			})
		})
	}
}

func TestTheStatusesAreReadOncePerCycle(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		keys := s.issues(4)
		for _, k := range keys {
			s.w.Jira.Transition(k, simtest.Alice, "In Progress")
		}
		s.reset()
		d, state := s.discover()
		for _, it := range d.Items {
			s.detectItem(it, state.Peek(it.Ref()).Checkpoint)
		}
		s.equal(1, s.count("GET /status"), "reads of the statuses")
	})
}

func TestADeletedCommentIsNoEdit(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		time.Sleep(time.Minute)
		s.w.Jira.AddHistory(key, map[string]any{"created": stamp(time.Now()), "items": []any{
			map[string]any{"field": "Comment", "from": "text", "fromString": "10002", "to": nil, "toString": nil},
		}})
		delta := s.detect(key)
		s.equal([]string{"opened-10001"}, occurrenceKeys(delta.Events), "events")
		about(t, time.Now().Add(-safetyMargin), delta.Next.At, "the checkpoint, which passes it,")
	})
}

func TestAnEntryOfSeveralFieldsIsAnOccurrencePerKind(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		time.Sleep(time.Minute)
		s.w.Jira.AddHistory(key, map[string]any{"created": stamp(time.Now()), "items": []any{
			map[string]any{"field": "summary", "fromString": "a", "toString": "b"},
			map[string]any{"field": "priority", "from": "1", "to": "2"},
			map[string]any{"field": "labels", "fromString": "", "toString": "z"},
			map[string]any{"field": "status", "from": "3", "to": "6"},
			map[string]any{"no": "field"},
			"no item", nil,
		}})
		s.equal([]string{"opened-10001", "edited-10002", "label-10002-z-added", "status-10002"},
			occurrenceKeys(s.detect(key).Events), "events")
	})
}

func TestBrokenEntriesAndCommentsHideNoOthers(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		time.Sleep(time.Minute)
		edit := []any{map[string]any{"field": "summary"}}
		for _, broken := range []map[string]any{
			{"id": "x", "created": stamp(time.Now()), "items": edit},
			{"created": "soon", "items": edit},
			{"items": edit},
			{"created": stamp(time.Now()), "items": "none"},
			{"created": stamp(time.Now())},
			{"created": stamp(time.Now()), "author": 7, "items": edit},
		} {
			s.w.Jira.AddHistory(key, broken)
		}
		s.w.Jira.CommentADF(key, "", nil, nil, nil)
		s.w.Jira.CommentADF(key, simtest.Alice, []any{1, "x"}, nil, nil)
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if !strings.HasSuffix(req.URL.Path, "/comment") {
				return nil
			}
			return reply(req, 200, fmt.Sprintf(`{"total":5,"comments":[null,7,{"id":"x","created":%q},{"id":"8"},{"id":"9","created":%q,"author":null,"body":7}]}`, stamp(time.Now()), stamp(time.Now())))
		}
		s.equal(s.named("opened-10001 opened 5f00:alice write []", "comment-9 comment_added unknown external []", "edited-10007 edited unknown external []"),
			told(s.detect(key)), "events")
	})
}

// longHistory makes 250 entries on an issue, with a label's addition in their
// midst, and returns all keys.
func longHistory(s *stage, key string) []string {
	s.t.Helper()
	want := []string{"opened-10001"}
	for i := range 250 {
		time.Sleep(time.Second)
		if i == 120 {
			s.w.Jira.SetLabels(key, simtest.Alice, "go")
			want = append(want, fmt.Sprintf("label-%d-go-added", 10002+i))
			continue
		}
		s.w.Jira.Edit(key, simtest.Alice, "summary", "a", "b")
		want = append(want, fmt.Sprintf("edited-%d", 10002+i))
	}
	return want
}

func TestALongChangelogIsReadCompletely(t *testing.T) {
	t.Parallel()
	fail := func(s *stage) {
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if strings.HasSuffix(req.URL.Path, "/changelog/bulkfetch") {
				return reply(req, 500, "oops")
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		set   func(*stage)
		pages int // of the issue's own changelog
		note  string
	}{
		"in bulk":                    {func(*stage) {}, 0, ""},
		"in bulk, times in seconds":  {func(s *stage) { s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.Epoch = sim.EpochSeconds }) }, 0, ""},
		"in bulk, times in millis":   {func(s *stage) { s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.Epoch = sim.EpochMillis }) }, 0, ""},
		"by itself when bulk fails":  {fail, 3, "changelogs are read issue by issue"},
		"by itself when left out":    {func(s *stage) { leaveOut(s) }, 3, ""},
		"by itself, in short pages":  {func(s *stage) { fail(s); shortPages(s, 40) }, 7, "changelogs are read issue by issue"},
		"by itself, while it grows":  {func(s *stage) { fail(s); grow(s) }, 4, "changelogs are read issue by issue"},
		"in bulk, two to a page":     {func(s *stage) { bulkPages(s, 2) }, 3, "changelogs are read issue by issue"}, // too many pages
		"in bulk, ninety to a page":  {func(s *stage) { bulkPages(s, 90) }, 0, ""},
		"by itself when bulk is 404": {func(s *stage) { answerStatus(s, "/changelog/bulkfetch", 404) }, 3, "changelogs are read issue by issue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				s.o.MaxEvents = 1000
				key := s.issue().Key
				want := longHistory(s, key)
				time.Sleep(time.Minute)
				tt.set(s)
				d, state := s.discover()
				s.reset()
				it := s.item(d, key)
				delta := s.detectItem(it, state.Peek(it.Ref()).Checkpoint)
				got := occurrenceKeys(delta.Events)
				s.equal(want, got[:min(len(want), len(got))], "events")
				s.equal(tt.pages, s.count("GET /issue/10001/changelog"), "pages")
				mentions(t, strings.Join(d.Notes, "|"), tt.note)
			})
		})
	}
}

// answerStatus makes one path answer with a status.
func answerStatus(s *stage, suffix string, code int) {
	s.answer = func(req *http.Request, _ []byte) *http.Response {
		if strings.HasSuffix(req.URL.Path, suffix) {
			return reply(req, code, `{"errorMessages":["no"]}`)
		}
		return nil
	}
}

// leaveOut makes the bulk answer speak of no issue.
func leaveOut(s *stage) {
	s.answer = func(req *http.Request, _ []byte) *http.Response {
		if strings.HasSuffix(req.URL.Path, "/changelog/bulkfetch") {
			return reply(req, 200, `{"issueChangeLogs":[]}`)
		}
		return nil
	}
}

// query changes a request's query before the server sees it.
func query(s *stage, suffix, name, value string) {
	before := s.answer
	s.answer = func(req *http.Request, body []byte) *http.Response {
		if before != nil {
			if resp := before(req, body); resp != nil {
				return resp
			}
		}
		if strings.HasSuffix(req.URL.Path, suffix) {
			v := req.URL.Query()
			v.Set(name, value)
			req.URL.RawQuery = v.Encode()
		}
		return nil
	}
}

// shortPages makes the server give less of a changelog than was asked for.
func shortPages(s *stage, size int) { query(s, "/changelog", "maxResults", strconv.Itoa(size)) }

// grow adds an entry to the changelog when its second page is read.
func grow(s *stage) {
	before, grown := s.answer, false
	s.answer = func(req *http.Request, body []byte) *http.Response {
		if strings.HasSuffix(req.URL.Path, "/changelog") && req.URL.Query().Get("startAt") != "0" && !grown {
			grown = true
			s.w.Jira.Edit("PROJ-1", simtest.Alice, "summary", "a", "b")
		}
		return before(req, body)
	}
}

// bulkPages makes the bulk answers shorter.
func bulkPages(s *stage, size int) {
	s.answer = func(req *http.Request, body []byte) *http.Response {
		if !strings.HasSuffix(req.URL.Path, "/changelog/bulkfetch") {
			return nil
		}
		text := strings.Replace(string(body), `"maxResults":1000`, fmt.Sprintf(`"maxResults":%d`, size), 1)
		again := req.Clone(req.Context())
		again.Body = io.NopCloser(strings.NewReader(text))
		return s.pass(again)
	}
}

func TestALongChangelogIsReadFromItsEndBackToTheCheckpointOnly(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		longHistory(s, key)
		s.checked(key, time.Now().Add(-5*time.Second))
		time.Sleep(time.Minute)
		leaveOut(s)
		s.equal([]string{"edited-10247", "edited-10248", "edited-10249", "edited-10250", "edited-10251"},
			occurrenceKeys(s.detect(key).Events), "events")
		s.equal(2, s.count("GET /issue/10001/changelog"), "pages")
	})
}

func TestAnIssueWithoutAnyHistoryMayBeLeftOutOfTheBulk(t *testing.T) {
	t.Parallel()
	for _, omit := range []bool{false, true} {
		bubble(t, func(s *stage) {
			key := s.issue().Key
			s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.OmitEmptyChangelogs = omit })
			s.equal([]string{"opened-10001"}, occurrenceKeys(s.detect(key).Events), "events")
			s.equal(map[bool]int{false: 0, true: 1}[omit], s.count("GET /issue/10001/changelog"), "own reads")
		})
	}
}

func TestAllCommentsAreRead(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.o.MaxEvents = 1000
		key := s.issue().Key
		want := []string{"opened-10001"}
		for range 230 {
			time.Sleep(time.Second)
			want = append(want, "comment-"+s.w.Jira.Comment(key, simtest.Alice, "x"))
		}
		s.equal(want, occurrenceKeys(s.detect(key).Events), "events")
		s.equal(3, s.count("/comment"), "pages")
	})
}

func TestAnEditOfTheOldestOfManyCommentsIsSeen(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		first := s.w.Jira.Comment(key, simtest.Alice, "x")
		for range 120 {
			time.Sleep(time.Second)
			s.w.Jira.Comment(key, simtest.Alice, "x")
		}
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.EditComment(key, first, simtest.Bob, "/fs-code")
		s.equal([]string{"comment-" + first + "-" + ms(time.Now())}, occurrenceKeys(s.detect(key).Events), "events")
	})
}

func TestCommentsThatAreDeletedWhileTheyAreReadHideNoOthers(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]bool{"once": false, "every time": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				s.o.MaxEvents = 1000
				key := s.issue().Key
				var ids []string
				for range 150 {
					time.Sleep(time.Second)
					ids = append(ids, s.w.Jira.Comment(key, simtest.Alice, "x"))
				}
				deleted := 0
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if req.URL.Query().Get("startAt") == "100" && (every || deleted == 0) {
						deleted++
						s.w.Jira.DeleteComment(key, ids[len(ids)-deleted])
					}
					return nil
				}
				if every {
					mentions(t, s.detectError(key).Error(), "comments of issue 10001 change while they are read")
					return
				}
				want := []string{"opened-10001"}
				for _, id := range ids[:149] {
					want = append(want, "comment-"+id)
				}
				s.equal(want, occurrenceKeys(s.detect(key).Events), "events")
			})
		})
	}
}

func TestACommentThatArrivesBetweenTwoPagesComesOnce(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.o.MaxEvents = 1000
		key := s.issue().Key
		for range 150 {
			time.Sleep(time.Second)
			s.w.Jira.Comment(key, simtest.Alice, "x")
		}
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if req.URL.Query().Get("startAt") == "100" {
				s.w.Jira.Comment(key, simtest.Alice, "late")
			}
			return nil
		}
		keys := occurrenceKeys(s.detect(key).Events)
		s.equal(151, len(keys), "events")
		s.equal(151, len(slices.Compact(slices.Sorted(slices.Values(keys)))), "distinct events")
	})
}

func TestCommentsWithoutAnEndAreLeftWithANote(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.o.MaxEvents = 1000
		key := s.issue().Key
		pages := 0
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if !strings.HasSuffix(req.URL.Path, "/comment") {
				return nil
			}
			pages++
			return reply(req, 200, fmt.Sprintf(`{"total":99999999,"comments":[{"id":"%d","created":%q}]}`, 20_000+pages, stamp(time.Now())))
		}
		delta := s.detect(key)
		s.equal(maxPages, pages, "pages")
		s.equal(maxPages+1, len(delta.Events), "events")
		mentions(t, strings.Join(delta.Notes, "|"), "more comments than are read")
	})
}

func TestEventsOfOneMomentComeInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		time.Sleep(time.Minute)
		s.w.Jira.SetLabels(key, simtest.Alice, "z", "y")       // 10002
		s.w.Jira.Comment(key, simtest.Alice, "x")              // 10003
		s.w.Jira.SetLabels(key, simtest.Alice, "y")            // 10004
		s.w.Jira.Comment(key, simtest.Alice, "x")              // 10005
		s.w.Jira.Edit(key, simtest.Alice, "summary", "a", "b") // 10006
		time.Sleep(time.Minute)
		s.equal(s.named(
			"opened-10001 opened 5f00:alice write []",
			"label-10002-y-added label_changed 5f00:alice write [y z]",
			"label-10002-z-added label_changed 5f00:alice write [y z]",
			"comment-10003 comment_added 5f00:alice write [y]",
			"label-10004-z-removed label_changed 5f00:alice write [y]",
			"comment-10005 comment_added 5f00:alice write [y]",
			"edited-10006 edited 5f00:alice write [y]",
		), told(s.detect(key)), "events")
	})
}

func TestLabelsAreThoseAtTheEventAlsoWhenTheSearchLags(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.IndexLag = 2 * time.Minute })
		key := s.issue("a").Key
		time.Sleep(3 * time.Minute)
		s.w.Jira.Comment(key, simtest.Alice, "one")
		time.Sleep(time.Second)
		s.w.Jira.SetLabels(key, simtest.Alice, "b")
		time.Sleep(time.Second)
		s.w.Jira.Comment(key, simtest.Alice, "two")
		s.equal(s.named(
			"opened-10001 opened 5f00:alice write [a]",
			"comment-10002 comment_added 5f00:alice write [a]",
			"label-10003-a-removed label_changed 5f00:alice write [b]",
			"label-10003-b-added label_changed 5f00:alice write [b]",
			"comment-10004 comment_added 5f00:alice write [b]",
		), told(s.detect(key)), "events")
	})
}

func TestRestrictedCommentsAreReadOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	for _, include := range []bool{false, true} {
		eachFlavour(t, func(s *stage) {
			s.o.RestrictedComments = include
			key := s.issue().Key
			time.Sleep(time.Minute)
			yes, no := true, false
			body := sim.Paragraph("/fs-code")
			s.w.Jira.CommentADF(key, simtest.Alice, body, map[string]any{"type": "role", "value": "Administrators"}, nil)
			s.w.Jira.CommentADF(key, simtest.Alice, body, nil, &no)
			s.w.Jira.CommentADF(key, simtest.Alice, body, nil, &yes)
			time.Sleep(time.Minute)
			want := []string{"opened-10001", "comment-10004"}
			if include {
				want = []string{"opened-10001", "comment-10002", "comment-10003", "comment-10004"}
			}
			delta := s.detect(key)
			s.equal(want, occurrenceKeys(delta.Events), "events")
			s.equal(s.w.Jira.Updated(key).UnixMilli(), delta.Next.At.UnixMilli(), "the checkpoint passes them")
		})
	}
}

func TestTheProductsOwnAccountTriggersNothing(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: simtest.Alice, Creator: simtest.Bot}).Key
		time.Sleep(time.Minute)
		s.w.Jira.Comment(key, simtest.Bot, "/fs-code")
		s.w.Jira.SetLabels(key, simtest.Bot, "a")
		s.w.Jira.Transition(key, simtest.Bot, "Done")
		s.w.Jira.Edit(key, simtest.Bot, "summary", "a", "b")
		id := s.w.Jira.Comment(key, simtest.Alice, "x")
		s.w.Jira.EditComment(key, id, simtest.Bot, "y") // a moment later, or it were no edit
		time.Sleep(time.Minute)
		s.w.Jira.EditComment(key, id, simtest.Bot, "z")
		time.Sleep(time.Minute)
		delta := s.detect(key)
		s.equal([]string{}, told(delta), "events")
		s.equal(s.w.Jira.Updated(key).UnixMilli(), delta.Next.At.UnixMilli(), "the checkpoint passes them")
		s.equal(0, s.count("/role"), "role look-ups")
	})
}

func TestBotsAreToldFromHumans(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		want := map[string]event.ActorKind{
			"an app": event.Bot, "Automation for Jira": event.Bot, "renovate[bot]": event.Bot, "CI-Bot": event.Bot,
			"Jira addon": event.Bot, "Abbot": event.Human, "Botho": event.Human, "Alice": event.Human, "": event.Human, "Robot 7": event.Human,
		}
		if s.dc() { // which does not tell types of accounts
			want["an app"] = event.Human
		}
		key := s.issue().Key
		time.Sleep(time.Minute)
		names := slices.Sorted(maps.Keys(want))
		for i, name := range names {
			u := sim.User{AccountID: fmt.Sprint("u", i), DisplayName: name}
			if name == "an app" {
				u.Type = "app"
			}
			s.w.Jira.AddUser(u)
			s.w.Jira.Comment(key, u.AccountID, "x")
		}
		got := map[string]event.ActorKind{}
		for i, o := range s.detect(key).Events[1:] {
			got[names[i]] = o.Event.Actor.Kind
		}
		s.equal(want, got, "kinds")
	})
}

func TestAnActorThatIsNobodyIsExternalAndAsksForNoRole(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		is := s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project})
		time.Sleep(time.Minute)
		s.w.Jira.CommentADF(is.Key, "", sim.Paragraph("/fs-code"), nil, nil)
		s.w.Jira.SetLabels(is.Key, "", "a")
		s.equal([]string{
			"opened-10001 opened unknown external []",
			"comment-10002 comment_added unknown external [a]",
			"label-10003-a-added label_changed unknown external [a]",
		}, told(s.detect(is.Key)), "events")
		s.equal(0, s.count("/role"), "role look-ups")
	})
}

func TestAnIssueThatIsGoneIsSaidSo(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		d, _ := s.discover()
		s.w.Jira.DeleteIssue(key)
		_, err := s.item(d, key).Detect(t.Context(), poll.Checkpoint{})
		if err == nil {
			t.Fatal("a deleted issue is read")
		}
		mentions(t, err.Error(), errGone.Error())
		// and where its changelog is read first
		leaveOut(s)
		it := s.item(d, key).(*Item)
		it.prefetched = nil
		if _, err := it.Detect(t.Context(), poll.Checkpoint{}); err == nil || !strings.Contains(err.Error(), errGone.Error()) {
			t.Errorf("err %v", err)
		}
	})
}

func TestAMovedIssueKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.o.Queries = []string{"project in (PROJ, OTHER)"}
		s.w.Jira.AddProject("OTHER")
		s.w.Jira.Grant("OTHER", "Administrators", simtest.Alice)
		key := s.issue().Key
		time.Sleep(time.Minute)
		id := s.w.Jira.Comment(key, simtest.Alice, "x")
		time.Sleep(time.Minute)
		moved := s.w.Jira.MoveIssue(key, simtest.Alice, "OTHER")
		s.equal(s.named(
			"opened-10001 opened 5f00:alice admin []",
			"comment-"+id+" comment_added 5f00:alice admin []", // the role is that in the issue's own project
			"edited-10003 edited 5f00:alice admin []",
		), told(s.detect(moved)), "events")
	})
}
