package sim

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// JiraConfig is what a simulated Jira site is born with.
type JiraConfig struct {
	// BaseURL is the site's address, for example https://acme.atlassian.net;
	// a path in it is the site's context path.
	BaseURL string
	// Now is the server's clock; it also feeds the Date header.
	Now func() time.Time
	// Email and Token are the only accepted Basic credentials; Self is the
	// account that they belong to. On Data Center Token is the only accepted
	// personal access token (Bearer), and Email is only shown.
	Email, Token string
	Self         User
	// DataCenter makes it a Data Center site: REST v2, users by name, bodies
	// in wiki markup. An account id like "5f00:alice", wherever it is given,
	// is there the name after the colon; [Jira.AccountName] tells.
	DataCenter bool
	// Password lets Self log in with name and password (Basic) on Data
	// Center; none means that the site does not allow that.
	Password string
	// Zone is the zone that timestamps in bodies are rendered in, UTC if nil.
	Zone *time.Location
	// UserZone is the zone of Self's profile, in which JQL reads dates
	// written as text; Zone if nil.
	UserZone *time.Location
}

// User is a Jira account.
type User struct {
	// AccountID is the name on Data Center, see [JiraConfig.DataCenter].
	AccountID, DisplayName string
	// Type is "atlassian", "app" or "customer"; empty means "atlassian".
	Type string
	// Groups are names of groups.
	Groups []string
}

// AuthMode says how Jira treats credentials.
type AuthMode int

const (
	// AuthNormal answers 401 to wrong credentials.
	AuthNormal AuthMode = iota
	// AuthAnonymous200 takes every caller for an anonymous one, as Jira does
	// with an expired token: searches succeed and find nothing, and only the
	// header X-Seraph-LoginReason tells.
	AuthAnonymous200
)

// EpochUnit says whether and how changelog/bulkfetch writes times as numbers.
type EpochUnit int

// The schema of changelog/bulkfetch has a date-time text, its example a number.
const (
	EpochNone EpochUnit = iota
	EpochSeconds
	EpochMillis
)

// JiraSwitches are behaviours that differ between sites, rights and days.
type JiraSwitches struct {
	// BumpUpdatedOnPropertyWrite moves an issue's updated time on property
	// writes, which Jira most probably does not.
	BumpUpdatedOnPropertyWrite bool
	// IndexLag is the age of what a search sees: fields, properties and
	// existence of every issue are as they were so long ago.
	IndexLag time.Duration
	// MaxPage bounds the issues of one search page; 0 means no further bound.
	MaxPage int
	// OmitEmptyChangelogs leaves issues without history out of bulk answers.
	OmitEmptyChangelogs bool
	// Epoch makes changelog/bulkfetch write "created" as a number.
	Epoch EpochUnit
	// NullLastToken ends a search with "nextPageToken": null instead of none.
	NullLastToken bool
	// AuthMode is the treatment of credentials.
	AuthMode AuthMode
	// NoAccountHeader leaves X-AAccountId out.
	NoAccountHeader bool
	// RolesForbidden takes Administer Projects from the account: 401 on roles
	// and on the permission search (403 there on Data Center), with a good
	// token.
	RolesForbidden bool
	// PermissionSearchStatus replaces the status that the permission search
	// answers without the right to it; 0 means the usual one.
	PermissionSearchStatus int
	// GroupsForbidden takes Browse users and groups: 403 on /user/groups, and
	// on /user with its groups on Data Center.
	GroupsForbidden bool
	// BulkLeavesOut names issues, by their present key, that a bulk answer
	// ("/issue/bulkfetch", "/changelog/bulkfetch") leaves out without a word.
	// It must not call the site.
	BulkLeavesOut func(path, key string) bool
	// BulkDelay is the time from the submission of the n-th bulk property
	// operation, from 1, to its effect: later ones may overtake it. Nil means
	// 300 ms for all. It must not call the site.
	BulkDelay func(n int) time.Duration
	// BulkNotAtomic makes bulk property operations test their filter when they
	// are submitted, so that of two racing ones both have their effect.
	BulkNotAtomic bool
	// BulkIgnoresCriteria makes them look at no criterion but the issues' ids.
	BulkIgnoresCriteria bool
	// BulkFails makes them fail, without any effect.
	BulkFails bool
	// SearchWithoutProperties makes Data Center's search ignore properties.
	SearchWithoutProperties bool
	// HistoriesNewestFirst turns the order of Data Center's expanded
	// changelogs around, on which nobody may rely.
	HistoriesNewestFirst bool
	// DeploymentType is what serverInfo says; empty means "Cloud", and on Data
	// Center "Server", as it says at most sites ("DataCenter" at others).
	DeploymentType string
	// RateLimits are the limits on requests.
	RateLimits RateLimits
}

