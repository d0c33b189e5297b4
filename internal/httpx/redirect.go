package httpx

import (
	"fmt"
	"net/http"
)

// maxHops bounds a chain of redirects.
const maxHops = 5

// Client returns a client on t. It follows redirects within the origin only,
// and only to a GET or HEAD: those of a GET or HEAD, and the 303 by which a
// server shows where the result of something else is to be read. All others
// end with [ErrRedirect]; the Authorization header never travels.
func (t *Transport) Client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: t.checkRedirect}
}

func (t *Transport) checkRedirect(req *http.Request, via []*http.Request) error {
	if got := Origin(req.URL); got != t.origin || req.URL.User != nil {
		return t.scrub(fmt.Errorf("%w: %s leads away from the configured server %s", ErrRedirect, got, t.origin))
	}
	if len(via) > maxHops {
		return fmt.Errorf("%w: more than %d in a row", ErrRedirect, maxHops)
	}
	from := via[len(via)-1]
	if !readOnly(req.Method) || !readOnly(from.Method) && seeOther(req) != http.StatusSeeOther {
		return t.scrub(fmt.Errorf("%w: the server moved %s %s to %s", ErrRedirect, from.Method, from.URL.Path, req.URL.Path))
	}
	return nil
}

func readOnly(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == ""
}

// seeOther returns the status that caused the redirected request.
func seeOther(req *http.Request) int {
	if req.Response == nil {
		return 0
	}
	return req.Response.StatusCode
}
