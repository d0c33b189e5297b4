package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// jiraConnection reads the connection of a jira-poll driver; n may be nil.
func (r *reader) jiraConnection(n *node, at string, d *InputDriver) {
	o := r.opts.Overrides
	line := map[string]int{}
	for _, f := range r.strict(n, at, nil, "base_url", "email", "token", "flavour") {
		line[f.key] = f.value.Line
		switch f.key {
		case "flavour":
			r.choice(f, &d.Flavour, FlavourAuto, FlavourCloud, FlavourDataCenter)
		case "base_url":
			d.Connection.BaseURL = r.member(f, o.JiraBaseURL)
		case "email":
			d.Connection.Email = r.member(f, o.JiraUserEmail)
		case "token":
			d.Connection.Token = r.secret(f, o.JiraToken, "JIRA_TOKEN")
		}
	}
	if r.opts.WithoutConnections {
		return
	}
	fill := func(dst *string, override string) {
		if override != "" {
			*dst = override
		}
	}
	fill(&d.Connection.BaseURL, o.JiraBaseURL)
	fill(&d.Connection.Email, o.JiraUserEmail)
	fill(&d.Connection.Token, o.JiraToken)
	r.checkJira(line, at, d)
}

// checkJira judges a complete connection. line has the lines of the members
// that the file sets; one that is set there and still empty was reported.
func (r *reader) checkJira(line map[string]int, at string, d *InputDriver) {
	at0 := func(key string) int {
		if line[key] != 0 {
			return line[key]
		}
		return d.Line
	}
	c := &d.Connection
	if c.BaseURL == "" {
		if line["base_url"] == 0 {
			r.add(d.Line, at, "there is no base_url", "write base_url: https://NAME.atlassian.net, or set JIRA_BASE_URL")
		}
	} else {
		r.checkBaseURL(at0("base_url"), at+".base_url", c)
	}
	switch {
	case c.Token == "" && line["token"] == 0:
		r.add(d.Line, at, "there is no token", "write token: ${JIRA_TOKEN} and set that variable from a secret")
	case c.Token != "":
		r.checkToken(at0("token"), at+".token", c)
	}
	c.Email = strings.TrimSpace(c.Email)
	if c.Email != "" && strings.ContainsFunc(c.Email, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }) {
		r.add(at0("email"), at+".email", "the email has a blank, a colon or a control character in it", "")
	}
	cloud := d.Flavour == FlavourCloud || d.Flavour == FlavourAuto && isCloud(c.BaseURL)
	if c.Email == "" && line["email"] == 0 && c.Token != "" && cloud {
		r.add(d.Line, at, "Jira Cloud does not take a token without the email of its account; only Data Center has such tokens",
			"write email: ${JIRA_USER_EMAIL} and set that variable")
	}
}

// isCloud reports whether a base URL is a Jira Cloud site by its host's name.
func isCloud(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	return strings.HasSuffix(u.Hostname(), ".atlassian.net") || strings.HasSuffix(u.Hostname(), ".jira.com") || u.Hostname() == "api.atlassian.com"
}

// gitlabConnection reads connection and project of a GitLab driver; what the
// file leaves out comes from the variables of GitLab CI.
func (r *reader) gitlabConnection(conn, project *node, at string, d *InputDriver) {
	c := &d.Connection
	line := map[string]int{}
	for _, f := range r.strict(conn, at+".connection", map[string]string{"email": JiraPoll}, "base_url", "token") {
		line[f.key] = f.value.Line
		switch f.key {
		case "base_url":
			c.BaseURL = r.member(f, "")
		case "token":
			c.Token = r.secret(f, "", "FULLSEND_FORGE_TOKEN")
		}
	}
	if project != nil {
		line["project"] = project.Line
		d.Project = r.member(field{key: "project", line: project.Line, path: at + ".project", value: project}, "")
	}
	if r.opts.WithoutConnections {
		return
	}
	env := func(key, name string, dst *string) {
		if *dst == "" && line[key] == 0 {
			*dst, _ = r.lookup(name)
		}
	}
	env("base_url", "CI_SERVER_URL", &c.BaseURL)
	env("token", "FULLSEND_FORGE_TOKEN", &c.Token)
	env("project", "CI_PROJECT_PATH", &d.Project)
	if c.BaseURL == "" && line["base_url"] == 0 {
		c.BaseURL = DefaultGitLabURL
	}
	r.checkGitLab(line, at, d)
}