// Jira is a simulated Jira site, Cloud or Data Center. It is an http.Handler, safe for
// concurrent use, and every request sees and leaves a consistent state.
type Jira struct {
	base   string
	prefix string
	now    func() time.Time
	// root is the path of the API below prefix.
	root  string
	dc    bool
	email string
	token string
	// password is "" where Basic credentials are refused on Data Center.
	password string
	self     string
	zone     *time.Location
	user     *time.Location
	mux      *http.ServeMux
	// patterns are the routes of mux.
	patterns []string

	mu       sync.Mutex
	switches JiraSwitches
	users    map[string]User
	userKeys map[string]string
	projects map[string]*project
	issues   map[int64]*issue
	byKey    map[string]*issue
	lastID   int64
	writes   int
	unknown  []string
	// planted is set while an answer is made that shows planted data.
	planted bool
	limiter limiter
	// tasks are the bulk property operations in the order of their submission,
	// unbounded the property keys of those that named no issue.
	tasks     []*task
	unbounded []string
}

type project struct {
	id, key string
	next    int
	roles   []*role
}

type role struct {
	id     int64
	name   string
	users  []string
	groups []string
}

// NewJira returns a site that knows only its own account.
func NewJira(c JiraConfig) *Jira {
	j := &Jira{
		now: c.Now, email: c.Email, token: c.Token, password: c.Password,
		root: "/rest/api/3", dc: c.DataCenter, zone: c.Zone, user: c.UserZone,
		users: map[string]User{}, userKeys: map[string]string{}, projects: map[string]*project{},
		issues: map[int64]*issue{}, byKey: map[string]*issue{}, lastID: 10000,
	}
	if j.zone == nil {
		j.zone = time.UTC
	}
	if j.user == nil {
		j.user = j.zone
	}
	if j.dc {
		j.root = "/rest/api/2"
	}
	j.self = j.AccountName(c.Self.AccountID)
	j.SetBaseURL(c.BaseURL)
	j.AddUser(c.Self)
	j.mux = j.routes()
	return j
}

// SetBaseURL moves the site, for example to a listener's address. It must not
// be called while requests are under way.
func (j *Jira) SetBaseURL(base string) {
	j.base = strings.TrimSuffix(base, "/")
	j.prefix = ""
	if u, err := url.Parse(j.base); err == nil {
		j.prefix = u.Path
	}
}

// BaseURL is the site's address, with its context path.
func (j *Jira) BaseURL() string { return j.base }

// AccountName is the identity that an account has on this site: its id on
// Cloud, the part after the last colon on Data Center.
func (j *Jira) AccountName(accountID string) string {
	if !j.dc {
		return accountID
	}
	return accountID[strings.LastIndex(accountID, ":")+1:]
}

func (j *Jira) accountNames(accountIDs []string) []string {
	names := make([]string, len(accountIDs))
	for i, id := range accountIDs {
		names[i] = j.AccountName(id)
	}
	return names
}

// Set changes switches.
func (j *Jira) Set(change func(*JiraSwitches)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.switches)
}

// Unknown returns the requests, "METHOD path", that met no route.
func (j *Jira) Unknown() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.unknown)
}

// AddUser adds or replaces an account.
func (j *Jira) AddUser(u User) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if u.Type == "" {
		u.Type = "atlassian"
	}
	u.Groups = slices.Clone(u.Groups)
	u.AccountID = j.AccountName(u.AccountID)
	j.users[u.AccountID] = u
	if j.userKeys[u.AccountID] == "" {
		j.userKeys[u.AccountID] = "JIRAUSER" + strconv.Itoa(firstUserKey+len(j.userKeys))
	}
}

// AddProject adds a project with the roles Administrators, Developers, Viewers
// and the one that add-ons get.
func (j *Jira) AddProject(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := &project{key: key, id: strconv.Itoa(10000 + len(j.projects))}
	for i, name := range []string{"Administrators", "Developers", "Viewers", addonRole} {
		p.roles = append(p.roles, &role{id: int64(10002 + i), name: name})
	}
	j.projects[key] = p
}

// firstUserKey is the number of the first account of a Data Center site.
const firstUserKey = 10100

const addonRole = "atlassian-addons-project-access"

// Grant puts accounts into a role of a project; both must exist.
func (j *Jira) Grant(project, role string, accountIDs ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.role(project, role); r != nil {
		r.users = append(r.users, j.accountNames(accountIDs)...)
	}
}

// GrantGroup puts a group into a role of a project; both must exist.
func (j *Jira) GrantGroup(project, role, group string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.role(project, role); r != nil {
		r.groups = append(r.groups, group)
	}
}

// Revoke takes accounts and groups out of a role of a project.
func (j *Jira) Revoke(project, role string, names ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.role(project, role); r != nil {
		accounts := j.accountNames(names)
		r.users = slices.DeleteFunc(r.users, func(name string) bool { return slices.Contains(accounts, name) })
		r.groups = slices.DeleteFunc(r.groups, func(name string) bool { return slices.Contains(names, name) })
	}
}

