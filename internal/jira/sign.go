package jira

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/fullsend/poll-action/internal/httpx"
)

// Signing makes coordination state that only holders of a key can write: anybody
// who may edit an issue can write its properties.
type Signing struct {
	// Key is FULLSEND_DISPATCH_SECRET.
	Key []byte
	// Repo is the target repository; a signature counts for it alone.
	Repo string
	// AcceptUnsigned takes values without a signature too, as other pollers write
	// them. A wrong signature is never accepted.
	AcceptUnsigned bool
}

// maxSignatures bounds the signatures beside a lastCheck that are looked at.
const maxSignatures = 4

// signer signs the values of one site's issues for one repository.
type signer struct {
	Signing
	site string
}

// siteOf is the one form of a site's address that signatures know.
func siteOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	return httpx.Origin(u) + strings.TrimRight(u.EscapedPath(), "/")
}

// sign returns the signature of a value: HMAC-SHA256 over site, issue, repository,
// property and the value in its one canonical form, in hexadecimal.
func (s *signer) sign(issueID, property string, value json.RawMessage) (string, error) {
	plain, err := canonical(value)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, s.Key)
	for _, part := range []string{"fullsend-poll property v1", s.site, issueID, strings.ToLower(s.Repo), property} {
		_, _ = fmt.Fprintf(mac, "%d:%s\n", len(part), part) // a hash never fails
	}
	_, _ = mac.Write(plain)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// genuine reports whether sig is the value's signature.
func (s *signer) genuine(issueID, property string, value json.RawMessage, sig string) bool {
	want, err := s.sign(issueID, property, value)
	return err == nil && hmac.Equal([]byte(want), []byte(sig))
}

// standing returns those of sigs that are the value's.
func (s *signer) standing(issueID, property string, value json.RawMessage, sigs []string) []string {
	if s == nil {
		return sigs
	}
	return slices.DeleteFunc(slices.Clone(sigs), func(sig string) bool { return !s.genuine(issueID, property, value, sig) })
}

// object adds the member sig to a value that is an object.
func (s *signer) object(issueID, property string, value json.RawMessage) (json.RawMessage, error) {
	m := members(value)
	if m == nil {
		return nil, errors.New("only objects carry their signature")
	}
	delete(m, "sig")
	sig, err := s.sign(issueID, property, value)
	if err != nil {
		return nil, err
	}
	if m["sig"], err = json.Marshal(sig); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// canonical returns a JSON value without insignificant blanks, with sorted names
// and without the member sig at its top.
func canonical(value json.RawMessage) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		delete(m, "sig")
	}
	return json.Marshal(v)
}

// trust decides whether a stored value counts. signed says that its signature is
// genuine; note says why it does not count.
func (s *signer) trust(issueID, property string, value json.RawMessage, beside []string) (ok, signed bool, note string) {
	if s == nil {
		return true, false, ""
	}
	own, carries := members(value)["sig"]
	if carries {
		beside = append([]string{scalar(own)}, beside...)
	}
	for _, sig := range beside[:min(len(beside), maxSignatures)] {
		if s.genuine(issueID, property, value, sig) {
			return true, true, ""
		}
	}
	switch {
	case carries:
		return false, false, "its signature is wrong; it counts as absent"
	case s.AcceptUnsigned: // those beside may be of the value before another poller's
		return true, false, ""
	case len(beside) > 0:
		return false, false, "its signature is wrong; it counts as absent"
	}
	return false, false, "it has no signature and counts as absent (state.accept_unsigned is false)"
}
