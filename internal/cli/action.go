package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// actionInputs are the inputs that are flags of the same name.
func actionInputs() []string {
	return []string{"config", "jira-base-url", "jira-user-email", "jira-token", "github-token", "target-repo", "input-driver", "output-driver", "dry-run"}
}

// actionCommand is the container's entry point: it reads INPUT_* and runs the
// command that they name, as if it had been typed.
func (a *app) actionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "action",
		Short: "Run as a GitHub Actions step: options come from INPUT_* variables",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args, err := a.actionArgs()
			if err != nil {
				return err
			}
			root := a.root()
			root.SetArgs(args)
			root.SetOut(a.Stdout)
			root.SetErr(a.Stderr)
			return root.ExecuteContext(cmd.Context())
		},
	}
}

const actionCommands = "poll, cancel, lock-refresh, lock-verify, lock-release, lock-keepalive, doctor"

// actionArgs translates the inputs into arguments.
func (a *app) actionArgs() ([]string, error) {
	command := first(a.runner.Input("command"), "poll")
	if a.runner.Input("cancel") != "" {
		command = "cancel"
	}
	var args []string
	switch command {
	case "poll":
		args = []string{"poll"}
	case "lock-refresh", "lock-verify", "lock-release", "lock-keepalive":
		args = strings.Split(command, "-")
	case "doctor":
		args = []string{"doctor"}
	case "cancel":
		args = []string{"cancel", "--issue=" + a.runner.Input("cancel")}
	case "reconcile":
		return nil, fmt.Errorf("the command %q is not part of this version; this version has %s", command, actionCommands)
	default:
		return nil, fmt.Errorf("input command: %q is unknown; use one of %s", command, actionCommands)
	}
	for _, name := range actionInputs() {
		v := a.runner.Input(name)
		switch {
		case v == "":
		case name == "dry-run" && v != "true" && v != "false":
			return nil, fmt.Errorf("input dry-run: %q is neither true nor false", v)
		default:
			args = append(args, "--"+name+"="+v)
		}
	}
	return args, nil
}
