package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// maxBases is how many files a harness may inherit from.
const maxBases = 5

// Load reads the agents' harnesses. All problems are returned together, in the
// order of registration; unless every one of them is a warning, the set is nil.
// An agent without a source (an entry that only adjusts a default agent of
// other tools) has no harness here; that is a warning.
func (l *Loader) Load(ctx context.Context, agents []Agent) (*Set, []Problem) {
	shape, err := newShape()
	if err != nil {
		return nil, []Problem{{What: err.Error()}}
	}
	compiler, err := newCompiler(shape)
	if err != nil {
		return nil, []Problem{{What: err.Error()}}
	}
	s := &session{Loader: l, compiler: compiler, files: map[string]*file{}}
	set := &Set{shape: shape}
	names := map[string]bool{}
	for _, a := range agents {
		id := strings.ToLower(a.Name)
		switch {
		case names[id]:
			s.report(Problem{Line: a.Line, What: fmt.Sprintf("the agent %q is registered for the second time", a.Name), Cure: "give one of the two another name"})
			continue
		case a.Source == "":
			s.report(Problem{Line: a.Line, What: fmt.Sprintf("the agent %q has no source, so no event can start it", a.Name), Cure: "add source: harness/NAME.yaml to the entry if it should", Warning: true})
			continue
		}
		names[id] = true
		if h, ok := s.load(ctx, a); ok {
			set.harnesses = append(set.harnesses, h)
		}
	}
	if slices.ContainsFunc(s.problems, func(p Problem) bool { return !p.Warning }) {
		set = nil
	}
	return set, s.problems
}

// session is one Load: what was read is read once, and a problem of a shared
// base is reported once.
type session struct {
	*Loader
	compiler *compiler
	files    map[string]*file // nil value: already reported
	problems []Problem
}

func (s *session) report(p Problem) {
	if !slices.Contains(s.problems, p) && len(s.problems) < 500 {
		s.problems = append(s.problems, p)
	}
}

// load reads one agent's harness and its bases; ok is false where a problem
// made it useless.
func (s *session) load(ctx context.Context, a Agent) (h harness, ok bool) {
	loc, err := s.locate(a.Source)
	if err != nil {
		what, cure := asCause(err)
		s.report(Problem{Line: a.Line, What: fmt.Sprintf("agent %q: %s", a.Name, what), Cure: cure})
		return h, false
	}
	first := s.read(ctx, loc, Problem{Line: a.Line, What: fmt.Sprintf("agent %q: ", a.Name)})
	if first == nil {
		return h, false
	}
	h.agent = a.Name
	ok = true
	if first.trigger.set() {
		t, problems := s.compiler.compile(first)
		for _, p := range problems {
			s.report(p)
		}
		h.trigger, ok = t, t != nil
	}
	role, owner, whole := s.inherit(ctx, first)
	switch {
	case !whole:
		return h, false
	case !role.set():
		s.report(Problem{Source: first.loc.String(), What: "the harness has no role, nor has a base of it", Cure: "write role: NAME"})
		return h, false
	case !regexp.MustCompile(`^[a-z][a-z0-9_-]{0,99}$`).MatchString(role.value):
		s.report(Problem{Source: owner, Line: role.line(), What: fmt.Sprintf("%q is not a role", brief(role.value)), Cure: "use a-z, 0-9, _ and -, beginning with a letter"})
		return h, false
	}
	h.role = role.value
	return h, ok
}

// inherit follows the bases to their end, so that a broken one is found even
// where the role is known, and returns the nearest role and whose it is.
func (s *session) inherit(ctx context.Context, f *file) (role text, owner string, whole bool) {
	seen := map[string]bool{f.loc.String(): true}
	role, owner = f.role, f.loc.String()
	for depth := 1; f.base.set(); depth++ {
		at := Problem{Source: f.loc.String(), Line: f.base.line()}
		loc, err := s.locateBase(f.loc, strings.TrimSpace(f.base.value))
		switch name := loc.String(); {
		case err != nil:
			at.What, at.Cure = asCause(err)
		case seen[name]:
			at.What, at.Cure = fmt.Sprintf("the base %s goes round in a circle", brief(name)), "remove one base of the circle"
		case depth > maxBases:
			at.What, at.Cure = fmt.Sprintf("the harness inherits from more than %d files", maxBases), "shorten the chain"
		}
		if at.What != "" {
			s.report(at)
			return role, owner, false
		}
		seen[loc.String()] = true
		at.What = "base: "
		if f = s.read(ctx, loc, at); f == nil {
			return role, owner, false
		}
		if !role.set() {
			role, owner = f.role, f.loc.String()
		}
	}
	return role, owner, true
}

// read returns a parsed file, nil where a problem was reported. blame says
// where a file that cannot be read is to be reported; its What is a prefix.
func (s *session) read(ctx context.Context, loc location, blame Problem) *file {
	key := loc.String() + fmt.Sprintf("?%x", loc.sum)
	if loc.url != nil {
		key += "?" + loc.url.RawQuery
	}
	if f, known := s.files[key]; known {
		return f
	}
	raw, err := s.bytes(ctx, loc)
	if err == nil {
		err = verify(loc, raw)
	}
	if err != nil {
		what, cure := asCause(err)
		blame.What, blame.Cure = blame.What+what, cure
		s.report(blame)
		return nil
	}
	f, problems := parse(loc, raw)
	for _, p := range problems {
		s.report(p)
	}
	if len(problems) > 0 {
		f = nil
	}
	s.files[key] = f
	return f
}

// bytes reads at most 1 MiB from the file system or the network.
func (s *session) bytes(ctx context.Context, loc location) ([]byte, error) {
	name := brief(loc.String())
	var raw []byte
	if loc.url != nil {
		if s.Fetch == nil {
			return nil, because("", "%s cannot be read: there is no network here", name)
		}
		var err error
		if raw, err = s.Fetch(ctx, loc.url.String()); err != nil {
			var ue *url.Error // repeats the URL, query and all
			if errors.As(err, &ue) {
				err = ue.Err
			}
			return nil, because("check the URL and the network", "%s cannot be read: %s", name, brief(strings.Join(strings.Fields(err.Error()), " ")))
		}
	} else {
		var err error
		if raw, err = readFile(s.FS, loc.path); err != nil {
			return nil, err
		}
	}
	if len(raw) > maxBytes {
		return nil, because("", "%s is longer than 1 MiB", name)
	}
	return raw, nil
}

func readFile(fsys fs.FS, p string) ([]byte, error) {
	name := brief(p)
	if fsys == nil {
		return nil, because("", "%s cannot be read: there is no .fullsend directory", name)
	}
	info, err := fs.Stat(fsys, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, because("check the path; it is relative to the .fullsend directory", "the file %s does not exist", name)
	case err != nil:
		return nil, because("it must be a file inside the .fullsend directory", "the file %s cannot be read: %s", name, reason(err))
	case !info.Mode().IsRegular():
		return nil, because("name a harness file", "%s is not a file", name)
	}
	f, err := fsys.Open(p)
	if err != nil {
		return nil, because("", "the file %s cannot be read: %s", name, reason(err))
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, because("", "the file %s cannot be read: %s", name, reason(err))
	}
	return raw, nil
}

// reason is an error of the file system without its path, which may be one of
// this machine.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return brief(err.Error())
}
