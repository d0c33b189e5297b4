package jira

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fullsend/poll-action/internal/httpx"
)

// Limit is how often runs that were aborted may put one key into retry.
const Limit = 3

// GivenBack is what became of a key that a run gives back.
type GivenBack string

// The ends of a [State.GiveBack].
const (
	// Returned: the key is in retry and is dispatched again.
	Returned GivenBack = "returned"
	// Already: it was in retry before.
	Already GivenBack = "already"
	// Dropped: an operator has dropped it; it is not dispatched again.
	Dropped GivenBack = "dropped"
	// Exhausted: it was given back [Limit] times; it is not dispatched again.
	Exhausted GivenBack = "exhausted"
	// Elsewhere: the journal names another run for it.
	Elsewhere GivenBack = "elsewhere"
)

// writes is how often a change of the journal is written that somebody else's
// write removes again.
const writes = 3

// ErrOverwritten says that what was written into the journal was gone again each
// time it was read.
var ErrOverwritten = errors.New("the journal (seen) is overwritten by somebody else each time it is written; let the pollers of this issue come to rest and try again")

// Ran records that run has worked on key, of an event at the given time (zero:
// not known), unless the journal has the key already. For the run's end: the
// poller that started it may have died before it wrote so. Only a run that held
// the lock may say so: a key that another run has given back leaves retry. Item
// is an issue's id or key.
func (s *State) Ran(ctx context.Context, item, key string, at time.Time, run int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.amend(ctx, item, func(d *journalDoc) bool { return d.ran(key, run, s.eventTime(at)) })
}

func (d *journalDoc) ran(key string, run int64, when func(stored int64) int64) (changed bool) {
	e, done := d.Keys[key]
	_, again := d.Retry[key]
	ours := e.Run == run
	if done && (ours || e.Run != 0 && !again) || again && !done {
		return false
	}
	e.T, e.Run = when(e.T), run
	d.Keys[key] = e
	delete(d.Retry, key)
	return true
}

// GiveBack puts key, of an event at the given time (zero: not known), into retry
// on behalf of run, which may not work on it: not when it is dropped, was given
// back [Limit] times, is in retry already, or another run has it. Item is an
// issue's id or key.
func (s *State) GiveBack(ctx context.Context, item, key string, at time.Time, run int64) (GivenBack, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	var end GivenBack
	written := false
	err := s.amend(ctx, item, func(d *journalDoc) bool {
		end = d.giveBack(key, run, s.eventTime(at))
		if end == Already && written {
			end = Returned
			return false
		}
		written = written || end == Returned
		return end == Returned
	})
	if err != nil {
		return "", err
	}
	return end, nil
}

// giveBack changes the journal only where it returns [Returned]. What the comment
// said goes, so that an edit that says the same is dispatched in the key's place.
func (d *journalDoc) giveBack(key string, run int64, when func(stored int64) int64) GivenBack {
	e := d.Keys[key]
	_, again := d.Retry[key]
	switch {
	case again:
		return Already
	case bool(e.D):
		return Dropped
	case e.Run != 0 && e.Run != run:
		return Elsewhere
	case e.N >= Limit:
		return Exhausted
	}
	t := when(e.T)
	d.Retry[key] = t
	d.Keys[key] = entry{T: t, Run: run, N: e.N + 1}
	return Returned
}

// Revoke takes back what the journal says of runs: their keys go into retry, or
// with drop they are marked as dropped, so that no run can give them back any
// more. Returns the keys, sorted. Item is an issue's id or key.
func (s *State) Revoke(ctx context.Context, item string, runs []int64, drop bool) ([]string, error) {
	var keys []string
	err := s.amend(ctx, item, func(d *journalDoc) (changed bool) {
		keys, changed = d.revoke(runs, drop, s.eventTime(time.Time{}))
		return changed
	})
	return keys, err
}

func (d *journalDoc) revoke(runs []int64, drop bool, when func(stored int64) int64) (keys []string, changed bool) {
	for _, key := range sortedKeys(d.Keys) {
		e := d.Keys[key]
		if e.Run <= 0 || !slices.Contains(runs, e.Run) {
			continue
		}
		keys = append(keys, key)
		_, again := d.Retry[key]
		if again != drop && bool(e.D) == drop {
			continue
		}
		changed = true
		if e.D = flag(drop); drop {
			delete(d.Retry, key)
		} else {
			e.T, e.H = when(e.T), ""
			d.Retry[key] = e.T
		}
		d.Keys[key] = e
	}
	return keys, changed
}

// amend reads an issue's journal directly and writes it until a change has
// nothing to add to what stands there. The change may run more than once, each
// time on what was just read, and reports whether it has made one.
func (s *State) amend(ctx context.Context, item string, change func(*journalDoc) bool) error {
	if s.props.Seen == "" {
		return errors.New("the journal cannot be written, because the repository whose journal it is is not known; set GITHUB_REPOSITORY or --repo")
	}
	for n := 0; ; n++ {
		issue, err := s.client.properties(ctx, item, s.props.list()...)
		if err != nil {
			return fmt.Errorf("read the journal (seen): %w", err)
		}
		id := cmp.Or(issue.ID, item)
		_, doc := s.decode(id, issue.Properties)
		if !change(&doc) {
			return nil
		}
		if n == writes {
			return ErrOverwritten
		}
		value, err := doc.encode()
		if err != nil {
			return err
		}
		if s.signer != nil {
			if value, err = s.signer.object(id, s.props.Seen, value); err != nil {
				return fmt.Errorf("sign the journal (seen): %w", err)
			}
		}
		s.forget(item)
		s.forget(id)
		if _, err := s.client.putProperty(httpx.Repeatable(ctx), id, s.props.Seen, value); err != nil {
			return fmt.Errorf("store the journal (seen): %w", err)
		}
	}
}

// eventTime makes an event's time in Unix milliseconds out of what the caller
// and the journal say, as far as those are times at all: the earlier one, for
// detection has to read from there. Where nobody knows, it is now.
func (s *State) eventTime(at time.Time) func(stored int64) int64 {
	given := at.UnixMilli()
	if !timely(given) { // nor is the zero time
		given = s.client.ServerNow().UnixMilli()
	}
	return func(stored int64) int64 {
		if timely(stored) {
			return min(stored, given)
		}
		return given
	}
}

// timely reports whether a retry key's time is believed.
func timely(ms int64) bool { return ms > 0 && ms < maxUnixMilli }

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("%s is no dispatch key: it has to be a text of 1 to %d bytes; pass the input dispatch_key on as it is", quoted(key), maxKey)
	}
	return nil
}
