package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// answer is a response to be: a JSON body, or none when body is nil.
type answer struct {
	status int
	body   any
}

// location is the body of an answer that only leads to another address.
type location string

func ok(body any) answer { return answer{http.StatusOK, body} }

// refuse is Jira's error document.
func refuse(status int, texts ...string) answer {
	return answer{status, map[string]any{"errorMessages": texts, "errors": map[string]string{}}}
}

func noIssue() answer {
	return refuse(http.StatusNotFound, "Issue does not exist or you do not have permission to see it.")
}

func notAuthenticated() answer {
	return refuse(http.StatusUnauthorized, "Client must be authenticated to access this resource.")
}

// PlantedHeader marks an answer that shows what AddHistory or BreakIssue
// planted, so that a check against the official description lets it pass.
const PlantedHeader = "X-Sim-Planted"

// loginReason is the header that tells an anonymous answer from a real one.
const loginReason = "X-Seraph-LoginReason"

type anonymousKey struct{}

// anonymous reports whether a request is treated as nobody's.
func anonymous(r *http.Request) bool { return r.Context().Value(anonymousKey{}) != nil }

// ServeHTTP answers one request.
func (j *Jira) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	h := w.Header()
	h.Set("Date", j.now().UTC().Format(http.TimeFormat))
	h.Set("Cache-Control", "no-cache, no-store, no-transform")
	good := j.knows(r)
	switch {
	case j.switches.AuthMode == AuthAnonymous200:
		h.Set(loginReason, "AUTHENTICATED_FAILED")
		j.showCaller(h, "anonymous")
		r = r.WithContext(context.WithValue(r.Context(), anonymousKey{}, true))
	case !good:
		h.Set("Www-Authenticate", `OAuth realm="`+j.base+`"`)
		if r.Header.Get("Authorization") != "" {
			h.Set(loginReason, "AUTHENTICATED_FAILED")
		}
		write(w, notAuthenticated())
		return
	default:
		h.Set(loginReason, "OK")
		j.showCaller(h, j.self)
	}
	if !strings.HasPrefix(r.URL.Path, j.prefix) {
		j.noRoute(w, r)
		return
	}
	http.StripPrefix(j.prefix, j.mux).ServeHTTP(w, r)
}

// noRoute answers a request that meets no route, and remembers it.
func (j *Jira) noRoute(w http.ResponseWriter, r *http.Request) {
	j.unknown = append(j.unknown, r.Method+" "+r.URL.Path)
	write(w, answer{http.StatusNotFound, map[string]any{
		"message": "null for uri: " + j.base + r.URL.Path, "status-code": http.StatusNotFound,
	}})
}

// knows reports whether a request has the good credentials.
func (j *Jira) knows(r *http.Request) bool {
	name, secret, basic := r.BasicAuth()
	switch {
	case !j.dc:
		return basic && name == j.email && secret == j.token
	case basic:
		return name == j.self && secret == j.password && secret != ""
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && token == j.token
}

// showCaller tells whom the site takes the caller for.
func (j *Jira) showCaller(h http.Header, caller string) {
	switch {
	case j.switches.NoAccountHeader:
	case j.dc:
		h.Set("X-AUSERNAME", url.PathEscape(caller))
	case caller == j.self:
		h.Set("X-AAccountId", caller)
	}
}

// api is the address below which the operations are.
func (j *Jira) api() string { return j.base + j.root }

// access says what a route gives an anonymous caller.
type access int

const (
	open     access = iota // the handler decides
	loggedIn               // 401
	hidden                 // 404, as for something that does not exist
)

// Routes returns "METHOD /path/{wildcard}" of every operation that is served.
func (j *Jira) Routes() []string { return slices.Clone(j.patterns) }

func (j *Jira) routes() *http.ServeMux {
	mux := http.NewServeMux()
	serve := func(pattern string, a access, f func(*http.Request) answer) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !j.admit(w, r, pattern):
			case a == loggedIn && anonymous(r):
				write(w, notAuthenticated())
			case a == hidden && anonymous(r):
				write(w, noIssue())
			default:
				j.planted = false
				a := f(r)
				if j.planted {
					w.Header().Set(PlantedHeader, "true")
				}
				write(w, a)
			}
		})
	}
	handle := func(pattern string, a access, f func(*http.Request) answer) {
		method, path, _ := strings.Cut(pattern, " ")
		pattern = method + " " + j.root + path
		j.patterns = append(j.patterns, pattern)
		serve(pattern, a, f)
	}
	if j.dc {
		j.dcRoutes(handle)
	} else {
		j.cloudRoutes(handle)
		// Cloud has REST v2 as well. It is served only where a client must ask
		// before it knows the flavour.
		serve("GET /rest/api/2/serverInfo", open, j.serverInfo)
	}
	handle("GET /issue/{issue}", hidden, j.getIssue)
	handle("GET /issue/{issue}/comment", hidden, j.getComments)
	handle("POST /issue/{issue}/comment", hidden, j.postComment)
	handle("GET /issue/{issue}/properties", hidden, j.getProperties)
	handle("GET /issue/{issue}/properties/{key}", hidden, j.getProperty)
	handle("PUT /issue/{issue}/properties/{key}", hidden, j.putProperty)
	handle("DELETE /issue/{issue}/properties/{key}", hidden, j.deleteProperty)
	handle("GET /myself", loggedIn, j.myself)
	handle("GET /mypermissions", open, j.myPermissions)
	handle("GET /serverInfo", open, j.serverInfo)
	handle("GET /status", open, j.getStatuses)
	handle("GET /status/{status}", open, j.getStatus)
	handle("GET /project/{project}/role", loggedIn, j.getRoles)
	handle("GET /project/{project}/role/{role}", loggedIn, j.getRole)
	mux.HandleFunc("/", j.noRoute)
	return mux
}

// cloudRoutes are the routes that Cloud alone has, or has in its own form.
func (j *Jira) cloudRoutes(handle func(string, access, func(*http.Request) answer)) {
	handle("GET /search/jql", open, j.searchGet)
	handle("POST /search/jql", open, j.searchPost)
	handle("POST /search/approximate-count", open, j.approximateCount)
	handle("POST "+bulkFetchPath, open, j.bulkFetch)
	handle("POST "+bulkChangelogsPath, loggedIn, j.bulkChangelogs)
	handle("GET /issue/{issue}/changelog", hidden, j.getChangelog)
	handle("PUT /issue/properties/{key}", loggedIn, j.bulkPutProperty)
	handle("DELETE /issue/properties/{key}", loggedIn, j.bulkDeleteProperty)
	handle("GET /task/{task}", loggedIn, j.getTask)
	handle("GET /user/groups", loggedIn, j.userGroups)
	handle("GET /user/permission/search", loggedIn, j.permissionSearch)
}

// write sends an answer as JSON.
func write(w http.ResponseWriter, a answer) {
	if to, ok := a.body.(location); ok {
		w.Header().Set("Location", string(to))
		a.body = nil
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a.body); err != nil {
		http.Error(w, "sim: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(a.status)
	_, _ = w.Write(b.Bytes())
}

// badPayload is Jira's answer to a body that is not what it asks for.
const badPayload = "Invalid request payload. Refer to the REST API documentation and try again."

// decode reads a request's JSON document and reports whether it is one;
// unknown members are not tolerated.
func decode(r *http.Request, into any) bool {
	dec := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	dec.DisallowUnknownFields()
	if dec.Decode(into) != nil {
		return false
	}
	_, err := dec.Token()
	return errors.Is(err, io.EOF)
}
