package jira

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// What both flavours have to do stands in the tests that run on both; here is what
// only Data Center does.

func TestTheFlavourIsAskedForOnceAndOnlyWhereNothingTellsIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts    []simtest.Option
		flavour Flavour
		asks    int
	}{
		"an address that could be either":     {[]simtest.Option{simtest.DataCenter()}, Auto, 1},
		"the same with nothing configured":    {[]simtest.Option{simtest.DataCenter()}, "", 1},
		"the flavour is configured":           {[]simtest.Option{simtest.DataCenter()}, DataCenter, 0},
		"an address of Cloud":                 {nil, Auto, 0},
		"an address of Cloud, and configured": {nil, Cloud, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				s.flavour = tt.flavour
				key := s.issue().Key
				in, _ := s.process()
				for range 3 {
					d, err := in.Discover(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					s.equal([]string{key}, keysOf(d), "items")
				}
				if _, err := in.Baseline(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := in.CheckQuery(t.Context(), 0, "project = PROJ"); err != nil {
					t.Fatal(err)
				}
				asked := 0
				for _, r := range s.w.Net.Log() {
					if strings.HasSuffix(r.Path, "/rest/api/2/serverInfo") {
						asked++
					}
				}
				s.equal(tt.asks, asked, "questions for the flavour")
				s.equal(s.dc(), s.client.dataCenter(), "Data Center")
			}, tt.opts...)
		})
	}
}

func TestWhatASiteSaysOfItselfDecidesItsFlavour(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   Flavour
		class  dispatch.Class
		says   string
	}{
		"Cloud":                         {200, `{"deploymentType":"Cloud","version":"1001.0.0"}`, Cloud, 0, ""},
		"cloud":                         {200, `{"deploymentType":"cloud"}`, Cloud, 0, ""},
		"Server":                        {200, `{"deploymentType":"Server","version":"9.12.7"}`, DataCenter, 0, ""},
		"DataCenter":                    {200, `{"deploymentType":"DataCenter"}`, DataCenter, 0, ""},
		"a type that we do not know":    {200, `{"deploymentType":"Moon"}`, DataCenter, 0, ""},
		"an old server without a type":  {200, `{"version":"6.4.14","baseUrl":"x"}`, DataCenter, 0, ""},
		"an answer that is no Jira's":   {200, `{"hello":"world"}`, "", dispatch.Transient, "names no deployment type"},
		"a page to log in":              {200, `<html><form>`, "", dispatch.Transient, "is the base URL a Jira site?"},
		"no such page":                  {404, `<html>Not found`, "", dispatch.Fatal, "check base_url (with its context path)"},
		"it is forbidden":               {403, ``, "", dispatch.Fatal, "flavour: datacenter"},
		"the credentials are wrong":     {401, `<html>`, "", dispatch.Fatal, "JIRA_TOKEN"},
		"a site that is being repaired": {503, `<html>Maintenance`, "", dispatch.Transient, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				s.flavour = Auto
				s.answer = func(req *http.Request, _ []byte) *http.Response { return reply(req, tt.status, tt.body) }
				in, _ := s.process()
				err := s.client.Resolve(t.Context())
				if tt.want != "" {
					s.equal(true, err == nil && s.client.dataCenter() == (tt.want == DataCenter), fmt.Sprintf("%s is understood (%v)", tt.body, err))
					return
				}
				if err == nil {
					t.Fatal("it is taken for a flavour")
				}
				mentions(t, err.Error(), tt.says)
				s.equal(tt.class, dispatch.ClassOf(err), "class of "+err.Error())
				_, discover := in.Discover(t.Context())
				_, baseline := in.Baseline(t.Context())
				check := in.CheckQuery(t.Context(), 0, "project = PROJ")
				s.equal([]bool{true, true, true}, []bool{discover != nil, baseline != nil, check != nil}, "everything waits for it")
			})
		})
	}
}

