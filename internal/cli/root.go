package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker (see the Dockerfile).
var version, commit string //nolint:gochecknoglobals // the linker can set nothing else

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "fullsend-poll",
		Short:         "Find work where nobody can push it, and start agent workflows for it",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.set.config, "config", "", "configuration file; its folder is the .fullsend directory (default "+defaultConfig+")")
	f.StringVar(&a.set.jiraBaseURL, "jira-base-url", "", "Jira's address (environment JIRA_BASE_URL)")
	f.StringVar(&a.set.jiraUserEmail, "jira-user-email", "", "owner of the Jira API token (environment JIRA_USER_EMAIL)")
	f.StringVar(&a.set.jiraToken, "jira-token", "", "Jira API token (environment JIRA_TOKEN)")
	f.StringVar(&a.set.githubToken, "github-token", "", "GitHub token with actions: write and contents: read (environment GITHUB_TOKEN)")
	f.StringVar(&a.set.targetRepo, "target-repo", "", "owner/repo whose workflows are started (environment GITHUB_REPOSITORY)")
	f.StringSliceVar(&a.set.inputDrivers, "input-driver", nil, "use only input drivers of this type or name (may be repeated)")
	f.StringVar(&a.set.outputDriver, "output-driver", "", "output driver instead of the configured one")
	f.BoolVar(&a.set.dryRun, "dry-run", false, "discover and judge, but lock, dispatch and write nothing")
	root.AddCommand(a.pollCommand(), a.cancelCommand(), a.doctorCommand(), a.lockCommand(), a.explainCommand(), a.demoCommand(), a.actionCommand(), a.versionCommand())
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, c := versionOf()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "fullsend-poll %s (commit %s, %s)\n", v, c, runtime.Version())
			return err
		},
	}
}

// versionOf returns version and commit: the linker's, else the build's own.
func versionOf() (v, c string) {
	v, c = version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" && info.Main.Version != "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && c == "" {
				c = s.Value
			}
		}
	}
	if v == "" {
		v = "(devel)"
	}
	if c == "" {
		c = "unknown"
	}
	return v, c
}
