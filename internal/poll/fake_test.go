package poll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/harness"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

var (
	errBoom = errors.New("boom")
	errDead = errors.New("the process is dead")
)

const (
	testGuard = time.Second
	testStale = 10 * time.Minute
	testGrace = 4 * time.Second
	margin    = 10 * time.Second // what a checkpoint keeps from the present
)

// issue is a work item as the tracker stores it.
type issue struct {
	id, key    string
	created    time.Time
	events     []event.Occurrence
	checkpoint Checkpoint
	keys       map[string]bool
	runs       map[int64]bool // those that the journal names
	nameless   map[string]bool
	retry      map[string]time.Time
	// advances are all checkpoints that were ever stored.
	advances []time.Time
}

// world is a tracker and a forge in memory. Everything in it happens in virtual
// time.
type world struct {
	mu     sync.Mutex
	issues []*issue
	locks  *leasetest.Memory
	// log has every call in order, "poller call item".
	log []string
	// fault decides about a call before it has an effect.
	fault func(call, id string) error
	// latency of every call.
	latency func() time.Duration
	// outcome decides what an order comes to; nil starts a run.
	outcome func(o dispatch.Order) error
	// ghost says that an order that fails starts a run all the same.
	ghost func(o dispatch.Order) bool
	// limit bounds the events of one detection, 0 for no bound.
	limit int
	// runs are the started ones by dispatch key, orders all that were placed,
	// committed how many runs of a key the journal took.
	runs, committed map[string]int
	// started are the runs in their order.
	started []*started
	orders  []dispatch.Order
	seq     int64
}

// started is a run as the forge knows it.
type started struct {
	id               int64
	agent, key, lock string
	item             string
	at               time.Time
	done             bool
}

func newWorld() *world {
	return &world{locks: &leasetest.Memory{Now: time.Now}, runs: map[string]int{}, committed: map[string]int{}}
}

func (w *world) issue(id string) *issue {
	for _, i := range w.issues {
		if i.id == id {
			return i
		}
	}
	i := &issue{id: id, key: "PROJ-" + id, created: time.Now().Add(-24 * time.Hour), keys: map[string]bool{}, runs: map[int64]bool{}, retry: map[string]time.Time{}}
	w.issues = append(w.issues, i)
	return i
}

// say adds a comment of a developer and returns its occurrence key.
func (w *world) say(id, body string, ago time.Duration) string {
	return w.sayAs(id, body, ago, event.RoleWrite)
}

func (w *world) sayAs(id, body string, ago time.Duration, role event.Role) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.issue(id)
	w.seq++
	cid := strconv.FormatInt(20000+w.seq, 10)
	i.events = append(i.events, event.Occurrence{
		Key: event.JiraCommentKey(cid), At: time.Now().Add(-ago), Seq: w.seq,
		Event: event.NormalizedEvent{
			Repo:       "acme/shop",
			Entity:     event.Entity{Kind: event.WorkItem, ID: 1, Key: i.key, URL: "https://jira.example.com/browse/" + i.key},
			Transition: event.Transition{Kind: event.CommentAdded, Comment: event.NewComment(cid, body)},
			Actor:      event.Actor{ID: "ann", Kind: event.Human, Role: role},
			State:      event.State{Labels: []string{}},
			Source:     event.Source{System: event.Jira, RawType: "comment", RawAction: "created"},
		},
	})
	slices.SortFunc(i.events, event.Compare)
	return event.JiraCommentKey(cid)
}

// lock returns the stored lock of an issue, nil where there is none.
func (w *world) lock(id string) *lease.Lock {
	l, err := lease.Decode(w.locks.Value(id))
	if err != nil {
		return nil
	}
	return &l
}

// validator is made once: compiling the schema takes longer than a test.
var validator = sync.OnceValues(event.NewValidator)

// poller is one process with its drivers for the world.
type poller struct {
	w    *world
	name string
	// fuse counts the calls that are left until the process dies; it has none
	// where it is negative.
	fuse   atomic.Int64
	dead   atomic.Bool
	mu     sync.Mutex
	peeked map[string]State
	loaded map[string]State
	opts   Options
	intN   func(int) int
	// prepare is asked by Prepare.
	prepare func() error
}

