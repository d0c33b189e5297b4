package config

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// agents reads the registration list. Keys of an entry that other tools use
// (runtime, model, …) are ignored.
func (r *reader) agents(n *node) []Agent {
	type slot struct {
		agent Agent
		live  bool
		path  string
	}
	var slots []slot
	at := map[string]int{}
	for i, e := range r.list(n, "agents") {
		where := fmt.Sprintf("agents[%d]", i)
		a, ok := r.agent(e, where)
		if !ok {
			continue
		}
		id := strings.ToLower(a.Name)
		if j, dup := at[id]; dup {
			first := slots[j].agent
			if first.Enabled == a.Enabled {
				r.add(a.Line, where, fmt.Sprintf("the agent %q is registered for the second time (first on line %d)", a.Name, first.Line),
					"give one of the two another name, or disable one")
				continue
			}
			slots[j].live = false
		}
		at[id] = len(slots)
		slots = append(slots, slot{agent: a, live: true, path: where})
	}
	var out []Agent
	for _, s := range slots {
		if s.live {
			out = append(out, s.agent)
		}
	}
	return out
}

func (r *reader) agent(n *node, where string) (Agent, bool) {
	a := Agent{Enabled: true, Line: n.Line}
	before := len(r.problems)
	if n.Kind != mappingNode {
		a.Source, _ = r.text(n, where)
	}
	role := false
	var fields []field
	if n.Kind == mappingNode {
		fields = r.open(n, where)
	}
	for _, f := range fields {
		switch f.key {
		case "name":
			a.Name, _ = r.text(f.value, f.path)
		case "source":
			a.Source, _ = r.text(f.value, f.path)
		case "enabled":
			a.Enabled = r.boolean(f.value, f.path)
		case "role":
			role = true
		}
	}
	switch {
	case len(r.problems) > before:
		return a, false
	case role && a.Source == "":
		r.add(a.Line, where, "this is the old form of an agent, a role without a source, which is no longer supported",
			"name the harness file: source: harness/NAME.yaml")
		return a, false
	case a.Name == "" && a.Source == "":
		r.add(a.Line, where, "the entry has neither source nor name", "write source: harness/NAME.yaml")
		return a, false
	}
	cure := "use letters, digits, _ and -, beginning with a letter or digit"
	if a.Name == "" {
		a.Name = nameOf(a.Source)
		cure = "give the agent a name: with letters, digits, _ and -"
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`).MatchString(a.Name) {
		r.add(a.Line, where, shown(a.Name)+" is not an agent's name", cure)
		return a, false
	}
	return a, true
}

// nameOf is the source's file name without extension and fragment.
func nameOf(source string) string {
	p, _, _ := strings.Cut(source, "#")
	if u, err := url.Parse(p); err == nil && u.Scheme != "" {
		p = u.Path
	}
	base := path.Base(p)
	return strings.TrimSuffix(base, path.Ext(base))
}

// allowed reads allowed_remote_resources; never nil.
func (r *reader) allowed(n *node) []string {
	out := []string{}
	for i, e := range r.list(n, "allowed_remote_resources") {
		where := fmt.Sprintf("allowed_remote_resources[%d]", i)
		v, ok := r.text(e, where)
		if !ok {
			continue
		}
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(v, "?#") {
			r.add(e.Line, where, "this is not the beginning of an https URL", "write https://HOST/PATH/ without user, query and fragment")
			continue
		}
		out = append(out, v)
	}
	return out
}
