package lease_test

// A model of the lock's whole life: the real Locker, Lease, Judge, Keeper and
// Keepalive on a simulated store and a simulated output, under arbitrary
// schedules. docs/adr/0010-the-locks-life.md has the protocol and its proof.
//
// What goes wrong: requests take from 2 ms to 6 s, below and above W; answers are
// lost, requests are lost or refused; a write whose sender was told that it failed
// lands later; processes are paused before a request and after it, die at any
// request (also between an order and its journal) and are cancelled; every
// process's reckoning of the server's clock is off, and its own clock runs fast or
// slow; runs wait in the queue, are killed, work longer than the threshold,
// operators cancel them; the output does not find a young run and at times does
// not answer.
//
// What is assumed, and what a model without it shows (the tests at the end):
//
//	A1  A read sees every write whose effect came before it.
//	A2  A write lands, if at all, while its context has not passed its deadline:
//	    at most W after the read before it. What is cut off sooner (a connection
//	    that breaks, a cycle that is cancelled) may land until then, and a write
//	    without a deadline until lateness after its sender gave up.
//	A3  From the effect of the last verifying read to the effect of the order no
//	    more than toOrder passes, and to the end of handing over no more than
//	    toHandover. A process that exceeds that counts as dead from then on; a model
//	    cannot promise more, because the output does not ask for the lock.
//	A4  A run is found by the lock's id at most lag after its order.
//	    quiet (10 s) + toOrder + lag + twice the skew stays below freeAfter (30 s).
//	A5  Clocks of two processes differ by less than 0.05 % in speed and by skew in
//	    what they think the server's time is. A read takes 2 ms or more, more than
//	    W's share of that.
//	A6  An operator removes no lock under which a poller may be placing an order: one
//	    that names runs only freeAfter after its last write, one that names none only
//	    when it is stale.
//	A7  A run that does its work and releases its lock takes longer than its poller
//	    takes to place and hand over its orders under that lock. Runs may fail sooner.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/lease"
)

const (
	modelStale   = 15 * time.Minute
	modelPending = 10 * time.Minute
	refreshEvery = 5 * time.Minute
	freeAfter    = 30 * time.Second // these as judge.go has them
	quiet        = 10 * time.Second
)

// terms are the assumptions of one model.
type terms struct {
	// plain takes rule (a) away: neither read and write together nor the write are
	// bounded, and what the store answers to a write is not looked at.
	plain bool
	// behind lets every second poller's reads miss what was written less than that
	// ago (A1).
	behind time.Duration
	// lateness is how long after its sender gave up a write may land; beyond says
	// that it may do so after its deadline too (A2).
	lateness time.Duration
	beyond   bool
	// toOrder and toHandover bound what a poller does between its last verifying
	// read and its order, and the handover's end (A3).
	toOrder, toHandover time.Duration
	// lag is how long a run is not found by its lock's id (A4).
	lag time.Duration
	// skew is how far a process's idea of the server's time is off (A5).
	skew time.Duration
	// rash lets an operator remove a lock that was written just now (A6).
	rash bool
	// brief lets runs release their lock before their poller is done with it (A7).
	brief bool
	// hasty gives every second poller a guard of a tenth.
	hasty bool
}

func assumed() terms {
	return terms{lateness: bound, toOrder: 8 * time.Second, toHandover: 18 * time.Second, lag: 8 * time.Second, skew: 900 * time.Millisecond}
}

// plan is what is drawn for one schedule. Its words decide, one after the other,
// what befalls the requests of one process; 0 is "quick and well", so that a plan
// shrinks to the faults that matter.
type plan struct {
	Pollers, Cycles int
	// Trouble is the share of requests that go wrong, in percent.
	Trouble int
	// Kinds are the only mishaps, where there are any.
	Kinds []mishap
	// Slow is the share of each poller's requests that take about W or longer, in
	// percent.
	Slow []int
	// Spread is how far apart pollers begin that begin together, in ms.
	Spread int
	// Events are the items' events: when each becomes known, in 10 s.
	Events [][]int
	// Duel says that all events are known and all pollers begin together, every
	// second one quick and every other one slow.
	Duel bool
	// Stagger is how long after each other they do begin, the last one first.
	Stagger time.Duration
	// Left says that the first item has the lock of a poller that died long ago.
	Left bool
	// Tapes are the words of each poller at each item, Lives those of each event's
	// runs.
	Tapes, Lives [][]uint64
	// Operator is when somebody cancels what item has, in 10 s.
	Operator []int
}

const (
	mostPollers = 4
	mostEvents  = 3
)

func plans() *rapid.Generator[plan] {
	words := rapid.SliceOfN(rapid.Uint64(), 16, 48)
	life := rapid.SliceOfN(rapid.Uint64(), 4, 14)
	return rapid.Custom(func(t *rapid.T) plan {
		p := plan{
			Pollers: rapid.IntRange(2, mostPollers).Draw(t, "pollers"),
			Cycles:  rapid.IntRange(1, 5).Draw(t, "cycles"),
			Trouble: rapid.SampledFrom([]int{0, 5, 15, 40}).Draw(t, "trouble"),
			Slow:    rapid.SliceOfN(rapid.SampledFrom([]int{1, 5, 20, 60}), mostPollers, mostPollers).Draw(t, "slow"),
			Spread:  rapid.SampledFrom([]int{20, 200, 3000}).Draw(t, "spread"),
			Events:  rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 18), 1, mostEvents), 1, 2).Draw(t, "events"),
		}
		p.Kinds = rapid.SampledFrom(moods()).Draw(t, "mood")
		p.Stagger = rapid.SampledFrom(staggers()).Draw(t, "stagger")
		p.Duel, p.Left = rapid.Bool().Draw(t, "duel"), rapid.Bool().Draw(t, "left")
		for range p.Pollers * len(p.Events) {
			p.Tapes = append(p.Tapes, words.Draw(t, "requests"))
		}
		for _, events := range p.Events {
			for range events {
				p.Lives = append(p.Lives, life.Draw(t, "runs"))
			}
		}
		p.Operator = rapid.SliceOfN(rapid.IntRange(1, 90), 0, 2).Draw(t, "operator")
		return p
	})
}

