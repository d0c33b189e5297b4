package jira

// What other pollers of Jira did wrong, row by row of
// docs/known-poller-defects.md: the rows that one reader decides. D rows are
// defects that the poller of https://github.com/fullsend-ai/fullsend named
// itself, in the threads and commits that each comment gives; R rows are what
// was found in its code by running or reading it.

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// entry plants a changelog entry of one item.
func (s *stage) entry(key string, item map[string]any) {
	s.t.Helper()
	s.w.Jira.AddHistory(key, map[string]any{"created": stamp(time.Now()), "items": []any{item}})
}

// kindsIn are the events' kinds in their order.
func kindsIn(events []event.Occurrence) []string {
	all := []string{}
	for _, o := range events {
		all = append(all, string(o.Event.Transition.Kind))
	}
	return all
}

// reading makes a document of one paragraph and reads it as a comment.
func reading(nodes ...string) *event.Comment {
	return readBody([]byte(doc(para(nodes...)))).comment("1")
}

// D12: fullsend-ai/fullsend commit 587306a8.
func TestDefectD12RepositoriesWithDotsShareNoProperty(t *testing.T) {
	t.Parallel()
	one, err := PropertiesFor("a.b/c")
	if err != nil {
		t.Fatal(err)
	}
	two, err := PropertiesFor("a/b.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range one.list() {
		if slices.Contains(two.list(), name) {
			t.Errorf("both have %s", name)
		}
	}
	if one.Lock != "fullsend.poll.a%2Eb.c.lock" {
		t.Errorf("the lock is %s", one.Lock)
	}
}

// D18: fullsend-ai/fullsend commits 4cf7b52d and 2b4f1da5.
func TestDefectD18WhatArrivesBetweenTwoReadsIsFoundInTheNextCycle(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.Comment(key, simtest.Alice, "seen at once")
		time.Sleep(time.Minute)
		late := false
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if strings.HasSuffix(req.URL.Path, "/comment") && !late {
				late = true // the changelog has been read already
				time.Sleep(time.Second)
				s.w.Jira.SetLabels(key, simtest.Alice, "late")
				time.Sleep(time.Second)
				s.w.Jira.Comment(key, simtest.Alice, "younger than the label, and read in this cycle")
			}
			return nil
		}
		s.equal([]string{"comment_added", "comment_added"}, kindsIn(s.cycle()), "the first cycle")
		time.Sleep(time.Minute)
		s.equal([]string{"label_changed", "comment_added"}, kindsIn(s.cycle()), "the second")
	})
}

// D26: https://github.com/fullsend-ai/fullsend/issues/6041 and issues/6088.
func TestDefectD26TheLastMemberOfAHugeGroupHasItsRole(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.w.Jira.GrantGroup(simtest.Project, "Developers", "everybody")
		last := ""
		for n := range 5100 {
			last = fmt.Sprintf("5f00:member-%d", n)
			s.w.Jira.AddUser(sim.User{AccountID: last, DisplayName: "Member", Groups: []string{"everybody"}})
		}
		s.equal(event.RoleWrite, s.roleOf(last), "role")
		s.equal(0, s.count("/group/member"), "walks over a group's members")
	})
}

// D32: fullsend-ai/fullsend commit 4fbb05ed.
func TestDefectD32AHigherRoleThroughAGroupCounts(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		const carol = "5f00:carol"
		s.w.Jira.AddUser(sim.User{AccountID: carol, DisplayName: "Carol", Groups: []string{"jira-admins"}})
		s.w.Jira.Grant(simtest.Project, "Viewers", carol)
		s.w.Jira.Grant(simtest.Project, "Developers", carol)
		s.equal(event.RoleAdmin, s.roleOf(carol), "role")
	})
}

// D40: fullsend-ai/fullsend commit 3afde8ca.
func TestDefectD40AStatusOfAnyNameIsJudgedByItsCategory(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.entry(key, map[string]any{"field": "status", "from": "10000", "fromString": "Done-ish", "to": "6", "toString": "Erledigt"})
		time.Sleep(time.Second)
		s.entry(key, map[string]any{"field": "status", "from": "10000", "fromString": "Offen", "to": "3", "toString": "Not done, not closed"})
		s.equal([]string{"closed"}, kindsIn(s.detect(key).Events), "kinds")
	})
}

// D41: fullsend-ai/fullsend commit ff197bd1.
func TestDefectD41EveryTransitionBetweenTwoPollsIsJudgedByItself(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		for _, status := range []string{"In Progress", "Done", "In Progress", "Done", "To Do"} {
			time.Sleep(time.Minute)
			s.w.Jira.Transition(key, simtest.Alice, status)
		}
		s.equal([]string{"closed", "reopened", "closed", "reopened"}, kindsIn(s.detect(key).Events), "kinds")
	})
}

