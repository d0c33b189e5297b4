package jira

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/poll"
)

const (
	// safetyMargin is how far the checkpoint stays behind the start of the reads:
	// what Jira shows us later than that, it stamped later too. Younger events
	// are dispatched at once all the same; the journal keeps the overlap from
	// dispatching them again.
	safetyMargin = 10 * time.Second
	// settleSlack: where nothing new is found and the checkpoint lies less than
	// this behind, it is not written again. Should a property write move an
	// issue's updated after all, its own checkpoint would else call for another
	// one for ever.
	settleSlack = time.Minute
	// ownWrite: a move of updated that lies closer to the checkpoint cannot come
	// from writing it, for a checkpoint lies safetyMargin before its own write.
	ownWrite = safetyMargin - 2*time.Second
	// maxSkipped is how many skipped occurrences of one issue are named.
	maxSkipped = 20
)

// cycle is what the items of one discovery share.
type cycle struct {
	input *Input
	self  string
	roles *roles

	categories memo[categories] // under one key
}

// categories holds the statuses' categories by id, or why they may not be read.
type categories struct {
	byID   map[string]string
	denied error
}

// Item is one issue with something pending.
type Item struct {
	cycle *cycle
	row   issueRow
	ref   poll.Ref
	// prefetched is the changelog that discovery read for all items at once,
	// readAt when that began. The first Detect uses it up.
	prefetched []history
	readAt     time.Time
}

// Ref implements [poll.WorkItem].
func (it *Item) Ref() poll.Ref { return it.ref }

// found is an occurrence before its actor's role is known.
type found struct {
	event.Occurrence
	actor *user
}

// Detect implements [poll.WorkItem]: it reads the issue's changelog and all its
// comments and says what happened after since.
func (it *Item) Detect(ctx context.Context, since poll.Checkpoint) (poll.Delta, error) {
	c := it.cycle.input.client
	lower, replayed := it.lowerBound(since)
	entries, started := it.prefetched, it.readAt
	it.prefetched = nil
	if entries == nil {
		started = c.ServerNow()
		var err error
		if entries, err = c.changelog(ctx, it.row.ID, since.At); err != nil {
			return poll.Delta{}, err
		}
	}
	comments, truncated, err := c.comments(ctx, it.row.ID)
	if err != nil {
		return poll.Delta{}, err
	}
	delta := poll.Delta{Complete: true, Notes: slices.Clone(it.row.Notes)}
	if truncated {
		delta.Notes = append(delta.Notes, "the issue has more comments than are read; edits of the oldest ones are not seen")
	}
	all, newest, notes, err := it.occurrences(ctx, entries, comments, since.At)
	if err != nil {
		return poll.Delta{}, err
	}
	delta.Notes = append(delta.Notes, notes...)

	slices.SortFunc(all, func(a, b found) int { return event.Compare(a.Occurrence, b.Occurrence) })
	var kept []found
	for _, f := range all {
		switch {
		case f.At.After(lower):
			kept = append(kept, f)
		case f.At.After(since.At):
			delta.Skipped = append(delta.Skipped, poll.Skipped{Key: f.Key, At: f.At, Why: replayed})
		}
	}
	if n := len(delta.Skipped); n > maxSkipped {
		delta.Notes = append(delta.Notes, fmt.Sprintf("%d more occurrences are skipped likewise", n-maxSkipped))
		delta.Skipped = delta.Skipped[n-maxSkipped:]
	}
	kept, cut := capped(kept, it.cycle.input.o.MaxEvents)
	for _, f := range kept {
		f.Event.Actor.Role = event.RoleExternal
		if f.actor != nil {
			if f.Event.Actor.Role, err = it.cycle.roles.resolve(ctx, it.row.Project, f.actor.AccountID); err != nil {
				return poll.Delta{}, err
			}
		}
		delta.Events = append(delta.Events, f.Occurrence)
	}
	ceiling := started.Add(-safetyMargin)
	delta.Next = it.next(since, ceiling, newest)
	if cut {
		delta.Complete = false
		delta.Notes = append(delta.Notes, fmt.Sprintf("more than %d events: the rest follows in the next cycle", it.cycle.input.o.MaxEvents))
		delta.Next.At = earlier(delta.Events[len(delta.Events)-1].At, ceiling)
	}
	return delta, nil
}