// moods are mishaps that come together, so that they meet more often.
func moods() [][]mishap {
	return [][]mishap{
		nil,
		{diesBefore, diesAfter},
		{diesAfter, lostAnswer, lostAsking},
		{lostAnswer, broken, lostAsking},
		{pausedPre, pausedPost, diesAfter},
	}
}

func staggers() []time.Duration {
	return []time.Duration{0, 700 * time.Millisecond, 2500 * time.Millisecond, 6 * time.Second, 15 * time.Second}
}

// seeded is a plan for the tests that look for a counterexample.
func seeded(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 7))
	words := func(n int) []uint64 {
		w := make([]uint64, n/3+r.IntN(n))
		for i := range w {
			w[i] = r.Uint64()
		}
		return w
	}
	p := plan{Pollers: 2 + r.IntN(mostPollers-1), Cycles: 1 + r.IntN(5), Trouble: []int{0, 5, 15, 40}[r.IntN(4)], Spread: []int{20, 200, 3000}[r.IntN(3)]}
	for range mostPollers {
		p.Slow = append(p.Slow, []int{1, 5, 20, 60}[r.IntN(4)])
	}
	for range 1 + r.IntN(2) {
		var events []int
		for range 1 + r.IntN(mostEvents) {
			events = append(events, r.IntN(19))
			p.Lives = append(p.Lives, words(10))
		}
		p.Events = append(p.Events, events)
	}
	for range p.Pollers * len(p.Events) {
		p.Tapes = append(p.Tapes, words(30))
	}
	p.Duel, p.Left = r.IntN(2) == 0, r.IntN(2) == 0
	for range r.IntN(3) {
		p.Operator = append(p.Operator, 1+r.IntN(90))
	}
	return p
}

// tape gives out the words of one process, then nothing but zeros.
type tape struct {
	w     *model
	words []uint64
}

func (t *tape) next() fate {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if t.w.calm || len(t.words) == 0 {
		return 0
	}
	word := t.words[0]
	t.words = t.words[1:]
	return fate(word)
}

// fate is a word; its parts are told apart by their place.
type fate uint64

func (f fate) part(i, n int) int { return int(f.share(i) * float64(n)) }

// bad says whether something goes wrong at all.
func (f fate) bad(trouble int) bool { return f != 0 && f.part(5, 100) < trouble }

// share is a number in [0, 1), another one for each i.
func (f fate) share(i int) float64 {
	if f == 0 {
		return 0
	}
	x := (uint64(f) + uint64(i)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return float64((x^x>>32)&0xffffff) / 0x1000000
}

func (f fate) upTo(i int, d time.Duration) time.Duration {
	return time.Duration(f.share(i) * float64(d))
}

// took is how long a request takes: most are quick, for only where one process is
// quick and another slow do two turns overlap in the worst way.
func (f fate) took(slow int) time.Duration {
	const least = 2 * time.Millisecond
	switch {
	case f == 0 || f.part(0, 100) >= slow:
		return least + f.upTo(1, 80*time.Millisecond)
	case f.part(7, 4) == 0:
		return least + f.upTo(1, 6*time.Second)
	case f.part(7, 4) == 1:
		return least + f.upTo(1, bound)
	}
	return bound*4/5 + f.upTo(1, bound)
}

// mishap is what goes wrong with a request.
type mishap int

const (
	fine       mishap = iota
	lostAnswer        // it is done, its sender is told that it failed
	lostAsking        // it is not done, its sender is told so
	broken            // its sender is told at once that it failed, it is done later
	diesBefore        // the sender dies before it
	diesAfter         // the sender dies when it is done
	pausedPre         // the sender is paused before it
	pausedPost        // the sender is paused after it
	mishaps
)

func (f fate) mishap(trouble int, kinds []mishap) mishap {
	if !f.bad(trouble) {
		return fine
	}
	if len(kinds) > 0 {
		return kinds[f.part(6, len(kinds))]
	}
	return mishap(1 + f.part(6, int(mishaps)-1))
}

// pause is how long a process is paused: seconds, or more than a lock's time to live.
func (f fate) pause() time.Duration {
	switch f.part(3, 8) {
	case 0:
		return f.upTo(4, modelPending*3/2)
	case 1, 2:
		return f.upTo(4, time.Minute)
	}
	return f.upTo(4, 12*time.Second)
}

var (
	errDead  = errors.New("the process is dead")
	errReset = errors.New("connection reset")
)

// entry is what the journal says of an event: the run that has it, and whether it
// is to be dispatched again.
type entry struct {
	run   int64
	retry bool
	back  int
}

// hold is a poller's time as a verified holder: from its verifying read to the
// end of its handover.
type hold struct {
	item, lock string
	begin, end time.Time
}

// job is a run as the output knows it.
type job struct {
	run        lease.Run
	item, lock string
	key        string
	at         time.Time
	done       bool
	// over is when its work ended; handed says that its poller wrote it into the
	// lock.
	over   time.Time
	handed bool
	kill   context.CancelCauseFunc
	// began says that the run came by its first refresh and worked; aborted that it
	// did not; revoked that an operator took its event back.
	began, aborted, revoked, succeeded bool
}

// version is a value that the store had.
type version struct {
	at    time.Time
	value []byte
}

// model is one schedule.
type model struct {
	terms
	plan plan
	born time.Time

	mu      sync.Mutex
	calm    bool // nothing goes wrong any more
	store   map[string][]version
	journal map[string]map[string]entry
	jobs    []*job
	working map[string]map[string]int // item, lock: runs at work
	holds   []*hold
	wrote   map[string][]time.Time // lock: when it was written
	// released are the locks that their last run deleted, unknown those of which the
	// output did not say what became of their runs.
	// turns are those under which a poller places orders.
	released, unknown, turns map[string]bool
	locks                    int
	runs                     sync.WaitGroup
	found                    verdict
	log                      []string
}

// verdict is what a schedule came to.
type verdict struct {
	// double are two verified holders at once.
	double []string
	// twice are events on which two runs worked, atOnce runs of two locks that worked
	// at once, lost events that nobody worked on.
	twice, atOnce, lost []string
	// again are events that were ordered a second time.
	again []string
	// spare and stray are the same for a run that its poller did not live to hand
	// over, and whose lock was deleted by the last run that it did name: spare where
	// that run then found its lock gone or never came to it, stray where it worked.
	spare, stray []string
	// cut are runs that lost their lock while they worked.
	cut []string

	orders, contests, adopted, aborts int
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, time.Since(m.born).String()+" "+fmt.Sprintf(format, args...))
}

