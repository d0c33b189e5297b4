package simtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fullsend/poll-action/internal/sim"
)

// There is no official description of Data Center's REST v2 to hold an
// exchange against; this is what is known for certain.

// dcOperation is an operation with the query parameters that it has.
type dcOperation struct {
	method, path string
	query        []string
}

func dcOperations() []dcOperation {
	get, put, post, del := http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	return []dcOperation{
		{get, "/search", []string{"jql", "startAt", "maxResults", "validateQuery", "fields", "expand", "properties"}},
		{post, "/search", nil},
		{get, "/issue/*", []string{"fields", "expand", "properties", "updateHistory"}},
		{get, "/issue/*/comment", []string{"startAt", "maxResults", "orderBy", "expand"}},
		{post, "/issue/*/comment", []string{"expand"}},
		{get, "/issue/*/properties", nil},
		{get, "/issue/*/properties/*", nil},
		{put, "/issue/*/properties/*", nil},
		{del, "/issue/*/properties/*", nil},
		{get, "/myself", []string{"expand"}},
		// permissions is none of its parameters, and is ignored.
		{get, "/mypermissions", []string{"projectKey", "projectId", "issueKey", "issueId", "permissions"}},
		{get, "/serverInfo", []string{"doHealthCheck"}},
		{get, "/status", nil},
		{get, "/status/*", nil},
		{get, "/project/*/role", nil},
		{get, "/project/*/role/*", nil},
		{get, "/user", []string{"username", "key", "expand", "includeDeleted"}},
		{get, "/user/permission/search", []string{"username", "permissions", "issueKey", "projectKey", "startAt", "maxResults"}},
	}
}

// has reports whether the operation is that of a request.
func (o dcOperation) has(method, path string) bool {
	want, have := strings.Split(o.path, "/"), strings.Split(path, "/")
	return o.method == method && slices.EqualFunc(want, have, func(w, h string) bool { return w == h || w == "*" && h != "" })
}

// checkDataCenter returns what an exchange with a Data Center site violates:
// an operation or parameter that REST v2 does not have, an answer that is no
// JSON, or an accountId anywhere.
func checkDataCenter(req *http.Request, reqBody []byte, status int, header http.Header, respBody []byte) error {
	var problems []error
	_, path, isV2 := strings.Cut(req.URL.EscapedPath(), "/rest/api/2")
	operations := dcOperations()
	at := slices.IndexFunc(operations, func(o dcOperation) bool { return o.has(req.Method, path) })
	switch {
	case !isV2 || at < 0:
		problems = append(problems, errors.New("REST v2 has no such operation"))
	case status < http.StatusBadRequest:
		problems = append(problems, undeclaredQuery(operations[at], req.URL.Query()))
	}
	if req.Method != http.MethodPut { // what properties hold is nobody's business
		problems = append(problems, checkDocument("request", reqBody, status == http.StatusBadRequest))
	}
	page := status == http.StatusTooManyRequests && isPage(header)
	problems = append(problems, checkDocument("response", respBody, page || header.Get(sim.PlantedHeader) != ""))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	return nil
}

func undeclaredQuery(o dcOperation, query url.Values) error {
	var problems []error
	for name := range query {
		if !slices.Contains(o.query, name) {
			problems = append(problems, fmt.Errorf("request: no query parameter %q", name))
		}
	}
	return errors.Join(problems...)
}

// checkDocument finds what a body must not be. An empty one is none.
func checkDocument(what string, body []byte, excused bool) error {
	if len(body) == 0 || excused {
		return nil
	}
	var doc any
	if json.Unmarshal(body, &doc) != nil {
		return fmt.Errorf("%s: no JSON document", what)
	}
	if member := foreign(doc); member != "" {
		return fmt.Errorf("%s: member %q, which only Cloud has", what, member)
	}
	return nil
}

// foreign finds a member that Data Center does not have, properties left out.
func foreign(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			switch name {
			case "accountId", "accountType", "jsdPublic", "groupId", "nextPageToken":
				return name
			case "properties", "value":
				continue
			}
			if found := foreign(e); found != "" {
				return found
			}
		}
	case []any:
		for _, e := range v {
			if found := foreign(e); found != "" {
				return found
			}
		}
	}
	return ""
}
