package event

import (
	"strconv"
	"time"
)

// The functions below make the occurrence keys of Jira (contract, section 5).
// Ids are the ones Jira gives, so that a poll, a webhook and a reconciliation
// pass name the same occurrence by the same bytes.

// JiraOpenedKey is the key of an issue's creation.
func JiraOpenedKey(issueID string) string { return "opened-" + issueID }

// JiraCommentKey is the key of a new comment.
func JiraCommentKey(commentID string) string { return "comment-" + commentID }

// JiraCommentEditKey is the key of one edit of a comment; updated is the
// comment's own time of that edit.
func JiraCommentEditKey(commentID string, updated time.Time) string {
	return "comment-" + commentID + "-" + strconv.FormatInt(updated.UnixMilli(), 10)
}

// JiraLabelKey is the key of one label added or removed by a changelog entry.
func JiraLabelKey(changelogID, label string, action LabelAction) string {
	return "label-" + changelogID + "-" + label + "-" + string(action)
}

// JiraStatusKey is the key of a status change into or out of done.
func JiraStatusKey(changelogID string) string { return "status-" + changelogID }

// JiraEditedKey is the key of a changelog entry that edited other fields.
func JiraEditedKey(changelogID string) string { return "edited-" + changelogID }

// DispatchKey is the idempotency key of one agent's run for one occurrence.
func DispatchKey(agent, occurrence string) string { return agent + ":" + occurrence }
