package poll

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/lease"
)

func TestACommandBecomesOneRunAndTheLockGoesToIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		key := w.say("1", "/fs-triage check", time.Minute)
		p := w.poller(t, "p")
		rep := p.cycle(t.Context())
		row := rowOf(t, rep, "PROJ-1")
		if !rep.OK() || row.Status != ItemDispatched || rep.Dispatched != 1 || rep.Locked != 1 || rep.Released != 0 || rep.Events != 1 {
			t.Fatalf("%+v", rep)
		}
		want := []Run{{Agent: "triage", Key: "triage:" + key, Status: "dispatched", RunID: 101, RunURL: "https://github.com/acme/shop/actions/runs/101"}}
		if diff := cmp.Diff(want, row.Runs); diff != "" {
			t.Error(diff)
		}
		l := w.lock("1")
		if l == nil || len(l.Runs) != 1 || l.Runs[0].ID != 101 || l.Runs[0].Agent != "triage" || l.RunID != 101 {
			t.Fatalf("the lock is %+v", l)
		}
		ref := dispatch.LockRef{ID: l.ID, Driver: "jira-poll", Property: "fullsend.poll.acme.shop.lock"}
		if got := w.orders[0].Lock; got != ref {
			t.Errorf("the order's lock is %+v, want %+v", got, ref)
		}
		if i := w.issue("1"); !i.checkpoint.At.Equal(i.updated()) || !i.keys["triage:"+key] {
			t.Errorf("checkpoint %v, keys %v", i.checkpoint, i.keys)
		}
		if rep := p.cycle(t.Context()); len(w.orders) != 1 || len(rep.Items) != 0 || !rep.OK() {
			t.Errorf("the next cycle: %+v", rep)
		}
	})
}

func TestTheLockIsVerifiedRightBeforeTheOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-both", time.Minute)
		w.poller(t, "p").cycle(t.Context())
		var ops []string
		for _, c := range w.calls("") {
			ops = append(ops, strings.Fields(c)[1])
		}
		want := "discover detect prepare lock-get lock-put lock-get load begin lock-get dispatch commit begin lock-get dispatch commit lock-get lock-put advance"
		if got := strings.Join(ops, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestWhatHasNothingToDispatchIsCheckpointedWithoutALock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 20 {
			id := strconv.Itoa(i)
			switch i % 4 {
			case 0:
				w.say(id, "just talk", time.Hour)
			case 1:
				w.sayAs(id, "/fs-triage by a reader", time.Hour, event.RoleRead)
			case 2:
				w.issue(id) // created, nothing said
			case 3:
				w.issue(id).keys["triage:"+w.say(id, "/fs-triage done before", time.Hour)] = true
			}
		}
		rep := w.poller(t, "p").cycle(t.Context())
		if got := w.calls("lock", "load", "begin", "dispatch", "prepare"); len(got) > 0 || !rep.OK() || rep.Locked != 0 || len(rep.Items) != 20 {
			t.Fatalf("calls %v, report %+v", got, rep)
		}
		for _, i := range w.issues {
			if !i.checkpoint.At.Equal(i.updated()) {
				t.Errorf("%s: checkpoint %v, updated %v", i.key, i.checkpoint.At, i.updated())
			}
		}
		for i, want := range []string{"1 matched no trigger", "1 refused by the gate", "no event", "1 already dispatched"} {
			if row := rowOf(t, rep, "PROJ-"+strconv.Itoa(i)); row.Status != ItemNothing || row.Reason != want {
				t.Errorf("%s: %s, %q, want %q", row.Key, row.Status, row.Reason, want)
			}
		}
		before := len(w.log)
		if w.poller(t, "p").cycle(t.Context()); len(w.log) != before+1 {
			t.Errorf("not settled: %v", w.log[before:])
		}
	})
}

func TestOnlyNAreLockedAndTheRestIsReportedWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 12 {
			w.say(strconv.Itoa(i), "/fs-triage", time.Minute)
			w.say(strconv.Itoa(100+i), "chatter", time.Minute)
		}
		p := w.poller(t, "p")
		cycles := 0
		for ; len(w.orders) < 12 && cycles < 10; cycles++ {
			rep := p.cycle(t.Context())
			locked, waiting := countRows(rep, ItemDispatched), countRows(rep, ItemWaiting)
			if locked > 5 || rep.Locked != locked || locked+waiting != rep.Pending-rep.Held-countRows(rep, ItemNothing) {
				t.Fatalf("locked %d, waiting %d: %+v", locked, waiting, rep)
			}
		}
		if cycles != 3 {
			t.Errorf("%d cycles for 12 commands at n = 5", cycles)
		}
	})
}