// D42: fullsend-ai/fullsend commits a8790ee2 and 2b4f1da5.
func TestDefectD42AStatusThatIsNotKnownAnyMoreHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	for name, forbidden := range map[string]bool{"deleted": false, "not to be read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				key := s.issue().Key
				s.settle(key)
				time.Sleep(time.Hour)
				s.entry(key, map[string]any{"field": "status", "from": "776", "fromString": "a", "to": "777", "toString": "b"})
				s.w.Jira.Comment(key, simtest.Alice, "/fs-triage go")
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if forbidden && strings.HasSuffix(req.URL.Path, "/status") {
						return reply(req, http.StatusForbidden, `{}`)
					}
					return nil
				}
				delta := s.detect(key)
				s.equal([]string{"comment_added"}, kindsIn(delta.Events), "kinds")
				mentions(s.t, strings.Join(delta.Notes, "|"), `the status change from "a" to "b" cannot be judged`)
			})
		})
	}
}

// D43: fullsend-ai/fullsend commit 2b4f1da5.
func TestDefectD43FromOneDoneStatusToAnotherIsNoSecondClose(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.Transition(key, simtest.Alice, "Done")
		time.Sleep(time.Minute)
		s.entry(key, map[string]any{"field": "status", "from": "10001", "fromString": "Done", "to": "6", "toString": "Closed"})
		s.equal([]string{"closed"}, kindsIn(s.detect(key).Events), "kinds")
	})
}

// D46: fullsend-ai/fullsend commit fc933bf0 and its operator's guide.
func TestDefectD46OfTooManyCommentsTheOldestAreLeftOut(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.o.MaxEvents = 100_000
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.Touch(key)
		const total = 20_000 // twice as many as are read, newest first
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if !strings.HasSuffix(req.URL.Path, "/comment") {
				return nil
			}
			s.equal("-created", req.URL.Query().Get("orderBy"), "order")
			var start int
			_, _ = fmt.Sscan(req.URL.Query().Get("startAt"), &start)
			var page []string
			for n := start; n < start+pageSize; n++ {
				page = append(page, fmt.Sprintf(`{"id":"%d","created":%q,"body":{}}`, 50_000-n, stamp(time.Now().Add(-time.Duration(n)*time.Millisecond))))
			}
			return reply(req, http.StatusOK, fmt.Sprintf(`{"total":%d,"comments":[%s]}`, total, strings.Join(page, ",")))
		}
		delta := s.detect(key)
		s.equal(maxPages*pageSize, len(delta.Events), "events")
		s.equal("comment-50000", delta.Events[len(delta.Events)-1].Key, "the newest")
		mentions(t, strings.Join(delta.Notes, "|"), "more comments than are read")

		// With nothing new, one page is enough for what is not many.
		s.answer = nil
		s.w.Jira.Comment(key, simtest.Alice, "x")
		s.reset()
		s.detect(key)
		s.equal(1, s.count("/comment"), "pages")
	})
}

// D48: fullsend-ai/fullsend commit fc933bf0.
func TestDefectD48ASearchNamesTheFewFieldsThatItNeeds(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: simtest.Alice, Description: sim.Paragraph(strings.Repeat("long ", 1<<20))})
		d, _ := s.discover()
		s.equal(1, len(d.Items), "issues")
		s.equal([]string{"created", "updated", "reporter", "creator", "labels", "status", "project"}, s.searches()[0].Fields, "fields")
	})
}

// D49: https://github.com/fullsend-ai/fullsend/pull/5778, commit eee93c9f.
func TestDefectD49ASearchExpandsNoChangelog(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.reset()
		s.answer = func(req *http.Request, body []byte) *http.Response {
			if all := req.URL.RawQuery + string(body); strings.Contains(all, "expand") {
				s.t.Errorf("%s expands something: %s", req.URL.Path, all)
			}
			return nil
		}
		s.detect(key)
		s.equal(1, s.count("/search/jql"), "searches")
		s.equal(1, s.count("/changelog"), "reads of changelogs")
	})
}

// D51: fullsend-ai/fullsend commit 68cfeaa8.
func TestDefectD51ASearchIsReadToItsEndByToken(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.MaxPage = 40 })
		keys := s.issues(250)
		s.o.M = 1000
		d, _ := s.discover()
		s.equal(len(keys), len(d.Items), "issues")
		searches := s.searches()
		s.equal(7, len(searches), "pages")
		for i, q := range searches {
			s.equal(i > 0, q.Token != "", "a token")
		}
	})
}

// D52: fullsend-ai/fullsend commit 5859d9a1.
func TestDefectD52ASearchIsRepeatedThoughItIsAPOST(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.retries = 3
		s.issue()
		left := 2
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if strings.HasSuffix(req.URL.Path, "/search/jql") && left > 0 {
				left--
				return reply(req, http.StatusServiceUnavailable, `{}`)
			}
			return nil
		}
		d, _ := s.discover()
		s.equal(1, len(d.Items), "issues after two failures")
	})
}

