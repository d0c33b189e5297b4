package jira

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// day is the unit of the windows.
const day = 24 * time.Hour

// stage is a simulated Jira in a bubble, and the driver pointed at it.
type stage struct {
	t     *testing.T
	w     *simtest.World
	o     InputOptions
	email string
	token string
	// flavour is what the client is told.
	flavour Flavour
	// retries is what httpx may repeat.
	retries int
	// answer, if set, may change or replace what the network answers.
	answer func(req *http.Request, body []byte) *http.Response

	mu     sync.Mutex
	asked  []asked
	events *event.Validator
	client *Client
}

// asked is a request as the driver sent it.
type asked struct {
	method, path string
	query        url.Values
	body         string
}

// bubble runs f with virtual time on a stage of its own.
func bubble(t *testing.T, f func(s *stage), opts ...simtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newStage(t, opts...)) })
}

// eachFlavour runs f in bubbles of their own, on a stage of Jira Cloud and on one
// of Data Center.
func eachFlavour(t *testing.T, f func(s *stage)) {
	t.Helper()
	t.Run("Cloud", func(t *testing.T) { t.Parallel(); bubble(t, f) })
	t.Run("Data Center", func(t *testing.T) { t.Parallel(); onDataCenter(t, f) })
}

// onDataCenter runs f in a bubble on a stage of Data Center.
func onDataCenter(t *testing.T, f func(s *stage)) {
	t.Helper()
	bubble(t, f, simtest.DataCenter())
}

func newStage(t *testing.T, opts ...simtest.Option) *stage {
	t.Helper()
	v, err := event.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	w := simtest.New(t, opts...)
	email, token := w.JiraCredentials()
	flavour := Cloud
	if w.DataCenter() {
		flavour = DataCenter
	}
	return &stage{
		t: t, w: w, email: email, token: token, flavour: flavour, events: v,
		o: InputOptions{
			Name: "jira", Repo: simtest.Repo, Queries: []string{"project = PROJ"}, M: 50,
			ScanLimit: 1000, ScanWindow: 7 * day, FirstPollWindow: day, ReplayWindow: 7 * day,
			MaxEvents: 100, Judge: &lease.Judge{Rules: lease.Rules{StaleThreshold: 15 * time.Minute}, ServerNow: time.Now},
			IntN: func(int) int { return 1 }, // never a wide scan
		},
	}
}

// RoundTrip is the network as the driver sees it.
func (s *stage) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	s.mu.Lock()
	s.asked = append(s.asked, asked{req.Method, req.URL.Path, req.URL.Query(), string(body)})
	s.mu.Unlock()
	if s.answer != nil {
		if resp := s.answer(req, body); resp != nil {
			return resp, nil
		}
	}
	return s.w.Net.RoundTrip(req)
}

// pass sends a request on to the server.
func (s *stage) pass(req *http.Request) *http.Response {
	s.t.Helper()
	resp, err := s.w.Net.RoundTrip(req)
	if err != nil {
		s.t.Error(err)
		return reply(req, http.StatusInternalServerError, "")
	}
	return resp
}

