package jira

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
)

// DriverType is the name of the input driver in configuration and locks.
const DriverType = "jira-poll"

// InputOptions configure the jira-poll input driver; the caller applies
// defaults.
type InputOptions struct {
	// Name tells several drivers of one configuration apart.
	Name string
	// Repo is the target repository, "owner/repo".
	Repo string
	// Queries are JQL conditions, each checked by [CheckQuery]; none means all
	// issues that the account sees.
	Queries []string
	// M is how many issues with something pending one cycle looks at.
	M int
	// ScanLimit bounds the issues that one discovery reads, ScanWindow how long
	// ago they were updated at most.
	ScanLimit  int
	ScanWindow time.Duration
	// FirstPollWindow bounds first sight of an issue (0: no bound), ReplayWindow
	// how far back a checkpoint is believed.
	FirstPollWindow, ReplayWindow time.Duration
	// MaxEvents bounds the events of one issue in one cycle.
	MaxEvents int
	// RestrictedComments: comments that not everybody may see are read too.
	RestrictedComments bool
	// Judge says which locks keep others out; nil: none is known to.
	Judge *lease.Judge
	// LockBound is how long a read and a write of a lock may take together (guard
	// plus jitter_min); the doctor measures against it.
	LockBound time.Duration
	// Conditional: locks are taken by conditional writes (lock.mode); the doctor
	// tries them.
	Conditional bool
	// Authorization says how actors' roles are found.
	Authorization Authorization
	// Bots are accounts that count as bots, whatever they look like.
	Bots []string
	// IntN returns a random number in [0, n).
	IntN func(n int) int
}

// Input is the jira-poll input driver.
type Input struct {
	client *Client
	state  *State
	o      InputOptions
}

// NewInput makes the driver.
func NewInput(c *Client, s *State, o InputOptions) *Input {
	return &Input{client: c, state: s, o: o}
}

// Name implements [poll.Input].
func (in *Input) Name() string { return in.o.Name }

// QueryError says that Jira refuses a query: the configuration is wrong.
type QueryError struct {
	// Index is the query's place in the configuration.
	Index int
	JQL   string
	Err   error
}

// Error names the query and what Jira said.
func (e *QueryError) Error() string {
	return fmt.Sprintf("jira refuses query %d (%s): %v", e.Index+1, quoted(e.JQL), e.Err)
}

// Unwrap returns Jira's answer.
func (e *QueryError) Unwrap() error { return e.Err }

const (
	// searchPage is how many issues are asked for at once. Jira may give fewer.
	searchPage = 100
	// wideEvery: one discovery in so many reads on to the end of the scan
	// window, so that what fell behind the settled pages is found.
	wideEvery = 12
	// maxBack bounds how often a search by offset goes back for rows that moved up.
	maxBack = 10
	// maxBaselinePages bounds a baseline at a million issues.
	maxBaselinePages = 10_000
)

// Discover implements [poll.Input]. An idle site costs one request per query; a
// process that has to find out the flavour needs one more, and a Data Center whose
// searches give no properties one for every issue of the pages that are read.
func (in *Input) Discover(ctx context.Context) (poll.Discovery, error) {
	if err := in.client.Resolve(ctx); err != nil {
		return poll.Discovery{}, err
	}
	s := &scan{in: in, since: in.client.ServerNow().Add(-in.o.ScanWindow), wide: in.o.IntN(wideEvery) == 0, limit: in.o.ScanLimit, seen: map[string]bool{}}
	if err := s.all(ctx); err != nil {
		return poll.Discovery{Scanned: len(s.seen), Notes: s.notes}, err
	}
	pending, held := s.free(ctx)
	self, err := in.client.Self(ctx) // no request where a search answer named the account
	if err != nil {
		return poll.Discovery{Scanned: len(s.seen)}, err
	}
	d := poll.Discovery{Scanned: len(s.seen), Pending: len(pending), Held: held, Notes: s.notes}
	// Among equals the last found come first: while there is a backlog, the
	// first pages are then the last to become settled, so that reading goes on to
	// where the backlog is.
	slices.Reverse(pending)
	slices.SortStableFunc(pending, func(a, b *Item) int { return a.ref.Waiting.Compare(b.ref.Waiting) })
	chosen := in.choose(pending)
	shared := &cycle{input: in, self: self, roles: &roles{client: in.client, auth: in.o.Authorization}}
	if err := in.prefetch(ctx, chosen, &d); err != nil {
		return d, err
	}
	for _, it := range chosen {
		it.cycle = shared
		d.Items = append(d.Items, it)
	}
	return d, nil
}