func TestEveryRequestAndAddressHasTheContextPath(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		t := s.t
		s.flavour = Auto
		is := s.issue()
		time.Sleep(time.Minute)
		s.w.Jira.Comment(is.Key, simtest.Mallory, "x")
		s.w.Jira.Transition(is.Key, simtest.Bob, "In Progress")
		delta := s.detect(is.Key)
		for _, o := range delta.Events {
			s.equal("https://jira.acme.example/jira/browse/"+is.Key, o.Event.Entity.URL, "address of "+o.Key)
		}
		_, state := s.process()
		s.client.dc.Store(true)
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		if _, err := state.Put(t.Context(), is.ID, []byte(`{"id":"1"}`)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(state.Advance(t.Context(), ref, poll.Checkpoint{At: time.Now()}), state.Delete(t.Context(), is.ID)); err != nil {
			t.Fatal(err)
		}
		for _, e := range s.w.Net.Log() {
			if !strings.HasPrefix(e.Path, "/jira/rest/api/2/") {
				t.Errorf("request %s %s", e.Method, e.Path)
			}
		}
		if n := len(s.w.Net.Log()); n < 10 {
			t.Errorf("only %d requests", n)
		}
	})
}

func TestATokenIsABearerTokenAndAPasswordIsBasic(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ user, secret, want string }{
		"a personal access token": {"", simtest.DCToken, "Bearer " + simtest.DCToken},
		"name and password":       {simtest.DCUser, simtest.DCPassword, "Basic "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				s.email, s.token = tt.user, tt.secret
				key := s.issue().Key
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if got := req.Header.Get("Authorization"); !strings.HasPrefix(got, tt.want) {
						t.Errorf("authorization %q", got)
					}
					return nil
				}
				s.equal([]string{"opened-10001"}, occurrenceKeys(s.detect(key).Events), "events")
			})
		})
	}
}

// byPage calls f before the n-th page of a search is read.
func (s *stage) byPage(f func(n int)) {
	pages := 0
	s.answer = func(req *http.Request, _ []byte) *http.Response {
		if s.isSearch(req) {
			pages++
			f(pages)
		}
		return nil
	}
}

func TestRowsThatMoveBetweenPagesAreNeitherLostNorDoubled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		move  func(s *stage, keys []string)
		gone  []int // of the issues
		pages int
	}{
		"one is updated and comes to the top":  {func(s *stage, k []string) { s.w.Jira.Touch(k[5]) }, nil, 3},
		"a new one comes to the top":           {func(s *stage, _ []string) { s.issue() }, nil, 3},
		"one of those that were read leaves":   {func(s *stage, k []string) { s.leave(k[7:]) }, []int{7}, 4},
		"two of those that were read leave":    {func(s *stage, k []string) { s.leave(k[6:]) }, []int{6, 7}, 4},
		"one of those still to be read leaves": {func(s *stage, k []string) { s.leave(k[:1]) }, []int{0}, 4},
		"all that were read leave":             {func(s *stage, k []string) { s.leave(k[5:]) }, []int{5, 6, 7}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				keys := s.issues(8) // pages of three, newest first: 8 7 6 | 5 4 3 | 2 1
				s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 3 })
				s.byPage(func(n int) {
					if n == 2 {
						tt.move(s, keys)
					}
				})
				d, _ := s.discover()
				found := map[string]int{}
				for _, k := range keysOf(d) {
					found[k]++
				}
				for i, k := range keys {
					want := 1
					if slices.Contains(tt.gone, i) && found[k] == 0 {
						want = 0 // deleted before it was read
					}
					s.equal(want, found[k], fmt.Sprintf("how often issue %d was found", i+1))
				}
				s.equal(tt.pages, len(s.searches()), "pages")
			})
		})
	}
}

// leave takes issues out of the site.
func (s *stage) leave(keys []string) {
	for _, k := range keys {
		s.w.Jira.DeleteIssue(k)
	}
}

