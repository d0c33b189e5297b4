package sim

import (
	"crypto/sha1" //nolint:gosec // git names blobs by SHA-1
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"strings"
	"time"
)

// actorLogin is who the token's runs belong to.
const actorLogin = "github-actions[bot]"

func (g *GitHub) repoURL() string { return g.base + "/repos/" + g.repo }

func (g *GitHub) pageURL() string { return g.server + "/" + g.repo }

func ghTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// orNull is a text, or null for none.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (g *GitHub) showWorkflow(w *workflow) map[string]any {
	return map[string]any{
		"id": w.id, "node_id": fmt.Sprintf("W_%d", w.id), "name": w.at[defaultBranch].name, "path": w.path(),
		"state": w.state, "created_at": ghTime(w.created), "updated_at": ghTime(w.created),
		"url":       fmt.Sprintf("%s/actions/workflows/%d", g.repoURL(), w.id),
		"html_url":  g.pageURL() + "/blob/" + defaultBranch + "/" + w.path(),
		"badge_url": g.pageURL() + "/actions/workflows/" + w.file + "/badge.svg",
	}
}

// sha is the name of the only commit of a ref.
func sha(ref string) string {
	sum := sha1.Sum([]byte(ref)) //nolint:gosec // not for security
	return hex.EncodeToString(sum[:])
}

func (g *GitHub) showRun(r *run) map[string]any {
	url := fmt.Sprintf("%s/actions/runs/%d", g.repoURL(), r.ID)
	name := r.workflow.at[r.Ref].name
	return map[string]any{
		"id": r.ID, "name": name, "node_id": fmt.Sprintf("WFR_%d", r.ID), "display_title": r.DisplayTitle,
		"head_branch": r.Ref, "head_sha": sha(r.Ref), "path": r.workflow.path(), "event": "workflow_dispatch",
		"run_number": r.ID % 100000, "run_attempt": 1, "workflow_id": r.workflow.id,
		"status": r.Status, "conclusion": orNull(r.Conclusion), "pull_requests": []any{},
		"url": url, "html_url": r.URL, "jobs_url": url + "/jobs", "logs_url": url + "/logs",
		"check_suite_url": g.repoURL() + "/check-suites/1", "artifacts_url": url + "/artifacts",
		"cancel_url": url + "/cancel", "rerun_url": url + "/rerun", "previous_attempt_url": nil,
		"workflow_url": fmt.Sprintf("%s/actions/workflows/%d", g.repoURL(), r.workflow.id),
		"created_at":   ghTime(r.CreatedAt), "updated_at": ghTime(r.updated), "run_started_at": ghTime(r.CreatedAt),
		"actor": g.showUser(actorLogin), "triggering_actor": g.showUser(actorLogin),
		"head_commit": nil, "repository": g.showRepo(), "head_repository": g.showRepo(),
	}
}

func (g *GitHub) showJob(r *run, index int64, job Job) map[string]any {
	id := r.ID*1000 + index
	run := fmt.Sprintf("%s/actions/runs/%d", g.repoURL(), r.ID)
	var completed any
	if job.Status == "completed" {
		completed = ghTime(r.updated)
	}
	var runner, runnerID, group, groupID any
	if job.Runner != "" {
		runner, runnerID, group, groupID = job.Runner, numberOf(job.Runner), "Default", 1
	}
	return map[string]any{
		"id": id, "run_id": r.ID, "run_url": run, "run_attempt": 1, "node_id": fmt.Sprintf("CR_%d", id),
		"head_sha": sha(r.Ref), "head_branch": r.Ref, "workflow_name": r.workflow.at[r.Ref].name,
		"url": fmt.Sprintf("%s/actions/jobs/%d", g.repoURL(), id), "html_url": fmt.Sprintf("%s/job/%d", r.URL, id),
		"status": job.Status, "conclusion": orNull(job.Conclusion), "name": job.Name, "steps": []any{},
		"created_at": ghTime(r.CreatedAt), "started_at": ghTime(r.CreatedAt), "completed_at": completed,
		"check_run_url": fmt.Sprintf("%s/check-runs/%d", g.repoURL(), id), "labels": []string{"ubuntu-latest"},
		"runner_id": runnerID, "runner_name": runner, "runner_group_id": groupID, "runner_group_name": group,
	}
}

// showFile shows a file the way the contents resource does.
func (g *GitHub) showFile(file, ref, source string) map[string]any {
	url := g.repoURL() + "/contents/" + file + "?ref=" + ref
	html := g.pageURL() + "/blob/" + ref + "/" + file
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(source), source)) //nolint:gosec // as git does
	blob := hex.EncodeToString(sum[:])
	git := g.repoURL() + "/git/blobs/" + blob
	return map[string]any{
		"type": "file", "encoding": "base64", "size": len(source), "name": path.Base(file), "path": file,
		"content": folded(base64.StdEncoding.EncodeToString([]byte(source))), "sha": blob,
		"url": url, "git_url": git, "html_url": html, "download_url": nil,
		"_links": map[string]any{"self": url, "git": git, "html": html},
	}
}