func (w *world) poller(tb testing.TB, name string) *poller {
	tb.Helper()
	v, err := validator()
	if err != nil {
		tb.Fatal(err)
	}
	p := &poller{w: w, name: name, peeked: map[string]State{}, loaded: map[string]State{}}
	p.fuse.Store(-1)
	r := rand.New(rand.NewPCG(1, uint64(len(name))))
	var mu sync.Mutex
	p.intN = func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	var n atomic.Int64
	id := func() string { return fmt.Sprintf("%s-%d", name, n.Add(1)) }
	p.opts = Options{
		Driver: "jira-poll", Property: "fullsend.poll.acme.shop.lock", Input: p, Checkpoints: p, Output: p,
		Locker: lease.New(lease.Options{
			Register: p, Driver: "jira-poll", Rules: lease.Rules{StaleThreshold: testStale}, Evidence: p, Guard: testGuard, JitterMin: 500 * time.Millisecond, JitterMax: 1500 * time.Millisecond,
			CleanUp: testGrace, Now: time.Now, ServerNow: time.Now, Rand: func() float64 { return 0.5 }, NewID: id,
		}),
		Core: dispatch.New(dispatch.Options{Validator: v, Matcher: commands{}}),
		N:    5, Parallel: 4, Grace: testGrace, Now: time.Now, IntN: func(n int) int { return p.intN(n) }, NewID: id,
	}
	return p
}

func (p *poller) cycle(ctx context.Context) *Report { return New(p.opts).Run(ctx) }

// commands matches slash commands: /fs-triage and /fs-code are for the agent of
// that name, /fs-both for both.
type commands struct{}

func (commands) Match(_ context.Context, ev event.NormalizedEvent) []harness.Decision {
	var out []harness.Decision
	for _, agent := range []string{"triage", "code"} {
		d := harness.Decision{Agent: agent, Role: agent, Reason: "another command"}
		if c := ev.Transition.Comment; c != nil && (c.Command == "/fs-"+agent || c.Command == "/fs-both") {
			d.Matched, d.Reason = true, "its command"
		}
		out = append(out, d)
	}
	return out
}

// call is the way of every request: it takes its time, is logged and may fail,
// and a dead process makes none.
func (p *poller) call(ctx context.Context, name, id string) error {
	if p.dead.Load() {
		return errDead
	}
	if p.w.latency != nil {
		t := time.NewTimer(p.w.latency())
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.fuse.Load() >= 0 && p.fuse.Add(-1) < 0 {
		p.dead.Store(true)
	}
	if p.dead.Load() {
		return errDead
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.log = append(p.w.log, p.name+" "+name+" "+id)
	if p.w.fault != nil {
		return p.w.fault(name, id)
	}
	return nil
}

// calls returns the logged calls that contain any of the words.
func (w *world) calls(words ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, l := range w.log {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(l, word) }) {
			out = append(out, l)
		}
	}
	return out
}

// Name names input and output.
func (p *poller) Name() string { return "fake" }

// work is an issue as a poller sees it.
type work struct {
	p   *poller
	ref Ref
}

func (i *issue) state() State {
	return State{Checkpoint: i.checkpoint, Keys: maps.Clone(i.keys), Runs: maps.Clone(i.runs), Nameless: i.nameless, Retry: maps.Clone(i.retry)}
}

func (i *issue) updated() time.Time {
	if len(i.events) == 0 {
		return i.created
	}
	return i.events[len(i.events)-1].At
}

func (i *issue) ref() Ref {
	since := i.checkpoint.At
	if since.IsZero() {
		since = i.created
	}
	return Ref{ID: i.id, Key: i.key, URL: "https://jira.example.com/browse/" + i.key, Waiting: since}
}