func (m *model) keyOf(item string, n int) string { return item + "/" + strconv.Itoa(n) }

// process is a poller, a run or an operator: what it shares is its life.
type process struct {
	m     *model
	name  string
	skew  time.Duration
	tapes map[string]*tape
	other *tape
	slow  int
	dead  bool
	// seen is when the last read of an item had its effect.
	seen map[string]time.Time
	// limit is when a process that is placing an order must be done (A3).
	limit map[string]time.Time
	// job is the run that a run's process is.
	job *job
}

func (p *process) serverNow() time.Time { return time.Now().Add(p.skew) }

func (p *process) alive() bool {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return !p.dead
}

func (p *process) die(why string) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if !p.dead {
		p.dead = true
		p.m.note("%s dies: %s", p.name, why)
		if p.job != nil {
			p.job.kill(errDead)
		}
	}
}

func (p *process) tape(item string) *tape {
	if t := p.tapes[item]; t != nil {
		return t
	}
	return p.other
}

// request is one request: it takes its time, has its effect or not, and says so
// or not. A write may land after its sender was told that it failed.
func (p *process) request(ctx context.Context, item string, write bool, effect func()) error {
	if !p.alive() {
		return errDead
	}
	f := p.tape(item).next()
	what := f.mishap(p.m.plan.Trouble, p.m.plan.Kinds)
	if what == diesBefore {
		p.die("before a request")
	}
	if what == pausedPre {
		time.Sleep(f.pause())
	}
	if !p.alive() {
		return errDead
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	took := f.took(p.slow)
	before := took
	if f.part(4, 2) == 0 {
		before = time.Millisecond*2 + f.upTo(3, took-2*time.Millisecond)
	}
	lands := time.Now().Add(before)
	latest, limited := ctx.Deadline()
	land := func() {
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		if limit := p.limit[item]; write && !limit.IsZero() && time.Now().After(limit) {
			p.m.note("%s is too late at %s", p.name, item)
			p.dead = true
			return
		}
		effect()
	}
	// later lets a write land although its sender has been told that it failed
	later := func() {
		if !write || f.part(2, 2) == 0 {
			return
		}
		end := time.Now().Add(p.m.lateness)
		if limited && !p.m.beyond && latest.Before(end) {
			end = latest
		}
		if what == broken && p.m.beyond { // anywhere in that time
			lands = time.Now().Add(f.upTo(4, p.m.lateness))
		}
		if lands.After(end) {
			return
		}
		p.m.runs.Go(func() { time.Sleep(time.Until(lands)); land() })
	}
	if what == broken {
		if err := pause(ctx, min(before, f.upTo(3, took))); err != nil {
			return err
		}
		later()
		return errReset
	}
	if err := pause(ctx, before); err != nil {
		later()
		return err
	}
	if what == lostAsking {
		return errReset
	}
	land()
	if what == diesAfter {
		p.die("after a request")
	}
	if what == pausedPost {
		time.Sleep(f.pause())
	}
	if !p.alive() {
		return errDead
	}
	if err := pause(ctx, took-before); err != nil {
		return err
	}
	if what == lostAnswer {
		return errReset
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// calmLife is the life of the poller that comes last.
const calmLife = 99

// register is the store as one process sees it.
type register struct {
	*process
	// plain has no rule (a), old reads from a copy that is behind.
	plain, old bool
}

func (r register) Get(ctx context.Context, item string) (value []byte, err error) {
	var ago time.Duration
	if r.old {
		ago = r.m.behind
	}
	err = r.request(ctx, item, false, func() {
		r.seen[item] = time.Now()
		value = r.m.value(item, ago)
	})
	switch {
	case err != nil:
		return nil, err
	case value == nil:
		return nil, lease.ErrAbsent
	}
	return value, nil
}

func (r register) Put(ctx context.Context, item string, value []byte) (bool, error) {
	if r.plain {
		ctx = context.WithoutCancel(ctx)
	}
	created := r.plain
	err := r.request(ctx, item, true, func() {
		created = created || r.m.value(item, 0) == nil
		r.m.set(item, value)
		if l, err := lease.Decode(value); err == nil {
			r.m.wrote[l.ID] = append(r.m.wrote[l.ID], time.Now())
		}
		r.m.note("%s writes %s", r.name, value)
	})
	if err != nil {
		return false, err // it may still land
	}
	return created, nil
}

func (r register) Delete(ctx context.Context, item string) error {
	return r.request(ctx, item, true, func() {
		if l, err := lease.Decode(r.m.value(item, 0)); err == nil && r.job != nil {
			r.m.released[l.ID] = true
		}
		r.m.set(item, nil)
		r.m.note("%s deletes %s", r.name, item)
	})
}

// value is what the store had at the given time ago.
func (m *model) value(item string, ago time.Duration) []byte {
	at := time.Now().Add(-ago)
	versions := m.store[item]
	for i := len(versions) - 1; i >= 0; i-- {
		if !versions[i].at.After(at) {
			return versions[i].value
		}
	}
	return nil
}

func (m *model) set(item string, value []byte) {
	if m.behind == 0 {
		m.store[item] = m.store[item][:0]
	}
	m.store[item] = append(m.store[item], version{time.Now(), value})
}

// evidence is the output's knowledge of its runs as one process sees it.
type evidence struct{ *process }

func (e evidence) Standings(ctx context.Context, locks []lease.Lock) []lease.Standing {
	all := make([]lease.Standing, len(locks))
	for i, l := range locks {
		if len(l.Runs) == 0 {
			all[i] = e.Search(ctx, l)
			continue
		}
		all[i] = e.ask(ctx, l, func(j *job) bool { return l.Names(j.run.ID) })
	}
	return all
}

func (e evidence) Search(ctx context.Context, l lease.Lock) lease.Standing {
	return e.ask(ctx, l, func(j *job) bool { return j.lock == l.ID && time.Since(j.at) >= e.m.lag })
}

func (e evidence) ask(ctx context.Context, l lease.Lock, which func(*job) bool) (s lease.Standing) {
	err := e.request(ctx, "", false, func() {
		s.Life = lease.None
		for _, j := range e.m.jobs {
			if !which(j) {
				continue
			}
			s.Runs = append(s.Runs, j.run)
			switch {
			case !j.done:
				s.Life = lease.Alive
			case s.Life == lease.None:
				s.Life = lease.Over
			}
		}
	})
	if err != nil {
		e.m.mu.Lock()
		defer e.m.mu.Unlock()
		e.m.unknown[l.ID] = true
		return lease.Standing{Err: err}
	}
	return s
}

// poller is one process that polls.
type poller struct {
	*process
	locker *lease.Locker
}

func (m *model) process(name string, i int) *process {
	off := []time.Duration{0, m.skew, -m.skew, m.skew / 3}[i%4]
	return &process{m: m, name: name, skew: off, tapes: map[string]*tape{}, other: &tape{w: m}, slow: 10, seen: map[string]time.Time{}, limit: map[string]time.Time{}}
}

// poller starts one; its clock runs a little fast or slow, which is the same as
// waits that are a little too long or too short.
func (m *model) poller(i, life int, tapes map[string]*tape, other *tape) *poller {
	p := &poller{process: m.process(fmt.Sprintf("p%d.%d", i, life), i)}
	p.tapes, p.other, p.slow = tapes, other, m.plan.Slow[i]
	if m.plan.Duel {
		p.slow = []int{1, 60}[i%2]
	}
	drift := []float64{1, 1.0002, 0.9998, 1.0001}[i%4]
	own := func(d time.Duration) time.Duration { return time.Duration(float64(d) * drift) }
	o := lease.Options{
		Register: register{process: p.process, plain: m.plain, old: i%2 == 1 && life < calmLife}, Evidence: evidence{p.process}, Driver: "model",
		Rules: lease.Rules{StaleThreshold: modelStale, PendingTTL: modelPending},
		Guard: own(guard), JitterMin: own(jitterMin), JitterMax: own(jitterMax), CleanUp: cleanUp,
		Now: time.Now, ServerNow: p.serverNow, Rand: func() float64 { return other.next().share(3) },
		NewID: func() string {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.locks++
			return fmt.Sprintf("%s-%d", p.name, m.locks)
		},
	}
	if m.plain {
		start := time.Now()
		o.Now = func() time.Time { return start }
	}
	if m.hasty && i%2 == 0 {
		o.Guard, o.JitterMin, o.JitterMax = guard/10, jitterMin/10, jitterMax/10
	}
	p.locker = lease.New(o)
	return p
}

// poll is a poller's process, started anew whenever it has died.
func (m *model) poll(ctx context.Context, i int) {
	tapes := map[string]*tape{}
	other := &tape{w: m}
	for n := range m.plan.Events {
		words := m.plan.Tapes[i*len(m.plan.Events)+n]
		tapes[strconv.Itoa(n)] = &tape{w: m, words: words[len(words)/4:]}
		other.words = append(other.words, words[:len(words)/4]...)
	}
	p := m.poller(i, 0, tapes, other)
	for n := range m.plan.Cycles {
		f := other.next()
		if m.plan.Duel && n == 0 {
			f = 0
		}
		spread := time.Duration(m.plan.Spread)*time.Millisecond + time.Duration(i)*time.Microsecond
		switch f.part(0, 6) {
		case 0, 1, 2, 3: // by the minute, as cron starts it
			time.Sleep(time.Minute - time.Since(m.born)%time.Minute + f.upTo(2, spread))
		case 4:
			time.Sleep(f.upTo(2, spread))
		case 5:
			time.Sleep(f.upTo(2, 3*time.Minute))
		}
		if n == 0 {
			time.Sleep(time.Duration(m.plan.Pollers-1-i) * m.plan.Stagger)
		}
		if !p.alive() {
			p = m.poller(i, n+1, tapes, other)
		}
		cycle, cancel := context.WithCancel(ctx)
		if f.bad(m.plan.Trouble) {
			time.AfterFunc(f.upTo(3, 8*time.Second), cancel)
		}
		p.cycle(cycle)
		cancel()
	}
}

// cycle does what poll's cycle does.
func (p *poller) cycle(ctx context.Context) {
	var items []string
	for n := range p.m.plan.Events {
		item := strconv.Itoa(n)
		p.m.mu.Lock()
		todo := len(p.m.open(item, p.m.journal[item])) > 0
		p.m.mu.Unlock()
		if todo {
			items = append(items, item)
		}
	}
	if len(items) == 0 {
		return
	}
	grace, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(30*time.Second, done) })()
	var wg sync.WaitGroup
	for _, a := range p.locker.AcquireAll(ctx, items) {
		var held *lease.HeldError
		switch {
		case a.Err == nil:
			p.m.verified(p.process, a.Item, a.Lease.ID())
			wg.Go(func() { p.serve(ctx, grace, a.Item, a.Lease) })
		case errors.As(a.Err, &held) && len(held.Adopted) > 0:
			wg.Go(func() {
				if journal, err := p.load(grace, a.Item); err == nil {
					_ = p.adopt(grace, a.Item, journal, held.Adopted)
				}
			})
		}
	}
	wg.Wait()
}

// verified books that somebody is a verified holder, whether or not he finds
// something to order.
func (m *model) verified(p *process, item, lock string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = append(m.holds, &hold{item: item, lock: lock, begin: p.seen[item], end: p.seen[item]})
}

// open are the events that are known and that the journal has not, the oldest
// first.
func (m *model) open(item string, journal map[string]entry) []string {
	n, _ := strconv.Atoi(item)
	var keys []string
	for i, at := range m.plan.Events[n] {
		key := m.keyOf(item, i)
		if e, done := journal[key]; (m.plan.Duel || time.Since(m.born) >= time.Duration(at)*10*time.Second) && (!done || e.retry) {
			keys = append(keys, key)
		}
	}
	return keys
}

// load reads the journal. The journal is the jira room's, whose tests hold it to
// what is assumed here: what one process writes of an event, no other one's write
// of another event removes.
func (p *process) load(ctx context.Context, item string) (journal map[string]entry, err error) {
	err = p.request(ctx, item, false, func() { journal = maps.Clone(p.m.journal[item]) })
	return journal, err
}

func (p *process) commit(ctx context.Context, item, key string, run int64) error {
	return p.request(ctx, item, true, func() {
		e := p.m.journal[item][key]
		e.run, e.retry = run, false
		p.m.journal[item][key] = e
	})
}

// adopt journals runs that a dead poller has started. How a run is matched to its
// event is poll's matter; here it is known.
func (p *poller) adopt(ctx context.Context, item string, journal map[string]entry, runs []lease.Run) error {
	limit := func(at time.Time) {
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		p.limit[item] = at
	}
	p.m.mu.Lock()
	seen := p.seen[item]
	p.m.mu.Unlock()
	limit(seen.Add(p.m.toHandover))
	defer limit(time.Time{})
	for _, r := range runs {
		key := r.Agent
		if e, done := journal[key]; done && (!e.retry || e.run >= r.ID) {
			continue
		}
		if err := p.commit(ctx, item, key, r.ID); err != nil {
			return err
		}
		journal[key] = entry{run: r.ID}
		p.m.mu.Lock()
		p.m.found.adopted++
		p.m.mu.Unlock()
	}
	return nil
}

// serve does what poll does with one item under its lock.
func (p *poller) serve(ctx, grace context.Context, item string, l *lease.Lease) {
	if !p.m.plain { // which has no clock
		var free context.CancelFunc
		ctx, free = context.WithDeadline(ctx, l.Until())
		defer free()
	}
	p.m.turn(l.ID(), true)
	defer p.m.turn(l.ID(), false)
	keep := false
	defer func() {
		if !keep && p.alive() {
			_ = l.Release(grace)
		}
	}()
	journal, err := p.load(grace, item)
	if err != nil {
		return
	}
	if runs := l.Inherited(); len(runs) > 0 {
		if p.adopt(grace, item, journal, runs) != nil {
			return
		}
		l.Settled()
	}
	p.m.mu.Lock()
	keys := p.m.open(item, journal)
	p.m.mu.Unlock()
	for _, key := range keys {
		if ctx.Err() != nil || l.Verify(grace) != nil {
			return
		}
		placed, more := p.place(grace, item, key, l)
		keep = keep || placed
		if !more {
			return
		}
	}
}

// place puts out one order under a lock that was verified just now.
func (p *poller) place(ctx context.Context, item, key string, l *lease.Lease) (placed, more bool) {
	m := p.m
	m.mu.Lock()
	h := &hold{item: item, lock: l.ID(), begin: p.seen[item]}
	p.limit[item] = h.begin.Add(m.toOrder)
	m.holds = append(m.holds, h)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		h.end = time.Now()
		if limit := p.limit[item]; h.end.After(limit) { // it counts as dead since
			h.end, p.dead = limit, true
		}
		p.limit[item] = time.Time{}
	}()
	var started *job
	err := p.request(ctx, item, true, func() { //nolint:contextcheck // a run outlives the poller that orders it
		started = m.order(item, key, l.ID())
		if h.end.IsZero() {
			p.limit[item] = h.begin.Add(m.toHandover)
		}
	})
	if err != nil {
		return true, false // nobody knows whether there is a run
	}
	journalled := p.commit(ctx, item, key, started.run.ID)
	handed := l.Handover(ctx, started.run)
	m.mu.Lock()
	started.handed = handed == nil
	m.mu.Unlock()
	return true, journalled == nil && handed == nil
}

