package jira

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
)

// State keeps the coordination state of issues in their entity properties: it is
// the lock's [lease.Register], the [poll.Checkpoints] and the journals. One
// direct read of an issue brings all three properties, so the read that
// verifies a lock also serves the [State.Load] that follows it.
type State struct {
	client *Client
	props  Properties
	signer *signer // nil: nothing is signed

	mu   sync.Mutex
	byID map[string]*record
}

// record is what is known of one issue's properties.
type record struct {
	peek poll.State
	seen journalDoc
	// fresh holds the properties of the last direct read until Load takes them.
	fresh map[string]json.RawMessage
	// id is the issue's own id; an item may be named by its key.
	id string
	// hidden is the stored lock where the last direct read gave out something else
	// for it: it does not count, or is null.
	hidden json.RawMessage
	// locked says that the journal was loaded under the lock and may be written.
	locked bool
	// said are the digests of the comments' texts as detection last read them.
	said map[string]string
}

// NewState makes the state store of one target repository on one site.
func NewState(c *Client, p Properties) *State {
	return &State{client: c, props: p, byID: map[string]*record{}}
}

// Signed makes the store sign what it writes and judge what it reads by its
// signature. A key of no length leaves everything unsigned.
func (s *State) Signed(o Signing) *State {
	if len(o.Key) > 0 {
		s.signer = &signer{Signing: o, site: siteOf(s.client.base)}
	}
	return s
}

func (s *State) record(id string) *record {
	r := s.byID[id]
	if r == nil {
		r = &record{seen: newJournalDoc(), id: id}
		s.byID[id] = r
	}
	return r
}

// observe takes over what a search row says and returns it understood.
func (s *State) observe(id string, props map[string]json.RawMessage) poll.State {
	state, doc := s.decode(id, props)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(id)
	r.peek, r.seen, r.fresh, r.locked = state, doc, nil, false
	return state
}

// Get reads the lock.
func (s *State) Get(ctx context.Context, item string) ([]byte, error) {
	issue, err := s.client.properties(ctx, item, s.props.list()...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	r := s.record(item)
	r.fresh = issue.Properties
	r.id = cmp.Or(issue.ID, r.id)
	id := r.id
	s.mu.Unlock()
	lock, err := s.lock(id, issue.Properties)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.hidden = nil; !bytes.Equal(lock, issue.Properties[s.props.Lock]) {
		r.hidden = issue.Properties[s.props.Lock]
	}
	return lock, err
}

// rejected is what a lock reads as whose signature does not count: a value that is
// there and is no lock, so that it is overwritten.
const rejected = `{"rejected":"signature"}`

func (s *State) lock(issueID string, props map[string]json.RawMessage) ([]byte, error) {
	raw := props[s.props.Lock]
	if !present(raw) {
		return nil, lease.ErrAbsent
	}
	if ok, _, _ := s.signer.trust(issueID, s.props.Lock, raw, nil); !ok {
		return []byte(rejected), nil
	}
	return raw, nil
}

// seal signs an object that is about to be stored.
func (s *State) seal(item, property string, value []byte) ([]byte, error) {
	if s.signer == nil {
		return value, nil
	}
	s.mu.Lock()
	id := s.record(item).id
	s.mu.Unlock()
	return s.signer.object(id, property, value)
}

// Put writes the lock, once: a write that is repeated could land twice.
func (s *State) Put(ctx context.Context, item string, value []byte) (bool, error) {
	s.forget(item)
	value, err := s.seal(item, s.props.Lock, value)
	if err != nil {
		return false, err
	}
	created, err := s.client.putProperty(httpx.Once(ctx), item, s.props.Lock, value)
	return created, lostTurn(err)
}

// Delete removes the lock.
func (s *State) Delete(ctx context.Context, item string) error {
	s.forget(item)
	return s.client.deleteProperty(ctx, item, s.props.Lock)
}

func (s *State) forget(item string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(item).fresh = nil
}

// Peek returns what the search said; it may be stale.
func (s *State) Peek(item poll.Ref) poll.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record(item.ID).peek
}

// GetAll reads the locks of many issues in one request. An issue that the answer
// leaves out is not in the result: it is unreadable, not unlocked.
func (s *State) GetAll(ctx context.Context, items []string) (map[string][]byte, error) {
	if s.client.dataCenter() {
		return nil, errors.ErrUnsupported
	}
	all := make(map[string][]byte, len(items))
	for batch := range slices.Chunk(items, bulkFetch) {
		issues, err := s.client.bulkProperties(ctx, batch, s.props.Lock)
		if err != nil {
			return nil, err
		}
		for _, issue := range issues {
			raw, err := s.lock(issue.ID, issue.Properties)
			if err != nil {
				raw = nil
			}
			all[issue.ID] = raw
		}
	}
	return all, nil
}

