package httpx

import (
	"net/http"
	"time"
)

// clock is what is known about the server's clock: its offset to the local
// one lies strictly between low and high. A Date header has a grain of one
// second, but many of them, each seen between a send and a receive, narrow the
// offset down well below that.
type clock struct {
	known     bool
	low, high time.Duration
}

func (c *clock) add(date, sent, received time.Time) {
	low := date.Sub(received)
	high := date.Add(time.Second).Sub(sent)
	if high < low {
		return // the local clock jumped back during the request
	}
	if c.known {
		if l, h := max(c.low, low), min(c.high, high); l < h {
			c.low, c.high = l, h
			return
		}
	}
	c.known, c.low, c.high = true, low, high
}

func (c *clock) offset() time.Duration { return c.low + (c.high-c.low)/2 }

// observe learns from a response's Date header. One that sat in a cache tells
// the time of its making, not of its sending, and is passed over.
func (t *Transport) observe(resp *http.Response, sent, received time.Time) {
	if age := resp.Header.Get("Age"); age != "" && age != "0" {
		return
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Round(0) drops the monotonic reading: wall clocks are compared here.
	t.clock.add(date, sent.Round(0), received.Round(0))
}

// ServerNow returns the time by the server's clock: Now corrected by what the
// Date headers so far tell, to within a second and usually much better. Before
// the first response it is Now.
func (t *Transport) ServerNow() time.Time {
	now := t.opts.Now()
	if skew, ok := t.Skew(); ok {
		return now.Add(skew)
	}
	return now
}

// Skew returns by how much the server's clock is ahead of the local one; false
// before the first response with a Date.
func (t *Transport) Skew() (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.clock.known {
		return 0, false
	}
	return t.clock.offset(), true
}
