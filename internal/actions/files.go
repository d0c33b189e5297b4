package actions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// libraryDelimiter is the fixed delimiter of go-githubactions. A value that
// has it must not go through the library.
const libraryDelimiter = "_GitHubActionsFileCommandDelimeter_"

const (
	// maxValue bounds one value; GitHub takes outputs of 1 MiB per job.
	maxValue = 1 << 20
	// maxSummary is what the runner takes as a step's summary; a longer one is
	// dropped as a whole.
	maxSummary = 1 << 20
	cutNote    = "\n\n_The summary was cut here: a step may write 1 MiB._\n"
)

// Output sets a step output. value may have several lines but no carriage
// return and no NUL.
func (r *Runner) Output(name, value string) error {
	if err := checkName("output", name, true); err != nil {
		return err
	}
	if i := strings.IndexAny(value, "\r\x00"); i >= 0 {
		return fmt.Errorf("output %s: character %q at %d cannot be written", name, value[i], i)
	}
	return r.write("GITHUB_OUTPUT", name, value, r.act.SetOutput)
}

// Env sets a variable for the later steps of the job. Names by which programs
// can be made to load or run something else, and the runner's own, are
// refused; so are values of more than one line.
func (r *Runner) Env(name, value string) error {
	if err := checkName("variable", name, false); err != nil {
		return err
	}
	if protected(name) {
		return fmt.Errorf("variable %s: protected, later steps trust it", name)
	}
	if err := checkLine("variable", name, value); err != nil {
		return err
	}
	return r.write("GITHUB_ENV", name, value, r.act.SetEnv)
}

// State saves a single-line value for the step's post part; see
// [Runner.GetState].
func (r *Runner) State(name, value string) error {
	if err := checkName("state", name, true); err != nil {
		return err
	}
	if err := checkLine("state", name, value); err != nil {
		return err
	}
	return r.write("GITHUB_STATE", name, value, r.act.SaveState)
}

// Summary appends markdown to the step's summary. What goes over the runner's
// limit is cut at a line, and a note says so.
func (r *Runner) Summary(markdown string) error {
	const file = "GITHUB_STEP_SUMMARY"
	r.mu.Lock()
	defer r.mu.Unlock()
	path, err := r.file(file)
	if path == "" || r.cut {
		return err
	}
	room := maxSummary
	if info, err := os.Stat(path); err == nil {
		room -= int(min(info.Size(), maxSummary))
	}
	markdown = r.out.redact(strings.ToValidUTF8(markdown, "\uFFFD"))
	if len(markdown)+1 > room {
		r.cut = true
		if room -= len(cutNote) + 1; room < 0 {
			return nil
		}
		markdown = markdown[:max(strings.LastIndexByte(markdown[:room], '\n'), 0)] + cutNote
	}
	return safely(file, func() { r.act.AddStepSummary(markdown) })
}

// write appends name and value to one of the runner's files: by the library
// where the value is one harmless line, else under a delimiter of our own.
func (r *Runner) write(file, name, value string, byLibrary func(k, v string)) error {
	if len(value) > maxValue {
		return fmt.Errorf("%s %s: %d bytes, at most %d are possible", file, name, len(value), maxValue)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	path, err := r.file(file)
	if path == "" {
		return err
	}
	if !strings.Contains(value, "\n") && !strings.Contains(value, libraryDelimiter) {
		return safely(file, func() { byLibrary(name, value) })
	}
	delimiter, err := r.delimiter(value)
	if err != nil {
		return fmt.Errorf("%s %s: %w", file, name, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fileError(file, err)
	}
	_, err = f.WriteString(name + "<<" + delimiter + "\n" + value + "\n" + delimiter + "\n")
	return errors.Join(err, f.Close())
}

// delimiter returns a line that does not occur in value.
func (r *Runner) delimiter(value string) (string, error) {
	for range 8 {
		if d := "fullsend_" + r.token(); !strings.Contains(value, d) {
			return d, nil
		}
	}
	return "", errors.New("no delimiter found that the value does not have")
}

// file returns the path of one of the runner's files; "" with a nil error
// means that there is nobody to write for.
func (r *Runner) file(name string) (string, error) {
	path := r.getenv(name)
	if path == "" && r.Active() {
		return "", fmt.Errorf("%s is not set although GITHUB_ACTIONS is; "+
			"a container step gets it from the runner, pass it on when starting the container yourself", name)
	}
	return path, nil
}

func fileError(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w; the runner's files belong to another user: "+
			"run the image as root, without USER and without --user", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// checkName allows letters, digits and _, and - where dash is set.
func checkName(what, name string, dash bool) error {
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		other := c >= '0' && c <= '9' || dash && c == '-'
		if !letter && (i == 0 || !other) {
			return fmt.Errorf("%s %q: not a name", what, name)
		}
	}
	if name == "" || len(name) > 255 {
		return fmt.Errorf("%s %q: not a name", what, name)
	}
	return nil
}

func checkLine(what, name, value string) error {
	if i := strings.IndexAny(value, "\r\n\x00"); i >= 0 {
		return fmt.Errorf("%s %s: a single line is needed, character %q at %d is not allowed", what, name, value[i], i)
	}
	return nil
}

// protected says that a variable of this name changes what later steps run.
func protected(name string) bool {
	name = strings.ToUpper(name)
	for _, prefix := range []string{
		"GITHUB_", "RUNNER_", "ACTIONS_", "INPUT_", "STATE_", "LD_", "DYLD_", "GIT_", "NPM_CONFIG_", "DOCKER_",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{"PATH", "_OPTIONS", "_PRELOAD", "PROXY"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return slices.Contains([]string{
		"BASH_ENV", "ENV", "SHELL", "HOME", "IFS", "CI", "EDITOR", "PAGER", "PROMPT_COMMAND",
		"PYTHONSTARTUP", "PYTHONHOME", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB", "GOFLAGS",
	}, name)
}
