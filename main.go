// Command fullsend-poll finds work in Jira (and later GitLab and GitHub) and
// starts agent workflows for it. Everything is in internal/cli.
package main

import (
	"os"

	"github.com/fullsend/poll-action/internal/cli"
)

func main() { os.Exit(cli.Main()) }