// free leaves out of the pending issues those whose lock keeps others out, all
// judged at once, counts them and notes those that only a run keeps. The locks are
// the search rows' and may be stale, so this only saves work: a lock itself is
// always read directly. Those of dead pollers whose runs have to be adopted stay in.
func (s *scan) free(ctx context.Context) (free []*Item, held int) {
	in, pending := s.in, s.pending
	if in.o.Judge == nil {
		return pending, 0
	}
	var locked []*Item
	var locks []lease.Lock
	for _, it := range pending {
		raw, err := in.state.lock(it.row.ID, it.row.Properties)
		if err != nil {
			continue
		}
		if lock, err := lease.Decode(raw); err == nil {
			locked, locks = append(locked, it), append(locks, lock)
		}
	}
	if len(locks) == 0 {
		return pending, 0
	}
	out := map[*Item]bool{}
	for i, v := range in.o.Judge.Judge(ctx, locks) {
		if !v.Held || v.Adopt {
			continue
		}
		out[locked[i]] = true
		if !in.o.Judge.Fresh(locks[i], in.client.ServerNow()) {
			s.notes = append(s.notes, fmt.Sprintf("%s: its lock is stale and kept: %s", locked[i].row.Key, v.Why))
		}
	}
	return slices.DeleteFunc(pending, func(it *Item) bool { return out[it] }), len(out)
}

