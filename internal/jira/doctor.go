package jira

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
)

// maxSkew is how far clocks may differ without a warning. Staleness is judged by
// Jira's clock alone, so a difference harms no lock.
const maxSkew = 2 * time.Minute

// Probe implements [dispatch.Prober]: credentials, flavour, clock, every query,
// the rights that the authorization needs, and one property round trip on the
// first candidate, measured against [InputOptions.LockBound].
func (in *Input) Probe(ctx context.Context) []dispatch.Check {
	p := &probe{in: in}
	if !p.credentials(ctx) {
		return p.checks
	}
	p.clock()
	found := p.queries(ctx)
	if len(found) == 0 {
		p.add("candidates", dispatch.Doubtful, "no query finds an issue: rights and properties could not be tried", "check the queries")
		return p.checks
	}
	seen := map[string]bool{}
	for _, row := range found {
		if len(seen) < maxProbed && !seen[row.Project] {
			seen[row.Project] = true
			p.rights(ctx, row.Project)
		}
	}
	p.roundTrip(ctx, &found[0], in.o.LockBound)
	p.conditional(ctx, &found[0])
	return p.checks
}

// maxProbed is how many projects the doctor asks about.
const maxProbed = 20

type probe struct {
	in     *Input
	checks []dispatch.Check
}

func (p *probe) add(name string, h dispatch.Health, detail, cure string) {
	p.checks = append(p.checks, dispatch.Check{Name: p.in.o.Name + ": " + name, Health: h, Detail: detail, Cure: cure})
}

func (p *probe) fail(name string, err error, cure string) {
	var e *dispatch.Error
	if errors.As(err, &e) {
		err, cure = e.Err, cmp.Or(e.Cure, cure)
	}
	p.add(name, dispatch.Bad, err.Error(), cure)
}

func (p *probe) credentials(ctx context.Context) bool {
	c := p.in.client
	if err := c.Resolve(ctx); err != nil {
		p.fail("credentials", err, "")
		return false
	}
	me, err := c.myself(ctx)
	if err != nil || me.AccountID == "" {
		if err == nil {
			err = errors.New("/myself names no account")
		}
		p.fail("credentials", err, credentialsCure)
		return false
	}
	p.add("credentials", dispatch.Good, fmt.Sprintf("%s accepts them as %s", c.base, quoted(me.DisplayName)), "")
	kind := "Jira Cloud"
	if c.dataCenter() {
		kind = "Jira Data Center"
	}
	info, err := c.serverInfo(ctx)
	switch {
	case err != nil:
		p.add("flavour", dispatch.Doubtful, "the site does not tell its kind: "+err.Error(), "")
	case strings.EqualFold(info.Deployment, "Cloud") == c.dataCenter():
		p.add("flavour", dispatch.Bad, fmt.Sprintf("the configuration says %s, the site says %s", kind, quoted(info.Deployment)), "correct flavour, or leave it out")
	default:
		p.add("flavour", dispatch.Good, kind+" "+info.Version, "")
	}
	return true
}

func (p *probe) clock() {
	skew, known := p.in.client.http.Skew()
	switch {
	case !known:
		p.add("clock", dispatch.Doubtful, "Jira's answers have no usable Date header: staleness of locks is judged by this machine's clock", "")
	case skew.Abs() > maxSkew:
		p.add("clock", dispatch.Doubtful, fmt.Sprintf("this machine's clock differs from Jira's by %s; locks go by Jira's", skew.Round(time.Second)), "synchronise this machine's clock")
	default:
		p.add("clock", dispatch.Good, fmt.Sprintf("differs from Jira's by %s", skew.Round(time.Millisecond)), "")
	}
}

// queries asks Jira about every query and returns a page of what each finds.
func (p *probe) queries(ctx context.Context) []issueRow {
	var rows []issueRow
	jqls := p.in.o.Queries
	if len(jqls) == 0 {
		jqls = []string{""}
	}
	for i, jql := range jqls {
		name := fmt.Sprintf("query %d", i+1)
		query, _, err := searchQuery(jql, p.in.client.ServerNow().Add(-p.in.o.ScanWindow))
		if err != nil {
			p.fail(name, err, "")
			continue
		}
		n, err := p.in.client.count(ctx, query)
		if err != nil {
			p.fail(name, err, "try the query in Jira's issue search with the same account")
			continue
		}
		p.add(name, dispatch.Good, fmt.Sprintf("%s: about %d issues updated within scan_window", quoted(jql), n), "")
		rows = append(rows, p.candidates(ctx, jql)...)
	}
	return rows
}