func TestAnIssueThatComesToTheTopWhileAllAreReadIsPartOfTheBaseline(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		keys := s.issues(8)
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 3 })
		s.o.Queries = []string{"project = PROJ ORDER BY updated DESC"}
		s.byPage(func(n int) {
			if n == 2 {
				s.w.Jira.Touch(keys[0])
				s.w.Jira.DeleteIssue(keys[1])
			}
		})
		in, _ := s.process()
		seeds, err := in.Baseline(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, seed := range seeds {
			got = append(got, seed.Ref.Key)
		}
		for i, k := range keys {
			if i != 1 && !slices.Contains(got, k) {
				t.Errorf("issue %d of 8 has no seed", i+1)
			}
		}
	})
}

func TestATotalThatIsWrongEndsTheSearchAllTheSame(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		total func(page int) any
		empty int // the first page without issues, 0 for none
		pages int
		err   bool
	}{
		"none at all":                {func(int) any { return nil }, 0, 1, false},
		"zero":                       {func(int) any { return 0 }, 0, 1, false},
		"less than what was given":   {func(int) any { return -7 }, 0, 1, false},
		"more than there are":        {func(int) any { return 99 }, 3, 3, false},
		"more and more for ever":     {func(p int) any { return p * 100 }, 0, maxPages + 1, true},
		"fewer at first, then fewer": {func(p int) any { return 1000 - p }, 0, maxPages + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				pages := 0
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if !s.isSearch(req) {
						return nil
					}
					pages++
					issues := ""
					if tt.empty == 0 || pages < tt.empty {
						issues = fmt.Sprintf(`{"id":"%d","key":"PROJ-%d","properties":{}}`, pages, pages)
					}
					resp := reply(req, 200, fmt.Sprintf(`{"issues":[%s],"total":%s}`, issues, raw(t, tt.total(pages))))
					resp.Header.Set("X-AUSERNAME", "bot")
					return resp
				}
				in, _ := s.process()
				_, err := in.Discover(t.Context())
				s.equal(tt.err, errors.Is(err, errPages), fmt.Sprintf("an end by force (%v)", err))
				if pages > tt.pages+maxBack || !tt.err && pages != tt.pages {
					t.Errorf("%d pages, want %d", pages, tt.pages)
				}
			})
		})
	}
}

func TestALongQueryGoesIntoABody(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		is := s.issue("größe")
		s.settle(is.Key)
		long := `labels = "größe" OR labels in (` + strings.TrimSuffix(strings.Repeat(`"ä€ &=+%", `, 120), ", ") + `)`
		s.o.Queries = []string{long}
		s.reset()
		d, _ := s.discover()
		s.equal([]int{1, 0}, []int{d.Scanned, d.Pending}, "scanned and pending: the checkpoint is read too")
		s.equal("POST /search", s.requests()[0], "request")
		for _, e := range s.w.Net.Log() {
			if len(e.RawQuery) > maxQueryURL {
				s.t.Errorf("an address of %d bytes", len(e.RawQuery))
			}
		}
		s.o.Queries = []string{`labels = "größe"`}
		s.reset()
		s.discover()
		s.equal([]string{"GET /search"}, s.requests(), "requests of a short one")
	})
}

func TestPropertiesThatASearchDoesNotGiveAreReadForTheRowsOfTheReadPagesOnly(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		keys := s.issues(8) // pages of two, newest first: 8 7 | 6 5 | 4 3 | 2 1
		s.settle(keys[1], keys[2], keys[3], keys[4], keys[5], keys[6])
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage, sw.SearchWithoutProperties = 2, true })
		s.o.Queries = []string{"project = PROJ", "reporter = alice"} // finds the same ones again
		s.reset()
		d, state := s.discover()
		s.equal([]string{keys[7]}, keysOf(d), "items")
		s.equal(4, s.count("GET /search"), "pages")
		s.equal(4, s.count("GET /issue/"), "reads of properties, one for each row that was read")
		it := s.item(d, keys[7])
		s.checked(keys[7], s.w.Jira.Updated(keys[7]))
		s.equal(true, state.Peek(it.Ref()).Checkpoint.IsZero(), "no checkpoint yet")
		d, _ = s.discover()
		s.equal([]string{}, keysOf(d), "items of the next one, whose checkpoint was read")
	})
}

