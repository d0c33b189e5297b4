package dispatch

import "github.com/fullsend/poll-action/internal/event"

// ExecutionRef is the projection of an event that agent workflows read
// (specs of the Fullsend project, "Execution ref").
type ExecutionRef struct {
	SourceRepo    string       `json:"source_repo"`
	EventType     string       `json:"event_type"`
	EventAction   string       `json:"event_action"`
	EventPayload  EventPayload `json:"event_payload"`
	TriggerSource string       `json:"trigger_source,omitempty"`
	StatusRepo    string       `json:"status_repo"`
	StatusNumber  int64        `json:"status_number"`
}

// EventPayload is the part of a forge's payload that agent workflows use;
// their concurrency groups read issue.number or pull_request.number.
type EventPayload struct {
	Issue       *PayloadIssue       `json:"issue,omitempty"`
	PullRequest *PayloadPullRequest `json:"pull_request,omitempty"`
	Comment     *PayloadComment     `json:"comment,omitempty"`
}

// PayloadIssue is a work item. Key is set for Jira only.
type PayloadIssue struct {
	Number  int64  `json:"number"`
	HTMLURL string `json:"html_url"`
	Key     string `json:"key,omitempty"`
}

// PayloadPullRequest is a change proposal.
type PayloadPullRequest struct {
	Number  int64       `json:"number"`
	HTMLURL string      `json:"html_url"`
	Head    *PayloadRef `json:"head,omitempty"`
	Base    *PayloadRef `json:"base,omitempty"`
}

// PayloadRef is one side of a change proposal.
type PayloadRef struct {
	Ref  string      `json:"ref"`
	SHA  string      `json:"sha,omitempty"`
	Repo PayloadRepo `json:"repo"`
}

// PayloadRepo names a repository.
type PayloadRepo struct {
	FullName string `json:"full_name"`
}

// PayloadComment is a comment's text.
type PayloadComment struct {
	Body string `json:"body"`
}

// fixAgent is the one agent whose runs are told who asked for them.
const fixAgent = "fix"

// Project makes the execution ref of one event for one agent.
func Project(agent string, ev event.NormalizedEvent) ExecutionRef {
	ref := ExecutionRef{
		SourceRepo:   ev.Repo,
		EventType:    ev.Source.RawType,
		EventAction:  ev.Source.RawAction,
		StatusRepo:   ev.Repo,
		StatusNumber: ev.Entity.ID,
	}
	switch ev.Entity.Kind {
	case event.WorkItem:
		issue := &PayloadIssue{Number: ev.Entity.ID, HTMLURL: ev.Entity.URL}
		if ev.Source.System == event.Jira {
			issue.Key = ev.Entity.Key
		}
		ref.EventPayload.Issue = issue
		if l := ev.Entity.LinkedChangeProposal; l != nil {
			ref.EventPayload.PullRequest = pullRequest(l.ID, l.URL, ev.State.ChangeProposal)
		}
	case event.ChangeProposalKind:
		ref.EventPayload.PullRequest = pullRequest(ev.Entity.ID, ev.Entity.URL, ev.State.ChangeProposal)
	case event.ConversationKind:
	}
	if c := ev.Transition.Comment; c != nil {
		ref.EventPayload.Comment = &PayloadComment{Body: c.Body}
	}
	if agent == fixAgent {
		ref.TriggerSource = triggerSource(ev)
	}
	return ref
}

func pullRequest(id int64, url string, cp *event.ChangeProposal) *PayloadPullRequest {
	pr := &PayloadPullRequest{Number: id, HTMLURL: url}
	if cp != nil {
		pr.Head = &PayloadRef{Ref: cp.HeadRef, SHA: cp.HeadSHA, Repo: PayloadRepo{FullName: cp.HeadRepo}}
		pr.Base = &PayloadRef{Ref: cp.BaseRef, Repo: PayloadRepo{FullName: cp.BaseRepo}}
	}
	return pr
}

func triggerSource(ev event.NormalizedEvent) string {
	switch {
	case ev.Transition.Review != nil:
		return ev.Transition.Review.ReviewerID
	case ev.Transition.Comment != nil && ev.Transition.Comment.Command == "/fs-fix":
		return ev.Actor.ID
	default:
		return ""
	}
}
