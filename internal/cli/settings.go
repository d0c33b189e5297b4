package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/fullsend/poll-action/internal/config"
)

const (
	defaultConfig    = ".fullsend/config.yaml"
	defaultAPIURL    = "https://api.github.com"
	defaultServerURL = "https://github.com"
)

// settings are what flags and action inputs say; empty means nothing was said.
// Precedence: flag or input, then environment, then configuration, then default.
type settings struct {
	config                                string
	jiraBaseURL, jiraUserEmail, jiraToken string
	githubToken, targetRepo               string
	inputDrivers                          []string
	outputDriver                          string
	dryRun                                bool
}

func (a *app) configPath() string { return first(a.set.config, defaultConfig) }

// lookup resolves a ${NAME} of the configuration: a flag stands for the variable
// that it overrides.
func (a *app) lookup(name string) (string, bool) {
	v := a.Getenv(name)
	switch name {
	case "JIRA_BASE_URL":
		v = first(a.set.jiraBaseURL, v)
	case "JIRA_USER_EMAIL":
		v = first(a.set.jiraUserEmail, v)
	case "JIRA_TOKEN":
		v = first(a.set.jiraToken, v)
	case "GITHUB_TOKEN":
		v = first(a.set.githubToken, v)
	case "GITHUB_REPOSITORY":
		v = first(a.set.targetRepo, v)
	}
	return v, v != ""
}

func (a *app) value(name string) string {
	v, _ := a.lookup(name)
	return v
}

// overrides are the members of a Jira connection that flags or, unless only
// flags count, the environment set.
func (a *app) overrides(flagsOnly bool) config.Overrides {
	if flagsOnly {
		return config.Overrides{JiraBaseURL: a.set.jiraBaseURL, JiraUserEmail: a.set.jiraUserEmail, JiraToken: a.set.jiraToken}
	}
	return config.Overrides{JiraBaseURL: a.value("JIRA_BASE_URL"), JiraUserEmail: a.value("JIRA_USER_EMAIL"), JiraToken: a.value("JIRA_TOKEN")}
}

var repoPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$`)

// repo returns the target repository.
func (a *app) repo() (string, error) {
	repo := a.value("GITHUB_REPOSITORY")
	if repo == "" {
		return "", errors.New("the target repository is not known; give --target-repo owner/repo or set GITHUB_REPOSITORY")
	}
	owner, name, _ := strings.Cut(repo, "/")
	if !repoPattern.MatchString(repo) || strings.Trim(owner, ".") == "" || strings.Trim(name, ".") == "" {
		return "", fmt.Errorf("the target repository %q is not of the form owner/repo", repo)
	}
	return repo, nil
}

// hide masks a secret and the forms it takes on the wire.
func (a *app) hide(user, secret string) {
	if secret == "" {
		return
	}
	a.mask(secret, url.QueryEscape(secret))
	if user != "" {
		a.mask(base64.StdEncoding.EncodeToString([]byte(user + ":" + secret)))
	}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
