package simtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Description is a vendor's OpenAPI document, ready to hold exchanges against.
type Description struct {
	doc    *openapi3.T
	routes []route
	// exceptions are where the real server is known to differ from it.
	exceptions []exception
	// good remembers exchanges that violate nothing: many tests make the same
	// ones, to the byte.
	good memory
}

// memory is a bounded set of digests.
type memory struct {
	mu  sync.Mutex
	set map[[sha256.Size]byte]struct{}
}

const maxRemembered = 200_000

func (m *memory) has(key [sha256.Size]byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.set[key]
	return ok
}

func (m *memory) add(key [sha256.Size]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set == nil {
		m.set = map[[sha256.Size]byte]struct{}{}
	}
	if len(m.set) < maxRemembered {
		m.set[key] = struct{}{}
	}
}

// digest covers everything of an exchange that a check looks at. The time of the
// answer and the credentials are not among it.
func digest(req *http.Request, reqBody []byte, status int, header http.Header, respBody []byte) [sha256.Size]byte {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:]) // a hash never fails
		_, _ = h.Write(b)
	}
	part([]byte(req.Method + " " + req.URL.String() + " " + strconv.Itoa(status)))
	for _, hs := range []http.Header{req.Header, header} {
		for _, name := range slices.Sorted(maps.Keys(hs)) {
			if name != "Date" && name != "Authorization" {
				part([]byte(name + ": " + strings.Join(hs[name], ", ")))
			}
		}
		part(nil)
	}
	part(reqBody)
	part(respBody)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

type route struct {
	routers.Route
	match *regexp.Regexp
	names []string
}

// JiraDescription returns the stripped description of Jira Cloud's REST v3. It
// is read once per process.
func JiraDescription() (*Description, error) { return jiraOnce() }

// GitHubDescription returns the stripped description of GitHub's REST API. It
// is read once per process.
func GitHubDescription() (*Description, error) { return githubOnce() }

// The documents are constant and slow to read.
var (
	jiraOnce = sync.OnceValues(func() (*Description, error) {
		return load("jira-cloud-v3.json", jiraExceptions())
	})
	githubOnce = sync.OnceValues(func() (*Description, error) {
		return load("github-rest.json", githubExceptions())
	})
)

func load(name string, exceptions []exception) (*Description, error) {
	dir, err := descriptions()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read description: %w", err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, fmt.Errorf("read description %s: %w", name, err)
	}
	allowNull(doc)
	d := &Description{doc: doc, exceptions: exceptions}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			d.routes = append(d.routes, newRoute(doc, path, method, item, op))
		}
	}
	// Literal segments go before wildcards: "/issue/bulkfetch" before "/issue/{x}".
	slices.SortFunc(d.routes, func(a, b route) int {
		return strings.Compare(strings.ReplaceAll(a.Path, "{", "\xff"), strings.ReplaceAll(b.Path, "{", "\xff"))
	})
	return d, nil
}

// descriptions finds testdata/openapi at the module's root.
func descriptions() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find module root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "openapi"), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find module root: no go.mod above the working directory")
		}
		dir = up
	}
}

var wildcard = regexp.MustCompile(`\\\{([^}]*)\\\}`)

func newRoute(doc *openapi3.T, path, method string, item *openapi3.PathItem, op *openapi3.Operation) route {
	quoted := regexp.QuoteMeta(path)
	r := route{Route: routers.Route{
		Spec: doc, Path: path, PathItem: item, Method: method, Operation: op,
	}}
	pattern := wildcard.ReplaceAllStringFunc(quoted, func(w string) string {
		name := wildcard.FindStringSubmatch(w)[1]
		r.names = append(r.names, name)
		if name == "path" {
			return "(.+)" // GitHub's contents take the slashes in a path as they are
		}
		return "([^/]+)"
	})
	if path == "/rest/api/3/serverInfo" {
		pattern = strings.Replace(pattern, "3", "[23]", 1) // Cloud answers it in both versions alike
	}
	// An Enterprise Server has the same operations under a prefix.
	r.match = regexp.MustCompile("^(?:/api/v3)?" + pattern + "$")
	return r
}

// find returns the operation of a request and the values in its path.
func (d *Description) find(req *http.Request) (*route, map[string]string) {
	for i, r := range d.routes {
		m := r.match.FindStringSubmatch(req.URL.EscapedPath())
		if r.Method != req.Method || m == nil {
			continue
		}
		params := map[string]string{}
		for k, name := range r.names {
			value, err := url.PathUnescape(m[k+1])
			if err != nil {
				value = m[k+1]
			}
			params[name] = value
		}
		return &d.routes[i], params
	}
	return nil, nil
}

