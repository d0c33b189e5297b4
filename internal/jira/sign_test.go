package jira

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// signKey is the key of these tests.
const signKey = "the-dispatch-secret-of-the-tests"

// signed returns a state store as a fresh process has it that holds the key.
func (s *stage) signed(acceptUnsigned bool) *State {
	s.t.Helper()
	_, state := s.process()
	return state.Signed(Signing{Key: []byte(signKey), Repo: simtest.Repo, AcceptUnsigned: acceptUnsigned})
}

// served is what a cycle writes of an issue that it dispatches for: the lock, a
// key in the journal and the checkpoint.
func (s *stage) served(state *State, is sim.Issue, at time.Time) {
	s.t.Helper()
	ctx, ref := s.t.Context(), poll.Ref{ID: is.ID, Key: is.Key}
	if _, err := state.Put(ctx, is.ID, s.lockValue("ours")); err != nil {
		s.t.Fatal(err)
	}
	if _, err := state.Load(ctx, ref); err != nil {
		s.t.Fatal(err)
	}
	if err := state.Journal(ref).Commit(ctx, "a:comment-1", at, dispatch.Receipt{RunID: 7}); err != nil {
		s.t.Fatal(err)
	}
	if err := state.Advance(ctx, ref, poll.Checkpoint{At: at}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) lockValue(id string) []byte {
	s.t.Helper()
	raw, err := lease.Lock{ID: id, TS: time.Now(), Phase: lease.Running, Driver: DriverType}.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

// seenBy loads the issue's state in a fresh process that holds the key, and its
// lock; what does not count is in the notes.
func (s *stage) seenBy(acceptUnsigned bool, is sim.Issue) (poll.State, []byte) {
	s.t.Helper()
	state := s.signed(acceptUnsigned)
	st, err := state.Load(s.t.Context(), poll.Ref{ID: is.ID, Key: is.Key})
	if err != nil {
		s.t.Fatal(err)
	}
	return st, st.Lock
}

// raw returns the issue's three properties.
func (s *stage) raw(key string) map[string]json.RawMessage {
	s.t.Helper()
	all := map[string]json.RawMessage{}
	for _, p := range s.props().list() {
		if v, ok := s.w.Jira.Property(key, p); ok {
			all[p] = v
		}
	}
	return all
}

func TestWhatWasSignedIsBelievedByTheNextProcess(t *testing.T) {
	t.Parallel()
	for _, accept := range []bool{true, false} {
		t.Run(fmt.Sprintf("accept_unsigned %t", accept), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				is := s.issue()
				at := time.Now().Add(-60 * day) // far behind replay_window
				s.served(s.signed(accept), is, at)
				st, lock := s.seenBy(accept, is)
				s.equal(true, st.Checkpoint.Trusted && st.Checkpoint.At.Equal(at), "the checkpoint is believed however old it is")
				s.equal(map[string]bool{"a:comment-1": true}, st.Keys, "keys")
				s.equal([]string(nil), st.Notes, "notes")
				held, err := lease.Decode(lock)
				s.equal(true, err == nil && held.ID == "ours", "the lock is believed")
				stored := s.raw(is.Key)[s.props().LastCheck]
				s.equal(accept, stored[0] == '"', "the checkpoint is a text exactly where other pollers have to read it")
			})
		})
	}
}

func TestAValidlySignedCheckpointIsNotBoundedByTheReplayWindow(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.w.Jira.Comment(is.Key, simtest.Alice, "old")
		at := time.Now()
		time.Sleep(30 * day)
		s.o.ScanWindow = 100 * day
		for accept, want := range map[bool]int{true: 1, false: 1} {
			s.served(s.signed(accept), is, at.Add(-time.Second))
			d, err := NewInput(s.client, s.signed(accept), s.o).Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.equal(0, len(d.Items), "an issue under a lock") // the state was written with it
			s.w.Jira.DeleteProperty(is.Key, s.props().Lock)
			state := s.signed(accept)
			if d, err = NewInput(s.client, state, s.o).Discover(t.Context()); err != nil {
				t.Fatal(err)
			}
			it := s.item(d, is.Key)
			delta := s.detectItem(it, state.Peek(it.Ref()).Checkpoint)
			s.equal(0, len(delta.Skipped), "skipped")
			if len(delta.Events) < want {
				t.Errorf("events %v", told(delta))
			}
		}
		s.checked(is.Key, at.Add(-time.Second)) // the same time, by somebody without the key
		d, _ := s.discover()
		it := s.item(d, is.Key)
		delta := s.detectItem(it, poll.Checkpoint{At: at.Add(-time.Second)})
		if len(delta.Events) != 0 || len(delta.Skipped) == 0 {
			t.Errorf("an unsigned one: events %v, skipped %v", told(delta), delta.Skipped)
		}
	})
}

