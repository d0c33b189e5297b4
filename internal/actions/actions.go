// Package actions speaks the protocol between an action and the GitHub Actions
// runner: inputs, outputs, environment, state, step summary, annotations,
// masks, the event file, and a log that the runner cannot mistake for
// commands. It promises that no text from outside can end a value early, start
// a workflow command or reach a later step under another name, that a secret
// given to [Runner.Mask] appears in nothing it writes to the log, and that
// nothing panics or exits.
//
// Outside Actions the same calls work: where the runner's file is not named by
// the environment, writing to it is a no-op; where it is, it is written.
package actions

import (
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/sethvargo/go-githubactions"
)

// Runner is one step's connection to its runner. It may be used by many
// goroutines.
type Runner struct {
	out    *lineWriter
	getenv func(string) string
	act    *githubactions.Action
	token  func() string // delimiters of multi-line values

	mu      sync.Mutex // the runner's files and the counts
	shown   map[string]int
	dropped map[string]int
	cut     bool // the summary is full
}

// New returns a Runner that writes its commands and log lines to w and reads
// the environment by getenv.
func New(w io.Writer, getenv func(string) string) *Runner {
	out := &lineWriter{w: w}
	return &Runner{
		out:    out,
		getenv: getenv,
		act: githubactions.New(
			githubactions.WithWriter(commandWriter{out}),
			githubactions.WithGetenv(getenv),
		),
		token:   rand.Text,
		shown:   map[string]int{},
		dropped: map[string]int{},
	}
}

// Active reports whether a runner is there to read what is written.
func (r *Runner) Active() bool { return r.getenv("GITHUB_ACTIONS") == "true" }

// Input returns an action input, trimmed. The runner cannot tell an empty
// input from an absent one, and neither does this.
func (r *Runner) Input(name string) string { return r.act.GetInput(name) }

// GetState returns what the step's main part saved under name.
func (r *Runner) GetState(name string) string { return r.getenv("STATE_" + name) }

// safely runs a call of the library, which panics where a write fails.
func safely(what string, f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = fileError(what, p)
		default:
			err = fmt.Errorf("%s: %v", what, p)
		}
	}()
	f()
	return nil
}

// oneLine makes s fit a line: runs of line breaks and other control characters
// become one space.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Join(strings.FieldsFunc(s, func(c rune) bool {
		return c < ' ' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029
	}), " ")
}