// folded breaks base64 text into lines, as GitHub does.
func folded(s string) string {
	var b strings.Builder
	for len(s) > 60 {
		b.WriteString(s[:60] + "\n")
		s = s[60:]
	}
	return b.String() + s + "\n"
}

func (g *GitHub) showUser(login string) map[string]any {
	url, html := g.base+"/users/"+login, g.server+"/"+login
	kind := "User"
	if strings.HasSuffix(login, "[bot]") {
		kind = "Bot"
	}
	return map[string]any{
		"login": login, "id": numberOf(login), "node_id": "U_" + login, "avatar_url": html + ".png", "gravatar_id": "",
		"url": url, "html_url": html, "followers_url": url + "/followers", "following_url": url + "/following{/other_user}",
		"gists_url": url + "/gists{/gist_id}", "starred_url": url + "/starred{/owner}{/repo}",
		"subscriptions_url": url + "/subscriptions", "organizations_url": url + "/orgs", "repos_url": url + "/repos",
		"events_url": url + "/events{/privacy}", "received_events_url": url + "/received_events",
		"type": kind, "site_admin": false,
	}
}

// numberOf is a stable id for a name.
func numberOf(name string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int64(h.Sum32())
}

func (g *GitHub) showCollaborator(login string, has grant) map[string]any {
	u := g.showUser(login)
	write := has.permission == "write" || has.permission == "admin"
	maps.Copy(u, map[string]any{
		"role_name": has.role,
		"permissions": map[string]any{
			"pull": has.permission != "none", "push": write, "admin": has.permission == "admin",
			"triage": write || has.role == "triage", "maintain": has.permission == "admin" || has.role == "maintain",
		},
	})
	return u
}

// showFullRepo is what the repository's own resource shows, without the
// permissions: what those of a job's token are is not known.
func (g *GitHub) showFullRepo() map[string]any {
	repo := g.showRepo()
	born := "2026-01-01T00:00:00Z"
	maps.Copy(repo, map[string]any{
		"default_branch": defaultBranch, "homepage": nil, "language": nil, "license": nil, "mirror_url": nil,
		"clone_url": g.pageURL() + ".git", "git_url": "git:" + strings.TrimPrefix(g.pageURL(), "https:") + ".git",
		"ssh_url": "git@github.com:" + g.repo + ".git", "svn_url": g.pageURL(), "visibility": "private",
		"has_issues": true, "has_projects": true, "has_wiki": true, "has_pages": false, "has_discussions": false,
		"archived": false, "disabled": false, "size": 1, "forks": 0, "forks_count": 0, "open_issues": 0,
		"open_issues_count": 0, "stargazers_count": 0, "watchers": 0, "watchers_count": 0, "network_count": 0,
		"subscribers_count": 0, "created_at": born, "updated_at": born, "pushed_at": born,
	})
	return repo
}

func (g *GitHub) showRepo() map[string]any {
	owner, name, _ := strings.Cut(g.repo, "/")
	url := g.repoURL()
	out := map[string]any{
		"id": numberOf(g.repo), "node_id": "R_" + name, "name": name, "full_name": g.repo, "owner": g.showUser(owner),
		"private": true, "html_url": g.pageURL(), "description": nil, "fork": false, "url": url,
	}
	for member, tail := range map[string]string{
		"archive_url": "/{archive_format}{/ref}", "assignees_url": "/assignees{/user}", "blobs_url": "/git/blobs{/sha}",
		"branches_url": "/branches{/branch}", "collaborators_url": "/collaborators{/collaborator}",
		"comments_url": "/comments{/number}", "commits_url": "/commits{/sha}", "compare_url": "/compare/{base}...{head}",
		"contents_url": "/contents/{+path}", "contributors_url": "/contributors", "deployments_url": "/deployments",
		"downloads_url": "/downloads", "events_url": "/events", "forks_url": "/forks", "git_commits_url": "/git/commits{/sha}",
		"git_refs_url": "/git/refs{/sha}", "git_tags_url": "/git/tags{/sha}", "hooks_url": "/hooks",
		"issue_comment_url": "/issues/comments{/number}", "issue_events_url": "/issues/events{/number}",
		"issues_url": "/issues{/number}", "keys_url": "/keys{/key_id}", "labels_url": "/labels{/name}",
		"languages_url": "/languages", "merges_url": "/merges", "milestones_url": "/milestones{/number}",
		"notifications_url": "/notifications{?since,all,participating}", "pulls_url": "/pulls{/number}",
		"releases_url": "/releases{/id}", "stargazers_url": "/stargazers", "statuses_url": "/statuses/{sha}",
		"subscribers_url": "/subscribers", "subscription_url": "/subscription", "tags_url": "/tags",
		"teams_url": "/teams", "trees_url": "/git/trees{/sha}",
	} {
		out[member] = url + tail
	}
	return out
}