func (r *reader) checkGitLab(line map[string]int, at string, d *InputDriver) {
	at0 := func(key string) int {
		if line[key] != 0 {
			return line[key]
		}
		return d.Line
	}
	c := &d.Connection
	if c.BaseURL != "" {
		r.checkBaseURL(at0("base_url"), at+".connection.base_url", c)
	}
	switch {
	case c.Token == "" && line["token"] == 0:
		r.add(d.Line, at+".connection", "there is no token", "write token: ${FULLSEND_FORGE_TOKEN} and set that variable from a secret")
	case c.Token != "":
		r.checkToken(at0("token"), at+".connection.token", c)
	}
	switch {
	case d.Project == "" && line["project"] == 0:
		r.add(d.Line, at, "there is no project", "write project: GROUP/PROJECT, or run where CI_PROJECT_PATH is set")
	case d.Project != "" && !isProject(d.Project):
		r.add(at0("project"), at+".project", "this is not the path of a project", "write project: GROUP/PROJECT")
	}
}

func isProject(p string) bool {
	segs := strings.Split(p, "/")
	for _, s := range segs {
		if !regexp.MustCompile(`^[\pL\pN_][\pL\pN_. -]*$`).MatchString(s) {
			return false
		}
	}
	return len(segs) > 1 && len(p) <= 1024
}

// member reads a text with references in it. An override makes the file's own
// value irrelevant.
func (r *reader) member(f field, override string) string {
	v, ok := r.text(f.value, f.path)
	if !ok || override != "" || r.opts.WithoutConnections {
		return ""
	}
	return r.expand(v, f)
}

// secret reads a member that must be one reference and nothing else; its text
// is never repeated.
func (r *reader) secret(f field, override, example string) string {
	cure := "write ${" + example + "} and set that variable from a secret"
	v, ok := r.text(f.value, f.path)
	if !ok {
		return ""
	}
	if m := reference().FindStringIndex(v); m == nil || m[0] != 0 || m[1] != len(v) {
		what := "a secret is written into the file as itself"
		if m != nil {
			what = "a secret must be exactly one reference, without text around it"
		}
		r.add(f.value.Line, f.path, what, cure)
		return ""
	}
	if override != "" || r.opts.WithoutConnections {
		return ""
	}
	return r.expand(v, f)
}

func reference() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]{0,254})\}`) }

// expand replaces references once: what a value contains is not looked at
// again. It returns "" when anything is wrong.
func (r *reader) expand(v string, f field) string {
	ok := true
	out := reference().ReplaceAllStringFunc(v, func(ref string) string {
		name := ref[2 : len(ref)-1]
		value, found := r.lookup(name)
		value = strings.TrimSpace(value)
		if !found || value == "" {
			state := "is not defined"
			if found {
				state = "is empty"
			}
			r.add(f.value.Line, f.path, fmt.Sprintf("the variable of ${%s} %s", name, state), "set "+name+" in the environment")
			ok = false
		}
		return value
	})
	if strings.Contains(reference().ReplaceAllLiteralString(v, ""), "${") {
		r.add(f.value.Line, f.path, "a reference is not of the form ${NAME}", "use letters, digits and _ for the name, and close the brace")
		ok = false
	}
	if !ok {
		return ""
	}
	return out
}

func (r *reader) checkToken(line int, at string, c *Connection) {
	c.Token = strings.TrimSpace(c.Token)
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		r.add(line, at, "the token has a blank, a control character or a character outside ASCII in it", "set it again, without quotes and line breaks")
	}
}

func (r *reader) checkBaseURL(line int, at string, c *Connection) {
	u, err := BaseURL(c.BaseURL)
	if err != nil {
		r.add(line, at, err.Error(), "write https://HOST, with the context path if there is one")
		return
	}
	c.BaseURL = u
}

// BaseURL checks the address of a server and brings it into its one form:
// scheme and host in lower case, no trailing slash. It must be https, except on
// a loopback address, and has no user, query or fragment. The error does not
// repeat the address, which may have a password in it.
func BaseURL(raw string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "" || len(raw) > 2048:
		return "", errors.New("this is not the address of a server")
	case u.User != nil:
		return "", errors.New("the address has a user or password in it")
	case strings.ContainsAny(raw, "?#"):
		return "", errors.New("the address has a query or fragment")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("the address must begin with https://")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return "", errors.New("the address must be https; plain http is for loopback addresses only")
	case strings.Contains(u.Path, "\\") || strings.Contains(u.Path, "//") || slices.Contains(strings.Split(u.Path, "/"), "..") || slices.Contains(strings.Split(u.Path, "/"), "."):
		return "", errors.New("the address has a path that cannot be used")
	}
	return u.Scheme + "://" + strings.ToLower(u.Host) + strings.TrimRight(u.EscapedPath(), "/"), nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
