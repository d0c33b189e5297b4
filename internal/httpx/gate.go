package httpx

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// queueGap is the distance at which those who wait for the end of one pause
	// leave, so that it does not end in the next burst.
	queueGap = 20 * time.Millisecond
	// firstGap and lastGap bound the distance of requests near a limit: it
	// starts with the first, doubles with every answer that is still near, and
	// is gone with the first that is not.
	firstGap = 100 * time.Millisecond
	lastGap  = 2 * time.Second
	// maxScopes is the number of scopes above which those are forgotten that
	// hold nothing back, or have not been heard of for forgetAfter.
	maxScopes   = 256
	forgetAfter = 10 * time.Minute
)

// gate holds requests back until every scope they belong to lets them go.
//
// A scope has a pause, which the server demands and nothing overrides, and a
// spacing, which is our own courtesy and gives way to a deadline. Requests
// leave in the order in which they came, except that one which is held back by
// one scope does not hold up those that are not in it. All times are of the
// local clock; a timer that has run out counts as much as the clock, so that a
// clock that stands still stops nobody.
type gate struct {
	now     func() time.Time
	maxWait time.Duration

	mu     sync.Mutex
	scopes map[string]*scope
	queue  []*waiter
}

type scope struct {
	due     time.Time // when the pause ends by the server
	until   time.Time // when it ends by us: due and jitter
	reason  string    // of the pause
	strikes int       // pauses since the last request that got through
	gap     time.Duration
	next    time.Time // when the spacing lets the next request go
	noted   time.Time // when the scope was last learnt about
}

type waiter struct {
	keys  []string
	since time.Time
	hurry bool          // spacing would outlast the caller's deadline
	left  time.Time     // zero as long as it waits
	turn  chan struct{} // closed when it may leave
	poke  chan struct{} // a scope's pause has changed
}

// held is what a request went through before it left.
type held struct {
	wait   time.Duration
	reason string
}

// pass waits until the scopes of keys let a request go. When a pause is longer
// than ctx or maxWait allow, it does not wait, or no further, and returns a
// [*LimitError].
func (g *gate) pass(ctx context.Context, keys []string) (held, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.now()
	w := &waiter{keys: keys, since: at, turn: make(chan struct{}), poke: make(chan struct{}, 1)}
	g.queue = append(g.queue, w)
	defer func() { g.queue = slices.DeleteFunc(g.queue, func(o *waiter) bool { return o == w }) }()
	var h held
	for {
		if err := g.refuse(ctx, w, at); err != nil {
			h.wait = at.Sub(w.since)
			return h, err
		}
		g.run(at)
		if !w.left.IsZero() {
			h.wait = w.left.Sub(w.since)
			return h, nil
		}
		opens, reason := g.opens(w)
		h.reason = reason
		var err error
		if at, err = g.sleep(ctx, w, at, opens); err != nil {
			h.wait = at.Sub(w.since)
			return h, err
		}
	}
}

// check is refuse for a request that is still to come.
func (g *gate) check(ctx context.Context, keys []string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	return g.refuse(ctx, &waiter{keys: keys, since: now}, now)
}

// refuse returns the error of a pause that w must not sit out. It also sees
// when w cannot afford the spacing.
func (g *gate) refuse(ctx context.Context, w *waiter, at time.Time) error {
	var due, until, spaced time.Time
	var reason string
	for _, key := range w.keys {
		s := g.scopes[key]
		if s == nil {
			continue
		}
		due = later(due, s.due)
		if s.until.After(until) {
			until, reason = s.until, s.reason
		}
		ahead := 0
		for _, o := range g.queue {
			if o == w {
				break
			}
			if slices.Contains(o.keys, key) {
				ahead++
			}
		}
		spaced = later(spaced, later(s.until, s.next).Add(time.Duration(ahead)*max(s.gap, queueGap)))
	}
	if until.After(at) && (due.Sub(w.since) > g.maxWait || !affords(ctx, until.Sub(at))) {
		return &LimitError{Reason: reason, Until: until, Wait: until.Sub(at)}
	}
	w.hurry = spaced.After(at) && (spaced.Sub(w.since) > g.maxWait || !affords(ctx, spaced.Sub(at)))
	return nil
}

// affords says whether ctx lives longer than d. It asks the context itself: a
// deadline is a time of the process's clock, which need not be the local one.
func affords(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return true
	}
	early, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(-d))
	defer cancel()
	return early.Err() == nil
}