// order starts a run. The model is locked.
func (m *model) order(item, key, lock string) *job {
	ctx, kill := context.WithCancelCause(context.Background())
	j := &job{item: item, lock: lock, key: key, at: time.Now(), kill: kill}
	j.run = lease.Run{ID: int64(len(m.jobs) + 1), Agent: key}
	m.note("run %d of %s under %s", j.run.ID, key, lock)
	m.found.orders++
	for _, other := range m.jobs {
		if other.key == key && !other.revoked && !other.aborted {
			what := &m.found.again
			if m.released[other.lock] && !other.handed {
				what = &m.found.spare
			}
			*what = append(*what, fmt.Sprintf("%s: runs %d and %d", key, other.run.ID, j.run.ID))
		}
	}
	m.jobs = append(m.jobs, j)
	words := m.life(item, key)
	m.runs.Go(func() { m.live(ctx, j, words) })
	return j
}

func (m *model) life(item, key string) *tape {
	n, _ := strconv.Atoi(item)
	at := 0
	for _, events := range m.plan.Events[:n] {
		at += len(events)
	}
	i, _ := strconv.Atoi(strings.TrimPrefix(key, item+"/"))
	words := m.plan.Lives[at+i]
	used := 0
	for _, j := range m.jobs {
		if j.key == key {
			used++
		}
	}
	return &tape{w: m, words: words[min(len(words), 5*(used-1)):]}
}

