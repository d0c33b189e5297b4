// Package sim holds simulated servers: Jira Cloud (REST v3), Jira Data Center
// (REST v2) and GitHub (REST), and the network between them and the product.
// They are stateful and refuse what the real ones refuse: wrong credentials,
// unbounded queries, oversized values, undeclared workflow inputs. Doubtful or
// rare behaviour of the real servers (a lagging index, short pages, a missing
// right, rate limits, an old GitHub Enterprise Server) is behind switches, so
// that callers can be shown both.
//
// Everything is kept in memory and works without sockets ([Net] is an
// http.RoundTripper), with injected clocks; the same handlers also serve real
// listeners ([Net.Handler]). The package is part of the product: it is what
// the demo verb talks to.
package sim
