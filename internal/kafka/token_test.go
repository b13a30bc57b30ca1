package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// answers stands in for an endpoint, without a network: for tests in virtual time.
type answers func(*http.Request) (status int, body string)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := a(r)
	if status == 0 { // never answers
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func newTokens(secret *string, a answers) *tokens {
	t := makeTokens(TokenEndpoint{URL: "https://idp.example/token", Scopes: []string{"kafka", "more"}, Credentials: func() (string, string) { return "client", *secret }})
	t.client.Transport = a
	return t
}

func TestATokenIsRenewedBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, asked, status := "geheim", 0, http.StatusOK
		tokens := newTokens(&secret, func(r *http.Request) (int, string) {
			asked++
			require.NoError(t, r.ParseForm())
			require.Equal(t, "client_credentials kafka more", r.Form.Get("grant_type")+" "+r.Form.Get("scope"))
			if _, given, _ := r.BasicAuth(); given != secret {
				return http.StatusUnauthorized, `{"error":"invalid_client","error_description":"geheim"}`
			}
			if status != http.StatusOK {
				return status, "geheim"
			}
			return status, fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, asked)
		})
		expect := func(want string) {
			t.Helper()
			token, err := tokens.get(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, token)
		}
		expect("token-1")
		time.Sleep(44 * time.Minute)
		expect("token-1")
		time.Sleep(2 * time.Minute) // three quarters are over
		expect("token-2")
		require.Equal(t, 2, asked)

		secret = "another" // the next request has it
		time.Sleep(46 * time.Minute)
		expect("token-3")

		status = http.StatusServiceUnavailable
		time.Sleep(46 * time.Minute)
		for range 100 { // connections
			expect("token-3")
		}
		require.Equal(t, 4, asked, "an endpoint that fails is left alone for a while")
		time.Sleep(15 * time.Minute)
		_, err := tokens.get(t.Context())
		require.ErrorContains(t, err, "https://idp.example/token")
		require.ErrorContains(t, err, "503")
		require.NotContains(t, err.Error(), "geheim")
		status = http.StatusOK
		time.Sleep(tokenPause)
		next := asked + 1
		expect(fmt.Sprint("token-", next))
	})
}

// Nothing waits for longer than the limit, and where the token before is still valid, for much less.
func TestAnEndpointThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, silent := "geheim", true
		tokens := newTokens(&secret, func(*http.Request) (int, string) {
			if silent {
				return 0, ""
			}
			return http.StatusOK, `{"access_token":"token","expires_in":60}`
		})
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := tokens.get(context.Background())
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		require.LessOrEqual(t, time.Since(began), tokenTimeout+failedDialPause)
		silent = false
		time.Sleep(tokenPause)
		_, err := tokens.get(t.Context())
		require.NoError(t, err)
		silent = true
		time.Sleep(50 * time.Second)
		began = time.Now()
		token, err := tokens.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, "token", token)
		require.Equal(t, spareTimeout, time.Since(began))
	})
}

