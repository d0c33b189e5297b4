package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a Go duration ("900s", "1h30m") or whole days ("7d").
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok && regexp.MustCompile(`^[0-9]{1,5}$`).MatchString(days) {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration", shown(s))
	}
	return d, nil
}

// duration reads a length of time between lo and hi into dst. A bare 0 is
// understood; every other bare number lacks its unit.
func (r *reader) duration(f field, lo, hi time.Duration, dst *time.Duration) {
	n := f.value
	const cure = "write a number with its unit, such as 900s, 5m, 24h or 7d"
	if n.Kind != scalarNode || isNull(n) || n.ShortTag() != "!!str" && n.Value != "0" {
		what := "this must be a duration, not " + kindName(n)
		if n.Kind == scalarNode && n.ShortTag() == "!!int" {
			what = "the number has no unit"
		}
		r.add(n.Line, f.path, what, cure)
		return
	}
	d, err := ParseDuration(strings.TrimSpace(n.Value))
	switch {
	case err != nil:
		r.add(n.Line, f.path, err.Error(), cure)
	case d < 0:
		r.add(n.Line, f.path, "a duration cannot be negative", cure)
	case d == 0 && lo > 0:
		r.add(n.Line, f.path, "this duration cannot be zero", cure)
	case d < lo || d > hi:
		r.add(n.Line, f.path, fmt.Sprintf("%v is not between %v and %v", d, lo, hi), "")
	default:
		*dst = d
	}
}