func (j *Jira) role(projectKey, name string) *role {
	p := j.projects[projectKey]
	if p == nil {
		return nil
	}
	for _, r := range p.roles {
		if r.name == name {
			return r
		}
	}
	return nil
}

// may reports whether an account holds a permission in a project, by the
// permission scheme of this site: viewers browse, developers also edit and
// comment, administrators do everything. The product's own account is an
// administrator unless RolesForbidden is set.
func (j *Jira) may(account, permission string, p *project) bool {
	level := 0
	for _, r := range p.roles {
		if !j.member(r, account) {
			continue
		}
		switch r.name {
		case "Administrators":
			level = max(level, 3)
		case "Developers", addonRole:
			level = max(level, 2)
		case "Viewers":
			level = max(level, 1)
		}
	}
	if account == j.self {
		level = 3
		if j.switches.RolesForbidden {
			level = 2
		}
	}
	switch permission {
	case "BROWSE_PROJECTS":
		return level >= 1
	case "EDIT_ISSUES", "ADD_COMMENTS", "CREATE_ISSUES", "TRANSITION_ISSUES":
		return level >= 2
	case "ADMINISTER_PROJECTS", "DELETE_ISSUES":
		return level >= 3
	}
	return false
}

func (j *Jira) member(r *role, account string) bool {
	return slices.Contains(r.users, account) || slices.ContainsFunc(r.groups, func(g string) bool {
		return slices.Contains(j.users[account].Groups, g)
	})
}

// nextID returns the next of the site's growing ids.
func (j *Jira) nextID() int64 {
	j.lastID++
	return j.lastID
}

// clock is the server's time in the grain that Jira stores.
func (j *Jira) clock() time.Time { return j.now().Truncate(time.Millisecond) }

// jiraTime is the layout of timestamps in bodies: no colon in the offset.
const jiraTime = "2006-01-02T15:04:05.000-0700"

func (j *Jira) stamp(t time.Time) string { return t.In(j.zone).Format(jiraTime) }

// issue is one work item with everything that hangs on it.
type issue struct {
	id      int64
	key     string
	project *project
	// cur is the state now; versions are the states in the order they were
	// entered, the last one being cur, for the lagging index.
	cur      state
	versions []version
	comments []*comment
	history  []*change
	readOnly bool
	deleted  bool
	mutate   func(map[string]any)
}

type version struct {
	at   time.Time
	gone bool
	state
}

// state is what an index copies. A stored state is never changed in place.
type state struct {
	summary           string
	description       any
	created, updated  time.Time
	reporter, creator string
	labels            []string
	status            string
	extra             map[string]string
	props             map[string]json.RawMessage
}

type comment struct {
	id               int64
	author, editor   string
	created, updated time.Time
	body, visibility any
	public           *bool
}

// change is one changelog entry: at is where it stands, raw what it shows.
type change struct {
	id  int64
	at  time.Time
	raw map[string]any
	// planted entries came from AddHistory.
	planted bool
}

// keepHistory is how long superseded states are kept at least.
const keepHistory = time.Hour

// commit makes st the issue's state.
func (j *Jira) commit(is *issue, st state) { j.commitAt(is, st, j.now()) }

// commitAt is commit for a state that was entered a while ago.
func (j *Jira) commitAt(is *issue, st state, now time.Time) {
	is.cur = st
	is.versions = append(is.versions, version{at: now, state: st, gone: is.deleted})
	horizon := now.Add(-max(keepHistory, j.switches.IndexLag))
	for len(is.versions) > 1 && is.versions[1].at.Before(horizon) {
		is.versions = is.versions[1:]
	}
}

// indexed returns the state that a search sees, and false if it sees none.
func (j *Jira) indexed(is *issue, lag time.Duration) (state, bool) {
	if lag <= 0 {
		return is.cur, !is.deleted
	}
	horizon := j.now().Add(-lag)
	for _, v := range slices.Backward(is.versions) {
		if !v.at.After(horizon) {
			return v.state, !v.gone
		}
	}
	return state{}, false
}

// find resolves a numeric id or a key, whose case does not matter.
func (j *Jira) find(idOrKey string) *issue {
	if is := j.byKey[strings.ToUpper(idOrKey)]; is != nil {
		return is
	}
	id, err := strconv.ParseInt(idOrKey, 10, 64)
	if err != nil {
		return nil
	}
	return j.issues[id]
}

func withProp(st state, key string, raw []byte) state {
	st.props = maps.Clone(st.props)
	if st.props == nil {
		st.props = map[string]json.RawMessage{}
	}
	if raw == nil {
		delete(st.props, key)
	} else {
		st.props[key] = slices.Clone(raw)
	}
	return st
}
