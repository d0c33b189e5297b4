// Package github drives GitHub Actions: it schedules agent runs by
// workflow_dispatch (the output driver "gha-dispatch") and finds runs by the
// lock they hold. It promises that one order is posted at most once, that an
// answer that was lost is resolved by looking for the run instead of asking
// again, and that every refusal is one sentence with its cause and its cure.
//
// Requests go through an [httpx.Transport]; facts about the API are those of
// its official description (version 2022-11-28).
package github

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
)

// DriverName is the output driver's type in the configuration.
const DriverName = "gha-dispatch"

// DefaultLookupFor is how long a run is looked for whose id is not known.
const DefaultLookupFor = 15 * time.Second

// Options configure a [Dispatcher].
type Options struct {
	// APIURL is GITHUB_API_URL, for example https://api.github.com or
	// https://ghes.example.org/api/v3. Its origin must be HTTP's.
	APIURL string
	// ServerURL is GITHUB_SERVER_URL, for links to runs; may be empty.
	ServerURL string
	// Repo is the target repository, "owner/name".
	Repo string
	// Workflow is the workflow's file name; a path before it is ignored.
	Workflow string
	// Ref is the branch or tag whose workflow file runs. Empty means the
	// repository's default branch, which costs one request per Prepare.
	Ref string
	// HTTP carries the requests and knows GitHub's clock.
	HTTP *httpx.Transport
	// LookupFor bounds the pauses between looks for a run; 0 means
	// [DefaultLookupFor].
	LookupFor time.Duration
	// Log gets warnings about the target workflow; nil means none.
	Log *slog.Logger
}

// Dispatcher schedules runs of one workflow. It implements [dispatch.Output]
// and [dispatch.Preparer] and may be used by many goroutines.
type Dispatcher struct {
	client      *github.Client
	clock       func() time.Time // GitHub's
	serverURL   string
	owner, repo string
	file        string
	ref         string
	lookupFor   time.Duration
	log         *slog.Logger

	preparing sync.Mutex // one Prepare at a time

	mu          sync.Mutex
	target      *target
	noDetails   bool               // the server does not know return_run_details
	claimed     map[int64]struct{} // runs that are some order's already
	hintedTitle bool
}

var (
	_ dispatch.Output   = (*Dispatcher)(nil)
	_ dispatch.Preparer = (*Dispatcher)(nil)
)

// target is what Prepare found out.
type target struct {
	ref      string
	declared []string
	// titled says that the run's name has the lock id, so that a run can be
	// found by it.
	titled bool
	// agentFirst says that the run's name begins with the agent's.
	agentFirst bool
}

// NewDispatcher checks o; it makes no request.
func NewDispatcher(o Options) (*Dispatcher, error) {
	owner, repo, err := splitRepo(o.Repo)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(strings.TrimRight(o.APIURL, "/") + "/")
	if err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("github API URL: want https://host[/path], as in GITHUB_API_URL")
	}
	file := path.Base(strings.ReplaceAll(o.Workflow, `\`, "/"))
	if ext := path.Ext(file); ext != ".yml" && ext != ".yaml" || file == ext || strings.ContainsAny(file, "?#%\r\n") {
		return nil, fmt.Errorf("workflow %q: want the name of a file in .github/workflows, for example fullsend-agent.yml", o.Workflow)
	}
	if strings.ContainsAny(o.Ref, " \t\r\n~^:?*[\\") {
		return nil, fmt.Errorf("ref %q: not the name of a branch or tag", o.Ref)
	}
	if o.HTTP == nil {
		return nil, errors.New("github: no transport")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LookupFor <= 0 {
		o.LookupFor = DefaultLookupFor
	}
	hc := o.HTTP.Client()
	hc.Transport = probe{o.HTTP}
	client := github.NewClient(hc)
	client.BaseURL = base
	return &Dispatcher{
		client:    client,
		clock:     o.HTTP.ServerNow,
		serverURL: strings.TrimRight(o.ServerURL, "/"),
		owner:     owner,
		repo:      repo,
		file:      file,
		ref:       o.Ref,
		lookupFor: o.LookupFor,
		log:       o.Log,
		claimed:   map[int64]struct{}{},
	}, nil
}

// Name implements [dispatch.Output].
func (d *Dispatcher) Name() string { return DriverName }

// nameChars is what GitHub allows in the names of owners and repositories.
const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

func splitRepo(s string) (owner, repo string, err error) {
	owner, repo, _ = strings.Cut(s, "/")
	for _, part := range []string{owner, repo} {
		if part == "" || len(part) > 100 || part == "." || part == ".." || strings.ContainsFunc(part, func(c rune) bool { return !strings.ContainsRune(nameChars, c) }) {
			return "", "", fmt.Errorf("target repository %q: want owner/name", s)
		}
	}
	return owner, repo, nil
}

// probe notes on the context whether a request left. The library forgets the
// transport's error when the context has ended.
type probe struct{ next http.RoundTripper }

type sentKey struct{}

type sent struct {
	asked   bool
	notSent bool
}

// RoundTrip implements [http.RoundTripper].
func (p probe) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if s, ok := req.Context().Value(sentKey{}).(*sent); ok {
		s.asked, s.notSent = true, errors.Is(err, httpx.ErrNotSent)
	}
	return resp, err
}

func watch(ctx context.Context) (context.Context, *sent) {
	s := &sent{}
	return context.WithValue(ctx, sentKey{}, s), s
}