// lowerBound returns the time that an occurrence must lie after to be
// dispatched, and why what lies before it is not.
func (it *Item) lowerBound(since poll.Checkpoint) (time.Time, string) {
	now, o := it.cycle.input.client.ServerNow(), it.cycle.input.o
	if since.IsZero() {
		lower := it.row.Created.Add(-time.Nanosecond)
		if bound := now.Add(-o.FirstPollWindow); o.FirstPollWindow > 0 && bound.After(lower) {
			return bound, "first sight of this issue, and older than first_poll_window"
		}
		return lower, ""
	}
	if bound := now.Add(-o.ReplayWindow); bound.After(since.At) && !since.Trusted {
		return bound, "older than replay_window"
	}
	return since.At, ""
}

// next is the checkpoint when everything was inspected: as far as the issue was
// updated, so that it becomes settled, but never past the ceiling. newest is the
// time of the newest entry of any kind after since, zero where there is none.
func (it *Item) next(since poll.Checkpoint, ceiling, newest time.Time) poll.Checkpoint {
	updated := it.row.Updated
	if newest.After(updated) {
		updated = newest
	}
	target := earlier(updated, ceiling)
	if it.row.Updated.IsZero() {
		target = ceiling
	}
	if !since.IsZero() && newest.IsZero() {
		if gap := target.Sub(since.At); gap >= ownWrite && gap <= settleSlack || gap <= 0 {
			return since
		}
		target = ceiling
	}
	return poll.Checkpoint{At: target}
}

// capped cuts events to n, but never between two of the same time: a checkpoint
// could not stand between them.
func capped(events []found, n int) (kept []found, cut bool) {
	if len(events) <= n {
		return events, false
	}
	for n < len(events) && events[n].At.Equal(events[n-1].At) {
		n++
	}
	return events[:n], n < len(events)
}

// occurrences makes every occurrence after since out of what was read, without
// roles, and tells the time of the newest entry of any kind after since.
func (it *Item) occurrences(ctx context.Context, entries []history, comments []comment, since time.Time) (all []found, newest time.Time, notes []string, err error) {
	saw := func(at time.Time) bool {
		if !at.After(since) {
			return false
		}
		if at.After(newest) {
			newest = at
		}
		return true
	}
	labels := newLabelHistory(it.row.Labels, entries)
	add := func(key string, at time.Time, seq int64, actor *user, t event.Transition, rawType, rawAction string) {
		if actor != nil && it.cycle.input.client.same(actor.AccountID, it.cycle.self) {
			return // the product's own account never triggers anything
		}
		all = append(all, found{actor: actor, Occurrence: event.Occurrence{
			Key: key, At: at, Seq: seq,
			Event: event.NormalizedEvent{
				Repo: it.cycle.input.o.Repo, Entity: it.entity(), Transition: t,
				Actor:  it.actor(actor),
				State:  event.State{Labels: labels.at(at, seq, rawType)},
				Source: event.Source{System: event.Jira, RawType: rawType, RawAction: rawAction},
			},
		}})
	}
	if !it.row.Created.IsZero() && saw(it.row.Created) {
		author := it.row.Creator
		if author == nil {
			author = it.row.Reporter
		}
		add(event.JiraOpenedKey(it.row.ID), it.row.Created, 0, author, event.Transition{Kind: event.Opened}, "issue", "created")
	}
	for _, h := range entries {
		if !saw(h.Created) {
			continue
		}
		edited := false
		for _, ch := range h.Items {
			switch ch.Field {
			case "labels":
				for _, l := range labelChanges(ch) {
					add(event.JiraLabelKey(h.ID, l.Name, l.Action), h.Created, h.Seq, h.Author,
						event.Transition{Kind: event.LabelChanged, Label: &event.Label{Name: l.Name, Action: l.Action}}, "changelog", "updated")
				}
			case "status":
				kind, note, err := it.statusChange(ctx, ch)
				if err != nil {
					return nil, newest, nil, err
				}
				if note != "" {
					notes = append(notes, note)
				}
				if kind != "" {
					add(event.JiraStatusKey(h.ID), h.Created, h.Seq, h.Author, event.Transition{Kind: kind}, "changelog", "updated")
				}
			case "comment": // a deleted comment is no edit of the issue
			default:
				edited = true
			}
		}
		if edited {
			add(event.JiraEditedKey(h.ID), h.Created, h.Seq, h.Author, event.Transition{Kind: event.Edited}, "changelog", "updated")
		}
	}
	for _, cm := range comments {
		key, at, actor, action := event.JiraCommentKey(cm.ID), cm.Created, cm.Author, "created"
		if cm.edited() { // what stands there now is the editor's text
			key, at, actor, action = event.JiraCommentEditKey(cm.ID, cm.Updated), cm.Updated, cm.UpdateAuthor, "updated"
		}
		if !saw(at) || cm.Restricted && !it.cycle.input.o.RestrictedComments {
			continue
		}
		text := readBody(cm.Body)
		it.cycle.input.state.heard(it.row.ID, cm.ID, text.Text)
		add(key, at, cm.Seq, actor, event.Transition{Kind: event.CommentAdded, Comment: text.comment(cm.ID)}, "comment", action)
	}
	return all, newest, notes, nil
}

