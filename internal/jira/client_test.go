package jira

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestAWrongTokenIsFatalAndSaysWhatToCheck(t *testing.T) {
	t.Parallel()
	anonymous := func(s *stage) { s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.AuthMode = sim.AuthAnonymous200 }) }
	// without takes headers out of every answer.
	without := func(names ...string) func(s *stage) {
		return func(s *stage) {
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				resp := s.pass(req)
				for _, n := range names {
					resp.Header.Del(n)
				}
				return resp
			}
		}
	}
	for name, tt := range map[string]struct {
		set  []func(*stage)
		want string
	}{
		"401":                              {[]func(*stage){func(s *stage) { s.token = "wrong-secret" }}, "AUTHENTICATED_FAILED"},
		"401 without a reason":             {[]func(*stage){func(s *stage) { s.token = "wrong-secret" }, without("X-Seraph-LoginReason")}, "jira answered 401 to SEARCH"},
		"200, empty, with the header":      {[]func(*stage){anonymous}, "AUTHENTICATED_FAILED"},
		"200, empty, and only /myself 401": {[]func(*stage){anonymous, without("X-Seraph-LoginReason", "X-AAccountId", "X-AUSERNAME")}, "jira answered 401 to GET /myself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				s.issue()
				for _, f := range tt.set {
					f(s)
				}
				in, _ := s.process()
				_, err := in.Discover(t.Context())
				if err == nil || dispatch.ClassOf(err) != dispatch.Fatal {
					t.Fatalf("err %v", err)
				}
				want := strings.Replace(tt.want, "SEARCH", s.search(), 1)
				want = strings.Replace(want, " /", " "+s.api()+"/", 1)
				mentions(t, err.Error(), want, "JIRA_TOKEN", "JIRA_USER_EMAIL")
				if strings.Contains(err.Error(), "wrong-secret") {
					t.Error("the error holds the token")
				}
				if _, err := in.Baseline(t.Context()); dispatch.ClassOf(err) != dispatch.Fatal {
					t.Errorf("a baseline: %v", err)
				}
			})
		})
	}
}

func TestAnAccountThatNoHeaderNamesIsAskedForOnce(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.NoAccountHeader = true })
		key := s.issue().Key
		time.Sleep(time.Minute)
		s.w.Jira.Comment(key, simtest.Bot, "mine")
		delta := s.detect(key)
		s.equal([]string{"opened-10001"}, occurrenceKeys(delta.Events), "events")
		s.equal(1, s.count("GET /myself"), "reads of /myself")
	})
}

func TestAnAccountThatIsNobodyIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		fatal  bool
	}{
		"403":        {403, `{}`, true},
		"no account": {200, `{"displayName":"admin"}`, true},
		"500":        {500, `oops`, false},
		"HTML":       {200, `<html>`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				s.answer = func(req *http.Request, _ []byte) *http.Response { return reply(req, tt.status, tt.body) }
				s.process()
				id, err := s.client.Self(t.Context())
				if err == nil || id != "" {
					t.Fatalf("account %q, err %v", id, err)
				}
				s.equal(tt.fatal, dispatch.ClassOf(err) == dispatch.Fatal, "fatal")
			})
		})
	}
}

func TestATokenWithoutAnEmailIsABearerToken(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.email = ""
		got := ""
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			got = req.Header.Get("Authorization")
			return reply(req, 200, flavoured(s, `{"accountId":"a"}`, `{"name":"a"}`))
		}
		s.process()
		if _, err := s.client.Self(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.equal("Bearer "+s.token, got, "authorization")
	})
}

func TestAnErrorTellsWhatJiraSaidQuotedAndCut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want []string
	}{
		"messages and fields":  {`{"errorMessages":["one\n::error::x"],"errors":{"b":"two","a":"three"}}`, []string{`"one\n::error::x"`, `"a: three", "b: two"`}},
		"one message":          {`{"message":"null for uri","status-code":404}`, []string{`"null for uri"`}},
		"other shapes":         {`{"errorMessages":{"a":1},"errors":["x"],"message":"kept"}`, []string{`"kept"`}},
		"HTML":                 {`<html><body>Page unavailable`, []string{"jira answered 418 to GET /rest/api/3/x"}},
		"a very long document": {`{"errorMessages":["` + strings.Repeat("é", 100_000) + `"]}`, []string{"jira answered 418"}},
		"many messages":        {`{"errorMessages":["1","2","3","4","5","6"]}`, []string{`"5"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				s.answer = func(req *http.Request, _ []byte) *http.Response { return reply(req, 418, tt.body) }
				s.process()
				err := s.client.get(t.Context(), "/rest/api/3/x", nil, nil)
				if statusOf(err) != 418 {
					t.Fatalf("err %v", err)
				}
				mentions(t, err.Error(), tt.want...)
				if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 5*(2*maxMessage+10)+100 || strings.Contains(err.Error(), `"6"`) {
					t.Errorf("error of %d bytes: %.300q", len(err.Error()), err)
				}
			})
		})
	}
}

func TestAnAnswerThatIsNoJSONSaysWhereItCameFrom(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.answer = func(req *http.Request, _ []byte) *http.Response { return reply(req, 200, `<html>`) }
		s.process()
		var out struct{}
		err := s.client.get(t.Context(), "/rest/api/3/x", nil, &out)
		if err == nil {
			t.Fatal("HTML is read as JSON")
		}
		mentions(t, err.Error(), "GET /rest/api/3/x", "is the base URL a Jira site?")
	})
}

func TestAFailedConnectionIsNamedWithoutTheQuery(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.retries = -1
		s.w.Net.Fault = func(*http.Request) sim.Fault { return sim.Fault{DropBefore: true} }
		s.process()
		err := s.client.get(t.Context(), "/rest/api/3/x", map[string][]string{"q": {"long-query"}}, nil)
		if !errors.Is(err, sim.ErrDropped) {
			t.Fatalf("err %v", err)
		}
		mentions(t, err.Error(), "GET /rest/api/3/x: ")
		if strings.Contains(err.Error(), "long-query") {
			t.Errorf("the query is repeated: %v", err)
		}
	})
}

func TestAReadingPOSTIsRepeatedAfterAFailure(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		failed := false
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if failed {
				return nil
			}
			failed = true
			return reply(req, 503, "busy")
		}
		d, _ := s.discover()
		s.equal([]string{key}, keysOf(d), "items")
	})
}

func TestASiteUnderAPathIsReachedThere(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		var path string
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			path = req.URL.Path
			return reply(req, 200, `{"accountId":"a"}`)
		}
		c, err := NewClient(ClientOptions{BaseURL: "https://acme.atlassian.net/jira/", Token: "t", HTTP: httpx.Options{Base: s, Now: time.Now}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Self(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.equal("/jira/rest/api/3/myself", path, "path")
		s.equal("https://acme.atlassian.net/jira", c.Base(), "base")
		s.equal(1, c.Stats().Requests, "requests")
	})
}

func TestAClientNeedsAnAddress(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "::", "acme.atlassian.net", "ftp://acme.example"} {
		if _, err := NewClient(ClientOptions{BaseURL: base, Token: "t", HTTP: httpx.Options{Now: time.Now}}); err == nil {
			t.Errorf("%q is taken for an address", base)
		}
	}
}