func countRows(rep *Report, status ItemStatus) (n int) {
	for _, r := range rep.Items {
		if r.Status == status {
			n++
		}
	}
	return n
}

func TestUnderTheLockTheStateIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(w *world, i *issue, key string)
		detect int // how often the item is read
		orders int
		status ItemStatus
	}{
		{"unchanged: the pre-screen's events stand", func(*world, *issue, string) {}, 1, 1, ItemDispatched},
		{"the key was dispatched meanwhile", func(_ *world, i *issue, key string) { i.keys[key] = true }, 2, 0, ItemNothing},
		{"the checkpoint is past the event", func(_ *world, i *issue, _ string) { i.checkpoint.At = i.updated() }, 2, 0, ItemNothing},
		{"another key was dispatched", func(_ *world, i *issue, _ string) { i.keys["other:x"] = true }, 2, 1, ItemDispatched},
		{"a retry came", func(_ *world, i *issue, key string) { i.keys[key], i.retry[key] = true, i.updated() }, 2, 1, ItemDispatched},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				i := w.issue("1")
				i.checkpoint.At = time.Now().Add(-time.Hour)
				key := "triage:" + w.say("1", "/fs-triage", time.Minute)
				w.fault = func(call, _ string) error {
					if call == "lock-put" && len(w.orders) == 0 {
						tc.change(w, i, key)
					}
					return nil
				}
				rep := w.poller(t, "p").cycle(t.Context())
				if got := len(w.calls("detect")); got != tc.detect || len(w.orders) != tc.orders {
					t.Errorf("%d detections, %d orders", got, len(w.orders))
				}
				if row := rowOf(t, rep, "PROJ-1"); row.Status != tc.status || !rep.OK() {
					t.Errorf("%+v", row)
				}
				if kept := w.lock("1") != nil; kept != (tc.orders > 0) || rep.Released != 1-tc.orders {
					t.Errorf("lock kept: %t, released %d", kept, rep.Released)
				}
			})
		})
	}
}

func TestARetryKeyIsDispatchedAgainThoughEverythingIsPastIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		key := "triage:" + w.say("1", "/fs-both", time.Hour)
		newer := w.say("1", "/fs-code", time.Minute)
		i := w.issue("1")
		i.keys = map[string]bool{key: true, "code:" + strings.TrimPrefix(key, "triage:"): true, "code:" + newer: true}
		i.checkpoint.At = i.updated()
		i.retry[key] = time.Now().Add(-time.Hour)
		before := i.checkpoint.At
		rep := w.poller(t, "p").cycle(t.Context())
		if len(w.orders) != 1 || w.orders[0].Key != key || !rep.OK() {
			t.Fatalf("orders %+v, report %+v", w.orders, rep)
		}
		if len(i.retry) != 0 || !i.keys[key] || i.checkpoint.At.Before(before) {
			t.Errorf("retry %v, checkpoint %v", i.retry, i.checkpoint)
		}
	})
}

func TestARetryKeyThatFailsIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		key := "triage:" + w.say("1", "/fs-triage", time.Hour)
		i := w.issue("1")
		i.keys[key], i.retry[key] = true, i.updated()
		i.checkpoint.At = i.updated()
		w.outcome = func(dispatch.Order) error { return errBoom }
		rep := w.poller(t, "p").cycle(t.Context())
		if len(i.retry) != 1 || rep.OK() || !i.checkpoint.At.Equal(i.updated()) || w.lock("1") != nil {
			t.Fatalf("retry %v, checkpoint %v", i.retry, i.checkpoint)
		}
		w.outcome = nil
		if w.poller(t, "p").cycle(t.Context()); w.runs[key] != 1 || len(i.retry) != 0 {
			t.Errorf("runs %v, retry %v", w.runs, i.retry)
		}
	})
}

