package leasetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
)

// Subject is a register under test with two items that exist in its store and
// have no lock.
type Subject struct {
	Register    lease.Register
	Item, Other string
}

// Run checks everything that [lease.Register] promises and the locks rely on.
// newSubject is called once for each subtest; the subtests run one after the
// other, so that the caller decides about parallelism.
func Run(t *testing.T, newSubject func(t *testing.T) Subject) {
	t.Helper()
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, s Subject)
	}{
		{"an item without a lock answers absent", absent},
		{"what was put last is read back", readBack},
		{"only the first put creates", created},
		{"delete removes for good and the next put creates", deleted},
		{"deleting what is gone is no error", deletedTwice},
		{"items do not see each other's locks", separate},
		{"an ended context is an error and changes nothing", ended},
		{"a lock with many runs can be stored", large},
		{"a keeper refreshes what a poller wrote", kept},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, newSubject(t)) })
	}
}

func lock(id string) lease.Lock {
	return lease.Lock{ID: id, TS: time.Date(2026, 5, 4, 10, 0, 0, 123e6, time.UTC), Phase: lease.Pending, Driver: "conformance"}
}

func encode(t *testing.T, l lease.Lock) []byte {
	t.Helper()
	raw, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func put(t *testing.T, s Subject, item string, l lease.Lock) (isNew bool) {
	t.Helper()
	isNew, err := s.Register.Put(t.Context(), item, encode(t, l))
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	return isNew
}

func expect(t *testing.T, s Subject, item string, want lease.Lock) {
	t.Helper()
	raw, err := s.Register.Get(t.Context(), item)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	var got, exp any
	if json.Unmarshal(raw, &got) != nil || json.Unmarshal(encode(t, want), &exp) != nil {
		t.Fatalf("not JSON: %q", raw)
	}
	if diff := cmp.Diff(exp, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func expectAbsent(t *testing.T, s Subject, item string) {
	t.Helper()
	if raw, err := s.Register.Get(t.Context(), item); !errors.Is(err, lease.ErrAbsent) {
		t.Errorf("got %q and %v, want ErrAbsent", raw, err)
	}
}

func absent(t *testing.T, s Subject) {
	t.Helper()
	expectAbsent(t, s, s.Item)
	expectAbsent(t, s, s.Item)
}

func readBack(t *testing.T, s Subject) {
	t.Helper()
	put(t, s, s.Item, lock("first"))
	expect(t, s, s.Item, lock("first"))
	second := lock(`sec"ond <&> é 😀`).WithRun(lease.Run{Agent: "triage", ID: 1 << 40, URL: "https://example.com/1?a=b&c"})
	put(t, s, s.Item, second)
	expect(t, s, s.Item, second)
}

func created(t *testing.T, s Subject) {
	t.Helper()
	if !put(t, s, s.Item, lock("a")) {
		t.Error("the first put does not say created")
	}
	if put(t, s, s.Item, lock("b")) {
		t.Error("the second put says created")
	}
	if put(t, s, s.Item, lock("b")) {
		t.Error("a put of the same value says created")
	}
}

func deleted(t *testing.T, s Subject) {
	t.Helper()
	put(t, s, s.Item, lock("a"))
	if err := s.Register.Delete(t.Context(), s.Item); err != nil {
		t.Fatal(err)
	}
	expectAbsent(t, s, s.Item)
	if !put(t, s, s.Item, lock("b")) {
		t.Error("the put after a delete does not say created")
	}
	expect(t, s, s.Item, lock("b"))
}

func deletedTwice(t *testing.T, s Subject) {
	t.Helper()
	for range 2 {
		if err := s.Register.Delete(t.Context(), s.Item); err != nil {
			t.Error(err)
		}
	}
}

func separate(t *testing.T, s Subject) {
	t.Helper()
	put(t, s, s.Item, lock("a"))
	expectAbsent(t, s, s.Other)
	if !put(t, s, s.Other, lock("b")) {
		t.Error("the put of the other item does not say created")
	}
	expect(t, s, s.Item, lock("a"))
	if err := s.Register.Delete(t.Context(), s.Item); err != nil {
		t.Fatal(err)
	}
	expect(t, s, s.Other, lock("b"))
}

func ended(t *testing.T, s Subject) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Register.Get(ctx, s.Item); err == nil || errors.Is(err, lease.ErrAbsent) {
		t.Errorf("get: got %v, want the context's error", err)
	}
	if _, err := s.Register.Put(ctx, s.Item, encode(t, lock("a"))); err == nil {
		t.Error("put succeeded")
	}
	expectAbsent(t, s, s.Item)
	put(t, s, s.Item, lock("b"))
	if err := s.Register.Delete(ctx, s.Item); err == nil {
		t.Error("delete succeeded")
	}
	expect(t, s, s.Item, lock("b"))
}

func large(t *testing.T, s Subject) {
	t.Helper()
	l := lock("a")
	for i := range 64 {
		l = l.WithRun(lease.Run{Agent: "agent", ID: int64(1e10 + i), URL: "https://github.example.com/acme/shop/actions/runs/10000000000"})
	}
	put(t, s, s.Item, l)
	raw, err := s.Register.Get(t.Context(), s.Item)
	if err != nil {
		t.Fatal(err)
	}
	got, err := lease.Decode(bytes.TrimSpace(raw))
	if err != nil || len(got.Runs) != 64 {
		t.Errorf("got %d runs and %v", len(got.Runs), err)
	}
}

func kept(t *testing.T, s Subject) {
	t.Helper()
	put(t, s, s.Item, lock("a").WithRun(lease.Run{Agent: "triage", ID: 7}))
	now := time.Date(2026, 5, 4, 11, 0, 0, 0, time.UTC)
	k := lease.Keeper{Register: s.Register, ServerNow: func() time.Time { return now }}
	if _, err := k.Refresh(t.Context(), s.Item, "a", lease.Run{ID: 7, URL: "https://example.com/7"}); err != nil {
		t.Fatal(err)
	}
	want := lock("a").WithRun(lease.Run{Agent: "triage", ID: 7, URL: "https://example.com/7"})
	want.Phase, want.TS = lease.Running, now
	expect(t, s, s.Item, want)
	if _, err := k.Verify(t.Context(), s.Item, "b"); !errors.Is(err, lease.ErrLost) {
		t.Errorf("another id: got %v, want ErrLost", err)
	}
	if _, err := k.Verify(t.Context(), s.Other, "a"); !errors.Is(err, lease.ErrMissing) {
		t.Errorf("no lock: got %v, want ErrMissing", err)
	}
}
