package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fullsend/poll-action/internal/dispatch"
)

func (a *app) doctorCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check configuration, credentials, rights, clock, queries, triggers and the target workflow; change nothing",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), file) },
	}
	cmd.Flags().StringVar(&file, "result", "", "write the checks as JSON to this file (- for standard output)")
	return cmd
}

// diagnosis is the document of doctor's --result.
type diagnosis struct {
	OK     bool             `json:"ok"`
	Checks []dispatch.Check `json:"checks"`
}

// doctor checks everything that a cycle needs and says one line about each. What
// is wrong in the configuration is among the lines; what needs it is left out.
func (a *app) doctor(ctx context.Context, file string) error {
	d := diagnosis{OK: true}
	l, ps := a.load(ctx, false)
	var drivers []*driver
	if l != nil {
		var more problems
		drivers, more = a.wire(l)
		ps = append(ps, more...)
	}
	for _, p := range ps {
		d.add(dispatch.Check{Name: "configuration", Health: dispatch.Bad, Detail: p.String()})
	}
	if len(ps) == 0 {
		d.add(dispatch.Check{Name: "configuration", Health: dispatch.Good, Detail: fmt.Sprintf("%s, %d input drivers", a.configPath(), len(drivers))})
		names := l.harnesses.Names()
		d.add(dispatch.Check{Name: "harnesses", Health: dispatch.Good, Detail: fmt.Sprintf("%d triggers compile: %v", len(names), names)})
		if len(names) == 0 {
			d.Checks[len(d.Checks)-1] = dispatch.Check{Name: "harnesses", Health: dispatch.Doubtful, Detail: "no agent is registered: nothing is ever dispatched", Cure: "add harness files under agents"}
		}
		if l.cfg.KillSwitch {
			d.add(dispatch.Check{Name: "kill switch", Health: dispatch.Doubtful, Detail: "it is on: nothing is dispatched", Cure: "set kill_switch: false"})
		}
	}
	for _, w := range a.warnings {
		d.add(dispatch.Check{Name: "warning", Health: dispatch.Doubtful, Detail: w})
	}
	for i, dr := range drivers {
		probers := []dispatch.Prober{dr.input}
		if i == 0 { // all drivers have the same target
			probers = append(probers, dr.out)
		}
		for _, p := range probers {
			for _, c := range p.Probe(ctx) {
				d.add(c)
			}
		}
	}
	if err := a.tell(d, file); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	if !d.OK {
		return &exitError{code: ExitFailed}
	}
	return nil
}

func (d *diagnosis) add(c dispatch.Check) {
	d.Checks = append(d.Checks, c)
	d.OK = d.OK && c.Health != dispatch.Bad
}

// tell writes the lines, and the document where it is asked for. Text from
// outside stands in them only quoted, and every line begins with its mark.
func (a *app) tell(d diagnosis, file string) error {
	for _, c := range d.Checks {
		mark := map[dispatch.Health]string{dispatch.Good: "✓", dispatch.Doubtful: "!", dispatch.Bad: "✗"}[c.Health]
		say(a.Stdout, "%s %s: %s", mark, c.Name, oneLine(sentence(c.Detail, c.Cure)))
	}
	doc, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := a.runner.Output("result", string(doc)); err != nil {
		return err
	}
	switch file {
	case "":
		return nil
	case "-":
		_, err = fmt.Fprintf(a.Stdout, "%s\n", doc)
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o644) //nolint:gosec // holds no secret; other users' tools read it
}