func TestAnIssueWhosePropertiesCannotBeReadHidesNoOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		all    bool
		want   string // of the error; empty: a note
	}{
		"one is gone":              {404, false, ""},
		"one is forbidden":         {403, false, ""},
		"one makes the site fail":  {500, false, ""},
		"all are forbidden":        {403, true, "no issue shows its properties"},
		"the token ends meanwhile": {401, false, "JIRA_TOKEN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				s.retries = -1
				keys := s.issues(3)
				s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.SearchWithoutProperties = true })
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if strings.HasSuffix(req.URL.Path, "/issue/10002") || tt.all && strings.Contains(req.URL.Path, "/issue/") {
						return reply(req, tt.status, `<html>no`)
					}
					return nil
				}
				in, _ := s.process()
				d, err := in.Discover(t.Context())
				if tt.want != "" {
					if err == nil {
						t.Fatal("no error")
					}
					mentions(t, err.Error(), tt.want)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				s.equal([]string{keys[0], keys[2]}, keysOf(d), "items")
				mentions(t, strings.Join(d.Notes, "|"), keys[1], strconv.Itoa(tt.status))
			})
		})
	}
}

func TestAnExpandedChangelogIsReadWhateverItsOrder(t *testing.T) {
	t.Parallel()
	for _, newestFirst := range []bool{false, true} {
		onDataCenter(t, func(s *stage) {
			s.o.MaxEvents = 1000
			s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.HistoriesNewestFirst = newestFirst })
			key := s.issue("a").Key
			want := longHistory(s, key)
			added := slices.Index(want, "label-10122-go-added")
			want = slices.Insert(want, added, "label-10122-a-removed")
			time.Sleep(time.Minute)
			s.reset()
			delta := s.detect(key)
			s.equal(want, occurrenceKeys(delta.Events), "events")
			s.equal([]string{"a"}, delta.Events[0].Event.State.Labels, "labels at first")
			s.equal([]string{"go"}, delta.Events[len(delta.Events)-1].Event.State.Labels, "labels in the end")
			s.equal([]string{"GET /search", "GET /issue/10001?expand=changelog", "GET /issue/10001/comment?expand=properties"}, s.requests()[:3], "requests")
		})
	}
}

func TestAChangelogThatIsCutIsNotBelieved(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		key := s.issue().Key
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if req.URL.Query().Get("expand") == "changelog" {
				return reply(req, 200, `{"id":"10001","changelog":{"startAt":0,"maxResults":100,"total":101,"histories":[]}}`)
			}
			return nil
		}
		if err := s.detectError(key); !errors.Is(err, errShortChangelog) {
			s.t.Errorf("err %v", err)
		}
	})
}