func TestRetryKeysWithoutAnEventAreForgottenUnderTheLock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		limit int
		ago   []time.Duration // of the events
		left  int
	}{
		{"the event does not exist", 0, []time.Duration{4 * time.Hour}, 0},
		{"it does not exist among what was read", 1, []time.Duration{4 * time.Hour}, 0},
		{"it may be among what was not read", 1, []time.Duration{4 * time.Hour, 110 * time.Minute}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.limit = tc.limit
				w.say("1", "talk", 3*time.Hour)
				w.say("1", "talk", 2*time.Hour)
				i := w.issue("1")
				i.checkpoint.At = time.Now().Add(-time.Hour)
				for n, ago := range tc.ago {
					i.retry["triage:comment-"+strconv.Itoa(n)] = time.Now().Add(-ago)
				}
				rep := w.poller(t, "p").cycle(t.Context())
				if len(i.retry) != tc.left || len(w.orders) != 0 || !rep.OK() {
					t.Errorf("retry %v, %+v", i.retry, rep)
				}
				if forgot := w.calls("forget", "lock-put", "lock-delete"); len(forgot) != 3 || !strings.Contains(forgot[1], "forget triage:comment-0") {
					t.Errorf("calls %v", forgot)
				}
				if w.lock("1") != nil {
					t.Error("the lock was kept")
				}
			})
		})
	}
}

func TestTheCheckpointStopsBeforeTheFirstEventThatIsNotFinal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		fail map[string]error // by agent and place of the event: "triage 1"
		done string           // runs of the first cycle, in order
		stop int              // the event before which the checkpoint stops, -1: none
	}{
		{"all succeed", nil, "triage 0,code 0,triage 1,code 1,triage 2,code 2", -1},
		{"the second event fails for one agent, whose later ones wait", map[string]error{"code 1": errBoom}, "triage 0,code 0,triage 1,triage 2", 1},
		{"the first fails for all", map[string]error{"triage 0": errBoom, "code 0": errBoom}, "", 0},
		{"the last fails", map[string]error{"triage 2": errBoom}, "triage 0,code 0,triage 1,code 1,code 2", 2},
		{"a refusal for good is final", map[string]error{"code 1": classed(dispatch.Permanent)}, "triage 0,code 0,triage 1,triage 2,code 2", -1},
		{"what is uncertain stops the item", map[string]error{"code 1": classed(dispatch.Unknown)}, "triage 0,code 0,triage 1", 1},
		{"what is fatal stops the item", map[string]error{"code 1": classed(dispatch.Fatal)}, "triage 0,code 0,triage 1", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var events []string
				for i := range 3 {
					events = append(events, w.say("1", "/fs-both", time.Duration(3-i)*time.Minute))
				}
				name := func(key string) string {
					agent, occ, _ := strings.Cut(key, ":")
					return fmt.Sprint(agent, " ", slices.Index(events, occ))
				}
				var done []string
				w.outcome = func(o dispatch.Order) error {
					err := tc.fail[name(o.Key)]
					if err == nil {
						done = append(done, name(o.Key))
					}
					return err
				}
				rep := w.poller(t, "p").cycle(t.Context())
				if got := strings.Join(done, ","); got != tc.done {
					t.Errorf("runs %s, want %s", got, tc.done)
				}
				i := w.issue("1")
				want := i.updated()
				if tc.stop >= 0 {
					want = i.events[tc.stop].At.Add(-time.Nanosecond)
				}
				if !i.checkpoint.At.Equal(want) {
					t.Errorf("checkpoint %v, want %v", i.checkpoint.At, want)
				}
				refused := tc.stop < 0 && tc.fail != nil
				if row := rowOf(t, rep, "PROJ-1"); (row.Status == ItemDispatched) != (tc.fail == nil) || rep.OK() != (tc.fail == nil) || refused != (rep.Refused == 1) {
					t.Errorf("%+v in %+v", row, rep)
				}
				if l := w.lock("1"); len(done) > 0 && (l == nil || len(l.Runs) != len(done)) {
					t.Errorf("the lock is %+v after %d runs", l, len(done))
				}
				// the runs end, the fault is gone: what is missing follows, nothing twice
				w.locks.Set("1", nil)
				w.outcome = nil
				w.poller(t, "p").cycle(t.Context())
				for _, e := range events {
					for _, agent := range []string{"triage", "code"} {
						key := agent + ":" + e
						wantRuns := 1
						if refused && tc.fail[name(key)] != nil {
							wantRuns = 0
						}
						if w.runs[key] != wantRuns {
							t.Errorf("%s has %d runs in the end", key, w.runs[key])
						}
					}
				}
			})
		})
	}
}