// Has reports whether the description has an operation for a request.
func (d *Description) Has(method, path string) bool {
	r, _ := d.find(&http.Request{Method: method, URL: &url.URL{Path: path}})
	return r != nil
}

// Check returns what an exchange violates, nil if nothing. Neither bodies nor
// credentials are part of the error.
func (d *Description) Check(req *http.Request, reqBody []byte, status int, header http.Header, respBody []byte) error {
	key := digest(req, reqBody, status, header, respBody)
	if d.good.has(key) {
		return nil
	}
	err := d.check(req, reqBody, status, header, respBody)
	if err == nil {
		d.good.add(key)
	}
	return err
}

func (d *Description) check(req *http.Request, reqBody []byte, status int, header http.Header, respBody []byte) error {
	route, params := d.find(req)
	if route == nil {
		return fmt.Errorf("%s %s: not in the description", req.Method, req.URL.Path)
	}
	x := &exchange{route: route, req: req.Clone(req.Context()), status: status, header: header.Clone(), respBody: respBody}
	for _, e := range d.exceptions {
		e.adapt(x)
	}
	x.req.Body = io.NopCloser(bytes.NewReader(reqBody))
	x.req.ContentLength = int64(len(reqBody))
	if len(reqBody) == 0 {
		x.req.Body = http.NoBody
	}
	options := &openapi3filter.Options{
		IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}
	in := &openapi3filter.RequestValidationInput{
		Request: x.req, PathParams: params, Route: &route.Route, Options: options, QueryParams: x.req.URL.Query(),
	}
	var problems []error
	ctx := context.WithoutCancel(req.Context())
	// What the server refuses as malformed may be malformed: that is the point of a refusal.
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		problems = append(problems, undeclared(route, x.req.URL.Query()))
		if err := openapi3filter.ValidateRequest(ctx, in); err != nil {
			problems = append(problems, fmt.Errorf("request: %w", brief(err)))
		}
	}
	if !x.excused {
		err := openapi3filter.ValidateResponse(ctx, &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: x.status, Header: x.header, Options: options,
			Body: io.NopCloser(bytes.NewReader(x.respBody)),
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("response %d: %w", status, brief(err)))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	return nil
}

// undeclared finds query parameters that the operation does not have; the
// validator lets them pass.
func undeclared(r *route, query url.Values) error {
	var problems []error
	for name := range query {
		if r.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			problems = append(problems, fmt.Errorf("request: no query parameter %q", name))
		}
	}
	return errors.Join(problems...)
}

// maxShown bounds the violations that one answer is told about.
const maxShown = 5

// brief cuts the validator's error down to places and reasons: its own text
// repeats schema and value.
func brief(err error) error {
	// MultiError.As finds the first match below itself: look at the value.
	if many, ok := err.(openapi3.MultiError); ok { //nolint:errorlint // see above
		var out []error
		for _, e := range many[:min(len(many), maxShown)] {
			out = append(out, brief(e))
		}
		return errors.Join(out...)
	}
	var request *openapi3filter.RequestError
	if errors.As(err, &request) && request.Err != nil {
		if request.Parameter != nil {
			return fmt.Errorf("%s parameter %s: %w", request.Parameter.In, request.Parameter.Name, brief(request.Err))
		}
		return brief(request.Err)
	}
	var response *openapi3filter.ResponseError
	if errors.As(err, &response) && response.Err != nil {
		return brief(response.Err)
	}
	var schema *openapi3.SchemaError
	if errors.As(err, &schema) {
		if inner, ok := schema.Origin.(openapi3.MultiError); ok { //nolint:errorlint // as above
			return brief(inner)
		}
		return fmt.Errorf("/%s: %s", strings.Join(schema.JSONPointer(), "/"), schema.Reason)
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(text)
}

// exchange is what an exception may look at and change before validation.
type exchange struct {
	route    *route
	req      *http.Request
	status   int
	header   http.Header
	respBody []byte
	// excused leaves the response out.
	excused bool
}

// is reports whether the exchange is one of an operation.
func (x *exchange) is(method, path string) bool {
	return x.route.Method == method && x.route.Path == path
}

// rewrite passes every value of the response's document through f, which gets
// the member's name ("" in lists); a value of dropped leaves the member out.
func (x *exchange) rewrite(f func(name string, v any) any) {
	dec := json.NewDecoder(bytes.NewReader(x.respBody))
	dec.UseNumber()
	var doc any
	if dec.Decode(&doc) != nil {
		return
	}
	if raw, err := json.Marshal(walk("", doc, f)); err == nil {
		x.respBody = raw
	}
}

type dropped struct{}

func walk(name string, v any, f func(string, any) any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = walk(k, e, f); e == (dropped{}) {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
	case []any:
		for i, e := range v {
			v[i] = walk("", e, f)
		}
	default:
		return f(name, v)
	}
	return v
}
