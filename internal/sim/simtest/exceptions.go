package simtest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fullsend/poll-action/internal/sim"
)

// exception is a place where the real server is known to contradict its
// description. The description stays as it is; the exchange is adapted.
type exception struct {
	// why says what is known, and from where.
	why   string
	adapt func(*exchange)
}

func jiraExceptions() []exception {
	return []exception{{
		why:   "Tests plant data that no server should send (Jira.AddHistory, Jira.BreakIssue).",
		adapt: func(x *exchange) { x.excused = x.header.Get(sim.PlantedHeader) != "" },
	}, {
		why: "Body timestamps have an offset without colon (2026-09-01T09:12:44.513+0200), which is not the date-time format of the schema.",
		adapt: func(x *exchange) {
			x.rewrite(func(_ string, v any) any {
				if s, ok := v.(string); ok && jiraStamp.MatchString(s) {
					return s[:len(s)-2] + ":" + s[len(s)-2:]
				}
				return v
			})
		},
	}, {
		why: "changelog/bulkfetch: created is a number in the description's own example.",
		adapt: func(x *exchange) {
			if !x.is(http.MethodPost, "/rest/api/3/changelog/bulkfetch") {
				return
			}
			x.rewrite(func(name string, v any) any {
				n, isNumber := v.(json.Number)
				if !isNumber || name != "created" {
					return v
				}
				count, err := n.Int64()
				switch {
				case err != nil:
					return v
				case count > 1e11:
					return time.UnixMilli(count).UTC().Format(time.RFC3339)
				}
				return time.Unix(count, 0).UTC().Format(time.RFC3339)
			})
		},
	}, {
		why: "Change items carry null for absent sides, and texts of the schema are not nullable.",
		adapt: func(x *exchange) {
			x.rewrite(func(name string, v any) any {
				if v == nil && slices.Contains([]string{"from", "fromString", "to", "toString"}, name) {
					return dropped{}
				}
				return v
			})
		},
	}, {
		why: "The last page of a search may end with nextPageToken null instead of none.",
		adapt: func(x *exchange) {
			if strings.HasSuffix(x.route.Path, "/search/jql") {
				x.rewrite(func(name string, v any) any {
					if v == nil && name == "nextPageToken" {
						return dropped{}
					}
					return v
				})
			}
		},
	}, {
		why: "A property write may be answered with an empty body, and the schema wants a document.",
		adapt: func(x *exchange) {
			if x.is(http.MethodPut, "/rest/api/3/issue/{issueIdOrKey}/properties/{propertyKey}") && len(x.respBody) == 0 {
				x.excused = x.excused || x.status == http.StatusOK || x.status == http.StatusCreated
			}
		},
	}, {
		why: "Wrong credentials are answered with 401 by every operation, whether it says so or not; a bad request with 400, likewise.",
		adapt: func(x *exchange) {
			if x.status == http.StatusUnauthorized || x.status == http.StatusBadRequest {
				x.excused = x.excused || x.route.Operation.Responses.Status(x.status) == nil && isJiraError(x)
			}
		},
	}, {
		why: "Every operation answers 429 when a limit is reached, with a page for people in some cases.",
		adapt: func(x *exchange) {
			x.excused = x.excused || x.status == http.StatusTooManyRequests && (isJiraError(x) || isPage(x.header))
		},
	}}
}

var jiraStamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}$`)

func isJiraError(x *exchange) bool {
	var e struct {
		Messages []string `json:"errorMessages"`
	}
	return json.Unmarshal(x.respBody, &e) == nil && len(e.Messages) > 0
}

func isPage(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "text/html") }

func githubExceptions() []exception {
	return []exception{{
		why: "created takes a search range (>=2026-09-01T00:00:00Z), the schema says date-time.",
		adapt: func(x *exchange) {
			q := x.req.URL.Query()
			if strings.HasSuffix(x.route.Path, "/runs") && createdRange.MatchString(q.Get("created")) {
				q.Del("created")
				u := *x.req.URL
				u.RawQuery = q.Encode()
				x.req.URL = &u
			}
		},
	}, {
		why: "Operations answer errors that they do not list (dispatch lists none at all), in the shape of all GitHub errors.",
		adapt: func(x *exchange) {
			if x.status >= 400 && x.status < 500 && x.route.Operation.Responses.Status(x.status) == nil {
				x.excused = isGitHubError(x)
			}
		},
	}}
}

var createdRange = regexp.MustCompile(`^(([<>]=?)?\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d))?|\S+\.\.\S+)$`)

func isGitHubError(x *exchange) bool {
	var e struct {
		Message string `json:"message"`
		Docs    string `json:"documentation_url"`
	}
	return json.Unmarshal(x.respBody, &e) == nil && e.Message != "" && e.Docs != ""
}

// allowNull lets schemas without a type stand for any JSON value, as their
// authors mean them (issue fields, property values): in OpenAPI 3.0 only a
// schema that says so takes null.
func allowNull(doc *openapi3.T) {
	seen := map[*openapi3.Schema]bool{}
	var visit func(*openapi3.SchemaRef)
	visit = func(ref *openapi3.SchemaRef) {
		if ref == nil || ref.Value == nil || seen[ref.Value] {
			return
		}
		s := ref.Value
		seen[s] = true
		if s.Type == nil && len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) == 0 {
			s.Nullable = true
		}
		visit(s.Items)
		visit(s.AdditionalProperties.Schema)
		for _, p := range s.Properties {
			visit(p)
		}
	}
	for _, s := range doc.Components.Schemas {
		visit(s)
	}
}
