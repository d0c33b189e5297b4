package httpx_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/httpx"
)

// dated answers with the Date of a clock that is off by skew, in the middle of
// a round trip of the given length.
func dated(skew, trip time.Duration) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		time.Sleep(trip / 2)
		date := time.Now().Add(skew).UTC().Format(http.TimeFormat)
		time.Sleep(trip - trip/2)
		return answer(200, "Date", date)(r)
	}
}

func ask(t *testing.T, tr *httpx.Transport) {
	t.Helper()
	resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestTheServersClockIsUnknownBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, &server{}, nil)
		if _, ok := tr.Skew(); ok || !tr.ServerNow().Equal(time.Now()) {
			t.Error("a skew out of nothing")
		}
	})
}

func TestTheServersClockIsKnownToWithinTheRoundTripAndASecond(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		skew := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(rt, "skew"))
		trips := rapid.SliceOfN(rapid.Int64Range(0, int64(3*time.Second)), 1, 12).Draw(rt, "trips")
		pauses := rapid.SliceOfN(rapid.Int64Range(0, int64(5*time.Second)), 12, 12).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			tr := newTransport(t, s, nil)
			last := time.Hour
			for i, trip := range trips {
				s.answers = []func(*http.Request) (*http.Response, error){dated(skew, time.Duration(trip))}
				ask(t, tr)
				got, ok := tr.Skew()
				off := (got - skew).Abs()
				// Half of the interval: a second of grain and the round trip.
				if bound := (time.Second + time.Duration(trip)) / 2; !ok || off > min(bound, last) {
					t.Errorf("after %d answers the skew is %v, want %v within %v", i+1, got, skew, min(bound, last))
				}
				last = min(last, (time.Second+time.Duration(trip))/2)
				time.Sleep(time.Duration(pauses[i]))
			}
		})
	})
}

func TestAClockThatIsSetAnewIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){dated(time.Minute, 0)}}
		tr := newTransport(t, s, nil)
		ask(t, tr)
		s.answers = []func(*http.Request) (*http.Response, error){dated(-time.Hour, 0)}
		ask(t, tr)
		if got, _ := tr.Skew(); (got + time.Hour).Abs() > 500*time.Millisecond {
			t.Errorf("skew %v, want about -1h", got)
		}
	})
}

func TestDatesThatTellNothingAreIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		for _, h := range [][]string{{}, {"Date", "yesterday"}, {"Date", old, "Age", "3600"}} {
			s := &server{answers: []func(*http.Request) (*http.Response, error){answer(200, h...)}}
			tr := newTransport(t, s, nil)
			ask(t, tr)
			if got, ok := tr.Skew(); ok {
				t.Errorf("%q gave a skew of %v", h, got)
			}
		}
	})
}
