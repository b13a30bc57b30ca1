package callback

import (
	"fmt"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// signers sign the requests to one origin, the first secret first.
type signers []*standardwebhooks.Webhook

// sign returns the value of webhook-signature: a signature by each secret, separated by spaces. A
// receiver accepts a request with one signature by a known secret, so both sides can change to a
// new secret at different times.
func (s signers) sign(id string, at time.Time, body []byte) (string, error) {
	signatures := make([]string, 0, maxSecrets)
	for _, w := range s {
		signature, err := w.Sign(id, at, body)
		if err != nil {
			return "", fmt.Errorf("signing: %w", err)
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}
