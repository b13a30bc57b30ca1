package callback

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/schemas"
)

var (
	oldSecret   = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the old secret of the shop"))
	newSecret   = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the new secret of the shop"))
	otherSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret of someone else"))
)

// verify checks the request's signature as a receiver with the secret does.
func verify(t *testing.T, secret string, r *http.Request, body []byte) error {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	return w.Verify(body, r.Header)
}

func signed(t *testing.T, s *Secrets, url string, at time.Time) *http.Request {
	t.Helper()
	target, rej := schemas.ParseCallbackURL([]byte(url))
	require.Nil(t, rej)
	req, err := httpRequest(t.Context(), requestTo(url), target, s.of(target.Origin), "notyet", at)
	require.NoError(t, err)
	return req
}

func TestSecretsNameTheLineAndTheField(t *testing.T) {
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, c := range []struct{ text, want string }{
		{"", "want a YAML list of {origin, secrets: [whsec_…]}"},
		{"[]", "there is no origin in it: add one, or leave callback.secrets out"},
		{"a: b", "want a YAML list of {origin, secrets: [whsec_…]}"},
		{"- origin: [", "want a YAML list of {origin, secrets: [whsec_…]}: yaml: line 1"},
		{"- origin: https://a\n  secrets: [" + key + "]\n---\n- x", "a second YAML document"},
		{"- " + key, "line 1: is not an entry: write origin and secrets"},
		{"\n- origin: https://a\n", "line 2: secrets: is missing"},
		{"\n- secrets: [" + key + "]", "line 2: origin: is missing"},
		{"- origin: https://a\n  secret: [" + key + "]", "line 2: has a field that is none of origin, secrets"},
		{"- origin: https://a\n  origin: https://b", "line 2: origin: is there twice"},
		{"- origin: https://a\n  secrets: [" + key + "]\n  secrets: [" + key + "]", "line 3: secrets: is there twice"},
		{"- origin: shop.example", "line 1: origin: is not an absolute http or https URL: write an absolute http or https URL, such as https://shop.example/hooks"},
		{"- origin: https://a/hooks", "line 1: origin: has more than an origin: write https://a"},
		{"- origin: [https://a]", "line 1: origin: is not text: write one such as https://shop.example"},
		{"- origin: https://a\n  secrets: " + key, "line 2: secrets: write a list of one or two: the new secret and, while receivers change over, the old one"},
		{"- origin: https://a\n  secrets: []", "line 2: secrets: write a list of one or two"},
		{"- origin: https://a\n  secrets: [" + key + "," + key + "," + key + "]", "line 2: secrets: write a list of one or two"},
		{"- origin: https://a\n  secrets:\n  - " + key + "\n  - " + key[6:], "line 4: secrets: number 2 does not begin with whsec_: write whsec_ and the key in base64"},
		{"- origin: https://a\n  secrets: [whsec_]", "line 2: secrets: number 1 has a key of 0 bytes, and at least 16 are needed"},
		{"- origin: https://a\n  secrets: [whsec_c2hvcnQ=]", "line 2: secrets: number 1 has a key of 5 bytes, and at least 16 are needed"},
		{"- origin: https://a\n  secrets: [" + key + "A]", "line 2: secrets: number 1 is not standard base64 with padding"},
		{"- origin: https://a\n  secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa_-]", "line 2: secrets: number 1 is not standard base64 with padding"},
		{"- origin: https://a\n  secrets: [{" + key + ": x}]", "line 2: secrets: number 1 is not text"},
		{"- origin: https://a\n  secrets: [" + key + "]\n- origin: HTTPS://A:443\n  secrets: [" + key + "]", "line 3: origin: https://a has an entry in line 1 already: put both secrets into one"},
	} {
		_, err := parseSecrets([]byte(c.text))
		require.ErrorContains(t, err, c.want, c.text)
		require.NotContains(t, err.Error(), key[6:], "no error has a secret")
	}
}

func TestSecretsFileErrors(t *testing.T) {
	_, err := OpenSecrets("/nowhere/secrets.yaml", zap.NewNop())
	require.ErrorContains(t, err, "callback.secrets: open /nowhere/secrets.yaml")
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(large, make([]byte, maxSecretsFile+1), 0o600))
	_, err = OpenSecrets(large, zap.NewNop())
	require.ErrorContains(t, err, "is larger than")
}

func TestSecretsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.ErrorLevel)
		file := filepath.Join(t.TempDir(), "secrets.yaml")
		put := func(secrets string) {
			require.NoError(t, os.WriteFile(file+".new", []byte("- origin: https://shop.example\n  secrets: ["+secrets+"]\n"), 0o600))
			require.NoError(t, os.Rename(file+".new", file))
			time.Sleep(2 * time.Second)
		}
		put(oldSecret)
		s, err := OpenSecrets(file, zap.New(core))
		require.NoError(t, err)
		verifies := func() (old, current bool) {
			r := signed(t, s, "https://shop.example/", time.Now())
			body := requestTo("").Body
			return verify(t, oldSecret, r, body) == nil, verify(t, newSecret, r, body) == nil
		}
		check := func(wantOld, wantNew bool) {
			t.Helper()
			old, current := verifies()
			require.Equal(t, wantOld, old)
			require.Equal(t, wantNew, current)
		}
		check(true, false)
		put(newSecret + ", " + oldSecret)
		check(true, true)
		put("whsec_broken, " + newSecret)
		check(true, true)
		require.Equal(t, 1, logs.Len())
		for _, f := range logs.All()[0].Context {
			require.NotContains(t, f.String, "whsec_broken")
		}
		put(newSecret)
		check(false, true)
	})
}

// FuzzParseSecrets: never panics; every origin that it accepts has its one form and a key or two.
func FuzzParseSecrets(f *testing.F) {
	f.Add([]byte("- origin: https://a\n  secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]\n"))
	f.Add([]byte("- &a {origin: https://a, secrets: [*a]}\n- <<: *a"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseSecrets(text)
		if err != nil {
			return
		}
		for origin, keys := range got {
			again, rej := schemas.ParseOrigin([]byte(origin))
			require.Nil(t, rej)
			require.Equal(t, origin, again)
			require.NotEmpty(t, keys)
			require.LessOrEqual(t, len(keys), maxSecrets)
		}
	})
}