// live is a run: it waits for a runner, refreshes, works under keepalive and
// releases.
func (m *model) live(ctx context.Context, j *job, words *tape) {
	p := m.process(fmt.Sprintf("run%d", j.run.ID), int(j.run.ID))
	p.other, p.job = words, j
	defer func() {
		m.mu.Lock()
		if j.over.IsZero() {
			j.over = time.Now()
		}
		m.mu.Unlock()
		time.Sleep(time.Second) // until GitHub says so
		m.mu.Lock()
		defer m.mu.Unlock()
		j.done = true
	}()
	f := words.next()
	queue := 2*time.Second + f.upTo(1, 30*time.Second)
	if f.part(0, 10) == 9 {
		queue = f.upTo(1, 50*time.Minute)
	}
	work := 10*time.Second + f.upTo(2, 3*time.Minute)
	switch f.part(8, 6) {
	case 1:
		work = f.upTo(2, 50*time.Minute)
	case 2, 3: // it fails before its first step
		time.Sleep(f.upTo(1, 3*time.Second))
		return
	}
	if m.brief {
		queue, work = 500*time.Millisecond, 500*time.Millisecond
	}
	if f.bad(m.plan.Trouble) { // somebody pulls the plug
		time.AfterFunc(f.upTo(3, queue+work+time.Minute), func() { p.die("killed") })
	}
	if pause(ctx, queue) != nil || !p.alive() {
		return
	}
	keeper := &lease.Keeper{Register: register{process: p}, ServerNow: p.serverNow}
	asked := time.Now()
	_, err := keeper.Refresh(ctx, j.item, j.lock, j.run)
	for n := 0; err != nil && !errors.Is(err, lease.ErrMissing) && !errors.Is(err, lease.ErrLost) && n < 3; n++ {
		if pause(ctx, 5*time.Second) != nil {
			return
		}
		asked = time.Now()
		_, err = keeper.Refresh(ctx, j.item, j.lock, j.run)
	}
	if ctx.Err() != nil || !p.alive() {
		return // killed: what it did or not is no matter of the lock
	}
	if err != nil {
		p.abort(j, err)
		return
	}
	m.begin(j)
	at, stop := context.WithTimeout(ctx, work)
	defer stop()
	keep := &lease.Keepalive{Keeper: keeper, Item: j.item, ID: j.lock, Run: j.run, Interval: refreshEvery, Threshold: modelStale, Now: time.Now}
	err = keep.Keep(at, asked, 10*time.Second)
	m.end(j)
	if ctx.Err() == nil && (errors.Is(err, lease.ErrMissing) || errors.Is(err, lease.ErrLost)) {
		m.mu.Lock()
		m.found.cut = append(m.found.cut, fmt.Sprintf("%s: run %d: %v", j.item, j.run.ID, err))
		m.mu.Unlock()
	}
	if err != nil || ctx.Err() != nil || !p.alive() {
		return // lost, unconfirmed, cancelled or killed: others find out by asking
	}
	m.mu.Lock()
	j.succeeded = true
	m.mu.Unlock()
	for m.serving(j.lock) && !m.brief {
		time.Sleep(time.Second)
	}
	for range 3 { // what it worked on is journalled first, else it would be dispatched again
		if err = p.ran(ctx, j); err == nil {
			break
		}
	}
	if err == nil {
		for range 3 {
			if _, err = keeper.Release(ctx, j.item, j.lock, j.run); err == nil {
				return
			}
		}
	}
}