func TestTheLockIsKeptOnlyWhereARunIsOrMayBe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		setup  func(w *world)
		keep   bool
		status ItemStatus
		ok     bool
		reason string
	}{
		{"a run", func(*world) {}, true, ItemDispatched, true, ""},
		{"a run that could not be journalled", failing("commit"), true, ItemFailed, false, "boom"},
		{"a run whose checkpoint could not be stored", failing("advance"), true, ItemFailed, false, "boom"},
		{"an uncertain end", func(w *world) { w.outcome = func(dispatch.Order) error { return classed(dispatch.Unknown) } }, true, ItemFailed, false, "boom"},
		{"a failure", func(w *world) { w.outcome = func(dispatch.Order) error { return errBoom } }, false, ItemFailed, false, "boom"},
		{"a refusal", func(w *world) { w.outcome = func(dispatch.Order) error { return classed(dispatch.Permanent) } }, false, ItemFailed, false, "boom"},
		{"a fatal end", func(w *world) { w.outcome = func(dispatch.Order) error { return classed(dispatch.Fatal) } }, false, ItemFailed, false, "boom"},
		{"the state cannot be read under the lock", failing("load"), false, ItemFailed, false, "boom"},
		{"the journal cannot be asked", failing("begin"), false, ItemFailed, false, "boom"},
		{"the lock cannot be verified before the output", func(w *world) {
			gets := 0
			w.fault = func(call, _ string) error {
				if call == "lock-get" {
					if gets++; gets == 3 {
						return errBoom
					}
				}
				return nil
			}
		}, false, ItemFailed, false, "boom"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.say("1", "/fs-triage", time.Minute)
				tc.setup(w)
				rep := w.poller(t, "p").cycle(t.Context())
				row := rowOf(t, rep, "PROJ-1")
				if row.Status != tc.status || rep.OK() != tc.ok || !strings.Contains(row.Reason, tc.reason) {
					t.Errorf("row %+v, ok %t", row, rep.OK())
				}
				l := w.lock("1")
				if kept := l != nil; kept != tc.keep || rep.Released != map[bool]int{false: 1}[tc.keep] {
					t.Errorf("kept: %t, released %d", kept, rep.Released)
				}
				if l != nil && len(l.Runs) != w.runs[w.orders[0].Key] {
					t.Errorf("the lock has the runs %v, there are %v", l.Runs, w.runs)
				}
			})
		})
	}
}

// failing makes every call of one name fail.
func failing(name string) func(w *world) {
	return func(w *world) {
		w.fault = func(call, _ string) error {
			if call == name {
				return errBoom
			}
			return nil
		}
	}
}

func TestARunThatCouldNotBeJournalledIsReportedAndNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		failing("commit")(w)
		rep := w.poller(t, "p").cycle(t.Context())
		row := rowOf(t, rep, "PROJ-1")
		if rep.Dispatched != 1 || len(row.Runs) != 1 || row.Runs[0].Status != "dispatched" || row.Runs[0].RunID == 0 || row.Runs[0].Reason == "" {
			t.Errorf("%+v", row)
		}
		// the lock names the run: when that has ended, the next cycle journals it
		w.fault = nil
		w.end(func() bool { return true })
		time.Sleep(time.Minute)
		rep = w.poller(t, "p").cycle(t.Context())
		if row := rowOf(t, rep, "PROJ-1"); len(w.orders) != 1 || rep.Adopted != 1 || row.Status != ItemAdopted || row.Runs[0].RunID == 0 {
			t.Errorf("%d orders, %+v", len(w.orders), row)
		}
		if w.lock("1") != nil || !w.issue("1").keys[row.Runs[0].Key] {
			t.Errorf("lock %v, journal %v", w.lock("1"), w.issue("1").keys)
		}
	})
}