func TestCommandsStandAtTheBeginningOfWikiMarkupOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ markup, command, instruction string }{
		"a plain one":                       {"/fs-code do it", "/fs-code", "do it"},
		"the next line is no part":          {"/fs-code do it\r\nmore\r\n", "/fs-code", "do it"},
		"nothing but the command":           {"/fs-code\r\ndo it", "/fs-code", ""},
		"blank lines before it":             {"\r\n \n/fs-code do it", "/fs-code", "do it"},
		"a forced line break":               {`/fs-code do it\\ more`, "/fs-code", "do it"},
		"a forced line break at the end":    {`/fs-code do it\\`, "/fs-code", "do it"},
		"a path is no line break":           {`/fs-code see \\host\share`, "/fs-code", `see \\host\share`},
		"a smart link":                      {"/fs-code see [https://a.example/b?c=d|https://a.example/b?c=d|smart-link]", "/fs-code", "see https://a.example/b?c=d"},
		"a smart link with a title":         {"/fs-code see [The page|https://a.example/b|smart-card] now", "/fs-code", "see https://a.example/b now"},
		"a bare link":                       {"/fs-code see [https://a.example]", "/fs-code", "see https://a.example"},
		"a link with a text stays":          {"/fs-code see [here|https://a.example]", "/fs-code", "see [here|https://a.example]"},
		"a mention in it":                   {"/fs-code ask [~bob] and [~jane.doe@acme.example]", "/fs-code", "ask @bob and @jane.doe@acme.example"},
		"a mention of Cloud's":              {"/fs-code ask [~accountid:5f00:bob]", "/fs-code", "ask @5f00:bob"},
		"marks stay":                        {"/fs-code *now* {{x}} [1]", "/fs-code", "*now* {{x}} [1]"},
		"a literal part stays":              {"/fs-code {code}[~bob]{code} [~bob]", "/fs-code", "{code}[~bob]{code} @bob"},
		"a mention before it":               {"[~bob] /fs-code do it", "", ""},
		"a mention right before it":         {"[~bob]/fs-code do it", "", ""},
		"a mention of the command":          {"[~/fs-code] do it", "", ""},
		"a link to the command":             {"[/fs-code|https://a.example]", "", ""},
		"a smart link named like a command": {"[/fs-code|https://a.example|smart-link] x", "", ""},
		"a text before it":                  {"please\n/fs-code do it", "", ""},
		"a blank before it":                 {" /fs-code do it", "", ""},
		"in a quote":                        {"{quote}\n/fs-code do it\n{quote}", "", ""},
		"in a quote of one line":            {"{quote}/fs-code do it{quote}", "", ""},
		"after a quote":                     {"{quote}\nx\n{quote}\n/fs-code do it", "", ""},
		"in a line that is a quote":         {"bq. /fs-code do it", "", ""},
		"in a code block":                   {"{code}\n/fs-code do it\n{code}", "", ""},
		"in a code block of a language":     {"{code:java}\n/fs-code do it\n{code}", "", ""},
		"in a literal block":                {"{noformat}\n/fs-code do it\n{noformat}", "", ""},
		"in a panel":                        {"{panel:title=x}\n/fs-code do it\n{panel}", "", ""},
		"in a colour":                       {"{color:red}/fs-code do it{color}", "", ""},
		"in a heading":                      {"h1. /fs-code do it", "", ""},
		"in a list":                         {"* /fs-code do it", "", ""},
		"in a numbered list":                {"# /fs-code do it", "", ""},
		"in a table":                        {"|/fs-code do it|", "", ""},
		"in bold":                           {"*/fs-code do it*", "", ""},
		"an emoji before it":                {":) /fs-code do it", "", ""},
		"after a rule":                      {"----\n/fs-code do it", "", ""},
		"nothing":                           {"", "", ""},
		"blank lines only":                  {"\r\n\r\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := readBody(raw(t, tt.markup)).comment("1")
			if c.Command != tt.command || c.Instruction != tt.instruction {
				t.Errorf("command %q %q, want %q %q (body %q)", c.Command, c.Instruction, tt.command, tt.instruction, c.Body)
			}
			if strings.Contains(c.Body, "\r") {
				t.Errorf("body %q", c.Body)
			}
		})
	}
}