// The secret goes to the endpoint alone, and no error repeats it.
func TestTheSecretGoesNowhereElse(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was redirected") }))
	defer elsewhere.Close()
	answer := func(http.ResponseWriter, *http.Request) {}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer endpoint.Close()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a redirect": {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP, "status 307"},
		"an echo":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(400); _ = r.Write(w) }, "status 400"},
		"no token":   {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"geheim":1}`) }, "the answer has none"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "geheim") }, "the answer has none"},
		"a long error": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":%q}`, strings.Repeat("x", 9999))
		}, "status 400"},
		"a wrong secret": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
		}, `status 401 "invalid_client" (see kafka.sasl.user`},
		"an endless body": {func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, endless{}) }, "the answer has none"},
	} {
		t.Run(name, func(t *testing.T) {
			answer = c.answer
			_, err := NewTokens(TokenEndpoint{URL: endpoint.URL, Credentials: func() (string, string) { return "client", "geheim" }})(t.Context())
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "geheim")
			require.Less(t, len(err.Error()), 400)
		})
	}
	_, err := NewTokens(TokenEndpoint{URL: "http://127.0.0.1:1/", Credentials: func() (string, string) { return "client", "geheim" }})(t.Context())
	require.ErrorContains(t, err, "refused")
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A broker that takes tokens: the right one, one that has expired, one that changes while the connection lives.
func TestOAuthBearer(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var mu sync.Mutex
	valid, taken, now := "token-1", map[string]int{}, "token-1"
	set := func(v, n string) { mu.Lock(); defer mu.Unlock(); valid, now = v, n }
	cluster.ControlKey(int16(kmsg.SASLHandshake), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.SASLHandshakeResponse)
		if kreq.(*kmsg.SASLHandshakeRequest).Mechanism != "OAUTHBEARER" {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		token, _ := strings.CutSuffix(strings.TrimPrefix(string(kreq.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes), "n,,\x01auth=Bearer "), "\x01\x01")
		if token != valid {
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		}
		taken[token]++
		resp.SessionLifetimeMillis = 1000 // then the client authenticates again
		return resp, nil, true
	})
	cfg := Config{Brokers: cluster.ListenAddrs(), SASL: "OAUTHBEARER", Token: func(context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if now == "" {
			return "", errors.New("no token at hand")
		}
		return now, nil
	}}
	producer, err := NewProducer(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	send := func() {
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders"}).FirstErr())
	}
	ping := func() error {
		client, err := New(cfg, zap.NewNop(), kgo.RequestRetries(0))
		require.NoError(t, err)
		defer client.Close()
		return Ping(t.Context(), client)
	}
	send()
	set("token-2", "token-2")
	require.Eventually(t, func() bool { send(); mu.Lock(); defer mu.Unlock(); return taken["token-2"] > 0 }, time.Minute, 10*time.Millisecond, "open connections go on with the next token")
	require.NoError(t, ping())
	set("token-3", "token-2")
	require.ErrorIs(t, ping(), kerr.SaslAuthenticationFailed)
	set("token-3", "")
	require.ErrorContains(t, ping(), "no token at hand")
	set("token-3", "token-3")
	send()
}

// The signatures are those of botocore (SigV4QueryAuth, valid for 900 s) for the same instant.
func TestMSKIAM(t *testing.T) {
	for _, c := range []struct{ key, session, signature string }{
		{"AKIAIOSFODNN7EXAMPLE", "", "bc9edbfce8bdff0ae9fef3d7076d58c8bb62b780aae0f267d92aae9af31c5d9f"},
		{"ASIAIOSFODNN7EXAMPLE", "IQoJb3JpZ2luX2VjEXAMPLE/+==", "70f11d0a1a8aab657915a4a972222f569f1221759f58e0a05908ca630d53ca6c"},
	} {
		synctest.Test(t, func(t *testing.T) { // at 2000-01-01T00:00:00Z
			secret := "falsch"
			mechanism, err := Config{SASL: "AWS_MSK_IAM", AWS: func() (string, string, string) { return c.key, secret, c.session }}.mechanism()
			require.NoError(t, err)
			require.Equal(t, "AWS_MSK_IAM", mechanism.Name())
			signed := func() map[string]string {
				_, text, err := mechanism.Authenticate(t.Context(), "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com:9098")
				require.NoError(t, err)
				require.NotContains(t, string(text), secret)
				var out map[string]string
				require.NoError(t, json.Unmarshal(text, &out))
				return out
			}
			require.NotEqual(t, c.signature, signed()["x-amz-signature"])
			secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" // it has changed
			out := signed()
			require.Equal(t, c.signature, out["x-amz-signature"])
			require.Equal(t, c.session, out["x-amz-security-token"])
			require.Equal(t, c.key+"/20000101/eu-west-1/kafka-cluster/aws4_request", out["x-amz-credential"])
		})
	}
}
