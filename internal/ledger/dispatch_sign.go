package ledger

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"strings"
)

// ErrSignature says that the signature of a dispatched pipeline is absent or wrong.
var ErrSignature = errors.New("wrong dispatch signature")

// Dispatch is what the signature of a dispatched pipeline covers, each value as the
// pipeline gets it and empty when it is not sent (specification, section 12.2).
type Dispatch struct {
	// ActorID is ACTOR_ID, a decimal user id.
	ActorID string
	// EventPayloadB64 is EVENT_PAYLOAD_B64, whole also when it is sent in chunks.
	EventPayloadB64 string
	// EventType is EVENT_TYPE.
	EventType string
	// PollJobURL is FULLSEND_POLL_JOB_URL.
	PollJobURL string
	// IsFork is IS_FORK, "true" or "false".
	IsFork string
	// MRAuthorID is MR_AUTHOR_ID, a decimal user id.
	MRAuthorID string
	// OriginatingURL is ORIGINATING_URL.
	OriginatingURL string
	// RepoFullName is REPO_FULL_NAME, the project's full path.
	RepoFullName string
	// ResourceKey is RESOURCE_KEY, "issue-<iid>" or "mr-<iid>".
	ResourceKey string
	// Stage is STAGE.
	Stage string
	// StatusIID is STATUS_IID, a decimal IID.
	StatusIID string
}

// Sign returns the value of FULLSEND_DISPATCH_HMAC: HMAC-SHA256 in lower-case
// hexadecimal over the eleven values in the order of their names (specification,
// section 12.3). The message escapes nothing, so a value with a line break, with
// which two different dispatches could share one signature, is an error; so is an
// empty secret, [ErrNoSecret].
func (d Dispatch) Sign(secret string) (string, error) {
	if secret == "" {
		return "", fmt.Errorf("a dispatch is not signed without its key (%w): set FULLSEND_DISPATCH_SECRET", ErrNoSecret)
	}
	lines := []string{
		"ACTOR_ID=" + d.ActorID,
		"EVENT_PAYLOAD_B64=" + d.EventPayloadB64,
		"EVENT_TYPE=" + d.EventType,
		"FULLSEND_POLL_JOB_URL=" + d.PollJobURL,
		"IS_FORK=" + d.IsFork,
		"MR_AUTHOR_ID=" + d.MRAuthorID,
		"ORIGINATING_URL=" + d.OriginatingURL,
		"REPO_FULL_NAME=" + d.RepoFullName,
		"RESOURCE_KEY=" + d.ResourceKey,
		"STAGE=" + d.Stage,
		"STATUS_IID=" + d.StatusIID,
	}
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, "="); strings.Contains(value, "\n") {
			return "", fmt.Errorf("the value of %s has a line break and cannot be signed: send it on one line", name)
		}
	}
	return authenticate(secret, strings.Join(lines, "\n")), nil
}

// Verify checks a received signature in constant time. Errors are those of
// [Dispatch.Sign] and [ErrSignature].
func (d Dispatch) Verify(secret, signature string) error {
	want, err := d.Sign(secret)
	if err != nil {
		return err
	}
	if !hmac.Equal([]byte(want), []byte(signature)) {
		return fmt.Errorf("the pipeline was not dispatched by a holder of the key (%w): let the poller dispatch it", ErrSignature)
	}
	return nil
}
