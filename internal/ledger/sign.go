package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// sign is the signature of a document: HMAC-SHA256 in lower-case hexadecimal over
// branch, version, project and canonical bytes (specification, section 3). It binds
// the document to branch and project, not to a time.
func (s Seal) sign(d document) string {
	return authenticate(s.secret, s.mode.Branch()+"/1\n"+s.project+"\n"+string(d.canonical()))
}

// genuine reports, in constant time, whether the document carries its signature.
func (s Seal) genuine(d document) bool {
	return hmac.Equal([]byte(s.sign(d)), []byte(d.HMAC))
}

// authenticate is HMAC-SHA256 in lower-case hexadecimal; the key is the secret's
// own bytes.
func authenticate(secret, message string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(message)) // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}
