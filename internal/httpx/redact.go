package httpx

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// minSecret is the shortest secret that is replaced; shorter ones would make
// every text unreadable and protect nothing.
const minSecret = 4

// redactor replaces secrets and their usual spellings, longest first so that
// none leaves a part of another standing.
func redactor(secrets []string) *strings.Replacer {
	var forms []string
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		raw := []byte(s)
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(strconv.Quote(s), `"`),
			base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw),
			base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw))
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range slices.Compact(forms) {
		pairs = append(pairs, f, "***")
	}
	return strings.NewReplacer(pairs...)
}

// scrubbed is an error whose text was cleaned; its chain stays.
type scrubbed struct {
	text string
	err  error
}

// Error returns the cleaned text.
func (s *scrubbed) Error() string { return s.text }

// Unwrap returns the cause, for errors.Is and errors.As only: its own text is
// not clean.
func (s *scrubbed) Unwrap() error { return s.err }

func (t *Transport) scrub(err error) error {
	text := err.Error()
	clean := t.Redact(text)
	if clean == text {
		return err
	}
	return &scrubbed{text: clean, err: err}
}