// serving says whether a poller may still be placing orders under a lock.
func (m *model) serving(lock string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.wrote[lock]
	return m.turns[lock] && len(at) > 0 && time.Since(at[len(at)-1]) < quiet+m.toHandover
}

// turn notes that a poller begins or ends to place orders under a lock.
func (m *model) turn(lock string, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns[lock] = on
}

func (m *model) begin(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note("run %d of %s works", j.run.ID, j.key)
	for _, other := range m.jobs {
		if other.key == j.key && other.began && !other.revoked {
			what := &m.found.twice
			if m.released[other.lock] && !other.handed {
				what = &m.found.stray
			}
			*what = append(*what, fmt.Sprintf("%s: runs %d and %d", j.key, other.run.ID, j.run.ID))
		}
	}
	j.began = true
	at := m.working[j.item]
	if at == nil {
		at = map[string]int{}
		m.working[j.item] = at
	}
	at[j.lock]++
	if len(at) > 1 {
		what := &m.found.atOnce
		if m.strays(j, at) {
			what = &m.found.stray
		}
		*what = append(*what, fmt.Sprintf("%s: %v", j.item, at))
	}
}

// strays says whether of the runs at work all that are not under j's lock are such
// that the lock did not name when its last run deleted it.
func (m *model) strays(j *job, at map[string]int) bool {
	for _, other := range m.jobs {
		working := other.began && other.over.IsZero() && at[other.lock] > 0
		if working && other.item == j.item && other.lock != j.lock && (other.handed || !m.released[other.lock]) {
			return false
		}
	}
	return true
}

func (m *model) end(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note("run %d of %s ends", j.run.ID, j.key)
	j.over = time.Now()
	if m.working[j.item][j.lock]--; m.working[j.item][j.lock] == 0 {
		delete(m.working[j.item], j.lock)
	}
}

// ran is State.Ran.
func (p *process) ran(ctx context.Context, j *job) error {
	return p.request(ctx, j.item, true, func() {
		e, done := p.m.journal[j.item][j.key]
		if !done || e.retry && e.run != j.run.ID {
			e.run, e.retry = j.run.ID, false
			p.m.journal[j.item][j.key] = e
		}
	})
}

// abort is the end of a run that may not work: it gives its event back, unless the
// journal names another run for it. That it gets through in the end is assumed.
func (p *process) abort(j *job, why error) {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note("run %d of %s is aborted: %v", j.run.ID, j.key, why)
	m.found.aborts++
	j.aborted = true
	e := m.journal[j.item][j.key]
	if e.retry || e.run != 0 && e.run != j.run.ID {
		return
	}
	m.journal[j.item][j.key] = entry{run: j.run.ID, retry: true, back: e.back + 1}
}

// cancel is an operator who cancels the runs of an item's lock.
func (m *model) cancel(n int) {
	item := strconv.Itoa(n % len(m.plan.Events))
	stored := func() (lease.Lock, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		l, err := lease.Decode(m.value(item, 0))
		return l, err == nil
	}
	for range 20 {
		l, ok := stored()
		if !ok {
			return
		}
		// Its poller may be placing an order just now; what is not found yet is found
		// when the lock has stood for that long.
		stands := freeAfter
		if len(l.Runs) == 0 {
			stands = modelPending + m.lag
		}
		if wait := stands + 2*m.skew - time.Since(l.TS); wait > 0 && !m.rash {
			time.Sleep(wait)
			continue
		}
		jobs := m.kill(l)
		if !m.ended(jobs) {
			return // it says so and leaves the lock
		}
		if m.revoke(item, l, jobs) {
			return
		}
	}
}