func TestALockLostBetweenTwoOrdersIsContention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", 2*time.Minute)
		w.say("1", "/fs-code", time.Minute)
		i := w.issue("1")
		i.retry["triage:comment-1"] = time.Now().Add(-time.Hour)
		w.outcome = func(dispatch.Order) error { return errBoom } // no run: no handover either
		w.fault = func(call, _ string) error {
			if call == "dispatch" {
				raw, err := lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Pending}.Encode()
				if err != nil {
					t.Error(err)
				}
				w.locks.Set("1", raw)
			}
			return nil
		}
		rep := w.poller(t, "p").cycle(t.Context())
		row := rowOf(t, rep, "PROJ-1")
		if row.Status != ItemContended || rep.Contended != 1 || len(w.orders) != 1 {
			t.Errorf("%+v, contended %d, orders %d", row, rep.Contended, len(w.orders))
		}
		if got := w.calls("advance", "forget", "commit", "lock-delete"); len(got) != 0 {
			t.Errorf("what is the next holder's was written: %v", got)
		}
		if l := w.lock("1"); l == nil || l.ID != "other" {
			t.Errorf("the lock is %+v", l)
		}
	})
}

func TestAnItemThatSomebodyHoldsIsContention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		w.say("2", "/fs-triage", time.Minute)
		w.fault = func(call, _ string) error {
			if call == "prepare" { // after discovery
				raw, err := lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Pending}.Encode()
				if err != nil {
					t.Error(err)
				}
				w.locks.Set("1", raw)
			}
			return nil
		}
		rep := w.poller(t, "p").cycle(t.Context())
		if row := rowOf(t, rep, "PROJ-1"); row.Status != ItemContended || !strings.Contains(row.Reason, `"other"`) || rep.Contended != 1 || !rep.OK() {
			t.Errorf("%+v", rep)
		}
		if row := rowOf(t, rep, "PROJ-2"); row.Status != ItemDispatched {
			t.Errorf("%+v", row)
		}
	})
}

func TestAFatalErrorStopsTheCycleAndLeavesTheRestWaiting(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"detect", "dispatch"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				for i := range 4 {
					w.say(strconv.Itoa(i), "/fs-triage", time.Duration(10-i)*time.Minute)
				}
				first := true
				w.latency = func() time.Duration { return 10 * time.Millisecond }
				w.fault = func(call, _ string) error {
					if call == at && first {
						first = false
						return classed(dispatch.Fatal)
					}
					if call == at && at == "dispatch" {
						t.Error("dispatched after a fatal error")
					}
					return nil
				}
				p := w.poller(t, "p")
				p.opts.Parallel = 1
				if at == "dispatch" { // let the others come to their orders later
					w.fault = slowed(w, w.fault)
				}
				rep := p.cycle(t.Context())
				failed, waiting := countRows(rep, ItemFailed), countRows(rep, ItemWaiting)
				if failed != 1 || waiting != 3 || len(rep.Errors) != 1 || rep.OK() {
					t.Errorf("failed %d, waiting %d: %+v", failed, waiting, rep)
				}
				for _, i := range w.issues {
					if w.lock(i.id) != nil || i.checkpoint.At.Equal(i.updated()) {
						t.Errorf("%s: lock %+v, checkpoint %v", i.key, w.lock(i.id), i.checkpoint)
					}
				}
			})
		})
	}
}

// slowed makes all items but the first wait under their lock.
func slowed(w *world, fault func(call, id string) error) func(call, id string) error {
	w.latency = nil
	loads := 0
	return func(call, id string) error {
		if call == "load" {
			if loads++; loads > 1 {
				w.mu.Unlock()
				time.Sleep(time.Second)
				w.mu.Lock()
			}
		}
		return fault(call, id)
	}
}

func TestOneItemsFailureIsNotAnothers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		w.say("2", "/fs-triage", time.Minute)
		w.say("3", "talk", time.Minute)
		w.fault = func(call, id string) error {
			if call == "detect" && id == "1" || call == "advance" && id == "3" {
				return errBoom
			}
			return nil
		}
		rep := w.poller(t, "p").cycle(t.Context())
		got := map[string]ItemStatus{}
		for _, r := range rep.Items {
			got[r.Key] = r.Status
		}
		want := map[string]ItemStatus{"PROJ-1": ItemFailed, "PROJ-2": ItemDispatched, "PROJ-3": ItemFailed}
		if diff := cmp.Diff(want, got); diff != "" || rep.OK() {
			t.Error(diff)
		}
	})
}

func TestACheckpointNeverGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Second) // younger than the margin
		i := w.issue("1")
		i.checkpoint.At = time.Now().Add(-2 * time.Second)
		p := w.poller(t, "p")
		p.cycle(t.Context())
		w.say("2", "talk", time.Second)
		w.issue("2").checkpoint.At = time.Now().Add(-2 * time.Second)
		p.cycle(t.Context())
		if len(w.orders) != 1 || len(i.advances) != 0 || len(w.issue("2").advances) != 0 {
			t.Errorf("%d orders, advances %v and %v", len(w.orders), i.advances, w.issue("2").advances)
		}
	})
}

func TestTheKillSwitchTouchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		p := w.poller(t, "p")
		p.opts.KillSwitch = true
		rep := p.cycle(t.Context())
		if len(w.log) != 0 || !rep.OK() || len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "kill switch") {
			t.Errorf("calls %v, report %+v", w.log, rep)
		}
		p.opts.KillSwitch = false
		if p.cycle(t.Context()); len(w.orders) != 1 {
			t.Error("the event did not follow when the switch was lifted")
		}
	})
}

func TestADryRunWritesNothingAndGivesReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		fresh := w.say("1", "/fs-triage", 3*time.Minute)
		done := w.say("1", "/fs-code", 2*time.Minute)
		w.issue("1").keys["code:"+done] = true
		refused := w.sayAs("1", "/fs-code", time.Minute, event.RoleRead)
		w.say("2", "talk", time.Minute)
		p := w.poller(t, "p")
		p.opts.DryRun = true
		rep := p.cycle(t.Context())
		if got := w.calls(""); len(got) != 3 || len(w.calls("discover", "detect")) != 3 || rep.Mode != "dry-run" || !rep.OK() {
			t.Errorf("calls %v, report %+v", got, rep)
		}
		if rows := rowOf(t, rep, "PROJ-2"); rows.Status != ItemNothing {
			t.Errorf("%+v", rows)
		}
		row := rowOf(t, rep, "PROJ-1")
		want := []Run{
			{Agent: "triage", Key: "triage:" + fresh, Status: "would-dispatch", Reason: "its command"},
			{Agent: "code", Key: "code:" + fresh, Status: "no match", Reason: "another command"},
			{Agent: "triage", Key: "triage:" + done, Status: "no match", Reason: "another command"},
			{Agent: "code", Key: "code:" + done, Status: "duplicate", Reason: "its command"},
			{Key: refused, Status: "unauthorized", Reason: `role "read" may not start agents (admin, maintain or write is needed)`},
		}
		if diff := cmp.Diff(want, row.Runs); diff != "" || row.Status != ItemWould {
			t.Errorf("%s\n%s", row.Status, diff)
		}
	})
}

func TestABaselineSeedsOnlyWhatHasNoCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		w.say("2", "/fs-triage", time.Minute)
		kept := time.Now().Add(-time.Hour)
		w.issue("2").checkpoint.At = kept
		p := w.poller(t, "p")
		p.opts.DryRun = true
		if rep := New(p.opts).Baseline(t.Context()); len(w.calls("advance")) != 0 || rep.Seeded != 0 || len(rep.Items) != 1 {
			t.Errorf("a dry run: %+v", rep)
		}
		p.opts.DryRun = false
		rep := New(p.opts).Baseline(t.Context())
		if !rep.OK() || rep.Seeded != 1 || rep.Candidates != 2 || rep.Mode != "baseline" || len(w.orders) != 0 {
			t.Errorf("%+v", rep)
		}
		if row := rowOf(t, rep, "PROJ-1"); row.Status != ItemSeeded {
			t.Errorf("%+v", row)
		}
		if one, two := w.issue("1"), w.issue("2"); !one.checkpoint.At.Equal(one.updated()) || !two.checkpoint.At.Equal(kept) {
			t.Errorf("%v and %v", one.checkpoint, two.checkpoint)
		}
		if rep := New(p.opts).Baseline(t.Context()); rep.Seeded != 0 || len(rep.Items) != 0 {
			t.Errorf("the second one: %+v", rep)
		}
		w.issue("3")
		failing("advance")(w)
		if rep := New(p.opts).Baseline(t.Context()); rep.OK() || rowOf(t, rep, "PROJ-3").Status != ItemFailed {
			t.Errorf("a failing one: %+v", rep)
		}
		failing("baseline")(w)
		if rep := New(p.opts).Baseline(t.Context()); rep.OK() || len(rep.Errors) != 1 {
			t.Errorf("a failing query: %+v", rep)
		}
		p.opts.Input = onlyInput{p}
		if rep := New(p.opts).Baseline(t.Context()); rep.OK() {
			t.Error("an input without a baseline seeds")
		}
	})
}

