package github_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/httpx"
)

const api = "https://ghes.test/api/v3"

// agentWorkflow declares everything and names its runs as the example does.
func agentWorkflow() string {
	var b strings.Builder
	b.WriteString("name: agent\nrun-name: ${{ inputs.agent }} ${{ inputs.poll_lock_id }}\non:\n  workflow_dispatch:\n    inputs:\n")
	for _, n := range github.InputNames() {
		fmt.Fprintf(&b, "      %s: {type: string, required: false}\n", n)
	}
	return b.String()
}

// fake is a GitHub of one workflow, in memory.
type fake struct {
	mu       sync.Mutex
	workflow string
	// answers are given to posts in turn; the last one stays.
	answers []func(*fake, post) (*http.Response, error)
	posts   []post
	runs    []run
	listed  int
	list    func(*http.Request) (*http.Response, error) // replaces the list
	content func() (*http.Response, error)              // replaces the file
	asked   []string
}

type post struct {
	Ref              string            `json:"ref"`
	Inputs           map[string]string `json:"inputs"`
	ReturnRunDetails *bool             `json:"return_run_details"`
}

type run struct {
	id    int64
	title string
	at    time.Time // when the list begins to show it
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	if v := r.Header.Get("X-GitHub-Api-Version"); v != "2022-11-28" {
		return reply(400, `{"message":"version `+v+`"}`)
	}
	const repo = "/api/v3/repos/acme/app"
	switch r.Method + " " + r.URL.Path {
	case "GET " + repo:
		return reply(200, `{"default_branch":"trunk"}`)
	case "GET " + repo + "/contents/.github/workflows/agent.yml":
		if f.content != nil {
			return f.content()
		}
		body, err := json.Marshal(map[string]any{
			"type": "file", "encoding": "base64", "size": len(f.workflow), "name": "agent.yml", "path": ".github/workflows/agent.yml",
			"content": base64.StdEncoding.EncodeToString([]byte(f.workflow)),
		})
		if err != nil {
			return nil, err
		}
		return reply(200, string(body))
	case "POST " + repo + "/actions/workflows/agent.yml/dispatches":
		var p post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			return reply(400, `{"message":"Problems parsing JSON"}`)
		}
		f.posts = append(f.posts, p)
		next := f.answers[0]
		if len(f.answers) > 1 {
			f.answers = f.answers[1:]
		}
		return next(f, p)
	case "GET " + repo + "/actions/workflows/agent.yml/runs":
		f.listed++
		if f.list != nil {
			return f.list(r)
		}
		var runs []map[string]any
		for _, x := range f.runs {
			if !time.Now().Before(x.at) {
				runs = append(runs, map[string]any{
					"id": x.id, "display_title": x.title, "status": "pending", "html_url": fmt.Sprintf("https://ghes.test/acme/app/actions/runs/%d", x.id),
				})
			}
		}
		body, err := json.Marshal(map[string]any{"total_count": len(runs), "workflow_runs": runs})
		if err != nil {
			return nil, err
		}
		return reply(200, string(body))
	}
	return reply(501, `{"message":"no such route"}`)
}

func reply(status int, body string, header ...string) (*http.Response, error) {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: h,
		Body: io.NopCloser(strings.NewReader(body)), ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// says answers a post and makes no run.
func says(status int, body string, header ...string) func(*fake, post) (*http.Response, error) {
	return func(*fake, post) (*http.Response, error) { return reply(status, body, header...) }
}

// runs makes a run that the list shows after delay, then answers by then.
func runs(id int64, delay time.Duration, then func(*fake, post) (*http.Response, error)) func(*fake, post) (*http.Response, error) {
	return func(f *fake, p post) (*http.Response, error) {
		f.runs = append(f.runs, run{id, p.Inputs["agent"] + " " + p.Inputs["poll_lock_id"], time.Now().Add(delay)})
		return then(f, p)
	}
}

func details(id int64) func(*fake, post) (*http.Response, error) {
	return says(200, fmt.Sprintf(`{"workflow_run_id":%d,"run_url":"https://ghes.test/api/v3/repos/acme/app/actions/runs/%d","html_url":"https://ghes.test/acme/app/actions/runs/%d"}`, id, id, id))
}

func broken(err error) func(*fake, post) (*http.Response, error) {
	return func(*fake, post) (*http.Response, error) { return nil, err }
}

func newDispatcher(t *testing.T, f *fake, change func(*github.Options)) (*github.Dispatcher, *bytes.Buffer) {
	t.Helper()
	if f.workflow == "" {
		f.workflow = agentWorkflow()
	}
	tr, err := httpx.New(httpx.Options{Base: f, Origin: "https://ghes.test", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o := github.Options{
		APIURL: api, ServerURL: "https://ghes.test", Repo: "acme/app", Workflow: "agent.yml", Ref: "main", HTTP: tr,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	if change != nil {
		change(&o)
	}
	d, err := github.NewDispatcher(o)
	if err != nil {
		t.Fatal(err)
	}
	return d, &log
}

const lockID = "0b5e6f9e-7d3a-4f1e-9a46-5d0f3f6f0c11"

func order(agent string) dispatch.Order {
	ev := event.NormalizedEvent{
		Repo:   "acme/app",
		Entity: event.Entity{Kind: event.WorkItem, ID: 10001, Key: "PROJ-123", URL: "https://acme.test/browse/PROJ-123"},
		Transition: event.Transition{
			Kind: event.CommentAdded, Comment: event.NewComment("501", "/fs-triage check <acceptance> criteria"),
		},
		Actor:  event.Actor{ID: "u1", Kind: event.Human, Role: event.RoleWrite},
		State:  event.State{Labels: []string{"backend"}},
		Source: event.Source{System: event.Jira, RawType: "comment", RawAction: "created"},
	}
	return dispatch.Order{
		Key: agent + ":comment-501", Agent: agent, Role: "triage", Event: ev, Ref: dispatch.Project(agent, ev),
		Lock: dispatch.LockRef{ID: lockID, Driver: "jira-poll", Property: "fullsend.poll.acme.app.lock"},
	}
}
