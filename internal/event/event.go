// Package event defines NormalizedEvent v1, the one document that routing
// sees, and the occurrence keys that identify what happened by the source
// system's own ids. Everything else in the program speaks of events in these
// types; the package itself imports nothing of ours and does no I/O.
package event

import "time"

// NormalizedEvent is version 1 of the Fullsend routing document. Its JSON form
// is exactly the one that the JSON Schema in this package describes; see
// [Validator.Validate].
type NormalizedEvent struct {
	// Repo is the target repository, "owner/repo", also for Jira events.
	Repo       string     `json:"repo"`
	Entity     Entity     `json:"entity"`
	Transition Transition `json:"transition"`
	Actor      Actor      `json:"actor"`
	State      State      `json:"state"`
	Source     Source     `json:"source"`
}

// Entity is the thing that changed.
type Entity struct {
	Kind EntityKind `json:"kind"`
	// ID is the source's numeric id, at least 1.
	ID int64 `json:"id"`
	// Key is the stable human key ("PROJ-123"); required for Jira.
	Key string `json:"key,omitempty"`
	// URL is where a human finds the entity.
	URL                  string                `json:"url"`
	LinkedChangeProposal *LinkedChangeProposal `json:"linked_change_proposal,omitempty"`
}

// LinkedChangeProposal names the change proposal that a work item stands for.
type LinkedChangeProposal struct {
	ID  int64  `json:"id"`
	URL string `json:"url"`
}

// Transition says what happened. Label, Comment and Review are present for
// their own kind only.
type Transition struct {
	Kind    TransitionKind `json:"kind"`
	Label   *Label         `json:"label,omitempty"`
	Comment *Comment       `json:"comment,omitempty"`
	Review  *Review        `json:"review,omitempty"`
}

// Label is one label that was added or removed.
type Label struct {
	Name   string      `json:"name"`
	Action LabelAction `json:"action"`
}

// Comment is a comment as text. Command and Instruction are taken from the
// whole body before Body is cut to [MaxBody] code points.
type Comment struct {
	ID          string `json:"id,omitempty"`
	ParentID    string `json:"parent_id,omitempty"`
	Command     string `json:"command,omitempty"`
	Body        string `json:"body"`
	Instruction string `json:"instruction,omitempty"`
}

// Review is a submitted review of a change proposal.
type Review struct {
	State      ReviewState `json:"state"`
	ReviewerID string      `json:"reviewer_id"`
}

// Actor is who did it. Role is what the gate (ADR 54) judges.
type Actor struct {
	ID             string    `json:"id"`
	Kind           ActorKind `json:"kind"`
	Role           Role      `json:"role"`
	IsEntityAuthor bool      `json:"is_entity_author"`
}

// State is the entity's state at the time of the event.
type State struct {
	// Labels is never nil in a valid event; an empty list is written as [].
	Labels         []string        `json:"labels"`
	Conversation   *Conversation   `json:"conversation,omitempty"`
	ChangeProposal *ChangeProposal `json:"change_proposal,omitempty"`
}

// Conversation is the state of a discussion thread.
type Conversation struct {
	Category Category `json:"category"`
}

// Category is a discussion's category.
type Category struct {
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Slug   string `json:"slug,omitempty"`
	Format string `json:"format,omitempty"`
}

// ChangeProposal is a pull or merge request.
type ChangeProposal struct {
	ID       int64  `json:"id"`
	HeadRepo string `json:"head_repo"`
	BaseRepo string `json:"base_repo"`
	HeadRef  string `json:"head_ref"`
	BaseRef  string `json:"base_ref"`
	HeadSHA  string `json:"head_sha,omitempty"`
	AuthorID string `json:"author_id"`
	IsFork   bool   `json:"is_fork"`
}

// Source says which system's which object the event was made from.
type Source struct {
	System    System `json:"system"`
	RawType   string `json:"raw_type"`
	RawAction string `json:"raw_action,omitempty"`
}

// EntityKind is the kind of an entity.
type EntityKind string

// The entity kinds of NormalizedEvent v1.
const (
	WorkItem           EntityKind = "work_item"
	ChangeProposalKind EntityKind = "change_proposal"
	ConversationKind   EntityKind = "conversation"
)

// TransitionKind is the kind of a transition.
type TransitionKind string

// The transition kinds of NormalizedEvent v1.
const (
	Opened          TransitionKind = "opened"
	Reopened        TransitionKind = "reopened"
	Edited          TransitionKind = "edited"
	Synchronized    TransitionKind = "synchronized"
	Updated         TransitionKind = "updated"
	Closed          TransitionKind = "closed"
	Merged          TransitionKind = "merged"
	MarkedReady     TransitionKind = "marked_ready"
	LabelChanged    TransitionKind = "label_changed"
	CommentAdded    TransitionKind = "comment_added"
	ReviewSubmitted TransitionKind = "review_submitted"
)

// LabelAction says which way a label went.
type LabelAction string

// The label actions.
const (
	LabelAdded   LabelAction = "added"
	LabelRemoved LabelAction = "removed"
)

// ReviewState is a review's verdict.
type ReviewState string

// The review states.
const (
	Approved         ReviewState = "approved"
	ChangesRequested ReviewState = "changes_requested"
	Commented        ReviewState = "commented"
	Dismissed        ReviewState = "dismissed"
)

// ActorKind tells humans from bots.
type ActorKind string

// The actor kinds.
const (
	Human ActorKind = "human"
	Bot   ActorKind = "bot"
)

// Role is an actor's right on the entity's project.
type Role string

// The roles, strongest first; External is somebody without any right.
const (
	RoleAdmin    Role = "admin"
	RoleMaintain Role = "maintain"
	RoleWrite    Role = "write"
	RoleTriage   Role = "triage"
	RoleRead     Role = "read"
	RoleNone     Role = "none"
	RoleExternal Role = "external"
)

// System names a source system.
type System string

// The source systems.
const (
	GitHub   System = "github"
	GitLab   System = "gitlab"
	Jira     System = "jira"
	Manual   System = "manual"
	Schedule System = "schedule"
)

// Occurrence is one thing that happened, under the identity that its source
// gave it. Every path (poll, webhook, reconciliation) derives the same Key for
// the same occurrence.
type Occurrence struct {
	// Key is the occurrence key (contract, section 5), e.g. "comment-10001".
	Key string
	// At is the time of the event by the source's clock.
	At time.Time
	// Seq breaks ties of At: the source's numeric id.
	Seq int64
	// Event is what routing sees.
	Event NormalizedEvent
}

// Compare orders occurrences by time, then by the source's id, then by key, so
// that every reader of the same data gets the same order.
func Compare(a, b Occurrence) int {
	switch {
	case a.At.Before(b.At):
		return -1
	case b.At.Before(a.At):
		return 1
	case a.Seq != b.Seq:
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	case a.Key < b.Key:
		return -1
	case a.Key > b.Key:
		return 1
	default:
		return 0
	}
}