// D61: fullsend-ai/fullsend commit a79cf580.
func TestDefectD61TheInstructionIsTheRestOfTheFirstLine(t *testing.T) {
	t.Parallel()
	c := readBody([]byte(doc(para(txt("/fs-code fix it")), para(txt("and a second paragraph"))))).comment("1")
	if c.Command != "/fs-code" || c.Instruction != "fix it" || c.Body != "/fs-code fix it\nand a second paragraph" {
		t.Errorf("%+v", c)
	}
}

// D62: fullsend-ai/fullsend commit 2b4f1da5.
func TestDefectD62AHardBreakEndsTheLine(t *testing.T) {
	t.Parallel()
	c := reading(txt("/fs-code fix it"), `{"type":"hardBreak"}`, txt("please"))
	if c.Instruction != "fix it" || c.Body != "/fs-code fix it\nplease" {
		t.Errorf("%+v", c)
	}
}

// D63: fullsend-ai/fullsend commit c2545e49.
func TestDefectD63ADocumentOfAnyDepthIsReadInBoundedSpace(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		for _, depth := range []int{100, 5_000, 100_000} {
			nested := strings.Repeat(`{"type":"blockquote","content":[`, depth) + para(txt("deep")) + strings.Repeat(`]}`, depth)
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if !strings.HasSuffix(req.URL.Path, "/comment") {
					return nil
				}
				return reply(req, http.StatusOK, fmt.Sprintf(`{"total":2,"comments":[{"id":"2","created":%q,"body":%s},{"id":"1","created":%q,"body":%s}]}`,
					stamp(time.Now()), doc(para(txt("/fs-code go")), nested), stamp(time.Now()), doc(para(txt("x")))))
			}
			var commands []string
			for _, o := range s.detect(key).Events {
				if c := o.Event.Transition.Comment; c != nil {
					commands = append(commands, c.Command)
				}
			}
			s.equal([]string{"", "/fs-code"}, commands, fmt.Sprint("the commands of the comments, one of depth ", depth))
		}
	})
}

// D64: https://github.com/fullsend-ai/fullsend/pull/5996.
func TestDefectD64MentionsEmojiDatesAndCardsHaveTheirText(t *testing.T) {
	t.Parallel()
	c := reading(
		txt("/fs-code ask "), `{"type":"mention","attrs":{"id":"1","text":"@Bob"}}`, txt(" "),
		`{"type":"emoji","attrs":{"shortName":":+1:","text":"👍"}}`, txt(" by "),
		`{"type":"date","attrs":{"timestamp":"1787222400000"}}`, txt(" see "),
		`{"type":"inlineCard","attrs":{"url":"https://acme.example/1"}}`,
	)
	if want := "ask @Bob 👍 by 2026-08-20 see https://acme.example/1"; c.Instruction != want {
		t.Errorf("%q, want %q", c.Instruction, want)
	}
}

// D65: fullsend-ai/fullsend commit 587306a8.
func TestDefectD65ABodyThatIsNoneIsEmpty(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`null`, ``, `7`, `{}`, `[]`, `{"type":"doc","content":null}`, `{"type":"doc","content":[null,{"type":"paragraph","content":[{"type":"text","text":null}]}]}`} {
		if b := readBody(json.RawMessage(raw)); b.Text != "" || b.Lead != "" {
			t.Errorf("%s is read as %q", raw, b.Text)
		}
	}
}

// D72: fullsend-ai/fullsend commit 1456cb66.
func TestDefectD72TheSimulatedJiraRefusesStrangers(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.issue()
		for name, target := range map[string]string{"search": "/search/jql", "myself": "/myself", "property": "/issue/PROJ-1/properties/x"} {
			method := http.MethodGet
			body := ""
			if name == "search" {
				method, body = http.MethodPost, `{"jql":"project = PROJ"}`
			}
			req, err := http.NewRequestWithContext(t.Context(), method, s.w.JiraAPI()+target, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.SetBasicAuth(simtest.JiraEmail, "an expired token")
			resp, err := s.w.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			s.equal(http.StatusUnauthorized, resp.StatusCode, name)
		}
	})
}

// R7: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR7EventsComeInTheOrderOfTimeAndIDEveryTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.SetLabels(key, simtest.Alice, "d", "b", "c", "a")
		s.w.Jira.Comment(key, simtest.Alice, "between")
		time.Sleep(time.Second)
		s.w.Jira.SetLabels(key, simtest.Alice, "c")
		s.w.Jira.Comment(key, simtest.Alice, "after")
		first := occurrenceKeys(s.detect(key).Events)
		s.equal([]string{
			"label_changed", "label_changed", "label_changed", "label_changed", "comment_added",
			"label_changed", "label_changed", "label_changed", "comment_added",
		}, kindsIn(s.detect(key).Events), "kinds")
		for range 20 {
			s.equal(first, occurrenceKeys(s.detect(key).Events), "the order")
		}
	})
}