func (it *Item) entity() event.Entity {
	id, _ := strconv.ParseInt(it.row.ID, 10, 64) // decodeRow has checked it
	return event.Entity{Kind: event.WorkItem, ID: id, Key: it.row.Key, URL: it.ref.URL}
}

func (it *Item) actor(u *user) event.Actor {
	if u == nil {
		return event.Actor{ID: "unknown", Kind: event.Human}
	}
	a := event.Actor{ID: event.Truncate(u.AccountID, 255), Kind: event.Human}
	isOne := func(id string) bool { return it.cycle.input.client.same(id, u.AccountID) }
	if isBot(u) || slices.ContainsFunc(it.cycle.input.o.Bots, isOne) {
		a.Kind = event.Bot
	}
	a.IsEntityAuthor = it.row.Reporter != nil && isOne(it.row.Reporter.AccountID)
	return a
}

// isBot: an app account, or a name that looks like automation.
func isBot(u *user) bool {
	if u.AccountType == "app" {
		return true
	}
	words := strings.FieldsFunc(strings.ToLower(u.DisplayName), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	for _, w := range words {
		switch w {
		case "bot", "automation", "addon":
			return true
		}
	}
	return false
}

// statusChange tells what a status change is by the entry's own from and to: a
// change of category into or out of done, else nothing. An error means that it
// is not known yet; a note, that it never will be.
func (it *Item) statusChange(ctx context.Context, ch change) (kind event.TransitionKind, note string, err error) {
	from, denied, err := it.category(ctx, ch.From)
	if err != nil {
		return "", "", err
	}
	to, deniedToo, err := it.category(ctx, ch.To)
	if err != nil {
		return "", "", err
	}
	switch {
	case to == "done" && from != "done":
		return event.Closed, "", nil // from a status that is not known any more, too
	case from == "done" && to != "done" && to != "":
		return event.Reopened, "", nil
	case from != "" && to != "":
		return "", "", nil
	}
	if denied = cmp.Or(denied, deniedToo); denied == nil {
		denied = errors.New("a status of it is in no active workflow")
	}
	return "", fmt.Sprintf("the status change from %s to %s cannot be judged: %v", quoted(ch.FromString), quoted(ch.ToString), denied), nil
}

// category returns a status's category by id, empty where it is not known. The
// issue's own current status is known without a request; all others are read
// once per cycle. denied says that the account may not read them.
func (it *Item) category(ctx context.Context, id string) (key string, denied, err error) {
	if current := it.row.Status; id != "" && id == current.ID && current.Category.Key != "" {
		return current.Category.Key, nil, nil
	}
	all, err := it.cycle.categories.get(ctx, "", func() (categories, error) {
		byID, err := it.cycle.input.client.statuses(ctx)
		if statusOf(err) == http.StatusForbidden {
			return categories{denied: &dispatch.Error{Err: err, Cure: "the Jira account needs permission to use Jira"}}, nil
		}
		return categories{byID: byID}, err
	})
	return all.byID[id], all.denied, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
