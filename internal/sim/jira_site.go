package sim

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func (j *Jira) myself(r *http.Request) answer {
	u := j.showUser(j.self)
	if j.dc {
		u["groups"] = j.dcGroups(j.self, slices.Contains(list(r.URL.Query()["expand"]), "groups"))
		u["expand"] = "groups,applicationRoles"
	}
	u["timeZone"], u["locale"], u["emailAddress"] = j.user.String(), "en_US", j.email
	return ok(u)
}

// showUser shows an account the way user resources do.
func (j *Jira) showUser(account string) map[string]any {
	if j.dc {
		return j.dcUserDetails(account)
	}
	u := j.users[account]
	return map[string]any{
		"self":      j.api() + "/user?accountId=" + account,
		"accountId": account, "accountType": u.Type, "displayName": u.DisplayName, "active": true,
	}
}

func (j *Jira) serverInfo(*http.Request) answer {
	info := map[string]any{
		"baseUrl": j.base, "displayUrl": j.base, "version": "1001.0.0-SNAPSHOT", "versionNumbers": []int{1001, 0, 0},
		"deploymentType": "Cloud", "buildNumber": 100290, "buildDate": "2026-08-01T00:00:00.000+0000",
		"serverTime": j.stamp(j.clock()), "serverTimeZone": j.zone.String(), "scmInfo": "0", "serverTitle": "Jira",
	}
	if j.dc {
		info["version"], info["versionNumbers"], info["buildNumber"] = "9.12.7", []int{9, 12, 7}, 9120007
		info["deploymentType"] = "Server"
		delete(info, "displayUrl")
		delete(info, "serverTimeZone")
	}
	if j.switches.DeploymentType != "" {
		info["deploymentType"] = j.switches.DeploymentType
	}
	return ok(info)
}

// projectFor resolves a project by key or id.
func (j *Jira) projectFor(keyOrID string) *project {
	if keyOrID == "" {
		return nil
	}
	return j.projectOf(keyOrID)
}

func (j *Jira) myPermissions(r *http.Request) answer {
	v := r.URL.Query()
	names := list(v["permissions"])
	if j.dc {
		names = permissionKeys() // the parameter does not exist there
	}
	if len(names) == 0 {
		return refuse(http.StatusBadRequest, "The permissions query parameter is required.")
	}
	scope, named := j.permissionScope(v.Get("projectKey"), v.Get("projectId"), v.Get("issueKey"), v.Get("issueId"))
	if named && scope == nil {
		return refuse(http.StatusNotFound, "No project or issue could be found with that key or id.")
	}
	out := map[string]any{}
	for _, name := range names {
		id := slices.Index(permissionKeys(), name)
		if id < 0 {
			return refuse(http.StatusBadRequest, "Unrecognized permission: "+name)
		}
		have, kind := false, "PROJECT"
		switch {
		case name == "USER_PICKER":
			have, kind = !j.switches.GroupsForbidden, "GLOBAL"
		case name == "ADMINISTER":
			kind = "GLOBAL"
		case scope != nil:
			have = j.may(j.self, name, scope)
		default:
			for _, p := range j.projects {
				have = have || j.may(j.self, name, p)
			}
		}
		out[name] = map[string]any{
			"id": strconv.Itoa(id + 1), "key": name, "name": strings.ReplaceAll(strings.ToLower(name), "_", " "),
			"type": kind, "description": "", "havePermission": have && !anonymous(r),
		}
	}
	return ok(map[string]any{"permissions": out})
}

// permissionKeys are the permissions that the site knows.
func permissionKeys() []string {
	return []string{
		"BROWSE_PROJECTS", "EDIT_ISSUES", "ADD_COMMENTS", "CREATE_ISSUES", "TRANSITION_ISSUES",
		"DELETE_ISSUES", "ADMINISTER_PROJECTS", "ADMINISTER", "USER_PICKER",
	}
}

func unknownPermission(name string) bool { return !slices.Contains(permissionKeys(), name) }

// permissionScope is the project that the first given name leads to.
func (j *Jira) permissionScope(projectKey, projectID, issueKey, issueID string) (p *project, named bool) {
	for _, name := range []string{issueKey, issueID} {
		if name == "" {
			continue
		}
		if is := j.visible(name); is != nil {
			return is.project, true
		}
		return nil, true
	}
	for _, name := range []string{projectKey, projectID} {
		if name != "" {
			return j.projectFor(name), true
		}
	}
	return nil, false
}

func (j *Jira) getStatuses(r *http.Request) answer {
	out := []any{}
	if !anonymous(r) {
		for _, s := range Statuses() {
			out = append(out, j.showStatus(s))
		}
	}
	return ok(out)
}

func (j *Jira) getStatus(r *http.Request) answer {
	name := r.PathValue("status")
	for _, s := range Statuses() {
		if !anonymous(r) && (s.ID == name || strings.EqualFold(s.Name, name)) {
			return ok(j.showStatus(s))
		}
	}
	return refuse(http.StatusNotFound, "The status was not found or is not associated with an active workflow.")
}

// notAdmin is Jira's answer to a good token without Administer Projects.
func notAdmin() answer {
	return refuse(http.StatusUnauthorized, "You cannot edit the configuration of this project.")
}

