package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/harness"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/jira"
)

// problem is one thing that is wrong with what the user wrote, placed in a file.
type problem struct {
	file string
	line int
	text string
}

func (p problem) String() string {
	switch {
	case p.file == "":
		return p.text
	case p.line == 0:
		return p.file + ": " + p.text
	}
	return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.text)
}

// problems are reported together, and mean exit code 2 with nothing touched.
type problems []problem

func (ps problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b problem) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	return ps
}

func sentence(what, cure string) string {
	if cure == "" {
		return what
	}
	return what + "; " + cure
}

// loaded is the validated configuration with its compiled harnesses.
type loaded struct {
	cfg       *config.Config
	harnesses *harness.Set
	validator *event.Validator
}

// maxConfig is the longest configuration file that is read, in bytes; the parser
// has its own, lower cap.
const maxConfig = 4 << 20

// load reads the configuration and the harnesses. With offline, connections are
// not looked at. What could be understood is returned also with problems.
func (a *app) load(ctx context.Context, offline bool) (*loaded, problems) {
	path := a.configPath()
	dir, name := filepath.Split(path)
	root, err := os.OpenRoot(first(dir, "."))
	if err != nil {
		return nil, a.unreadable(err)
	}
	defer func() { _ = root.Close() }()
	raw, err := readCapped(root, name)
	if err != nil {
		return nil, a.unreadable(err)
	}
	l := &loaded{}
	l.validator, _ = event.NewValidator()
	var ps problems
	l.cfg, ps = a.parse(path, raw, offline)
	if l.cfg == nil {
		return nil, ps
	}
	set, hps := a.harnesses(ctx, root, l.cfg)
	l.harnesses = set
	for _, p := range hps {
		at := problem{file: path, line: p.Line, text: sentence(p.What, p.Cure)}
		if p.Source != "" {
			at.file = p.Source
			if !strings.Contains(p.Source, "://") {
				at.file = filepath.Join(dir, p.Source)
			}
		}
		if p.Warning {
			a.warn(at.String())
			continue
		}
		ps = append(ps, at)
	}
	return l, ps
}

// unreadable says that there is no configuration to be read.
func (a *app) unreadable(err error) problems {
	return problems{{file: a.configPath(), text: "the configuration cannot be read: " + plainPathError(err) + "; check out the repository before this step, or give the path with --config"}}
}

// parse reads the configuration. The environment overrides a Jira connection of
// the file only where there is just one: it could not mean several.
func (a *app) parse(path string, raw []byte, offline bool) (*config.Config, problems) {
	opts := config.Options{CheckJQL: jira.CheckQuery, Overrides: a.overrides(false), WithoutConnections: offline}
	cfg, found := config.Parse(raw, a.lookup, opts)
	if cfg != nil && countJira(cfg) > 1 {
		opts.Overrides = a.overrides(true)
		cfg, found = config.Parse(raw, a.lookup, opts)
	}
	if cfg != nil && len(found) == 0 && !offline {
		found = cfg.DetectDrivers(a.lookup, opts)
	}
	ps := make(problems, 0, len(found))
	for _, p := range found {
		ps = append(ps, problem{file: path, line: p.Line, text: sentence(strings.TrimPrefix(p.Path+": "+p.What, ": "), p.Cure)})
	}
	return cfg, ps
}

func countJira(cfg *config.Config) int {
	n := 0
	for _, d := range cfg.Poll.InputDrivers {
		if d.Type == config.JiraPoll {
			n++
		}
	}
	return n
}

func readCapped(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxConfig))
}

func plainPathError(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// harnesses loads the enabled agents' harness files and compiles their triggers.
func (a *app) harnesses(ctx context.Context, root *os.Root, cfg *config.Config) (*harness.Set, []harness.Problem) {
	var agents []harness.Agent
	for _, ag := range cfg.Agents {
		if ag.Enabled {
			agents = append(agents, harness.Agent{Name: ag.Name, Source: ag.Source, Line: ag.Line})
		}
	}
	loader := &harness.Loader{FS: root.FS(), Fetch: a.fetch, Allowed: cfg.AllowedRemoteResources}
	return loader.Load(ctx, agents)
}

// fetch reads a remote harness file. The loader has checked that its address is
// allowed, and checks what comes by its digest.
func (a *app) fetch(ctx context.Context, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("parse the address: %w", err)
	}
	t, err := httpx.New(a.http(httpx.Options{Origin: httpx.Origin(u), MaxBody: 1 << 20}))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	resp, err := t.Client().Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %d", resp.StatusCode)
	}
	return io.ReadAll(resp.Body)
}

// http completes transport options with what all transports share.
func (a *app) http(o httpx.Options) httpx.Options {
	v, _ := versionOf()
	o.Base, o.Now, o.Rand, o.Log = a.Transport, a.Now, a.Rand, a.log
	o.UserAgent = "fullsend-poll/" + strings.Trim(v, "()")
	return o
}

func (a *app) core(l *loaded) *dispatch.Core {
	return dispatch.New(dispatch.Options{Validator: l.validator, Matcher: l.harnesses, KillSwitch: l.cfg.KillSwitch})
}

func (a *app) warn(msg string) {
	a.warnings = append(a.warnings, msg)
	a.log.Warn(msg) //nolint:sloglint // the message is composed by its maker
	a.runner.Warning(msg)
}