// TestADocumentMeansTheSameInBothFlavours writes what Cloud has as a document in
// wiki markup, as the simulator of Data Center does.
func TestADocumentMeansTheSameInBothFlavours(t *testing.T) {
	t.Parallel()
	cmd := para(txt("/fs-code do it"))
	for name, tt := range map[string]struct{ raw, command, instruction string }{
		"a plain one":                 {doc(cmd, para(txt("more"))), "/fs-code", "do it"},
		"a hard break ends the line":  {doc(para(txt("/fs-code do it"), `{"type":"hardBreak"}`, txt("more"))), "/fs-code", "do it"},
		"an empty paragraph before":   {doc(para(), cmd), "/fs-code", "do it"},
		"a smart link":                {doc(para(txt("/fs-code see "), `{"type":"inlineCard","attrs":{"url":"https://a.example"}}`)), "/fs-code", "see https://a.example"},
		"a mention before it":         {doc(para(`{"type":"mention","attrs":{"id":"5f00:bob","text":"@bob"}}`, txt(" /fs-code do it"))), "", ""},
		"a mention in it":             {doc(para(txt("/fs-code ask "), `{"type":"mention","attrs":{"id":"5f00:bob","text":"@bob"}}`)), "/fs-code", "ask @bob"},
		"in a quote":                  {doc(`{"type":"blockquote","content":[` + cmd + `]}`), "", ""},
		"in a code block":             {doc(`{"type":"codeBlock","content":[` + txt("/fs-code do it") + `]}`), "", ""},
		"in a panel":                  {doc(`{"type":"panel","content":[` + cmd + `]}`), "", ""},
		"in a list":                   {doc(`{"type":"bulletList","content":[{"type":"listItem","content":[` + cmd + `]}]}`), "", ""},
		"in a heading":                {doc(`{"type":"heading","attrs":{"level":1},"content":[` + txt("/fs-code do it") + `]}`), "", ""},
		"a text before it, by itself": {doc(para(txt("please")), cmd), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				var document map[string]any
				if err := json.Unmarshal([]byte(tt.raw), &document); err != nil {
					t.Fatal(err)
				}
				key := s.issue().Key
				time.Sleep(time.Minute)
				s.w.Jira.CommentADF(key, simtest.Alice, document, nil, nil)
				c := s.detect(key).Events[1].Event.Transition.Comment
				s.equal([]string{tt.command, tt.instruction}, []string{c.Command, c.Instruction}, "command and instruction")
			})
		})
	}
}

func TestAHugeWikiBodyIsReadInBoundedTimeAndSpace(t *testing.T) {
	t.Parallel()
	for name, markup := range map[string]string{
		"open literal parts": strings.Repeat("{code}", 200_000), "open links": strings.Repeat("[~a|", 300_000), "blank lines": strings.Repeat(" \n", 600_000),
		"mentions": strings.Repeat("[~ä]", 200_000), "line breaks": strings.Repeat(`\\`, 500_000), "brackets": strings.Repeat("[https://a|", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			b := readBody(raw(t, markup))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(b.Text) > maxText*4 || !strings.HasPrefix(b.Text, b.Lead) {
				t.Errorf("%d bytes of text, lead %.40q", len(b.Text), b.Lead)
			}
		})
	}
}

func TestWhoTheCallerIsStandsInAHeaderWhereThatIsCertain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		header string // of every answer; "-": none
		reads  int    // of /myself, which says bot
		self   string
	}{
		"a plain name":               {"bot", 0, "bot"},
		"an escaped name":            {"b%C3%B6t%2Bx%40acme.example", 0, "böt+x@acme.example"},
		"none":                       {"-", 1, "bot"},
		"anonymous":                  {"anonymous", 1, "bot"},
		"a plus or a blank":          {"b+t", 1, "bot"},
		"an escape that is none":     {"b%zz", 1, "bot"},
		"the same in another header": {"BOT", 0, "BOT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					resp := s.pass(req)
					resp.Header.Del("X-AUSERNAME")
					if tt.header != "-" {
						resp.Header.Set("X-AUSERNAME", tt.header)
					}
					resp.Header.Set("X-AAccountId", "5f00:nobody") // which is not for this flavour
					return resp
				}
				key := s.issue().Key
				s.w.Jira.Comment(key, tt.self, "mine")
				s.equal([]string{"opened-10001"}, occurrenceKeys(s.detect(key).Events), "events")
				s.equal(tt.reads, s.count("GET /myself"), "reads of /myself")
				id, err := s.client.Self(t.Context())
				s.equal(true, err == nil && id == tt.self, "the account is "+id)
			})
		})
	}
}

func TestNamesAreComparedWithoutTheirCase(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		s.w.Jira.AddUser(sim.User{AccountID: "Carol", DisplayName: "Carol", Groups: []string{"Jira-Admins"}})
		s.w.Jira.AddUser(sim.User{AccountID: "ALICE", DisplayName: "Alice again"})
		s.w.Jira.AddUser(sim.User{AccountID: "Nightly", DisplayName: "N"})
		s.o.Bots = []string{"nightly"}
		key := s.issue().Key
		time.Sleep(time.Minute)
		for _, who := range []string{"BOT", "ALICE", "Carol", "Nightly"} {
			s.w.Jira.Comment(key, who, "x")
		}
		delta := s.detect(key)
		s.equal([]string{
			"opened-10001 opened alice write []",
			"comment-10003 comment_added ALICE write []",
			"comment-10004 comment_added Carol admin []",
			"comment-10005 comment_added Nightly external []",
		}, told(delta), "events, none by the product's own account")
		s.equal([]event.ActorKind{event.Human, event.Human, event.Human, event.Bot}, actorKinds(delta), "kinds")
		s.equal(true, delta.Events[1].Event.Actor.IsEntityAuthor, "the reporter")
	})
}