func (j *Jira) getRoles(r *http.Request) answer {
	p := j.projectFor(r.PathValue("project"))
	switch {
	case j.switches.RolesForbidden:
		return notAdmin()
	case p == nil:
		return noProject(r.PathValue("project"))
	}
	out := map[string]string{}
	for _, role := range p.roles {
		out[role.name] = j.roleURL(p, role)
	}
	return ok(out)
}

func noProject(name string) answer {
	return refuse(http.StatusNotFound, "No project could be found with key '"+name+"'.")
}

func (j *Jira) roleURL(p *project, r *role) string {
	return j.api() + "/project/" + p.id + "/role/" + strconv.FormatInt(r.id, 10)
}

func (j *Jira) getRole(r *http.Request) answer {
	p := j.projectFor(r.PathValue("project"))
	switch {
	case j.switches.RolesForbidden:
		return notAdmin()
	case p == nil:
		return noProject(r.PathValue("project"))
	}
	for _, role := range p.roles {
		if strconv.FormatInt(role.id, 10) == r.PathValue("role") {
			return ok(j.showRole(p, role))
		}
	}
	return refuse(http.StatusNotFound, "Can not retrieve a role actor for a null project role.")
}

func (j *Jira) showRole(p *project, r *role) map[string]any {
	actors := []map[string]any{}
	for _, g := range r.groups {
		actor := map[string]any{
			"id": 20000 + len(actors), "displayName": g, "name": g, "type": "atlassian-group-role-actor",
		}
		if !j.dc {
			actor["actorGroup"] = map[string]any{"name": g, "displayName": g, "groupId": GroupID(g)}
		}
		actors = append(actors, actor)
	}
	for _, a := range r.users {
		actor := map[string]any{
			"id": 20000 + len(actors), "displayName": j.users[a].DisplayName, "type": "atlassian-user-role-actor",
		}
		if j.dc {
			actor["name"] = a
		} else {
			actor["actorUser"] = map[string]any{"accountId": a}
		}
		actors = append(actors, actor)
	}
	slices.SortStableFunc(actors, func(a, b map[string]any) int {
		x, _ := a["displayName"].(string)
		y, _ := b["displayName"].(string)
		return strings.Compare(x, y)
	})
	return map[string]any{
		"self": j.roleURL(p, r), "id": r.id, "name": r.name, "description": "",
		"admin": r.name == "Administrators", "default": false, "actors": actors,
	}
}

// GroupID is the id of the group with a name.
func GroupID(name string) string { return "group-" + name }

func (j *Jira) userGroups(r *http.Request) answer {
	account := r.URL.Query().Get("accountId")
	u, found := j.users[account]
	switch {
	case j.switches.GroupsForbidden:
		return refuse(http.StatusForbidden, "You do not have permission to browse users and groups.")
	case account == "":
		return refuse(http.StatusBadRequest, "The accountId query parameter is required.")
	case !found:
		return refuse(http.StatusNotFound, "Specified user does not exist or you do not have required permissions")
	}
	out := []any{}
	for _, g := range u.Groups {
		out = append(out, map[string]any{
			"name": g, "groupId": GroupID(g), "self": j.api() + "/group?groupId=" + GroupID(g),
		})
	}
	return ok(out)
}

func (j *Jira) permissionSearch(r *http.Request) answer {
	v := r.URL.Query()
	account, permissions := v.Get("accountId"), list(v["permissions"])
	scope, named := j.permissionScope(v.Get("projectKey"), "", v.Get("issueKey"), "")
	switch {
	case (account == "") == (v.Get("query") == ""):
		return refuse(http.StatusBadRequest, "Exactly one of query and accountId is required.")
	case len(permissions) == 0 || !named:
		return refuse(http.StatusBadRequest, "permissions and one of issueKey and projectKey are required.")
	case slices.ContainsFunc(permissions, unknownPermission):
		return refuse(http.StatusBadRequest, "Unrecognized permission.")
	case scope == nil:
		return refuse(http.StatusNotFound, "The issue or project was not found.")
	case j.switches.RolesForbidden:
		return j.noPermissionSearch()
	}
	return j.permitted(v, permissions, scope, func(id string, u User) bool {
		if account != "" {
			return id == account
		}
		return strings.Contains(strings.ToLower(u.DisplayName), strings.ToLower(v.Get("query")))
	})
}

// noPermissionSearch is the answer to a good token without Administer Projects.
func (j *Jira) noPermissionSearch() answer {
	a := notAdmin()
	if j.dc {
		a.status = http.StatusForbidden
	}
	if j.switches.PermissionSearchStatus != 0 {
		a.status = j.switches.PermissionSearchStatus
	}
	return a
}

// permitted is a page of the chosen users who hold all permissions in a
// project, by account.
func (j *Jira) permitted(v url.Values, permissions []string, p *project, chosen func(string, User) bool) answer {
	if v.Get("maxResults") == "" {
		v.Set("maxResults", strconv.Itoa(defaultPage))
	}
	start, size, problem := window(v)
	if problem != "" {
		return refuse(http.StatusBadRequest, problem)
	}
	out := []any{}
	for _, id := range slices.Sorted(maps.Keys(j.users)) {
		lacks := func(permission string) bool { return !j.may(id, permission, p) }
		if chosen(id, j.users[id]) && !slices.ContainsFunc(permissions, lacks) {
			out = append(out, j.showUser(id))
		}
	}
	first := min(start, len(out))
	return ok(out[first:min(first+size, len(out))])
}