// kill cancels the runs under a lock that have not done their work.
func (m *model) kill(l lease.Lock) (jobs []*job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		found := j.lock == l.ID && time.Since(j.at) >= m.lag
		if (l.Names(j.run.ID) || found) && !j.succeeded {
			jobs = append(jobs, j)
			j.kill(errors.New("cancelled"))
		}
	}
	return jobs
}

// ended waits until cancelled runs are completed, or the operator's patience is.
func (m *model) ended(jobs []*job) bool {
	for range 150 {
		time.Sleep(2 * time.Second)
		m.mu.Lock()
		ended := !slices.ContainsFunc(jobs, func(j *job) bool { return !j.done })
		m.mu.Unlock()
		if ended {
			return true
		}
	}
	return false
}

// revoke puts the events of cancelled runs back and removes the lock, unless it
// has changed since. An event that its poller did not live to journal is known
// again when the lock is gone; where another poller has taken that over, it may
// count as had by the cancelled run, and the operator is told. A lock with a run
// that succeeded and is not in the journal is left to the pollers: it is the only
// evidence.
func (m *model) revoke(item string, l lease.Lock, jobs []*job) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range jobs {
		if e, journalled := m.journal[item][j.key]; journalled && e.run == j.run.ID {
			e.retry = true
			m.journal[item][j.key] = e
			j.revoked = true
		}
	}
	again, err := lease.Decode(m.value(item, 0))
	if err != nil || again.ID != l.ID {
		return true
	}
	if !again.TS.Equal(l.TS) || len(again.Runs) != len(l.Runs) {
		return false
	}
	for _, j := range m.jobs {
		if (j.lock == l.ID || l.Names(j.run.ID)) && j.succeeded && m.journal[item][j.key].run < j.run.ID {
			return true
		}
	}
	m.note("the operator deletes %s", l.ID)
	m.set(item, nil)
	for _, j := range jobs {
		j.revoked = true
	}
	return true
}

// playOut plays a schedule to its end: some faulty cycles of all pollers, then quiet
// ones of a single poller until nothing is left to do.
func playOut(t *testing.T, p plan, terms terms) (v verdict, log []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &model{terms: terms, plan: p, born: time.Now(), store: map[string][]version{}, journal: map[string]map[string]entry{}, working: map[string]map[string]int{}, wrote: map[string][]time.Time{}, released: map[string]bool{}, unknown: map[string]bool{}, turns: map[string]bool{}}
		for n := range p.Events {
			m.journal[strconv.Itoa(n)] = map[string]entry{}
		}
		if p.Left {
			m.set("0", encoded(t, lease.Lock{ID: "left", TS: time.Now().Add(-modelPending), Phase: lease.Pending}))
		}
		var pollers sync.WaitGroup
		for i := range p.Pollers {
			pollers.Go(func() { m.poll(t.Context(), i) })
		}
		for n, at := range p.Operator {
			pollers.Go(func() {
				time.Sleep(time.Duration(at) * 10 * time.Second)
				m.cancel(n)
			})
		}
		pollers.Wait()
		m.mu.Lock()
		m.calm = true
		m.note("calm")
		m.mu.Unlock()
		last := m.poller(0, calmLife, nil, &tape{w: m})
		// the longest that anything is waited for: a lock that nobody can say anything
		// about, or a long run each event
		for range 240 {
			last.cycle(t.Context())
			if m.served() {
				break
			}
			time.Sleep(time.Minute)
		}
		m.runs.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		v, log = m.judged(), m.log
	})
	return v, log
}

func (m *model) served() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, events := range m.plan.Events {
		item := strconv.Itoa(n)
		for i := range events {
			if e, done := m.journal[item][m.keyOf(item, i)]; !done || e.retry {
				return false
			}
		}
	}
	for _, j := range m.jobs {
		if !j.done {
			return false
		}
	}
	return true
}

// ends is when the generation of a verified lock was over: when its holder had
// handed it over and all runs that it was handed over to had done their work, or,
// where that cannot be found out, when the lock had not been written for its time
// to live.
func (m *model) ends(h *hold, rival time.Time) time.Time {
	end := h.end
	for _, j := range m.jobs {
		if j.lock == h.lock && j.handed && j.over.After(end) {
			end = j.over
		}
	}
	var last time.Time
	for _, at := range m.wrote[h.lock] {
		if at.Before(rival) {
			last = at
		}
	}
	if stale := last.Add(modelPending - 2*m.skew); m.unknown[h.lock] && stale.Before(end) && stale.After(h.end) {
		end = stale
	}
	return end
}

// judged completes the verdict: what is seen only at the end.
func (m *model) judged() verdict {
	v := m.found
	slices.SortFunc(m.holds, func(a, b *hold) int { return cmp.Or(strings.Compare(a.item, b.item), a.begin.Compare(b.begin)) })
	for i, h := range m.holds {
		for _, next := range m.holds[i+1:] {
			if end := m.ends(h, next.begin); next.item == h.item && next.lock != h.lock && next.begin.Before(end) {
				v.double = append(v.double, fmt.Sprintf("%s: %s %v..%v and %s %v", h.item, h.lock, h.begin.Sub(m.born), end.Sub(m.born), next.lock, next.begin.Sub(m.born)))
			}
		}
		if i > 0 && m.holds[i-1].item == h.item && m.holds[i-1].lock != h.lock {
			v.contests++
		}
	}
	for n, events := range m.plan.Events {
		item := strconv.Itoa(n)
		for i := range events {
			key := m.keyOf(item, i)
			if !slices.ContainsFunc(m.jobs, func(j *job) bool { return j.key == key && !j.revoked && !j.aborted }) {
				v.lost = append(v.lost, key)
			}
		}
	}
	return v
}

// schedules is how many a test plays: few by default, MODEL_SCHEDULES for the
// whole proof.
func schedules(t *testing.T, few int) int {
	t.Helper()
	many := os.Getenv("MODEL_SCHEDULES")
	if many == "" {
		return few
	}
	n, err := strconv.Atoi(many)
	if err != nil {
		t.Fatalf("MODEL_SCHEDULES: %v", err)
	}
	return n
}