// choose takes M of the pending issues: four in five are the longest waiting, the
// others are drawn by lot from the rest. Issues that never get on (because their
// properties may not be written, say) would else keep every place for ever.
func (in *Input) choose(pending []*Item) []*Item {
	m := in.o.M
	if len(pending) <= m {
		return pending
	}
	sure := m - m/5
	chosen, rest := slices.Clone(pending[:sure]), slices.Clone(pending[sure:])
	for len(chosen) < m {
		i := in.o.IntN(len(rest))
		chosen = append(chosen, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return chosen
}

// prefetch reads the changelogs of all items at once. What the answer leaves out
// is read issue by issue later.
func (in *Input) prefetch(ctx context.Context, items []*Item, d *poll.Discovery) error {
	if len(items) == 0 || in.client.dataCenter() { // which reads them with the issue
		return nil
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.row.ID
	}
	started := in.client.ServerNow()
	logs, err := in.client.changelogs(ctx, ids)
	if err != nil {
		if dispatch.ClassOf(err) == dispatch.Fatal || ctx.Err() != nil {
			return err
		}
		d.Notes = append(d.Notes, "changelogs are read issue by issue, because the bulk request failed: "+err.Error())
	}
	for _, it := range items {
		it.prefetched, it.readAt = logs[it.row.ID], started
	}
	return nil
}

// Baseline implements [poll.Baseliner]: everything that the queries find, with
// no bound on age or number.
func (in *Input) Baseline(ctx context.Context) ([]poll.Seed, error) {
	if err := in.client.Resolve(ctx); err != nil {
		return nil, err
	}
	s := &scan{in: in, wide: true, limit: -1, seen: map[string]bool{}, everything: true}
	started := in.client.now() // Jira's clock is known after the first answer only
	if err := s.all(ctx); err != nil {
		return nil, err
	}
	if _, err := in.client.Self(ctx); err != nil {
		return nil, err
	}
	ceiling := poll.Checkpoint{At: in.client.serverTime(started).Add(-safetyMargin)}
	seeds := make([]poll.Seed, 0, len(s.pending))
	for _, it := range s.pending {
		seed := poll.Seed{Ref: it.ref}
		if in.state.Peek(it.ref).Checkpoint.IsZero() {
			seed.Checkpoint = ceiling
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}

// CheckQuery asks Jira whether it takes the query, with one small search. The
// error is a [*QueryError] when it does not.
func (in *Input) CheckQuery(ctx context.Context, index int, jql string) error {
	if err := in.client.Resolve(ctx); err != nil {
		return err
	}
	query, _, err := searchQuery(jql, in.client.ServerNow().Add(-in.o.ScanWindow))
	if err != nil {
		return err
	}
	_, err = in.client.search(ctx, query, "", 1, []string{"id"}, nil)
	return queryError(index, jql, err)
}

// scan is one walk over all queries' pages.
type scan struct {
	in         *Input
	since      time.Time
	wide       bool
	everything bool            // settled issues too
	limit      int             // -1: none
	seen       map[string]bool // whether the issue is settled
	pending    []*Item
	notes      []string
}

// all walks all queries. Queries that Jira refuses are reported together.
func (s *scan) all(ctx context.Context) error {
	queries := s.in.o.Queries
	if len(queries) == 0 {
		queries = []string{""}
	}
	var refused []error
	for i, jql := range queries {
		err := s.query(ctx, jql)
		var status *StatusError
		if errors.As(err, &status) && status.Status == http.StatusBadRequest {
			refused = append(refused, queryError(i, jql, err))
			continue
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(refused...)
}

func queryError(index int, jql string, err error) error {
	if statusOf(err) == http.StatusBadRequest {
		return &QueryError{Index: index, JQL: jql, Err: err}
	}
	return err
}

// query walks one query's pages until one is wholly settled (or, in a wide scan
// and in an order of the user's own, where that proves nothing, to the end).
func (s *scan) query(ctx context.Context, jql string) error {
	query, ownOrder, err := searchQuery(jql, s.since)
	if s.everything {
		query, err = stableQuery(jql)
	}
	if err != nil {
		return err
	}
	toEnd := s.wide || ownOrder
	pages := maxPages
	if s.limit < 0 { // a baseline takes in whole backlogs
		pages = maxBaselinePages
	}
	repeated := newTokens(pages)
	total, back := 0, 0
	most := searchPage
	for at := ""; ; {
		size := most
		if s.limit >= 0 {
			size = min(size, s.limit-len(s.seen))
		}
		if size <= 0 {
			s.notes = append(s.notes, fmt.Sprintf("scan_limit (%d issues) is reached; what was not read is left for a later cycle", s.limit))
			return nil
		}
		page, err := s.in.client.search(ctx, query, at, size, searchFields(), s.in.state.props.list())
		if errors.Is(err, httpx.ErrTooLarge) && size > 1 {
			most = size / 2 // issues with full properties in long scripts
			continue
		}
		if err != nil {
			return err
		}
		settled, err := s.page(ctx, page.issues)
		if err != nil {
			return err
		}
		if left := total - page.total; at != "" && left > 0 && back < maxBack {
			// Rows that left the result have moved later ones into pages that were
			// read already.
			at, total, back = before(at, left), page.total, back+1
			continue
		}
		total = page.total
		if page.next == "" || settled && !toEnd {
			return nil
		}
		if err := repeated.next(page.next + "/" + strconv.Itoa(back)); err != nil {
			return fmt.Errorf("search: %w", err)
		}
		at = page.next
	}
}

// page takes in the issues of a page and reports whether all are settled.
func (s *scan) page(ctx context.Context, issues []json.RawMessage) (settled bool, err error) {
	rows := make([]issueRow, 0, len(issues))
	for _, raw := range issues {
		row, err := decodeRow(raw)
		if err != nil {
			s.notes = append(s.notes, err.Error())
			continue
		}
		rows = append(rows, row)
	}
	readable, err := s.complete(ctx, rows)
	if err != nil {
		return false, err
	}
	settled = len(readable) == len(rows)
	rows = readable
	for _, row := range rows {
		settled = s.row(row) && settled
	}
	return settled, nil
}

// complete reads the properties of rows that a search of Data Center gave
// without any: not every version gives them. An issue that does not show them is
// noted and left out, unless none does; it is unreadable, not unlocked.
func (s *scan) complete(ctx context.Context, rows []issueRow) ([]issueRow, error) {
	if !s.in.client.dataCenter() {
		return rows, nil
	}
	var g errgroup.Group
	g.SetLimit(8)
	failed := make([]error, len(rows))
	asked := 0
	for i := range rows {
		if _, again := s.seen[rows[i].ID]; again || rows[i].Properties != nil {
			continue
		}
		asked++
		g.Go(func() error {
			issue, err := s.in.client.properties(ctx, rows[i].ID, s.in.state.props.list()...)
			rows[i].Properties, failed[i] = issue.Properties, err
			if statusOf(err) == 0 || dispatch.ClassOf(err) == dispatch.Fatal {
				return err // no answer, or one to the account
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var readable []issueRow
	var notes []string
	var last error
	for i, row := range rows {
		if err := failed[i]; err != nil {
			last = err
			notes = append(notes, fmt.Sprintf("issue %s is left out, for its properties cannot be read: %v", quoted(row.Key), err))
			continue
		}
		readable = append(readable, row)
	}
	if asked > 1 && len(notes) == asked {
		return nil, fmt.Errorf("no issue shows its properties: %w", last)
	}
	s.notes = append(s.notes, notes...)
	return readable, nil
}

// row takes in one issue of a page and reports whether it is settled.
func (s *scan) row(row issueRow) (settled bool) {
	if settled, again := s.seen[row.ID]; again {
		return settled
	}
	settled = s.take(row)
	s.seen[row.ID] = settled
	return settled
}

// take books an issue that was not seen before and reports whether it is
// settled.
func (s *scan) take(row issueRow) (settled bool) {
	state := s.in.state.observe(row.ID, row.Properties)
	it := &Item{row: row, ref: poll.Ref{ID: row.ID, Key: row.Key, URL: s.in.client.base + "/browse/" + row.Key, Waiting: row.Created}}
	if !state.Checkpoint.IsZero() {
		it.ref.Waiting = state.Checkpoint.At
	}
	if s.everything {
		s.pending = append(s.pending, it)
		return false
	}
	if !row.Updated.IsZero() && !row.Updated.After(state.Checkpoint.At) && len(state.Retry) == 0 {
		return true
	}
	s.pending = append(s.pending, it)
	return false
}