// The forgeries are made from what a genuine process has written for the issue.
func TestForgedRewoundAndCopiedValuesCountAsAbsentAndAreReported(t *testing.T) {
	t.Parallel()
	change := func(raw json.RawMessage, name, value string) json.RawMessage {
		m := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw, &m); err != nil {
			panic(err)
		}
		m[name] = json.RawMessage(value)
		out, err := json.Marshal(m)
		if err != nil {
			panic(err)
		}
		return out
	}
	for name, forge := range map[string]func(s *stage, is sim.Issue, genuine map[string]json.RawMessage) map[string]json.RawMessage{
		"made up without a signature": func(s *stage, _ sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			return map[string]json.RawMessage{
				s.props().Lock: s.lockValue("theirs"), s.props().Seen: json.RawMessage(`{"v":1,"keys":{"a:x":{"t":1,"run":1}}}`),
				s.props().LastCheck: json.RawMessage(`{"ts":"` + time.Now().UTC().Format(time.RFC3339) + `"}`),
			}
		},
		"made up with a signature": func(s *stage, _ sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			sig := `"` + strings.Repeat("ab", 32) + `"`
			return map[string]json.RawMessage{
				s.props().Lock:      change(s.lockValue("theirs"), "sig", sig),
				s.props().Seen:      json.RawMessage(`{"v":1,"keys":{},"sig":` + sig + `,"lastCheckSigs":[` + sig + `]}`),
				s.props().LastCheck: json.RawMessage(`{"ts":"` + time.Now().UTC().Format(time.RFC3339) + `","sig":` + sig + `}`),
			}
		},
		"signatures that are no texts": func(s *stage, _ sim.Issue, g map[string]json.RawMessage) map[string]json.RawMessage {
			return map[string]json.RawMessage{
				s.props().Lock: change(g[s.props().Lock], "sig", `{"a":[1]}`), s.props().Seen: change(g[s.props().Seen], "sig", `7`),
				s.props().LastCheck: change(g[s.props().LastCheck], "sig", `null`),
			}
		},
		"with another time or content": func(s *stage, _ sim.Issue, g map[string]json.RawMessage) map[string]json.RawMessage {
			ts := `"` + time.Now().Add(-100*day).UTC().Format(time.RFC3339) + `"`
			return map[string]json.RawMessage{
				s.props().Lock: change(g[s.props().Lock], "ts", ts), s.props().LastCheck: change(g[s.props().LastCheck], "ts", ts),
				s.props().Seen: change(g[s.props().Seen], "keys", `{}`),
			}
		},
		"with a member more": func(s *stage, _ sim.Issue, g map[string]json.RawMessage) map[string]json.RawMessage {
			out := map[string]json.RawMessage{}
			for p, raw := range g {
				out[p] = change(raw, "TS", `"1999-01-01T00:00:00Z"`)
			}
			_ = s
			return out
		},
		"signed by another key": func(s *stage, is sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			_, state := s.process()
			s.served(state.Signed(Signing{Key: []byte("another key"), Repo: simtest.Repo}), is, time.Now())
			return s.raw(is.Key)
		},
		"of another issue": func(s *stage, _ sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			other := s.issue()
			s.served(s.signed(false), other, time.Now())
			return s.raw(other.Key)
		},
		"of another repository": func(s *stage, is sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			_, state := s.process()
			s.served(state.Signed(Signing{Key: []byte(signKey), Repo: "acme/other"}), is, time.Now())
			return s.raw(is.Key)
		},
		"of another site": func(s *stage, is sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			_, state := s.process()
			state.Signed(Signing{Key: []byte(signKey), Repo: simtest.Repo})
			state.signer.site = siteOf("https://acme-test.atlassian.net")
			s.served(state, is, time.Now())
			return s.raw(is.Key)
		},
		"of another property": func(s *stage, is sim.Issue, _ map[string]json.RawMessage) map[string]json.RawMessage {
			// the same documents, sealed for the property beside
			state := s.signed(false)
			seal := func(property string, value []byte) json.RawMessage {
				raw, err := state.seal(is.ID, property, value)
				if err != nil {
					s.t.Fatal(err)
				}
				return raw
			}
			return map[string]json.RawMessage{
				s.props().Lock:      seal(s.props().LastCheck, s.lockValue("theirs")),
				s.props().LastCheck: seal(s.props().Seen, []byte(`{"ts":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)),
				s.props().Seen:      seal(s.props().Lock, []byte(`{"v":1,"keys":{"a:x":{"t":1,"run":1}}}`)),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				is := s.issue()
				time.Sleep(time.Hour)
				s.served(s.signed(false), is, time.Now())
				for p, raw := range forge(s, is, s.raw(is.Key)) {
					s.w.Jira.SetProperty(is.Key, p, raw)
				}
				st, lock := s.seenBy(false, is)
				s.equal(true, st.Checkpoint.IsZero(), "no checkpoint")
				s.equal(map[string]bool{}, st.Keys, "keys")
				s.equal(rejected, string(lock), "the lock is there and is none")
				s.equal(3, len(st.Notes), "notes")
				mentions(t, strings.Join(st.Notes, "\n"), "the stored lock is not trusted", "the stored lastCheck is not trusted", "the stored journal (seen) is not trusted", "counts as absent")
			})
		})
	}
}

func TestUnsignedValuesAreAcceptedOnlyWhileTheConfigurationSaysSo(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		at := time.Now().Add(-time.Hour).Truncate(time.Second)
		_, plain := s.process()
		s.served(plain, is, at)
		st, lock := s.seenBy(true, is)
		s.equal(poll.Checkpoint{At: at.UTC()}, poll.Checkpoint{At: st.Checkpoint.At.UTC(), Trusted: st.Checkpoint.Trusted}, "an unsigned checkpoint counts, and is not trusted")
		s.equal(map[string]bool{"a:comment-1": true}, st.Keys, "keys")
		s.equal([]string(nil), st.Notes, "notes")
		held, err := lease.Decode(lock)
		s.equal(true, err == nil && held.ID == "ours", "another poller's lock is respected")
		st, lock = s.seenBy(false, is)
		s.equal(true, st.Checkpoint.IsZero() && len(st.Keys) == 0, "nothing unsigned counts")
		s.equal(rejected, string(lock), "nor an unsigned lock")
		mentions(t, strings.Join(st.Notes, "\n"), "it has no signature and counts as absent (state.accept_unsigned is false)")
	})
}

func TestAnotherPollersCheckpointStandsBesideOurSignatures(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]func(at string) string{
		"a text":    func(at string) string { return `"` + at + `"` },
		"an object": func(at string) string { return `{"ts":"` + at + `"}` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				is := s.issue()
				s.served(s.signed(true), is, time.Now().Add(-time.Hour))
				at := time.Now().Truncate(time.Second)
				s.w.Jira.SetProperty(is.Key, s.props().LastCheck, []byte(theirs(at.UTC().Format(time.RFC3339))))
				st, _ := s.seenBy(true, is)
				s.equal(true, st.Checkpoint.At.Equal(at) && !st.Checkpoint.Trusted, "it counts as unsigned")
				s.equal([]string(nil), st.Notes, "notes")
			})
		})
	}
}

func TestAProcessKilledBetweenSignatureAndCheckpointLosesNoTrust(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		at := time.Now().Add(-time.Hour)
		s.served(s.signed(true), is, at)
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		for n := range 5 { // five processes that die right before the checkpoint is written
			state := s.signed(true)
			st, err := state.Load(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			s.equal(true, st.Checkpoint.Trusted && st.Checkpoint.At.Equal(at), "the old checkpoint is trusted")
			if _, err := state.lastCheck(t.Context(), is.ID, time.Now().Add(time.Duration(n)).UTC().Format(time.RFC3339Nano)); err != nil {
				t.Fatal(err)
			}
			s.equal(2, len(lastCheckSigs(s.raw(is.Key)[s.props().Seen])), "signatures")
		}
		state := s.signed(true)
		if _, err := state.Load(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		next := time.Now()
		s.equal(nil, state.Advance(t.Context(), ref, poll.Checkpoint{At: next}), "advance")
		st, _ := s.seenBy(true, is)
		s.equal(true, st.Checkpoint.Trusted && st.Checkpoint.At.Equal(next), "the new checkpoint is trusted")
		s.equal(map[string]bool{"a:comment-1": true}, st.Keys, "the journal is whole")
	})
}

func TestACheckpointOutsideTheLockLeavesTheJournalAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.served(s.signed(true), is, time.Now().Add(-time.Hour))
		before := s.raw(is.Key)
		state := s.signed(true) // which has only seen the issue in a search
		if _, err := NewInput(s.client, state, s.o).Discover(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		s.equal(nil, state.Advance(t.Context(), poll.Ref{ID: is.ID, Key: is.Key}, poll.Checkpoint{At: at}), "advance")
		s.equal(string(before[s.props().Seen]), string(s.raw(is.Key)[s.props().Seen]), "the journal")
		st, _ := s.seenBy(true, is)
		s.equal(true, st.Checkpoint.At.Equal(at) && !st.Checkpoint.Trusted, "the checkpoint counts as unsigned")
	})
}

func TestALockWhoseSignatureFailsIsTakenOver(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.w.Jira.SetProperty(is.Key, s.props().Lock, s.lockValue("theirs"))
		state := s.signed(false)
		var notes []string
		locker := lease.New(lease.Options{
			Register: state, Driver: DriverType, Rules: lease.Rules{StaleThreshold: 15 * time.Minute}, Guard: time.Second, JitterMin: time.Second / 2, JitterMax: time.Second,
			CleanUp: time.Second, Now: time.Now, ServerNow: s.client.ServerNow, Rand: func() float64 { return 0 }, NewID: func() string { return "mine" },
			Note: func(_, what string) { notes = append(notes, what) },
		})
		l, err := locker.Acquire(t.Context(), is.ID)
		if err != nil {
			t.Fatalf("the forged lock keeps us out: %v", err)
		}
		s.equal(nil, l.Verify(t.Context()), "verify")
		mentions(t, strings.Join(notes, "\n"), "is overwritten")
		raw := s.raw(is.Key)[s.props().Lock]
		ok, signed, _ := state.signer.trust(is.ID, s.props().Lock, raw, nil)
		s.equal(true, ok && signed, "what stands there is signed")
		// in mixed operation the same lock is another poller's
		s.w.Jira.SetProperty(is.Key, s.props().Lock, s.lockValue("theirs"))
		mixed := s.signed(true)
		got, err := mixed.Get(t.Context(), is.ID)
		s.equal(true, err == nil, "read")
		held, err := lease.Decode(got)
		s.equal(true, err == nil && held.ID == "theirs", "respected in mixed operation")
		all, err := mixed.GetAll(t.Context(), []string{is.ID})
		s.equal(true, err == nil && bytes.Equal(all[is.ID], got), "likewise in bulk")
		all, err = s.signed(false).GetAll(t.Context(), []string{is.ID})
		s.equal(true, err == nil && string(all[is.ID]) == rejected, "not so where nothing unsigned counts")
	})
}

func TestTheRunnersRefreshKeepsTheSignature(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		refresh := func(key string) {
			_, state := s.process()
			state.props = Properties{Lock: s.props().Lock} // a run knows its lock alone
			state.Signed(Signing{Key: []byte(key), Repo: simtest.Repo, AcceptUnsigned: true})
			keeper := &lease.Keeper{Register: state, ServerNow: s.client.ServerNow}
			if _, err := keeper.Refresh(t.Context(), is.Key, "ours", lease.Run{ID: 7}); err != nil {
				t.Fatal(err)
			}
		}
		s.served(s.signed(false), is, time.Now())
		refresh(signKey)
		_, lock := s.seenBy(false, is)
		held, err := lease.Decode(lock)
		s.equal(true, err == nil && held.ID == "ours" && held.Phase == lease.Running, "with the key: running, and signed")
		refresh("") // the secret is not in the agent workflow's environment
		_, lock = s.seenBy(true, is)
		held, err = lease.Decode(lock)
		s.equal(true, err == nil && held.ID == "ours", "without it: respected in mixed operation")
		_, lock = s.seenBy(false, is)
		s.equal(rejected, string(lock), "and lost where nothing unsigned counts")
	})
}

func TestASignedJournalStaysBelowJirasCap(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		ref := poll.Ref{ID: is.ID, Key: is.Key}
		state := s.signed(true)
		if _, err := state.Load(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		doc := &state.record(is.ID).seen
		for n := range 2000 {
			doc.Keys[fmt.Sprintf("agent:comment-%d", 10_000+n)] = entry{T: int64(1_700_000_000_000 + n), Run: int64(17_000_000_000 + n)}
		}
		for n := range 3 {
			s.equal(nil, state.Advance(t.Context(), ref, poll.Checkpoint{At: time.Now().Add(time.Duration(n))}), "advance")
		}
		s.equal(nil, state.Journal(ref).Commit(t.Context(), "agent:newest", time.Now(), dispatch.Receipt{RunID: 1}), "commit")
		raw := s.raw(is.Key)[s.props().Seen]
		if len(raw) > maxProperty || len(raw) < maxProperty/2 {
			t.Errorf("%d bytes, want at most %d and not much less", len(raw), maxProperty)
		}
		st, _ := s.seenBy(true, is)
		s.equal(true, st.Checkpoint.Trusted && st.Keys["agent:newest"] && len(st.Keys) > 300, "it is believed and has the newest")
	})
}

func TestHostileSignaturesDoNotCrowdOutTheJournal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("f", 8000)
	raw := json.RawMessage(`{"v":1,"keys":{"a:x":{"t":1,"run":1}},"lastCheckSigs":["` + long + `","` + long + `","` + long + `",7,"` + strings.Repeat("f", 64) + `"]}`)
	doc, err := decodeJournal(raw)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := doc.encode(); err != nil || len(out) > 300 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestASignatureBelongsToOneFormOfASitesAddress(t *testing.T) {
	t.Parallel()
	want := siteOf("https://acme.atlassian.net")
	for _, same := range []string{"https://acme.atlassian.net/", "https://ACME.atlassian.net", "https://acme.atlassian.net:443", "HTTPS://acme.atlassian.net."} {
		if got := siteOf(same); got != want {
			t.Errorf("%s is %s, want %s", same, got, want)
		}
	}
	for _, other := range []string{"https://acme.atlassian.net/jira", "https://acme2.atlassian.net", "http://acme.atlassian.net", "https://acme.atlassian.net:8443"} {
		if siteOf(other) == want {
			t.Errorf("%s is taken for %s", other, want)
		}
	}
}

// A signature covers what a value says, not how Jira happens to write it.
func TestASignatureSurvivesTheOrderAndBlanksOfAValue(t *testing.T) {
	t.Parallel()
	s := &signer{Signing: Signing{Key: []byte(signKey), Repo: simtest.Repo}, site: "site"}
	sig, err := s.sign("1", "p", json.RawMessage(`{"a":9007199254740993,"b":[1,"<é>"],"sig":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{
		"{ \"b\" : [1,\"\\u003c\\u00e9>\"],\n\"a\":9007199254740993 }":                 true,
		`{"a":9007199254740993,"b":[1,"<é>"],"sig":"` + strings.Repeat("0", 64) + `"}`: true,
		`{"a":9007199254740992,"b":[1,"<é>"]}`:                                         false,
		`{"a":9007199254740993,"b":["<é>",1]}`:                                         false,
		`{"a":9007199254740993,"b":[1,"<é>"],"c":null}`:                                false,
		`{"a":9007199254740993}`:                                                       false,
		`"a"`:                                                                          false,
		``:                                                                             false,
	} {
		if got := s.genuine("1", "p", json.RawMessage(value), sig); got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	if s.genuine("1", "p", json.RawMessage(deep), sig) {
		t.Error("a value of 20,000 levels is genuine")
	}
}

func TestNoKeySignsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		_, state := s.process()
		s.served(state.Signed(Signing{Repo: simtest.Repo}), is, time.Now())
		for p, raw := range maps.All(s.raw(is.Key)) {
			if bytes.Contains(raw, []byte("sig")) || bytes.Contains(raw, []byte("Sigs")) {
				t.Errorf("%s has a signature: %s", p, raw)
			}
		}
	})
}

// Data Center keeps no texts as properties; the object carries its signature.
func TestOnDataCenterTheCheckpointIsASignedObject(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		_, token := s.w.JiraCredentials()
		client := func() *State {
			c, err := NewClient(ClientOptions{BaseURL: s.w.JiraURL(), Token: token, Flavour: DataCenter, HTTP: httpx.Options{Base: s, Now: time.Now, Retries: -1}})
			if err != nil {
				t.Fatal(err)
			}
			return NewState(c, s.props()).Signed(Signing{Key: []byte(signKey), Repo: simtest.Repo, AcceptUnsigned: true})
		}
		at := time.Now().Add(-50 * day)
		s.served(client(), is, at)
		st, err := client().Load(t.Context(), poll.Ref{ID: is.ID, Key: is.Key})
		s.equal(true, err == nil && st.Checkpoint.Trusted && st.Checkpoint.At.Equal(at), "trusted")
		mentions(t, string(s.raw(is.Key)[s.props().LastCheck]), `"ts":`, `"sig":`)
	}, simtest.DataCenter())
}