// TestTheLocksLifeUnderArbitrarySchedules is the proof by play. The whole of it is
//
//	go test -run TestTheLocksLife -timeout 0 ./internal/lease/
//
// with MODEL_SCHEDULES=100000 in the environment; -rapid.seed and the file that
// rapid leaves repeat a schedule.
func TestTheLocksLifeUnderArbitrarySchedules(t *testing.T) {
	t.Parallel()
	var sum verdict
	n, contests, spare, stray := 0, 0, 0, 0
	start := time.Now()
	want := schedules(t, 100)
	for n < want && !t.Failed() {
		rapid.Check(t, func(r *rapid.T) {
			if n >= want {
				return
			}
			v, log := playOut(t, plans().Draw(r, "plan"), assumed())
			n++
			sum.orders += v.orders
			sum.adopted += v.adopted
			sum.aborts += v.aborts
			if v.contests > 0 {
				contests++
			}
			spare += len(v.spare)
			if len(v.stray) > 0 {
				stray++
			}
			if broken := v.broken(); len(broken) > 0 {
				r.Fatalf("%s\n%s", strings.Join(broken, "\n"), strings.Join(log, "\n"))
			}
		})
	}
	t.Logf("%d schedules in %v: 0 double, twice, lost, at once; %d orders, %d schedules with several holders, %d runs adopted, %d aborted, %d orders in vain, %d schedules with a stray run",
		n, time.Since(start).Round(time.Millisecond), sum.orders, contests, sum.adopted, sum.aborts, spare, stray)
	if !t.Failed() && (sum.orders < n || contests < n/6) {
		t.Error("the model is idle")
	}
}

// broken lists the promises that a schedule broke. An order in vain breaks none:
// a run that finds its lock gone does nothing.
func (v verdict) broken() (all []string) {
	for what, list := range map[string][]string{
		"two verified holders in one generation": v.double,
		"two runs worked on one event":           v.twice,
		"an event was ordered twice":             v.again,
		"nobody worked on an event":              v.lost,
		"runs of two locks worked at once":       v.atOnce,
	} {
		for _, l := range list {
			all = append(all, what+": "+l)
		}
	}
	slices.Sort(all)
	return all
}

// Each assumption is there for a reason: without it the model finds a schedule
// that breaks a promise. The first row is plain write-then-verify, without rule
// (a). from is the seed at which the search begins; with MODEL_SCHEDULES it begins
// at 0 and goes on to the end, and says how often the promise broke.
func TestWithoutAnAssumptionAPromiseBreaks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		terms func(*terms)
		shape func(*plan)
		what  func(verdict) []string
		from  int
	}{
		{"plain write-then-verify", func(a *terms) { a.plain = true }, duel, double, 0},
		{"A1: a read misses a write", func(a *terms) { a.behind = bound - 100*time.Millisecond }, replacing(3, 900*time.Millisecond), double, 110},
		{"A2: a write lands whenever it likes", func(a *terms) { a.beyond, a.lateness = true, time.Minute }, failing(5, broken), func(v verdict) []string { return v.cut }, 35},
		{"A3: a holder is paused before its order", func(a *terms) { a.toOrder, a.toHandover = time.Hour, time.Hour }, failing(25, pausedPost), verdict.broken, 90},
		{"A4: a run is not found", func(a *terms) { a.lag = 20 * time.Minute }, failing(5, diesBefore, diesAfter), func(v verdict) []string { return v.again }, 5},
		{"A5: a clock is wrong", func(a *terms) { a.skew = 50 * time.Second }, staggered(4500 * time.Millisecond), double, 0},
		{"A6: an operator is rash", func(a *terms) { a.rash = true }, func(p *plan) { staggered(4500 * time.Millisecond)(p); p.Operator = []int{7, 7} }, double, 5},
		{"A7: a run is done before its poller", func(a *terms) { a.brief = true }, staggered(4500 * time.Millisecond), double, 30},
		{"pollers of different bounds", func(a *terms) { a.hasty = true }, replacing(4, 200*time.Millisecond), double, 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			terms := assumed()
			tc.terms(&terms)
			play := func(seed int) verdict {
				p := seeded(uint64(seed))
				tc.shape(&p)
				v, _ := playOut(t, p, terms)
				return v
			}
			if n := schedules(t, 0); n > 0 {
				first, found := -1, 0
				for seed := range n {
					if len(tc.what(play(seed))) > 0 {
						found++
						if first < 0 {
							first = seed
						}
					}
				}
				t.Logf("%s: %d of %d schedules, the first is number %d", tc.name, found, n, first)
				return
			}
			for seed := tc.from; seed < tc.from+200; seed++ {
				if what := tc.what(play(seed)); len(what) > 0 {
					t.Logf("seed %d: %s", seed, strings.Join(what, "; "))
					return
				}
			}
			t.Error("200 schedules break no promise: the assumption is none, or the model is blind")
		})
	}
}

// duel makes two or more pollers begin together where nothing else goes wrong.
func duel(p *plan) { p.Duel, p.Trouble, p.Operator = true, 0, nil }

// replacing makes them fight for a lock that somebody has left.
func replacing(pollers int, by time.Duration) func(*plan) {
	return func(p *plan) {
		staggered(by)(p)
		p.Pollers, p.Left = pollers, true
	}
}

// staggered makes four begin one after the other.
func staggered(by time.Duration) func(*plan) {
	return func(p *plan) {
		duel(p)
		p.Pollers, p.Stagger = mostPollers, by
		for len(p.Tapes) < p.Pollers*len(p.Events) {
			p.Tapes = append(p.Tapes, p.Tapes[0])
		}
	}
}

// failing makes few things go wrong, and these often.
func failing(cycles int, kinds ...mishap) func(*plan) {
	return func(p *plan) { p.Duel, p.Cycles, p.Trouble, p.Kinds, p.Operator = true, cycles, 25, kinds, nil }
}

func double(v verdict) []string { return v.double }