func actorKinds(d poll.Delta) []event.ActorKind {
	var all []event.ActorKind
	for _, o := range d.Events {
		all = append(all, o.Event.Actor.Kind)
	}
	return all
}

func TestBotsAreNamedInTheConfigurationWhereNothingElseTellsThem(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		s.w.Jira.AddUser(sim.User{AccountID: "svc-deploy", DisplayName: "Deployments", Type: "app"})
		for _, bots := range [][]string{nil, {"someone", "svc-deploy"}} {
			s.o.Bots = bots
			key := s.issue().Key
			time.Sleep(time.Minute)
			s.w.Jira.Comment(key, "svc-deploy", "/fs-code")
			want := event.Human
			if bots != nil {
				want = event.Bot
			}
			s.equal([]event.ActorKind{event.Human, want}, actorKinds(s.detect(key)), "kinds")
		}
	})
}

func TestADeletedUserIsExternal(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		key := s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: "gone", Creator: "gone"}).Key
		time.Sleep(time.Minute)
		s.w.Jira.Comment(key, "gone", "/fs-code")
		delta := s.detect(key)
		s.equal([]string{"opened-10001 opened gone external []", "comment-10002 comment_added gone external []"}, told(delta), "events")
		s.equal(true, delta.Events[1].Event.Actor.IsEntityAuthor, "the reporter")
	})
}

func TestAListOfGroupsThatIsCutDecidesNothing(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		key := s.issue().Key
		s.w.Jira.Comment(key, simtest.Mallory, "/fs-code")
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if req.URL.Path == s.path("/user") && req.URL.Query().Get("username") == "mallory" {
				return reply(req, 200, `{"name":"mallory","groups":{"size":51,"items":[{"name":"a"}]}}`)
			}
			return nil
		}
		mentions(s.t, s.detectError(key).Error(), `1 of the 51 groups of "mallory"`, "project PROJ")
	})
}

func TestAPermissionIsFoundAmongAllWhoseNamesBeginAlike(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		t := s.t
		const fellows = 70
		for i := range fellows { // whom the first page shows when zoe is looked for
			name := fmt.Sprintf("ali%02d", i)
			s.w.Jira.AddUser(sim.User{AccountID: name, DisplayName: "Zoe's fellow"})
			s.w.Jira.Grant(simtest.Project, "Developers", name)
		}
		s.w.Jira.AddUser(sim.User{AccountID: "ali", DisplayName: "Ali"})
		s.w.Jira.AddUser(sim.User{AccountID: "zoe", DisplayName: "Ali Baba"})
		s.w.Jira.Grant(simtest.Project, "Developers", "zoe")
		s.process()
		for account, want := range map[string]bool{"ali": false, "ali69": true, "ALI07": true, "mallory": false, "zoe": true} {
			may, err := s.client.mayEdit(t.Context(), simtest.Project, account)
			if err != nil || may != want {
				t.Errorf("%s may edit: %v (%v)", account, may, err)
			}
		}
		s.reset()
		if _, err := s.client.mayEdit(t.Context(), simtest.Project, "mallory"); err != nil {
			t.Error(err)
		}
		s.equal(1, len(s.requests()), "requests for one whose name nobody else's begins with")
	})
}

