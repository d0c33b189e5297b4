package harness

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// location is where a harness file is: a path in the file system, or a URL.
type location struct {
	path string   // "" for a URL
	url  *url.URL // cleaned, without fragment; nil for a path
	sum  []byte   // SHA-256, nil where none is asked for
}

// String names the location in reports; a query, which may hold a token, is
// left out.
func (l location) String() string {
	if l.url == nil {
		return l.path
	}
	u := *l.url
	u.RawQuery = ""
	return u.String()
}

// cause is an error with its cure.
type cause struct{ what, cure string }

func (c *cause) Error() string { return c.what }

func because(cure, format string, args ...any) error {
	return &cause{what: fmt.Sprintf(format, args...), cure: cure}
}

// split takes the fragment off a reference and reads the integrity from it.
func split(ref string) (rest string, sum []byte, err error) {
	rest, fragment, found := strings.Cut(ref, "#")
	if !found {
		return rest, nil, nil
	}
	const cure = "write #sha256= and the 64 hex digits of sha256sum"
	digits, ok := strings.CutPrefix(fragment, "sha256=")
	if !ok {
		return rest, nil, because(cure, "the fragment of %s is not an integrity", public(rest))
	}
	sum, err = hex.DecodeString(digits)
	if err != nil || len(sum) != sha256.Size {
		return rest, nil, because(cure, "the integrity of %s is not a SHA-256 of 64 hex digits", public(rest))
	}
	return rest, sum, nil
}

// isURL reports whether a reference is meant as a URL, whatever its scheme.
func isURL(ref string) bool { return strings.Contains(ref, "://") || strings.HasPrefix(ref, "//") }

// locate judges an agent's source.
func (l *Loader) locate(ref string) (location, error) {
	rest, sum, err := split(ref)
	if err != nil {
		return location{}, err
	}
	if isURL(rest) {
		return l.remote(rest, sum)
	}
	p, err := inside("", rest)
	return location{path: p, sum: sum}, err
}

// locateBase judges the base of a harness file. A relative path is looked for
// beside the child first, as other Fullsend tools do, and then from the root of
// the .fullsend directory; one that begins with a dot is beside the child only.
// The base of a remote file is relative to its URL and needs an integrity of
// its own.
func (l *Loader) locateBase(child location, ref string) (location, error) {
	rest, sum, err := split(ref)
	if err != nil {
		return location{}, err
	}
	switch {
	case isURL(rest):
		return l.remote(rest, sum)
	case child.url != nil:
		if path.IsAbs(rest) || strings.Contains(rest, "\\") {
			return location{}, because("write a path relative to the file's own URL", "the base %s is not a relative path", public(rest))
		}
		u, err := child.url.Parse(rest)
		if err != nil {
			return location{}, because("", "the base %s is not a path", public(rest))
		}
		return l.remote(u.String(), sum)
	}
	beside, err := inside(path.Dir(child.path), rest)
	if strings.HasPrefix(rest, ".") || err == nil && exists(l.FS, beside) {
		return location{path: beside, sum: sum}, err
	}
	root, rootErr := inside("", rest)
	if rootErr != nil || err == nil && !exists(l.FS, root) {
		return location{path: beside, sum: sum}, err
	}
	return location{path: root, sum: sum}, nil
}

func exists(fsys fs.FS, p string) bool {
	if fsys == nil {
		return false
	}
	_, err := fs.Stat(fsys, p)
	return err == nil
}