func (p *poller) Discover(ctx context.Context) (Discovery, error) {
	if err := p.call(ctx, "discover", ""); err != nil {
		return Discovery{}, err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	d := Discovery{Scanned: len(p.w.issues)}
	rules := lease.Rules{StaleThreshold: testStale}
	for _, i := range p.w.issues {
		if !i.updated().After(i.checkpoint.At) && len(i.retry) == 0 {
			continue
		}
		d.Pending++
		if l := p.w.lock(i.id); l != nil && len(l.Runs) == 0 && rules.Fresh(*l, time.Now()) {
			d.Held++
			continue
		}
		p.mu.Lock()
		p.peeked[i.id] = i.state()
		p.mu.Unlock()
		d.Items = append(d.Items, work{p, i.ref()})
	}
	slices.SortStableFunc(d.Items, func(a, b WorkItem) int {
		return cmp.Compare(a.Ref().Waiting.UnixNano(), b.Ref().Waiting.UnixNano())
	})
	return d, nil
}

func (p *poller) Baseline(ctx context.Context) ([]Seed, error) {
	if err := p.call(ctx, "baseline", ""); err != nil {
		return nil, err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	var out []Seed
	for _, i := range p.w.issues {
		s := Seed{Ref: i.ref()}
		if i.checkpoint.IsZero() {
			s.Checkpoint.At = i.updated()
		}
		out = append(out, s)
	}
	return out, nil
}

func (x work) Ref() Ref { return x.ref }

func (x work) Detect(ctx context.Context, since Checkpoint) (Delta, error) {
	ceiling := time.Now().Add(-margin)
	if err := x.p.call(ctx, "detect", x.ref.ID); err != nil {
		return Delta{}, err
	}
	w := x.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.issue(x.ref.ID)
	d := Delta{Next: Checkpoint{At: i.updated()}, Complete: true}
	if ceiling.Before(d.Next.At) {
		d.Next.At = ceiling
	}
	for _, e := range i.events {
		if !e.At.After(since.At) {
			continue
		}
		if w.limit > 0 && len(d.Events) == w.limit {
			d.Complete = false
			if last := e.At.Add(-time.Nanosecond); last.Before(d.Next.At) {
				d.Next.At = last
			}
			break
		}
		d.Events = append(d.Events, e)
	}
	if d.Next.At.Before(since.At) {
		d.Next = since
	}
	return d, nil
}

func (p *poller) Peek(item Ref) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peeked[item.ID]
}

func (p *poller) Load(ctx context.Context, item Ref) (State, error) {
	if err := p.call(ctx, "load", item.ID); err != nil {
		return State{}, err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded[item.ID] = p.w.issue(item.ID).state()
	return p.w.issue(item.ID).state(), nil
}

func (p *poller) Advance(ctx context.Context, item Ref, to Checkpoint) error {
	if err := p.call(ctx, "advance", item.ID); err != nil {
		return err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	i := p.w.issue(item.ID)
	i.checkpoint = to
	i.advances = append(i.advances, to.At)
	return nil
}

// notes is a journal that writes back the whole document that it loaded, as the
// one in Jira does.
type notes struct {
	p  *poller
	id string
}

func (p *poller) Journal(item Ref) Journal { return notes{p, item.ID} }

func (j notes) Begin(ctx context.Context, key string) (bool, error) {
	if err := j.p.call(ctx, "begin", key); err != nil {
		return false, err
	}
	j.p.mu.Lock()
	defer j.p.mu.Unlock()
	s := j.p.loaded[j.id]
	_, again := s.Retry[key]
	return again || !s.Keys[key], nil
}

func (j notes) store(ctx context.Context, name, key string, change func(s State)) error {
	if err := j.p.call(ctx, name, key); err != nil {
		return err
	}
	j.p.w.mu.Lock()
	defer j.p.w.mu.Unlock()
	j.p.mu.Lock()
	defer j.p.mu.Unlock()
	change(j.p.loaded[j.id])
	i := j.p.w.issue(j.id)
	i.keys, i.runs, i.retry = maps.Clone(j.p.loaded[j.id].Keys), maps.Clone(j.p.loaded[j.id].Runs), maps.Clone(j.p.loaded[j.id].Retry)
	return nil
}

func (j notes) Commit(ctx context.Context, key string, _ time.Time, r dispatch.Receipt) error {
	return j.store(ctx, "commit", key, func(s State) {
		s.Keys[key] = true
		delete(s.Retry, key)
		if r.RunID > 0 {
			s.Runs[r.RunID] = true
			j.p.w.committed[key]++
		}
	})
}

func (j notes) Abort(ctx context.Context, key string, at time.Time, cause error) error {
	if dispatch.ClassOf(cause) != dispatch.Permanent {
		return nil
	}
	return j.Commit(ctx, key, at, dispatch.Receipt{})
}

func (j notes) Forget(ctx context.Context, keys []string) error {
	return j.store(ctx, "forget", strings.Join(keys, ","), func(s State) {
		for _, k := range keys {
			delete(s.Retry, k)
		}
	})
}

func (p *poller) Prepare(ctx context.Context) error {
	if err := p.call(ctx, "prepare", ""); err != nil {
		return err
	}
	if p.prepare != nil {
		return p.prepare()
	}
	return nil
}

func (p *poller) Dispatch(ctx context.Context, o dispatch.Order) (dispatch.Receipt, error) {
	if err := p.call(ctx, "dispatch", o.Key); err != nil {
		return dispatch.Receipt{}, err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.orders = append(p.w.orders, o)
	if p.w.outcome != nil {
		if err := p.w.outcome(o); err != nil {
			if p.w.ghost != nil && p.w.ghost(o) && dispatch.ClassOf(err) == dispatch.Unknown {
				p.start(o)
			}
			return dispatch.Receipt{}, err
		}
	}
	n := p.start(o)
	return dispatch.Receipt{RunID: n, RunURL: fmt.Sprintf("https://github.com/acme/shop/actions/runs/%d", n)}, nil
}

// start starts the order's run; the caller holds the world.
func (p *poller) start(o dispatch.Order) int64 {
	p.w.runs[o.Key]++
	r := &started{id: int64(100 + len(p.w.orders)), agent: o.Agent, key: o.Key, lock: o.Lock.ID, item: strings.TrimPrefix(o.Event.Entity.Key, "PROJ-"), at: time.Now()}
	p.w.started = append(p.w.started, r)
	return r.id
}

// Standings is what the forge knows of the runs under locks.
func (p *poller) Standings(ctx context.Context, locks []lease.Lock) []lease.Standing {
	out := make([]lease.Standing, len(locks))
	for i, l := range locks {
		out[i] = p.standing(ctx, l, false)
	}
	return out
}

func (p *poller) Search(ctx context.Context, l lease.Lock) lease.Standing {
	return p.standing(ctx, l, true)
}

func (p *poller) standing(ctx context.Context, l lease.Lock, byID bool) lease.Standing {
	name := "evidence"
	if byID && len(l.Runs) > 0 {
		name = "search"
	}
	if err := p.call(ctx, name, l.ID); err != nil {
		return lease.Standing{Err: err}
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s := lease.Standing{Life: lease.None}
	for _, r := range p.w.started {
		if named := l.Names(r.id); !named && (r.lock != l.ID || len(l.Runs) > 0 && !byID) {
			continue
		}
		s.Runs = append(s.Runs, lease.Run{Agent: r.agent, ID: r.id, Created: r.at})
		if s.Life == lease.None {
			s.Life = lease.Over
		}
		if !r.done {
			s.Life = lease.Alive
		}
	}
	return s
}

// end lets the runs of the world end. One that still holds its lock journals its
// key and gives the lock back, unless it is killed.
func (w *world) end(killed func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.started {
		if r.done {
			continue
		}
		r.done = true
		l, i := w.lock(r.item), w.issue(r.item)
		if killed() || l == nil || l.ID != r.lock {
			continue
		}
		if _, again := i.retry[r.key]; (again || !i.keys[r.key]) && !i.runs[r.id] {
			i.keys[r.key], i.runs[r.id] = true, true
			delete(i.retry, r.key)
		}
		if !slices.ContainsFunc(w.started, func(o *started) bool { return o.lock == r.lock && !o.done }) {
			w.locks.Set(r.item, nil)
		}
	}
}

func (p *poller) Get(ctx context.Context, item string) ([]byte, error) {
	if err := p.call(ctx, "lock-get", item); err != nil {
		return nil, err
	}
	return p.w.locks.Get(ctx, item)
}

func (p *poller) Put(ctx context.Context, item string, value []byte) (bool, error) {
	if err := p.call(ctx, "lock-put", item); err != nil {
		return false, err
	}
	return p.w.locks.Put(ctx, item, value)
}

func (p *poller) Delete(ctx context.Context, item string) error {
	if err := p.call(ctx, "lock-delete", item); err != nil {
		return err
	}
	return p.w.locks.Delete(ctx, item)
}

// classed makes an error of a class.
func classed(c dispatch.Class) error { return &dispatch.Error{Class: c, Err: errBoom} }

// rowOf returns an item's row.
func rowOf(t *testing.T, rep *Report, key string) Row {
	t.Helper()
	for _, r := range rep.Items {
		if r.Key == key {
			return r
		}
	}
	t.Fatalf("no row for %s in %+v", key, rep.Items)
	return Row{}
}