// Load returns checkpoint and journal as of the last direct read of the issue
// since its lock was written, reading it where there was none. Only in the
// latter case the state has the lock too: that read has then verified it once
// more.
func (s *State) Load(ctx context.Context, item poll.Ref) (poll.State, error) {
	s.mu.Lock()
	props := s.record(item.ID).fresh
	s.record(item.ID).fresh = nil
	s.mu.Unlock()
	again := props == nil
	if again {
		issue, err := s.client.properties(ctx, item.ID, s.props.list()...)
		if err != nil {
			return poll.State{}, err
		}
		props = issue.Properties
	}
	state, doc := s.decode(item.ID, props)
	if again {
		state.Lock, _ = s.lock(item.ID, props) // absent is nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(item.ID)
	r.seen, r.locked = doc, true
	return state, nil
}

// Advance stores the checkpoint.
func (s *State) Advance(ctx context.Context, item poll.Ref, to poll.Checkpoint) error {
	value, err := s.lastCheck(ctx, item.ID, to.At.UTC().Format(time.RFC3339Nano))
	if err != nil {
		return fmt.Errorf("make lastCheck: %w", err)
	}
	if _, err := s.client.putProperty(httpx.Repeatable(ctx), item.ID, s.props.LastCheck, value); err != nil {
		return fmt.Errorf("store lastCheck: %w", err)
	}
	return nil
}

// decode understands the properties as far as they can be understood; the rest
// counts as absent and is noted.
func (s *State) decode(issueID string, props map[string]json.RawMessage) (poll.State, journalDoc) {
	var state poll.State
	now := s.client.ServerNow()
	sigs := lastCheckSigs(props[s.props.Seen])
	if raw := props[s.props.LastCheck]; present(raw) {
		at, err := decodeLastCheck(raw)
		ok, signed, note := s.signer.trust(issueID, s.props.LastCheck, raw, sigs)
		switch {
		case !ok:
			state.Notes = append(state.Notes, "the stored lastCheck is not trusted: "+note)
		case err != nil:
			state.Notes = append(state.Notes, "the stored lastCheck cannot be understood and counts as absent: "+err.Error())
		case at.After(now.Add(lease.MaxSkew)):
			state.Notes = append(state.Notes, fmt.Sprintf("the stored lastCheck %s lies in the future and counts as absent", at.UTC().Format(time.RFC3339)))
		default:
			state.Checkpoint = poll.Checkpoint{At: at, Trusted: signed}
		}
	}
	if raw := props[s.props.Lock]; present(raw) {
		if ok, _, note := s.signer.trust(issueID, s.props.Lock, raw, nil); !ok {
			state.Notes = append(state.Notes, "the stored lock is not trusted: "+note)
		}
	}
	doc := newJournalDoc()
	if raw := props[s.props.Seen]; present(raw) {
		var err error
		if ok, _, note := s.signer.trust(issueID, s.props.Seen, raw, nil); !ok {
			state.Notes = append(state.Notes, "the stored journal (seen) is not trusted: "+note)
		} else if doc, err = decodeJournal(raw); err != nil {
			state.Notes = append(state.Notes, "the stored journal (seen) cannot be understood and counts as absent: "+err.Error())
		}
	}
	// The signature of what stands is kept, also when cycles that were killed have
	// left those of checkpoints that were never written.
	doc.LastCheckSigs = s.signer.standing(issueID, s.props.LastCheck, props[s.props.LastCheck], sigs)
	state.Keys, state.Runs, state.Nameless = make(map[string]bool, len(doc.Keys)), map[int64]bool{}, map[string]bool{}
	for k, e := range doc.Keys {
		state.Keys[k] = true
		if e.Run > 0 {
			state.Runs[e.Run] = true
			continue
		}
		if e.D {
			continue // refused or dropped: there is no run that could be its
		}
		agent, _, _ := strings.Cut(k, ":")
		state.Nameless[agent] = true
	}
	state.Retry = make(map[string]time.Time, len(doc.Retry))
	for k, ms := range doc.Retry {
		state.Retry[k] = time.UnixMilli(ms)
	}
	return state, doc
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// decodeLastCheck reads both forms: a JSON string, or an object with "ts".
func decodeLastCheck(raw []byte) (time.Time, error) {
	if len(raw) > maxProperty {
		return time.Time{}, fmt.Errorf("%d bytes", len(raw))
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		var obj struct {
			TS string `json:"ts"`
		}
		if json.Unmarshal(raw, &obj) != nil || obj.TS == "" {
			return time.Time{}, fmt.Errorf("neither a time nor an object with ts: %s", quoted(string(raw)))
		}
		s = obj.TS
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is no RFC 3339 time", quoted(s))
	}
	return at, nil
}

// lastCheck makes the checkpoint's value: a text, which other pollers read too;
// on Data Center, and where nothing unsigned counts, an object. A text's
// signature is put into the journal first, if that may be written now.
func (s *State) lastCheck(ctx context.Context, item, ts string) ([]byte, error) {
	text, err := json.Marshal(ts)
	if err != nil {
		return nil, err
	}
	if s.client.dataCenter() || s.signer != nil && !s.signer.AcceptUnsigned {
		object, err := json.Marshal(map[string]string{"ts": ts})
		if err != nil {
			return nil, err
		}
		return s.seal(item, s.props.LastCheck, object)
	}
	s.mu.Lock()
	r := s.record(item)
	id, locked := r.id, r.locked
	s.mu.Unlock()
	if s.signer == nil || !locked {
		return text, nil
	}
	sig, err := s.signer.sign(id, s.props.LastCheck, text)
	if err != nil {
		return nil, err
	}
	j := &journal{state: s, id: item}
	return text, j.update(ctx, func(d *journalDoc) {
		d.LastCheckSigs = append([]string{sig}, d.LastCheckSigs[:min(len(d.LastCheckSigs), 1)]...)
	})
}

// lastCheckSigs returns the signatures of a lastCheck that stand in the journal.
func lastCheckSigs(seen json.RawMessage) []string {
	var sigs []string
	_ = json.Unmarshal(members(seen)["lastCheckSigs"], &sigs) // another shape is no signature
	sigs = slices.DeleteFunc(sigs, func(sig string) bool { return len(sig) != hex.EncodedLen(sha256.Size) })
	return sigs[:min(len(sigs), maxSignatures)]
}
