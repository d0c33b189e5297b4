package sim

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// dcPage is the most issues that a Data Center site gives on one page of a
// search unless its administrator says otherwise.
const dcPage = 1000

// dcComments is how "all of them" looks as a page's size.
const dcComments = 1048576

// dcRoutes are the routes that Data Center has in its own form.
func (j *Jira) dcRoutes(handle func(string, access, func(*http.Request) answer)) {
	handle("GET /search", open, j.dcSearchGet)
	handle("POST /search", open, j.dcSearchPost)
	handle("GET /user", loggedIn, j.dcUser)
	handle("GET /user/permission/search", loggedIn, j.dcPermissionSearch)
}

// dcSearchRequest is a search in both of its forms.
type dcSearchRequest struct {
	JQL        string   `json:"jql"`
	StartAt    int      `json:"startAt"`
	MaxResults *int     `json:"maxResults"`
	Fields     []string `json:"fields"`
	Expand     []string `json:"expand"`
	Properties []string `json:"properties"`
}

func (j *Jira) dcSearchGet(r *http.Request) answer {
	v := r.URL.Query()
	req := dcSearchRequest{
		JQL: v.Get("jql"), Fields: list(v["fields"]), Expand: list(v["expand"]), Properties: list(v["properties"]),
	}
	for name, into := range map[string]func(int){
		"startAt":    func(n int) { req.StartAt = n },
		"maxResults": func(n int) { req.MaxResults = &n },
	} {
		if s := v.Get(name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil {
				return refuse(http.StatusBadRequest, name+" is no number")
			}
			into(n)
		}
	}
	return j.dcSearch(r, req)
}

func (j *Jira) dcSearchPost(r *http.Request) answer {
	var req dcSearchRequest
	if !decode(r, &req) {
		return refuse(http.StatusBadRequest, badPayload)
	}
	return j.dcSearch(r, req)
}

func (j *Jira) dcSearch(r *http.Request, req dcSearchRequest) answer {
	q, err := parseJQL(req.JQL)
	if err == nil {
		err = j.checkJQL(q)
	}
	size := defaultPage
	if req.MaxResults != nil {
		size = *req.MaxResults
	}
	switch {
	case err != nil:
		return refuse(http.StatusBadRequest, err.Error())
	case len(req.Properties) > maxProperties:
		return refuse(http.StatusBadRequest, "At most 5 properties can be requested.")
	case req.StartAt < 0 || size < 0:
		return refuse(http.StatusBadRequest, "startAt and maxResults must not be negative.")
	}
	size = min(size, dcPage)
	if j.switches.MaxPage > 0 {
		size = min(size, j.switches.MaxPage)
	}
	sh := shape{fields: req.Fields, properties: req.Properties, changelog: slices.Contains(req.Expand, "changelog")}
	if len(sh.fields) == 0 {
		sh.fields = []string{"*navigable"}
	}
	if j.switches.SearchWithoutProperties {
		sh.properties = nil
	}
	var rows []row
	if !anonymous(r) {
		rows = j.rows(q, nil)
	}
	first := min(req.StartAt, len(rows))
	issues := []any{}
	for _, w := range rows[first:min(first+size, len(rows))] {
		issues = append(issues, j.showIssue(w.is, w.st, sh))
	}
	return ok(map[string]any{
		"expand": "schema,names", "startAt": req.StartAt, "maxResults": size, "total": len(rows), "issues": issues,
	})
}

// dcUserDetails shows an account; an unknown one is shown as deleted.
func (j *Jira) dcUserDetails(name string) map[string]any {
	u, known := j.users[name]
	if !known {
		u.DisplayName = name
	}
	key := j.userKeys[name]
	if key == "" {
		key = name
	}
	return map[string]any{
		"self": j.api() + "/user?username=" + name, "name": name, "key": key,
		"emailAddress": j.emailOf(name), "displayName": u.DisplayName, "active": known, "timeZone": j.user.String(),
	}
}

// emailOf is the address in an account's profile.
func (j *Jira) emailOf(name string) string {
	if name == j.self && j.email != "" {
		return j.email
	}
	return name + "@users.example"
}

// dcGroups is a user's groups as an expanded member.
func (j *Jira) dcGroups(name string, expanded bool) map[string]any {
	items := []any{}
	for _, g := range j.users[name].Groups {
		items = append(items, map[string]any{"name": g, "self": j.api() + "/group?groupname=" + g})
	}
	size := len(items)
	if !expanded {
		items = []any{}
	}
	return map[string]any{"size": size, "items": items}
}

func (j *Jira) dcUser(r *http.Request) answer {
	v := r.URL.Query()
	name := v.Get("username")
	for n, key := range j.userKeys {
		if v.Get("key") != "" && key == v.Get("key") {
			name = n
		}
	}
	expanded := slices.Contains(list(v["expand"]), "groups")
	_, known := j.users[name]
	switch {
	case (v.Get("username") == "") == (v.Get("key") == ""):
		return refuse(http.StatusBadRequest, "Either the 'username' or the 'key' query parameters need to be provided")
	case j.switches.GroupsForbidden:
		return refuse(http.StatusForbidden, "You do not have permission to browse users.")
	case !known:
		return refuse(http.StatusNotFound, "The user named '"+name+"' does not exist")
	}
	u := j.dcUserDetails(name)
	u["expand"], u["locale"], u["groups"] = "groups,applicationRoles", "en_US", j.dcGroups(name, expanded)
	return ok(u)
}

// dcPermissionSearch finds the users with all permissions whose name begins
// with username: a filter, not an identity.
func (j *Jira) dcPermissionSearch(r *http.Request) answer {
	v := r.URL.Query()
	permissions := list(v["permissions"])
	scope, named := j.permissionScope(v.Get("projectKey"), "", v.Get("issueKey"), "")
	switch {
	case len(permissions) == 0 || !named:
		return refuse(http.StatusBadRequest, "permissions and one of issueKey and projectKey are required.")
	case slices.ContainsFunc(permissions, unknownPermission):
		return refuse(http.StatusBadRequest, "Unrecognized permission.")
	case scope == nil:
		return refuse(http.StatusNotFound, "The issue or project was not found.")
	case j.switches.RolesForbidden:
		return j.noPermissionSearch()
	}
	filter := strings.ToLower(v.Get("username"))
	return j.permitted(v, permissions, scope, func(name string, u User) bool {
		return strings.HasPrefix(strings.ToLower(name), filter) || strings.HasPrefix(strings.ToLower(u.DisplayName), filter)
	})
}
