package callback

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestSignaturesVerify(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
- origin: https://Shop.example:443
  secrets: [`+newSecret+`, "`+oldSecret+`"]
- secrets:
    - `+otherSecret+`
  origin: http://127.0.0.1:8080
`), 0o600))
	s, err := OpenSecrets(file, zap.NewNop())
	require.NoError(t, err)
	body := requestTo("").Body
	now := time.Now()

	r := signed(t, s, "https://shop.example/hooks", now)
	require.NoError(t, verify(t, newSecret, r, body))
	require.NoError(t, verify(t, oldSecret, r, body), "while receivers change over, both verify")
	require.Error(t, verify(t, otherSecret, r, body))
	require.Error(t, verify(t, newSecret, r, append(body, 'x')))
	require.Equal(t, "a-key", r.Header.Get("webhook-id"))
	require.Equal(t, strconv.FormatInt(now.Unix(), 10), r.Header.Get("webhook-timestamp"))
	require.Regexp(t, `^v1,\S+ v1,\S+$`, r.Header.Get("webhook-signature"))

	require.NoError(t, verify(t, otherSecret, signed(t, s, "http://127.0.0.1:8080/", now), body))
	require.Error(t, verify(t, newSecret, signed(t, s, "https://shop.example/", now.Add(-6*time.Minute)), body), "each attempt is signed anew, since receivers take five minutes")
	for _, url := range []string{"http://shop.example/", "https://shop.example:8443/", "https://a.shop.example/"} {
		unsigned := signed(t, s, url, now)
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			require.Empty(t, unsigned.Header.Get(name), url)
		}
	}
}

// The example of the specification's own documentation.
func TestSignatureOfTheSpecification(t *testing.T) {
	w, err := standardwebhooks.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	got, err := signers{w}.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
}
