package httpx

import (
	"context"
	"net/http"
	"strings"
)

type (
	endpointKey struct{}
	subjectKey  struct{}
)

// Endpoint names the endpoint that the requests made under ctx are for, such
// as "issue comments" or, with the method, "GET issue comments". Requests with the same method and name share one burst
// limit. Without a name the path stands for it, with its numbers, issue keys
// and project keys left out.
func Endpoint(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, endpointKey{}, name)
}

// Subject names the issue, by id, that the requests made under ctx are about.
// Those of them that write (any but GET, HEAD and a [Repeatable] POST, which
// is a search) share one limit of writes. Without a subject the path's
// /issue/{id or key} stands for it; as Jira counts an id and a key as one
// issue, callers who use both have to name it.
func Subject(ctx context.Context, issueID string) context.Context {
	return context.WithValue(ctx, subjectKey{}, issueID)
}

// whole is the scope of everything that a transport sends.
const whole = "all"

// scopes are the circles of requests that one request belongs to, the keys of
// the gate. issue is empty for requests that write to none.
type scopes struct{ endpoint, issue string }

func scopesOf(req *http.Request, m mark) scopes {
	ctx := req.Context()
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	name, ok := ctx.Value(endpointKey{}).(string)
	if !ok || name == "" {
		name = template(req.URL.EscapedPath())
	}
	s := scopes{endpoint: "endpoint " + method + " " + strings.TrimPrefix(name, method+" ")}
	if readOnly(method) || method == http.MethodPost && m == markRepeatable {
		return s
	}
	subject, ok := ctx.Value(subjectKey{}).(string)
	if !ok || subject == "" {
		subject = issueIn(req.URL.EscapedPath())
	}
	if subject != "" {
		s.issue = "issue " + subject
	}
	return s
}

func (s scopes) keys() []string {
	if s.issue == "" {
		return []string{whole, s.endpoint}
	}
	return []string{whole, s.endpoint, s.issue}
}

// template leaves out of a path what differs between uses of one endpoint.
func template(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if isKey(p) || i > 0 && parts[i-1] == "properties" {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

// issueIn finds the issue in a path of Jira's API.
func issueIn(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts[1:] {
		if parts[i] == "issue" && isKey(p) {
			return strings.ToUpper(p)
		}
	}
	return ""
}

// isKey says whether a path segment is a number, a project key or an issue
// key.
func isKey(s string) bool {
	digits := strings.TrimLeft(s, "0123456789")
	if digits == "" {
		return s != ""
	}
	project, number, issue := strings.Cut(s, "-")
	if issue && (number == "" || strings.Trim(number, "0123456789") != "") {
		return false
	}
	if issue {
		project = strings.ToUpper(project)
	}
	if len(project) < 2 || project[0] < 'A' || project[0] > 'Z' {
		return false
	}
	return strings.Trim(project, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