// R8: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR8AFieldIsKnownInAnySpelling(t *testing.T) {
	t.Parallel()
	for name, item := range map[string]map[string]any{
		"by its name":             {"field": "Labels", "fromString": "", "toString": "go"},
		"by its id before a name": {"fieldId": "labels", "field": "Stichwörter", "fromString": "", "toString": "go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				key := s.issue().Key
				s.settle(key)
				time.Sleep(time.Hour)
				s.entry(key, item)
				var labels []string
				for _, o := range s.detect(key).Events {
					if l := o.Event.Transition.Label; l != nil {
						labels = append(labels, l.Name)
					}
				}
				s.equal([]string{"go"}, labels, "labels")
			})
		})
	}
}

// R9: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR9AMentionBeforeACommandKeepsItFromBeingOne(t *testing.T) {
	t.Parallel()
	c := reading(`{"type":"mention","attrs":{"id":"1","text":"@Bob"}}`, txt(" /fs-code do it"))
	if c.Command != "" || c.Body != "@Bob /fs-code do it" {
		t.Errorf("%+v", c)
	}
}

// R10: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR10ACommandInAQuoteOrInCodeIsNone(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"blockquote", "codeBlock", "panel", "bulletList", "expand", "heading", "table"} {
		inner := para(txt("/fs-code do it"))
		if kind == "codeBlock" || kind == "heading" {
			inner = txt("/fs-code do it")
		}
		c := readBody([]byte(doc(fmt.Sprintf(`{"type":%q,"content":[%s]}`, kind, inner)))).comment("1")
		if c.Command != "" || !strings.Contains(c.Body, "/fs-code do it") {
			t.Errorf("%s: %+v", kind, c)
		}
	}
}

// R11: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR11ASmartLinkInAnInstructionKeepsItsAddress(t *testing.T) {
	t.Parallel()
	c := reading(txt("/fs-code see "), `{"type":"inlineCard","attrs":{"url":"https://acme.example/browse/X-1"}}`, txt(" first"))
	if want := "see https://acme.example/browse/X-1 first"; c.Instruction != want {
		t.Errorf("%q, want %q", c.Instruction, want)
	}
}

// R14: inferred from the official description and fullsend-ai/fullsend's code.
func TestDefectR14TheLatestTransitionIsJudgedByTheIssuesOwnStatus(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.Transition(key, simtest.Alice, "Done")
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if strings.HasSuffix(req.URL.Path, "/status") {
				return reply(req, http.StatusOK, `[]`) // the workflow is in use nowhere
			}
			return nil
		}
		s.equal([]string{"closed"}, kindsIn(s.detect(key).Events), "kinds")
	})
}

// R15: inferred from fullsend-ai/fullsend's Jira poller.
func TestDefectR15AnEventsLabelsAreThoseAtItsTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		key := s.issue("old").Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.Comment(key, simtest.Alice, "before")
		time.Sleep(time.Second)
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.IndexLag = time.Second })
		s.w.Jira.SetLabels(key, simtest.Alice, "new") // the search still shows the old one
		s.w.Jira.Comment(key, simtest.Alice, "after")
		var labels [][]string
		for _, o := range s.detect(key).Events {
			if o.Event.Transition.Kind == event.CommentAdded {
				labels = append(labels, o.Event.State.Labels)
			}
		}
		s.equal([][]string{{"old"}, {"new"}}, labels, "labels")
	})
}

// R17: inferred from the official description.
func TestDefectR17AnIssueThatIsGoneIsNotAnIssueWithoutALock(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		free, gone := s.issue(), s.issue()
		s.w.Jira.DeleteIssue(gone.Key)
		_, state := s.process()
		if _, err := state.Get(t.Context(), free.ID); !errors.Is(err, lease.ErrAbsent) {
			t.Errorf("an issue without a lock: %v", err)
		}
		if _, err := state.Get(t.Context(), gone.ID); errors.Is(err, lease.ErrAbsent) || !errors.Is(err, errGone) {
			t.Errorf("an issue that is gone: %v", err)
		}
		all, err := state.GetAll(t.Context(), []string{free.ID, gone.ID})
		if err != nil {
			t.Fatal(err)
		}
		if _, read := all[free.ID]; !read {
			t.Error("the issue without a lock is not in the bulk answer")
		}
		if _, read := all[gone.ID]; read {
			t.Error("the issue that is gone counts as read")
		}
	})
}