// inside cleans a path relative to dir and keeps it in the .fullsend directory.
func inside(dir, p string) (string, error) {
	const cure = "write a path relative to the .fullsend directory, such as harness/NAME.yaml"
	clean := path.Join(dir, p)
	switch {
	case strings.TrimSpace(p) == "":
		return "", because(cure, "the path is empty")
	case strings.Contains(p, "\\"):
		return "", because("write / between the folders", "the path %s has a backslash in it", public(p))
	case path.IsAbs(p) || regexp.MustCompile(`^[A-Za-z]:`).MatchString(p):
		return "", because(cure, "the path %s is absolute", public(p))
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", because(cure, "the path %s leads out of the .fullsend directory", public(p))
	case clean == "." || !fs.ValidPath(clean) || strings.ContainsFunc(clean, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", because(cure, "%s is not the path of a file", public(p))
	}
	return clean, nil
}

// remote judges a URL.
func (l *Loader) remote(ref string, sum []byte) (location, error) {
	u, err := cleanURL(ref)
	if err != nil {
		return location{}, err
	}
	loc := location{url: u, sum: sum}
	allowed := l.Allowed
	if allowed == nil {
		allowed = DefaultAllowed()
	}
	if !under(u, allowed) {
		return loc, because("add its prefix to allowed_remote_resources, or copy the file into the .fullsend directory",
			"%s is under no prefix of allowed_remote_resources", brief(loc.String()))
	}
	if sum == nil {
		return loc, because("append #sha256= and the 64 hex digits of sha256sum", "%s has no integrity", brief(loc.String()))
	}
	return loc, nil
}

// cleanURL brings an https URL into the form in which it is compared and
// fetched: host in lower case, path decoded once and without dot segments.
func cleanURL(ref string) (*url.URL, error) {
	u, err := url.Parse(ref)
	if err != nil || u.Opaque != "" || u.Hostname() == "" {
		return nil, because("write https://HOST/PATH#sha256=…", "the source is not a URL that can be read")
	}
	name := brief(location{url: &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}}.String())
	switch {
	case u.Scheme != "https":
		return nil, because("use https", "the scheme of %s is not https", name)
	case u.User != nil:
		return nil, because("remove it", "the URL %s has a user in it", name)
	case regexp.MustCompile(`%[0-9A-Fa-f]{2}`).MatchString(u.Path):
		return nil, because("encode the path once", "the path of %s is encoded twice", name)
	case strings.Contains(u.Path, "\\") || strings.ContainsFunc(u.Path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, because("", "the path of %s has a backslash or control character in it", name)
	}
	u.Host = strings.TrimSuffix(strings.ToLower(u.Host), ":443")
	u.Fragment, u.RawFragment = "", ""
	if clean := path.Clean("/" + u.Path); clean != strings.TrimSuffix(u.Path, "/") {
		u.Path, u.RawPath = clean, ""
	}
	return u, nil
}

// under compares whole path segments: a prefix .../agents does not allow
// .../agents-evil.
func under(u *url.URL, allowed []string) bool {
	for _, a := range allowed {
		p, err := cleanURL(a)
		if err != nil || p.Host != u.Host || p.RawQuery != "" {
			continue
		}
		prefix := strings.TrimSuffix(p.Path, "/")
		if u.Path == prefix || strings.HasPrefix(u.Path, prefix+"/") {
			return true
		}
	}
	return false
}

// verify compares a file with the integrity that was asked for.
func verify(loc location, raw []byte) error {
	if loc.sum == nil {
		return nil
	}
	got := sha256.Sum256(raw)
	if subtle.ConstantTimeCompare(got[:], loc.sum) == 1 {
		return nil
	}
	return because("check what changed there, then write the new sum",
		"the content of %s has the SHA-256 %s, which is not the one asked for", brief(loc.String()), hex.EncodeToString(got[:]))
}

// public is a reference of the file for a report: without a query or a user,
// which may be secrets.
func public(ref string) string {
	ref, _, _ = strings.Cut(ref, "?")
	if scheme, rest, ok := strings.Cut(ref, "://"); ok {
		host, tail, _ := strings.Cut(rest, "/")
		ref = scheme + "://" + host[strings.LastIndexByte(host, '@')+1:] + "/" + tail
	}
	return brief(ref)
}

// brief shortens a text of the file for a report and quotes what could break a
// line.
func brief(s string) string {
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) || s == "" {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// asCause splits an error into what and cure.
func asCause(err error) (what, cure string) {
	var c *cause
	if errors.As(err, &c) {
		return c.what, c.cure
	}
	return brief(strings.Join(strings.Fields(err.Error()), " ")), ""
}