// opens returns when the last scope lets w go, and why not sooner.
func (g *gate) opens(w *waiter) (at time.Time, reason string) {
	for _, key := range w.keys {
		s := g.scopes[key]
		if s == nil {
			continue
		}
		if s.until.After(at) {
			at, reason = s.until, s.reason
		}
		if !w.hurry && s.next.After(at) {
			at, reason = s.next, s.reason
			if s.gap > 0 || reason == "" {
				reason = ReasonNearLimit
			}
		}
	}
	return at, reason
}

// run lets those go whose time has come.
func (g *gate) run(now time.Time) {
	waiting := g.queue
	g.queue = nil
	for i, w := range waiting {
		if at, _ := g.opens(w); at.After(now) {
			g.queue = append(g.queue, w)
			continue
		}
		rest := waiting[i+1:]
		for _, key := range w.keys {
			switch s := g.scopes[key]; {
			case s == nil:
			case s.gap > 0:
				s.next = now.Add(s.gap)
			case slices.ContainsFunc(rest, func(o *waiter) bool { return slices.Contains(o.keys, key) }):
				s.next = now.Add(queueGap)
			}
		}
		w.left = now
		close(w.turn)
	}
}

// sleep returns, with the time, when w's turn or its time has come or
// something has changed. It lets go of the lock meanwhile.
func (g *gate) sleep(ctx context.Context, w *waiter, at, target time.Time) (time.Time, error) {
	g.mu.Unlock()
	defer g.mu.Lock()
	timer := time.NewTimer(target.Sub(at))
	defer timer.Stop()
	select {
	case <-w.turn:
	case <-w.poke:
	case <-timer.C:
		return later(g.now(), target), nil
	case <-ctx.Done():
		return later(g.now(), at), context.Cause(ctx)
	}
	return later(g.now(), at), nil
}

// closing is a pause that a server asks for.
type closing struct {
	reason string
	// named is the wait that the server names, least our own, which doubles
	// with every request that is refused as soon as the last pause is over.
	named, least time.Duration
	// refused is false for a pause that the server announces in time.
	refused bool
	jitter  func(time.Duration) time.Duration
}

// pause closes a scope from the time at which an answer was received, for the
// longer of the named and our own wait, which it returns, and jitter.
func (g *gate) pause(key string, c closing, sent, received time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.scope(key, received)
	if c.refused && !sent.Before(s.until) {
		s.strikes++ // not one of many that were under way at once
	}
	own := c.least
	for i := 1; i < s.strikes && own < g.maxWait; i++ {
		own = min(2*own, g.maxWait)
	}
	wait := max(own, c.named)
	due := received.Add(wait)
	s.due = later(s.due, due)
	if until := due.Add(c.jitter(wait)); until.After(s.until) {
		s.until, s.reason = until, c.reason
	}
	s.noted = received
	for _, w := range g.queue {
		if slices.Contains(w.keys, key) {
			select {
			case w.poke <- struct{}{}:
			default:
			}
		}
	}
	return wait
}

// slow spaces the requests of a scope, further than before: at least first and
// at most last apart.
func (g *gate) slow(key string, sent, received time.Time, first, last time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.scope(key, received)
	if s.gap > 0 && sent.Before(s.noted) {
		return // it left before the spacing was as wide as it is
	}
	s.gap = min(max(2*s.gap, first), last)
	s.next = later(s.next, received.Add(s.gap))
	s.noted = received
}

// clear notes that a request of the scopes got through with no limit near.
// Those sent before something was last heard of a scope prove nothing.
func (g *gate) clear(keys []string, sent, received time.Time, through bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		s := g.scopes[key]
		if s == nil || sent.Before(s.noted) || sent.Before(s.until) {
			continue
		}
		s.strikes = 0
		if through && s.gap > 0 {
			s.gap, s.next = 0, time.Time{}
		}
	}
	g.run(received)
}

// scope returns the scope of key and makes it if need be.
func (g *gate) scope(key string, now time.Time) *scope {
	if s := g.scopes[key]; s != nil {
		return s
	}
	if len(g.scopes) >= maxScopes {
		for k, s := range g.scopes {
			open := !s.until.After(now) && !s.next.After(now)
			if open && (s.gap == 0 && s.strikes == 0 || now.Sub(s.noted) > forgetAfter) {
				delete(g.scopes, k)
			}
		}
	}
	s := &scope{}
	g.scopes[key] = s
	return s
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
