package jira

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/poll"
)

// journalDoc is the property "seen" (contract, section 4).
type journalDoc struct {
	V     int              `json:"v"`
	Keys  map[string]entry `json:"keys"`
	Retry map[string]int64 `json:"retry,omitempty"`
	// LastCheckSigs are the signatures of the present and the previous lastCheck
	// where that is a text, which cannot carry one.
	LastCheckSigs []string `json:"lastCheckSigs,omitempty"`
}

// entry is one dispatched key: the event's time in Unix milliseconds and the
// run's id, 0 for an order that was refused for good. H, for a comment, is the
// digest of what it said. N is how often a run that was aborted has put the key
// into retry, D that it must not go there: an operator dropped it, or it was refused.
type entry struct {
	T   int64  `json:"t"`
	Run int64  `json:"run"`
	H   string `json:"h,omitempty"`
	N   tally  `json:"n,omitempty"`
	D   flag   `json:"d,omitempty"`
}

// size is about how long the entry is as JSON.
func (e entry) size() int {
	n := len(`{"t":,"run":}`) + digits(e.T) + digits(e.Run)
	if e.H != "" {
		n += len(`,"h":""`) + len(e.H)
	}
	if e.N != 0 {
		n += len(`,"n":`) + digits(int64(e.N))
	}
	if e.D {
		n += len(`,"d":true`)
	}
	return n
}

// lasting reports whether the entry says what nothing else does, so that it goes
// last when the journal is full.
func (e entry) lasting() bool { return e.N > 0 || bool(e.D) && e.Run > 0 }

// tally is a count from 0 to [Limit]; what is stored beyond that counts as the
// nearest, and what is no number as 0, so that the entry itself is still believed.
type tally int

// UnmarshalJSON takes anything.
func (n *tally) UnmarshalJSON(raw []byte) error {
	*n = 0
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		f, _ := number.Float64() // out of range is an infinity
		*n = tally(min(max(f, 0), Limit))
	}
	return nil
}

// flag is true where true is stored, false for anything else.
type flag bool

// UnmarshalJSON takes anything.
func (f *flag) UnmarshalJSON(raw []byte) error {
	*f = string(raw) == "true"
	return nil
}

func newJournalDoc() journalDoc {
	return journalDoc{V: 1, Keys: map[string]entry{}, Retry: map[string]int64{}}
}

// maxJournal leaves room for signatures below Jira's cap.
const maxJournal = maxProperty - 512

// maxKey bounds a dispatch key that is believed, in bytes.
const maxKey = 1024

