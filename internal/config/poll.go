package config

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

func (r *reader) poll(n *node, p *Poll) {
	for _, f := range r.strict(n, "poll", nil, "input_drivers", "output_driver", "gha_dispatch") {
		switch f.key {
		case "input_drivers":
			p.InputDrivers = r.drivers(f.value)
		case "output_driver":
			r.choice(f, &p.OutputDriver, GHADispatch, GitLabPipeline)
			p.outputGiven = true
		case "gha_dispatch":
			r.gha(f.value, &p.GHADispatch)
		}
	}
}

// maxDrivers and maxQueries bound the requests of a cycle.
const (
	maxDrivers = 16
	maxQueries = 50
	maxJQL     = 10_000
)

func (r *reader) drivers(n *node) []InputDriver {
	const where = "poll.input_drivers"
	entries := r.list(n, where)
	if len(entries) > maxDrivers {
		r.add(n.Line, where, fmt.Sprintf("there are more than %d input drivers", maxDrivers), "")
		return nil
	}
	var out []InputDriver
	names := map[string]bool{}
	for i, e := range entries {
		at := fmt.Sprintf("%s[%d]", where, i)
		d, ok := r.driver(e, at)
		if !ok {
			continue
		}
		if d.Name != "" && names[d.Name] {
			r.add(e.Line, at+".name", fmt.Sprintf("two input drivers are named %q", d.Name), "give each its own name")
		}
		if d.Name == "" {
			d.Name = d.Type
			for k := 2; names[d.Name]; k++ {
				d.Name = fmt.Sprintf("%s-%d", d.Type, k)
			}
		}
		names[d.Name] = true
		out = append(out, d)
	}
	return out
}

// keysOf lists the members of a driver, so that an unknown one can be answered
// with what exists.
func keysOf(kind string) []string {
	common := []string{"type", "name", "connection"}
	if kind == JiraPoll {
		return append(common, "queries", "lock", "flavour", "scan_window", "scan_limit", "first_poll_window",
			"replay_window", "max_events_per_issue", "restricted_comments",
			"authorization", "roles", "allow", "github-users", "bots", "state")
	}
	return append(common, "project", "mode", "routable_labels")
}

func (r *reader) driver(n *node, at string) (InputDriver, bool) {
	d := Defaults()
	d.Type, d.Name, d.Line = "", "", n.Line
	if n.Kind != mappingNode {
		r.add(n.Line, at, "this must be a mapping with a type, not "+kindName(n), "write - type: "+JiraPoll)
		return d, false
	}
	for _, f := range r.open(n, at) {
		if f.key == "type" {
			r.choice(f, &d.Type, JiraPoll, GitLabPoll, GitLabWebhook)
			if d.Type == "" {
				return d, false
			}
		}
	}
	if d.Type == "" {
		r.add(n.Line, at, "the input driver has no type", fmt.Sprintf("the types are %s, %s, %s", JiraPoll, GitLabPoll, GitLabWebhook))
		return d, false
	}
	if d.Type == JiraPoll {
		r.jira(n, at, &d)
	} else {
		r.gitlab(n, at, &d)
	}
	return d, true
}

func (r *reader) jira(n *node, at string, d *InputDriver) {
	elsewhere := map[string]string{
		"project": "the GitLab drivers; Jira projects are chosen by queries", "mode": "the GitLab drivers",
		"routable_labels": "the GitLab drivers", "base_url": "connection", "email": "connection", "token": "connection",
		"m": "lock", "n": "lock", "stale_threshold": "lock", "refresh_interval": "lock", "guard": "lock",
		"jitter_min": "lock", "jitter_max": "lock", "pending_ttl": "lock", "max_hold": "lock",
	}
	const year = 366 * 24 * time.Hour
	var conn *node
	asked, mode, modeLine := false, false, 0
	for _, f := range r.strict(n, at, elsewhere, keysOf(JiraPoll)...) {
		if r.authorizing(f, d) {
			mode = mode || f.key == "authorization"
			continue
		}
		switch f.key {
		case "state":
			for _, s := range r.strict(f.value, f.path, nil, "accept_unsigned") {
				d.RefuseUnsigned = !r.boolean(s.value, s.path)
			}
		case "name":
			r.driverName(f, d)
		case "connection":
			conn = f.value
		case "queries":
			asked = true
			d.Queries = r.queries(f)
		case "lock":
			modeLine = r.lock(f.value, f.path, &d.Lock)
		case "flavour":
			r.choice(f, &d.Flavour, FlavourAuto, FlavourCloud, FlavourDataCenter)
		case "scan_window":
			r.duration(f, time.Minute, year, &d.ScanWindow)
		case "first_poll_window":
			r.duration(f, 0, 10*year, &d.FirstPollWindow)
		case "replay_window":
			r.duration(f, time.Minute, year, &d.ReplayWindow)
		case "scan_limit":
			r.integer(f, 100_000, &d.ScanLimit)
		case "max_events_per_issue":
			r.integer(f, 10_000, &d.MaxEventsPerIssue)
		case "restricted_comments":
			r.choice(f, &d.RestrictedComments, RestrictedSkip, RestrictedInclude)
		}
	}
	if !asked {
		r.add(d.Line, at, "the driver has no queries", "write queries: with at least one JQL search, such as - project = PROJ")
	}
	if d.Lock.Mode == ModeConditional && d.Flavour == FlavourDataCenter {
		r.add(modeLine, at+".lock.mode", "Jira Data Center has no conditional writes", "write mode: "+ModeVerify+", or leave it out")
	}
	r.authorize(at, d, mode)
	r.jiraConnection(conn, at+".connection", d)
}

