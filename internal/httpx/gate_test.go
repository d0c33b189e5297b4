package httpx

import (
	"strconv"
	"testing"
	"time"
)

func TestScopesThatHoldNothingBackAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	g := &gate{now: func() time.Time { return now }, maxWait: time.Second, scopes: map[string]*scope{}}
	least := time.Second
	pause := func(key string) {
		g.pause(key, closing{reason: ReasonBurst, least: least, refused: true, jitter: func(time.Duration) time.Duration { return 0 }}, now, now)
		least = time.Second
	}
	least = time.Hour
	pause("long")
	for i := range 10 * maxScopes {
		key := strconv.Itoa(i)
		pause(key)
		now = now.Add(time.Second)
		g.clear([]string{key}, now, now, true)
	}
	if len(g.scopes) > maxScopes {
		t.Errorf("%d scopes are kept", len(g.scopes))
	}
	if g.scopes["long"] == nil {
		t.Error("a pause that lasts was forgotten")
	}
	now = now.Add(time.Hour + forgetAfter)
	for i := range maxScopes {
		g.slow("near "+strconv.Itoa(i), now, now, firstGap, lastGap)
	}
	if g.scopes["long"] != nil {
		t.Error("a pause that is long over is kept")
	}
}