// decodeJournal reads the journal; single entries that make no sense are
// dropped, a document that makes none is an error.
func decodeJournal(raw []byte) (journalDoc, error) {
	doc := newJournalDoc()
	if len(raw) > maxProperty {
		return doc, fmt.Errorf("%d bytes", len(raw))
	}
	var wire struct {
		V     json.RawMessage `json:"v"`
		Keys  json.RawMessage `json:"keys"`
		Retry json.RawMessage `json:"retry"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return doc, fmt.Errorf("not a JSON object: %s", quoted(string(raw)))
	}
	var v int
	if json.Unmarshal(wire.V, &v) != nil || v != 1 {
		return doc, fmt.Errorf("version %s is not 1", quoted(string(wire.V)))
	}
	doc.LastCheckSigs = lastCheckSigs(raw)
	for k, raw := range members(wire.Keys) {
		var e entry
		if len(k) <= maxKey && json.Unmarshal(raw, &e) == nil && !bytes.Equal(raw, []byte("null")) {
			doc.Keys[k] = e
		}
	}
	for k, raw := range members(wire.Retry) {
		var ms int64
		if len(k) <= maxKey && json.Unmarshal(raw, &ms) == nil && timely(ms) {
			doc.Retry[k] = ms
		}
	}
	return doc, nil
}

// maxUnixMilli is the year 9999, the last that RFC 3339 can write.
const maxUnixMilli = 253402300799999

func members(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// encode writes the document within Jira's cap: the oldest keys go first, those
// that were given back or dropped after all others, then the oldest retries.
// Within the overlap that detection reads again there are never that many.
func (d journalDoc) encode() ([]byte, error) {
	d.V = 1
	raw, err := json.Marshal(d)
	for err == nil && len(raw) > maxJournal && len(d.Keys)+len(d.Retry) > 0 {
		excess := len(raw) - maxJournal
		if len(d.Keys) > 0 {
			dropOldest(d.Keys, excess, func(e entry) age { return age{e.lasting(), e.T, e.size()} })
		} else {
			dropOldest(d.Retry, excess, func(t int64) age { return age{at: t, size: digits(t)} })
		}
		raw, err = json.Marshal(d)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the journal: %w", err)
	}
	return raw, nil
}

// age is what the order in which entries go depends on, and the length of an
// entry's value.
type age struct {
	lasting bool
	at      int64
	size    int
}

// dropOldest removes the oldest entries of m that take up at least excess bytes,
// lasting ones after all others.
func dropOldest[V any](m map[string]V, excess int, about func(V) age) {
	keys := sortedKeys(m)
	slices.SortStableFunc(keys, func(a, b string) int {
		one, other := about(m[a]), about(m[b])
		if one.lasting != other.lasting {
			if other.lasting {
				return -1
			}
			return 1
		}
		return cmp.Compare(one.at, other.at)
	})
	for _, k := range keys {
		if excess <= 0 {
			return
		}
		excess -= len(k) + len(`"":,`) + about(m[k]).size
		delete(m, k)
	}
}

func digits(n int64) int { return len(strconv.FormatInt(n, 10)) }

// Journal returns the journal as of the last Load.
func (s *State) Journal(item poll.Ref) poll.Journal { return &journal{state: s, id: item.ID} }

// journal is one issue's journal.
type journal struct {
	state *State
	id    string
}

// Begin implements [dispatch.Journal]; it costs no request.
func (j *journal) Begin(_ context.Context, key string) (bool, error) {
	j.state.mu.Lock()
	defer j.state.mu.Unlock()
	r := j.state.record(j.id)
	if _, again := r.seen.Retry[key]; again {
		return true, nil
	}
	_, done := r.seen.Keys[key]
	return !done && !r.untold(key), nil
}

// Commit implements [dispatch.Journal].
func (j *journal) Commit(ctx context.Context, key string, at time.Time, r dispatch.Receipt) error {
	return j.record(ctx, key, at, r, false)
}

// record writes the key down; one that was refused never had a run, and is not to be
// dispatched again.
func (j *journal) record(ctx context.Context, key string, at time.Time, r dispatch.Receipt, refused bool) error {
	return j.update(ctx, func(d *journalDoc) {
		e := entry{T: at.UnixMilli(), Run: r.RunID, N: d.Keys[key].N, D: flag(refused)}
		if _, comment, ok := commentOf(key); ok {
			e.H = j.state.record(j.id).said[comment]
		}
		d.Keys[key] = e
		delete(d.Retry, key)
	})
}

// Abort implements [dispatch.Journal].
func (j *journal) Abort(ctx context.Context, key string, at time.Time, cause error) error {
	if dispatch.ClassOf(cause) != dispatch.Permanent {
		return nil
	}
	return j.record(ctx, key, at, dispatch.Receipt{}, true)
}

// Forget implements [poll.Journal].
func (j *journal) Forget(ctx context.Context, keys []string) error {
	return j.update(ctx, func(d *journalDoc) {
		for _, k := range keys {
			delete(d.Retry, k)
		}
	})
}

func (j *journal) update(ctx context.Context, change func(*journalDoc)) error {
	j.state.mu.Lock()
	doc := &j.state.record(j.id).seen
	change(doc)
	value, err := doc.encode()
	j.state.mu.Unlock()
	if err != nil {
		return err
	}
	if value, err = j.state.seal(j.id, j.state.props.Seen, value); err != nil {
		return err
	}
	if _, err := j.state.client.putProperty(httpx.Repeatable(ctx), j.id, j.state.props.Seen, value); err != nil {
		return fmt.Errorf("store the journal (seen): %w", err)
	}
	return nil
}