// onlyInput hides every other ability.
type onlyInput struct{ p *poller }

func (o onlyInput) Name() string                                    { return o.p.Name() }
func (o onlyInput) Discover(ctx context.Context) (Discovery, error) { return o.p.Discover(ctx) }

func TestAnOutputThatIsNotReadyTouchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		p := w.poller(t, "p")
		p.prepare = func() error { return classed(dispatch.Fatal) }
		rep := p.cycle(t.Context())
		if row := rowOf(t, rep, "PROJ-1"); row.Status != ItemWaiting || rep.OK() || len(w.calls("lock", "advance")) != 0 {
			t.Errorf("%+v", rep)
		}
	})
}

func TestAFailingDiscoveryIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		failing("discover")(w)
		p := w.poller(t, "p")
		s := New(p.opts).Begin(t.Context())
		rep := s.Finish(t.Context())
		if s.Err() == nil || rep.OK() || len(rep.Items) != 0 || len(w.log) != 1 {
			t.Errorf("%v, %+v", s.Err(), rep)
		}
	})
}

// The context ends at every moment of a cycle; every call takes 100 ms.
func TestAnInterruptedCycleEndsWithinTheGraceTimeAndLeavesNoLockWithoutARun(t *testing.T) {
	t.Parallel()
	for at := 50 * time.Millisecond; at < 6*time.Second; at += 100 * time.Millisecond {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.latency = func() time.Duration { return 100 * time.Millisecond }
				var keys []string
				for i := range 3 {
					keys = append(keys, "triage:"+w.say(strconv.Itoa(i), "/fs-triage", 2*time.Minute), "code:"+w.say(strconv.Itoa(i), "/fs-code", time.Minute))
				}
				ctx, cancel := context.WithTimeout(t.Context(), at)
				defer cancel()
				start := time.Now()
				p := w.poller(t, "p")
				rep := p.cycle(ctx)
				if took := time.Since(start); ctx.Err() != nil && took > at+testGrace {
					t.Errorf("it took %v", took)
				}
				if rep.Interrupted != (ctx.Err() != nil) || !rep.OK() {
					t.Errorf("%+v", rep)
				}
				for _, i := range w.issues {
					if l := w.lock(i.id); l != nil && len(l.Runs) == 0 {
						t.Errorf("%s has a lock without a run", i.key)
					}
					w.locks.Set(i.id, nil)
				}
				p.cycle(t.Context())
				for _, k := range keys {
					if w.runs[k] != 1 {
						t.Errorf("%s has %d runs", k, w.runs[k])
					}
				}
			})
		})
	}
}

// The store hangs when the context ends: the cycle comes to an end all the same.
func TestAHangingCallDoesNotHoldUpAnInterruptedCycle(t *testing.T) {
	t.Parallel()
	for _, hang := range []string{"discover", "detect", "prepare", "lock-get", "lock-put", "load", "begin", "dispatch", "commit", "advance", "lock-delete"} {
		t.Run(hang, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.say("1", "/fs-triage", time.Minute)
				w.outcome = func(dispatch.Order) error {
					if hang == "lock-delete" {
						return errBoom
					}
					return nil
				}
				p := w.poller(t, "p")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begun := time.Now()
				time.AfterFunc(3*time.Second, cancel)
				w.latency = func() time.Duration { return w.hang(hang) }
				p.cycle(ctx)
				if took := time.Since(begun); took > 3*time.Second+testGrace {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// hang lets calls last for ever from the given one on: when the call that comes
// before it was made.
func (w *world) hang(from string) time.Duration {
	before := map[string]string{
		"detect": "discover", "prepare": "detect", "lock-get": "prepare", "lock-put": "lock-get", "load": "lock-put",
		"begin": "load", "dispatch": "begin", "commit": "dispatch", "advance": "commit", "lock-delete": "dispatch",
	}[from]
	if before == "" || len(w.calls(before)) > 0 {
		return time.Hour
	}
	return 0
}
