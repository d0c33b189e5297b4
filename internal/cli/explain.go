package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
)

func (a *app) explainCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "explain --event FILE",
		Short: "Say which harnesses a NormalizedEvent matches and why; starts nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return errors.New("explain needs --event FILE with one NormalizedEvent as JSON")
			}
			return a.explain(cmd, file)
		},
	}
	cmd.Flags().StringVar(&file, "event", "", "file with one NormalizedEvent as JSON")
	return cmd
}

func (a *app) explain(cmd *cobra.Command, file string) error {
	l, ps := a.load(cmd.Context(), true)
	raw, err := readFile(file)
	var ev event.NormalizedEvent
	if err == nil && l != nil && l.validator != nil {
		ev, err = l.validator.Decode(raw)
	}
	if err != nil {
		ps = append(ps, problem{file: file, text: plainPathError(err)})
	}
	if len(ps) > 0 {
		return ps.err()
	}
	as := a.core(l).Assess(cmd.Context(), event.Occurrence{Key: "event", At: time.Time{}, Event: ev})
	w := cmd.OutOrStdout()
	_, err = fmt.Fprintf(w, "event: %s on %s %q by %q\ngate: %s (%s)\n", ev.Transition.Kind, ev.Entity.Kind, first(ev.Entity.Key, strconv.FormatInt(ev.Entity.ID, 10)), ev.Actor.ID, as.Verdict, as.Reason)
	if as.Verdict == dispatch.Accepted && len(as.Decisions) == 0 {
		_, err = fmt.Fprintln(w, "no harness is registered")
	}
	for _, d := range as.Decisions {
		mark := "no"
		if d.Matched {
			mark = "yes"
		}
		_, werr := fmt.Fprintf(w, "harness %s (role %s): %s: %s\n", d.Agent, d.Role, mark, d.Reason)
		err = errors.Join(err, werr)
	}
	return err
}

// readFile reads a file of at most 1 MiB and a byte, so that readers can see
// that it is too long.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, 1<<20+1))
}