func (r *reader) gitlab(n *node, at string, d *InputDriver) {
	elsewhere := map[string]string{
		"queries": JiraPoll, "lock": JiraPoll, "flavour": JiraPoll, "scan_window": JiraPoll, "scan_limit": JiraPoll,
		"first_poll_window": JiraPoll, "replay_window": JiraPoll, "max_events_per_issue": JiraPoll,
		"restricted_comments": JiraPoll, "base_url": "connection", "token": "connection",
	}
	*d = InputDriver{Type: d.Type, Mode: ModeEvents, Line: d.Line}
	var conn, project *node
	for _, f := range r.strict(n, at, elsewhere, keysOf(d.Type)...) {
		switch f.key {
		case "name":
			r.driverName(f, d)
		case "connection":
			conn = f.value
		case "project":
			project = f.value
		case "mode":
			r.choice(f, &d.Mode, ModeEvents, ModeSlash)
		case "routable_labels":
			for i, e := range r.list(f.value, f.path) {
				if v, ok := r.text(e, fmt.Sprintf("%s[%d]", f.path, i)); ok {
					d.RoutableLabels = append(d.RoutableLabels, v)
				}
			}
		}
	}
	r.gitlabConnection(conn, project, at, d)
}

func (r *reader) driverName(f field, d *InputDriver) {
	v, ok := r.text(f.value, f.path)
	if !ok {
		return
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`).MatchString(v) {
		r.add(f.value.Line, f.path, shown(v)+" is not a driver's name", "use letters, digits, _ and -, beginning with a letter or digit")
		return
	}
	d.Name = v
}

func (r *reader) queries(f field) []Query {
	entries := r.list(f.value, f.path)
	switch {
	case len(entries) > maxQueries:
		r.add(f.value.Line, f.path, fmt.Sprintf("there are more than %d queries", maxQueries), "join some with OR")
		return nil
	case len(entries) == 0 && (f.value.Kind == sequenceNode || isNull(f.value)):
		r.add(f.line, f.path, "there is no query", "write at least one JQL search, such as - project = PROJ")
	}
	var out []Query
	for i, e := range entries {
		at := fmt.Sprintf("%s[%d]", f.path, i)
		if e.Kind == mappingNode {
			r.add(e.Line, at, "this must be text, not a mapping", "put the whole query in quotes: it has a colon in it")
			continue
		}
		jql, ok := r.textUpTo(maxJQL, e, at)
		if !ok {
			continue
		}
		if r.opts.CheckJQL != nil {
			if err := r.opts.CheckJQL(jql); err != nil {
				r.add(e.Line, at, "the query cannot be used: "+oneLine(err.Error()), "")
				continue
			}
		}
		out = append(out, Query{JQL: jql, Line: e.Line})
	}
	return out
}

// lock reads the lock's settings and returns the line of its mode, 0 for none.
func (r *reader) lock(n *node, at string, l *Lock) int {
	const most = time.Minute
	before := len(r.problems)
	lines := map[string]int{}
	for _, f := range r.strict(n, at, nil, "mode", "m", "n", "stale_threshold", "refresh_interval", "pending_ttl", "max_hold", "guard", "jitter_min", "jitter_max") {
		lines[f.key] = f.line
		switch f.key {
		case "mode":
			r.choice(f, &l.Mode, ModeVerify, ModeConditional)
		case "m":
			r.integer(f, 1000, &l.M)
		case "n":
			r.integer(f, 1000, &l.N)
		case "stale_threshold":
			r.duration(f, 10*time.Second, 7*24*time.Hour, &l.StaleThreshold)
		case "refresh_interval":
			r.duration(f, time.Second, 7*24*time.Hour, &l.RefreshInterval)
		case "pending_ttl":
			// A poller needs some of it for itself, see lease.Lease.Until.
			r.duration(f, time.Minute, 7*24*time.Hour, &l.PendingTTL)
		case "max_hold":
			r.duration(f, time.Minute, 35*24*time.Hour, &l.MaxHold)
		case "guard":
			r.duration(f, time.Millisecond, most, &l.Guard)
		case "jitter_min":
			r.duration(f, 0, most, &l.JitterMin)
		case "jitter_max":
			r.duration(f, 0, most, &l.JitterMax)
		}
	}
	if len(r.problems) > before {
		return lines["mode"] // a pair with a bad half says nothing
	}
	if lines["pending_ttl"] == 0 {
		l.PendingTTL = l.StaleThreshold
	}
	pair := func(key, other string) (line int, path string) {
		if lines[key] == 0 {
			return lines[other], at + "." + other
		}
		return lines[key], at + "." + key
	}
	given := func(key string) string {
		if lines[key] == 0 {
			return " (the default)"
		}
		return ""
	}
	if l.N > l.M {
		line, p := pair("n", "m")
		r.add(line, p, fmt.Sprintf("n is %d%s and m is %d%s: a cycle cannot lock more issues than it looks at", l.N, given("n"), l.M, given("m")),
			fmt.Sprintf("set n to at most %d", l.M))
	}
	if l.JitterMin > l.JitterMax {
		line, p := pair("jitter_min", "jitter_max")
		r.add(line, p, fmt.Sprintf("jitter_min is %v%s and longer than jitter_max, %v%s", l.JitterMin, given("jitter_min"), l.JitterMax, given("jitter_max")), "")
	}
	if l.RefreshInterval > l.StaleThreshold/2 {
		line, p := pair("refresh_interval", "stale_threshold")
		r.add(line, p, fmt.Sprintf("refresh_interval is %v%s, more than half of stale_threshold, %v%s: one lost refresh would lose the lock",
			l.RefreshInterval, given("refresh_interval"), l.StaleThreshold, given("stale_threshold")),
			fmt.Sprintf("set refresh_interval to at most %v", l.StaleThreshold/2))
	}
	for _, key := range []string{"stale_threshold", "pending_ttl"} {
		ttl := map[string]time.Duration{"stale_threshold": l.StaleThreshold, "pending_ttl": l.PendingTTL}[key]
		if lines["max_hold"] > 0 && l.MaxHold < ttl {
			r.add(lines["max_hold"], at+".max_hold", fmt.Sprintf("max_hold is %v and shorter than %s, %v%s: a lock would go before it is stale", l.MaxHold, key, ttl, given(key)),
				fmt.Sprintf("set max_hold to at least %v", ttl))
		}
	}
	return lines["mode"]
}

func (r *reader) gha(n *node, g *GHA) {
	for _, f := range r.strict(n, "poll.gha_dispatch", nil, "workflow", "ref") {
		v, ok := r.text(f.value, f.path)
		if !ok {
			continue
		}
		if f.key == "workflow" {
			if rest, found := strings.CutPrefix(v, ".github/workflows/"); found && !strings.Contains(rest, "/") {
				v = path.Base(v)
			}
			if !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.ya?ml$`).MatchString(v) {
				r.add(f.value.Line, f.path, "this is not the file name of a workflow",
					"write the name of a file in .github/workflows, such as "+DefaultWorkflow)
				continue
			}
			g.Workflow = v
			continue
		}
		if why := badRef(v); why != "" {
			r.add(f.value.Line, f.path, why, "write the name of a branch or tag")
			continue
		}
		g.Ref = v
	}
}

// badRef says why a text cannot be the name of a branch or tag; the rules are
// those of git-check-ref-format.
func badRef(v string) string {
	if regexp.MustCompile(`^[0-9a-fA-F]{40}$|^[0-9a-fA-F]{64}$`).MatchString(v) {
		return "this is a commit; a dispatch takes a branch or tag only"
	}
	bad := len(v) > 255 || strings.ContainsAny(v, " ~^:?*[\\") || strings.Contains(v, "..") || strings.Contains(v, "@{") ||
		strings.Contains(v, "//") || v == "@" || strings.HasPrefix(v, "-") || strings.HasSuffix(v, "/") || strings.HasSuffix(v, ".")
	for seg := range strings.SplitSeq(v, "/") {
		bad = bad || seg == "" || strings.HasPrefix(seg, ".") || strings.HasSuffix(seg, ".lock")
	}
	for _, c := range v {
		bad = bad || c < 0x20 || c == 0x7f
	}
	if bad {
		return "this cannot be the name of a branch or tag"
	}
	return ""
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 400 {
		s = strings.ToValidUTF8(s[:400], "") + "…"
	}
	return s
}
