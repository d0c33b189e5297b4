package config

// DetectDrivers fills in the input drivers of a configuration that has none,
// from the environment (contract, section 3): JIRA_BASE_URL makes a jira-poll
// driver, TRIGGER_PAYLOAD a gitlab-webhook driver, and CI_PROJECT_PATH a
// gitlab-poll driver, the last not beside a webhook's: GitLab sets
// CI_PROJECT_PATH in every job, and a job that was started for one payload is
// not there to poll. A detected jira-poll driver has no queries; the caller
// knows which it means. Overrides are applied and everything is checked as in
// [Parse]. A configuration with drivers is left as it is.
func (c *Config) DetectDrivers(lookup Lookup, opts Options) Problems {
	if len(c.Poll.InputDrivers) > 0 {
		return nil
	}
	r := newReader(lookup, opts)
	env := func(name, override string) string {
		if override != "" {
			return override
		}
		v, _ := r.lookup(name)
		return v
	}
	o := opts.Overrides
	var found []InputDriver
	if base := env("JIRA_BASE_URL", o.JiraBaseURL); base != "" {
		d := Defaults()
		if !opts.WithoutConnections {
			d.Connection = Connection{BaseURL: base, Email: env("JIRA_USER_EMAIL", o.JiraUserEmail), Token: env("JIRA_TOKEN", o.JiraToken)}
			r.checkJira(map[string]int{}, "environment", &d)
		}
		found = append(found, d)
	}
	kind := ""
	switch {
	case env("TRIGGER_PAYLOAD", "") != "":
		kind = GitLabWebhook
	case env("CI_PROJECT_PATH", "") != "":
		kind = GitLabPoll
	}
	if kind != "" {
		d := InputDriver{Type: kind, Name: kind, Mode: ModeEvents}
		r.gitlabConnection(nil, nil, "environment", &d)
		found = append(found, d)
	}
	if len(r.problems) > 0 {
		return r.problems.sorted()
	}
	c.Poll.InputDrivers = found
	c.Poll.chooseOutput()
	return nil
}

// Override replaces the members of the connection for which a value is given.
// It does no checking; where a flag or input is known before the file is read,
// [Options.Overrides] is the better way.
func (d *InputDriver) Override(baseURL, email, token string) {
	for _, m := range []struct {
		dst *string
		v   string
	}{{&d.Connection.BaseURL, baseURL}, {&d.Connection.Email, email}, {&d.Connection.Token, token}} {
		if m.v != "" {
			*m.dst = m.v
		}
	}
}