// process returns a driver as a fresh process has it.
func (s *stage) process() (*Input, *State) {
	s.t.Helper()
	c, err := NewClient(ClientOptions{
		BaseURL: s.w.JiraURL(), Email: s.email, Token: s.token, Flavour: s.flavour,
		HTTP: httpx.Options{Base: s, Now: time.Now, Retries: s.retries},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.client = c
	state := NewState(c, s.props())
	return NewInput(c, state, s.o), state
}

func (s *stage) props() Properties {
	s.t.Helper()
	p, err := PropertiesFor(simtest.Repo)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// discover runs one discovery, which has to succeed, in a fresh process.
func (s *stage) discover() (poll.Discovery, *State) {
	s.t.Helper()
	in, state := s.process()
	d, err := in.Discover(s.t.Context())
	if err != nil {
		s.t.Fatalf("Discover: %v", err)
	}
	return d, state
}

// item finds an issue among the discovered ones.
func (s *stage) item(d poll.Discovery, key string) poll.WorkItem {
	s.t.Helper()
	for _, it := range d.Items {
		if it.Ref().Key == key {
			return it
		}
	}
	s.t.Fatalf("%s is not among the items %v", key, keysOf(d))
	return nil
}

// detect discovers and detects one issue in a fresh process, from its stored
// checkpoint; every event has to fit the schema.
func (s *stage) detect(key string) poll.Delta {
	s.t.Helper()
	d, state := s.discover()
	it := s.item(d, key)
	return s.detectItem(it, state.Peek(it.Ref()).Checkpoint)
}

func (s *stage) detectItem(it poll.WorkItem, since poll.Checkpoint) poll.Delta {
	s.t.Helper()
	delta, err := it.Detect(s.t.Context(), since)
	if err != nil {
		s.t.Fatalf("Detect of %s: %v", it.Ref().Key, err)
	}
	s.valid(delta)
	return delta
}

// detectError is detect where it has to fail.
func (s *stage) detectError(key string) error {
	s.t.Helper()
	d, state := s.discover()
	it := s.item(d, key)
	delta, err := it.Detect(s.t.Context(), state.Peek(it.Ref()).Checkpoint)
	if err == nil {
		s.t.Fatalf("Detect of %s succeeded with %v", key, told(delta))
	}
	return err
}

// valid holds every event of a delta against the schema, and the delta's order
// against the contract.
func (s *stage) valid(delta poll.Delta) {
	s.t.Helper()
	for i, o := range delta.Events {
		if err := s.events.Validate(o.Event); err != nil {
			s.t.Errorf("event %s: %v", o.Key, err)
		}
		if i > 0 && event.Compare(delta.Events[i-1], o) > 0 {
			s.t.Errorf("event %s comes after %s", delta.Events[i-1].Key, o.Key)
		}
	}
}

// cycle is what a poll cycle does with an issue that has nothing to dispatch:
// detect and store the checkpoint. It returns all events.
func (s *stage) cycle() []event.Occurrence {
	s.t.Helper()
	d, state := s.discover()
	var all []event.Occurrence
	for _, it := range d.Items {
		since := state.Peek(it.Ref()).Checkpoint
		delta := s.detectItem(it, since)
		all = append(all, delta.Events...)
		if delta.Next.At.After(since.At) {
			if err := state.Advance(s.t.Context(), it.Ref(), delta.Next); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return all
}

// issue creates an issue of Alice.
func (s *stage) issue(labels ...string) sim.Issue {
	s.t.Helper()
	return s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: "s", Reporter: simtest.Alice, Labels: labels})
}

// dc reports whether the stage is one of Data Center.
func (s *stage) dc() bool { return s.w.DataCenter() }

// path is the path of a resource of the API in a request.
func (s *stage) path(resource string) string {
	u, err := url.Parse(s.w.JiraAPI() + resource)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Path
}

// api is the path of the API below the base URL, as errors name it.
func (s *stage) api() string { return flavoured(s, "/rest/api/3", "/rest/api/2") }

// named says of lines that name accounts of Cloud how they name them here.
func (s *stage) named(lines ...string) []string {
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = l
		if s.dc() {
			all[i] = strings.ReplaceAll(l, "5f00:", "")
		}
	}
	return all
}

// flavoured is one of two values.
func flavoured[T any](s *stage, cloud, center T) T {
	if s.dc() {
		return center
	}
	return cloud
}

// search is the request of a search.
func (s *stage) search() string { return flavoured(s, "POST /search/jql", "GET /search") }

// isSearch reports whether a request is a search.
func (s *stage) isSearch(req *http.Request) bool {
	return req.URL.Path == s.path(flavoured(s, "/search/jql", "/search"))
}

// page is a search's answer of one page whose rows are written as JSON.
func (s *stage) page(rows ...string) string {
	return fmt.Sprintf(`{"issues":[%s],%s}`, strings.Join(rows, ","), flavoured(s, `"isLast":true`, fmt.Sprintf(`"total":%d`, len(rows))))
}

// checkpoint is how a lastCheck is stored.
func (s *stage) checkpoint(at time.Time) string {
	text := at.UTC().Format(time.RFC3339Nano)
	return flavoured(s, `"`+text+`"`, `{"ts":"`+text+`"}`)
}

// set stores a property as somebody else would.
func (s *stage) set(key, prop string, value any) {
	s.t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		s.t.Fatal(err)
	}
	s.w.Jira.SetProperty(key, prop, raw)
}

// checked stores a lastCheck.
func (s *stage) checked(key string, at time.Time) {
	s.t.Helper()
	s.w.Jira.SetProperty(key, s.props().LastCheck, []byte(s.checkpoint(at)))
}

// reset forgets the requests so far.
func (s *stage) reset() {
	s.w.Net.ResetLog()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

// requests returns "METHOD path" of the requests since reset, without the
// common prefix, and with the expansion that was asked for.
func (s *stage) requests() []string {
	var all []string
	for _, e := range s.w.Net.Log() {
		r := e.Method + " " + strings.TrimPrefix(e.Path, s.path(""))
		if q, err := url.ParseQuery(e.RawQuery); err == nil && q.Has("expand") {
			r += "?expand=" + q.Get("expand")
		}
		all = append(all, r)
	}
	return all
}

// count counts the requests since reset whose "METHOD path" has the part.
func (s *stage) count(part string) int {
	n := 0
	for _, r := range s.requests() {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

// searches returns the searches since reset.
func (s *stage) searches() []search {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []search
	for _, a := range s.asked {
		var q search
		switch {
		case strings.Contains(a.body, `"jql"`):
			if err := json.Unmarshal([]byte(a.body), &q); err != nil {
				s.t.Fatal(err)
			}
		case a.query.Has("jql"):
			q = search{JQL: a.query.Get("jql"), Fields: listed(a.query, "fields"), Properties: listed(a.query, "properties")}
			for name, into := range map[string]*int{"maxResults": &q.MaxResults, "startAt": &q.Start} {
				n, err := strconv.Atoi(a.query.Get(name))
				if err != nil {
					s.t.Fatal(err)
				}
				*into = n
			}
		default:
			continue
		}
		all = append(all, q)
	}
	return all
}

func listed(v url.Values, name string) []string {
	if v.Get(name) == "" {
		return nil
	}
	return strings.Split(v.Get(name), ",")
}

type search struct {
	JQL        string   `json:"jql"`
	MaxResults int      `json:"maxResults"`
	Fields     []string `json:"fields"`
	Properties []string `json:"properties"`
	Token      string   `json:"nextPageToken"`
	Start      int      `json:"startAt"`
}

func keysOf(d poll.Discovery) []string {
	keys := []string{}
	for _, it := range d.Items {
		keys = append(keys, it.Ref().Key)
	}
	return keys
}

// told returns a delta's events as "key kind actor role [labels]".
func told(d poll.Delta) []string {
	all := []string{}
	for _, o := range d.Events {
		all = append(all, fmt.Sprintf("%s %s %s %s %v", o.Key, o.Event.Transition.Kind, o.Event.Actor.ID, o.Event.Actor.Role, o.Event.State.Labels))
	}
	return all
}

// occurrenceKeys returns the events' keys.
func occurrenceKeys(events []event.Occurrence) []string {
	keys := []string{}
	for _, o := range events {
		keys = append(keys, o.Key)
	}
	return keys
}

func (s *stage) equal(want, got any, what string) {
	s.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// mentions fails unless every part stands in text.
func mentions(tb testing.TB, text string, parts ...string) {
	tb.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			tb.Errorf("%q is not mentioned in: %s", p, text)
		}
	}
}

// stamp is how Jira writes a time.
func stamp(at time.Time) string { return at.Format("2006-01-02T15:04:05.000-0700") }

// reply is an answer that no server gave.
func reply(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// ms is a time as it stands in keys.
func ms(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// about fails unless at lies within a second of want: the server's clock is
// known no better at first.
func about(tb testing.TB, want, at time.Time, what string) {
	tb.Helper()
	if d := at.Sub(want); d < -time.Second || d > time.Second {
		tb.Errorf("%s is %v, want about %v", what, at.UTC(), want.UTC())
	}
}

func cancelled(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	cancel()
	return ctx
}