// candidates returns a page of what a query finds; what cannot be read is left
// out.
func (p *probe) candidates(ctx context.Context, jql string) []issueRow {
	query, _, err := searchQuery(jql, time.Time{})
	if err != nil || jql == "" {
		query, _, _ = searchQuery(jql, p.in.client.ServerNow().Add(-p.in.o.ScanWindow))
	}
	page, err := p.in.client.search(ctx, query, "", searchPage, searchFields(), nil)
	if err != nil {
		return nil
	}
	rows := make([]issueRow, 0, len(page.issues))
	for _, raw := range page.issues {
		if row, err := decodeRow(raw); err == nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// rights asks for the account's permissions in a project, and for more of them
// where the authorization needs more.
func (p *probe) rights(ctx context.Context, project string) {
	c := p.in.client
	needed := []string{"BROWSE_PROJECTS", "EDIT_ISSUES"}
	auth := p.in.o.Authorization
	asks := auth.Mode != ByAllowList
	if asks {
		needed = append(needed, "ADMINISTER_PROJECTS")
	}
	var answer struct {
		Permissions map[string]struct {
			Have bool `json:"havePermission"`
		} `json:"permissions"`
	}
	err := c.get(ctx, c.path("/mypermissions"), url.Values{"projectKey": {project}, "permissions": {strings.Join(needed, ",")}}, &answer)
	if err != nil {
		p.fail("permissions in "+project, err, "")
		return
	}
	var missing []string
	for _, key := range needed {
		if !answer.Permissions[key].Have {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		cure := "grant them to the Jira account in project " + project
		if missing[len(missing)-1] == "ADMINISTER_PROJECTS" {
			cure += needsLess
		}
		p.add("permissions in "+project, dispatch.Bad, "missing: "+strings.Join(missing, ", "), cure)
	} else {
		p.add("permissions in "+project, dispatch.Good, strings.Join(needed, ", "), "")
	}
	if !asks {
		p.add("authorization in "+project, dispatch.Good, fmt.Sprintf("allow-list of %d accounts", len(auth.Allow)), "")
		return
	}
	self, err := c.Self(ctx)
	if err == nil {
		plain := Authorization{Mode: auth.Mode, RoleNames: auth.RoleNames}
		_, err = (&roles{client: c, auth: plain}).resolve(ctx, project, self)
	}
	if err != nil {
		p.fail("authorization in "+project, err, "")
		return
	}
	p.add("authorization in "+project, dispatch.Good, "roles can be looked up ("+string(cmp.Or(auth.Mode, ByProjectRoles))+")", "")
}

// putBackTime is how long putting a property back may take, also after an
// interruption.
const putBackTime = 4 * time.Second

// roundTrip measures a property of its own on one issue, as a lock would be read
// and written, and puts back what was there.
func (p *probe) roundTrip(ctx context.Context, row *issueRow, bound time.Duration) {
	c := p.in.client
	check := "properties of " + row.Key
	value, err := json.Marshal(map[string]string{"ts": c.ServerNow().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		p.fail(check, err, "")
		return
	}
	s := &scratch{client: c, name: strings.TrimSuffix(p.in.state.props.Lock, "lock") + "doctor"}
	took, err := lease.Measure(ctx, s, row.ID, 1, c.now, value)
	if s.written {
		if undone := p.putBack(ctx, row.ID, s.name, s.before); undone != nil {
			err = errors.Join(err, undone)
			if errors.Is(err, lease.ErrNotRead) {
				err = undone
			}
		}
	}
	const cure = "raise lock.guard for all pollers of the repository"
	switch fit := took.Fits(bound); {
	case errors.Is(err, lease.ErrNotRead):
		p.add(check, dispatch.Bad, err.Error()+": locks cannot work on this site", "")
	case err != nil:
		p.fail(check, err, "")
	case fit == lease.TooSlow:
		p.add(check, dispatch.Bad, fmt.Sprintf("%s, longer than guard plus jitter_min (%s): no lock could be taken", took, bound), cure)
	case fit == lease.Tight:
		p.add(check, dispatch.Doubtful, fmt.Sprintf("%s of the %s that guard plus jitter_min allow", took, bound), cure)
	default:
		p.add(check, dispatch.Good, fmt.Sprintf("%s of the %s that guard plus jitter_min allow", took, bound), "")
	}
}

// scratch is a property that is measured.
type scratch struct {
	client *Client
	name   string
	// before is what stood there at the first read.
	before map[string]json.RawMessage
	// written says that something may have been written since.
	written bool
}

// Get implements [lease.Register].
func (s *scratch) Get(ctx context.Context, item string) ([]byte, error) {
	issue, err := s.client.properties(ctx, item, s.name)
	if err != nil {
		return nil, err
	}
	if s.before == nil {
		s.before = issue.Properties
	}
	if raw, is := issue.Properties[s.name]; is {
		return raw, nil
	}
	return nil, lease.ErrAbsent
}

// Put implements [lease.Register].
func (s *scratch) Put(ctx context.Context, item string, value []byte) (bool, error) {
	created, err := s.client.putProperty(httpx.Once(ctx), item, s.name, value)
	if statusOf(err) == 0 { // else it was refused: there is nothing to put back
		s.written = true
	}
	return created, err
}

// Delete implements [lease.Register].
func (s *scratch) Delete(ctx context.Context, item string) error {
	return s.client.deleteProperty(ctx, item, s.name)
}

// putBack makes a property what it was before. A write whose answer was lost may
// have been made, so it does so after that too, and when ctx has ended.
func (p *probe) putBack(ctx context.Context, issueID, name string, before map[string]json.RawMessage) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackTime)
	defer cancel()
	var err error
	if old, was := before[name]; was {
		_, err = p.in.client.putProperty(httpx.Repeatable(ctx), issueID, name, old)
	} else {
		err = p.in.client.deleteProperty(ctx, issueID, name)
	}
	if err != nil {
		return fmt.Errorf("the property %s could not be put back: %w", name, err)
	}
	return nil
}
