package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"
)

// older is a poller from before ADR 132: it knows the eight fields and the
// signature, and nothing of entries among the failed keys.
type older struct {
	LastPollAtFast     string           `json:"last_poll_at_fast,omitempty"`
	LastPollAtFull     string           `json:"last_poll_at_full,omitempty"`
	LabelState         map[int][]string `json:"label_state,omitempty"`
	DispatchedKeysFast map[string]int64 `json:"dispatched_keys_fast,omitempty"`
	DispatchedKeysFull map[string]int64 `json:"dispatched_keys_full,omitempty"`
	FailedKeysFast     map[string]int   `json:"failed_keys_fast,omitempty"`
	FailedKeysFull     map[string]int   `json:"failed_keys_full,omitempty"`
	HMAC               string           `json:"hmac,omitempty"`
}

func (o older) signature(mode Mode) string {
	o.HMAC = ""
	raw, _ := json.Marshal(o) //nolint:errchkjson // strings, integers, maps and lists of them always encode
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte("fullsend-poll-state-" + string(mode) + "/1\n" + testProject + "\n"))
	mac.Write(raw)
	return hex.EncodeToString(mac.Sum(nil))
}

// readByOlder verifies a document as an older poller does.
func readByOlder(t interface{ Fatalf(string, ...any) }, mode Mode, raw []byte) older {
	var o older
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatalf("the older poller cannot read the document: %v", err)
	}
	if o.signature(mode) != o.HMAC {
		t.Fatalf("the older poller finds the document tampered with: %s", raw)
	}
	return o
}

// write is the older poller's save: counts of 1 to 3 stay, dispatched keys stay from
// the bare watermark on.
func (o older) write(mode Mode, watermark time.Time) []byte {
	for _, m := range []map[string]int{o.FailedKeysFast, o.FailedKeysFull} {
		for k, n := range m {
			if n < 1 || n > 3 {
				delete(m, k)
			}
		}
	}
	for _, m := range []map[string]int64{o.DispatchedKeysFast, o.DispatchedKeysFull} {
		for k, ts := range m {
			if ts < watermark.Unix() {
				delete(m, k)
			}
		}
	}
	stamp := watermark.UTC().Format(time.RFC3339)
	if mode == Slash {
		o.LastPollAtFast = stamp
	} else {
		o.LastPollAtFull = stamp
	}
	o.HMAC = o.signature(mode)
	raw, _ := json.Marshal(o) //nolint:errchkjson // strings, integers, maps and lists of them always encode
	return raw
}

func throughOlder(tb testing.TB, mode Mode, raw []byte, watermark time.Time) []byte {
	tb.Helper()
	return readByOlder(tb, mode, raw).write(mode, watermark)
}
