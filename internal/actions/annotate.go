package actions

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// maxAnnotations is how many annotations of one type the runner shows for
	// one step; it forgets the others without a word.
	maxAnnotations = 10
	// maxAnnotation is the longest annotation in characters.
	maxAnnotation = 4096
)

// Warning annotates the run. Outside Actions it writes nothing; the log is the
// place for what a human at a terminal is to see.
func (r *Runner) Warning(msg string) { r.annotate("warning", msg, r.act.Warningf) }

// Error annotates the run; see [Runner.Warning].
func (r *Runner) Error(msg string) { r.annotate("error", msg, r.act.Errorf) }

// Notice annotates the run; see [Runner.Warning].
func (r *Runner) Notice(msg string) { r.annotate("notice", msg, r.act.Noticef) }

func (r *Runner) annotate(kind, msg string, issue func(string, ...any)) {
	if !r.Active() {
		return
	}
	msg = clip(r.out.redact(oneLine(msg)), maxAnnotation)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown[kind] >= maxAnnotations {
		r.dropped[kind]++
		r.out.line(fmt.Sprintf("%s: %q", kind, msg))
		return
	}
	r.shown[kind]++
	// A log that cannot be written to leaves nobody to tell.
	_ = safely(kind, func() { issue("%s", msg) })
}

// Flush says in one last line how many messages found no room among the
// annotations and are in the log only.
func (r *Runner) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, kind := range []string{"error", "warning", "notice"} {
		if n := r.dropped[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s(s)", n, kind))
		}
	}
	clear(r.dropped)
	if len(parts) > 0 {
		r.out.line("not annotated, a step may have 10 of a kind: " + strings.Join(parts, ", ") + "; see the lines above")
	}
}

// Mask registers secrets: the runner and this package replace them by *** from
// now on. Texts shorter than four characters are passed over, they would blank
// the log and protect nothing. Derived forms (base64 of user:token) are the
// caller's to give.
func (r *Runner) Mask(secrets ...string) {
	for _, s := range secrets {
		for _, part := range append([]string{s}, strings.Split(s, "\n")...) {
			part = strings.TrimSpace(part)
			if len(part) < minSecret || !r.out.mask(part) || !r.Active() {
				continue
			}
			_ = safely("add-mask", func() { r.act.AddMask(part) })
		}
	}
}

func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}