func TestEverythingThatIsStoredIsAnObject(t *testing.T) {
	t.Parallel()
	for name, signing := range map[string]Signing{
		"unsigned":                            {},
		"signed":                              {Key: []byte("k"), Repo: simtest.Repo, AcceptUnsigned: true},
		"signed, and nothing unsigned counts": {Key: []byte("k"), Repo: simtest.Repo},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				is := s.issue()
				ref := poll.Ref{ID: is.ID, Key: is.Key}
				_, plain := s.process()
				state := plain.Signed(signing)
				if _, err := state.Put(t.Context(), is.ID, []byte(`{"id":"1"}`)); err != nil {
					t.Fatal(err)
				}
				if _, err := state.Load(t.Context(), ref); err != nil {
					t.Fatal(err)
				}
				at := time.Now().Add(-time.Hour)
				if err := errors.Join(
					state.Journal(ref).Commit(t.Context(), "a:comment-1", at, dispatch.Receipt{RunID: 7}),
					state.Advance(t.Context(), ref, poll.Checkpoint{At: at}),
				); err != nil {
					t.Fatal(err)
				}
				for _, p := range s.props().list() {
					stored, _ := s.w.Jira.Property(is.Key, p)
					m := members(stored)
					if m == nil {
						t.Errorf("%s is %s", p, stored)
					}
					s.equal(len(signing.Key) > 0, m["sig"] != nil, "a signature in "+p)
				}
				_, fresh := s.process()
				st, err := fresh.Signed(signing).Load(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				s.equal(true, st.Checkpoint.At.Equal(at), "the checkpoint comes back")
				s.equal(len(signing.Key) > 0, st.Checkpoint.Trusted, "trusted")
				s.equal(map[string]bool{"a:comment-1": true}, st.Keys, "the journal comes back")
				if raw, err := fresh.Get(t.Context(), is.ID); err != nil || scalar(members(raw)["id"]) != "1" {
					t.Errorf("lock %s, err %v", raw, err)
				}
				if _, err := fresh.GetAll(t.Context(), []string{is.ID}); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("reading all locks at once: %v", err)
				}
			})
		})
	}
}

func TestPagesForPeopleAreErrorsThatSayWhatToDo(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html>\n<html><head><title>Oops</title></head><body>::error::x</body></html>"
	for name, tt := range map[string]struct {
		status int
		want   string
		class  dispatch.Class
	}{
		"a page to log in":           {200, "is the base URL a Jira site?", dispatch.Transient},
		"401":                        {401, "JIRA_TOKEN", dispatch.Fatal},
		"403":                        {403, "jira answered 403", dispatch.Transient},
		"404 without a context path": {404, "jira answered 404", dispatch.Transient},
		"500":                        {500, "jira answered 500", dispatch.Transient},
		"503 while it is repaired":   {503, "jira answered 503", dispatch.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDataCenter(t, func(s *stage) {
				t := s.t
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					resp := reply(req, tt.status, page)
					resp.Header.Set("Content-Type", "text/html")
					return resp
				}
				in, _ := s.process()
				_, err := in.Discover(t.Context())
				if err == nil {
					t.Fatal("a page is an answer")
				}
				mentions(t, err.Error(), tt.want, "/rest/api/2/search")
				s.equal(tt.class, dispatch.ClassOf(err), "class")
				if strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "Oops") {
					t.Errorf("the page is repeated: %q", err)
				}
			})
		})
	}
}

func TestInternalCommentsAreKnownByTheirProperty(t *testing.T) {
	t.Parallel()
	for properties, restricted := range map[string]bool{
		`[{"key":"sd.public.comment","value":{"internal":true}}]`:             true,
		`[{"key":"x","value":1},{"key":"sd.public.comment","value":"shape"}]`: true,
		`[{"key":"sd.public.comment"}]`:                                       true,
		`[{"key":"sd.public.comment","value":{"internal":false}}]`:            false,
		`[{"key":"other","value":{"internal":true}}]`:                         false,
		`[]`: false, `null`: false, `{}`: false, `7`: false,
	} {
		c, ok := decodeComment([]byte(`{"id":"5","created":1,"properties":` + properties + `}`))
		if !ok || c.Restricted != restricted {
			t.Errorf("%s: restricted %v (%v)", properties, c.Restricted, ok)
		}
	}
}
