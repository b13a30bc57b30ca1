package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
)

// Bounds of reading the issuer's keys.
const (
	// keysEvery is how often the keys are read, asked for or not.
	keysEvery = 4 * time.Minute
	// keysYoung is up to which age keys, even revoked ones, are used without a look at the issuer.
	keysYoung = 5 * time.Minute
	// keysPause lies between two attempts, for any number of callers.
	keysPause   = 10 * time.Second
	keysTimeout = 5 * time.Second
	maxKeys     = 1 << 20 // bytes of a document
)

// issuerKeys are the public keys of the issuer. Keys older than keysYoung are used only while the
// issuer does not answer, and only up to the age of maxAge: somebody may keep us from the issuer
// because of a revoked key.
type issuerKeys struct {
	issuer  string
	maxAge  time.Duration
	tls     func() *tls.Config
	timeout time.Duration
	now     func() time.Time
	log     *zap.Logger
	fetch   func(context.Context) (discovery, []jose.JSONWebKey, error) // askIssuer

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	found  discovery     // where they were named
	read   time.Time     // when they were read; zero: never
	tried  time.Time     // when the last attempt began; zero: never
	failed time.Time     // since when attempts fail; zero: the last one did not
	trying chan struct{} // closed when the attempt that runs ends; nil: none runs
}

func newIssuerKeys(cfg JWT, now func() time.Time, log *zap.Logger) *issuerKeys {
	if cfg.TLS == nil {
		cfg.TLS = func() *tls.Config { return nil }
	}
	k := &issuerKeys{issuer: cfg.Issuer, maxAge: cmp.Or(cfg.KeysMaxAge, time.Hour), tls: cfg.TLS, timeout: keysTimeout, now: now, log: log}
	k.fetch = k.askIssuer
	return k
}

// find returns the key with the id. For an unknown id, or old keys, find waits for an attempt.
func (k *issuerKeys) find(ctx context.Context, id, algorithm string) (*jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look(ctx, func() bool { return k.known(id, algorithm) != nil })
	switch key := k.known(id, algorithm); {
	case !k.within(k.maxAge) || key == nil && !k.failed.IsZero():
		return nil, errIssuerAway
	case key == nil:
		return nil, errUnknownKey
	default:
		return key, nil
	}
}

func (k *issuerKeys) has(id, algorithm string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known(id, algorithm) != nil
}

func (k *issuerKeys) discovered(ctx context.Context) (discovery, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look(ctx, func() bool { return true })
	if !k.within(k.maxAge) {
		return discovery{}, errNotReachable
	}
	return k.found, nil
}

// within reports whether the keys are of at most the age, by the wall clock and by the monotonic
// one: the one may be set back, and the other stands still while the machine sleeps.
func (k *issuerKeys) within(age time.Duration) bool {
	now := k.now()
	return !k.read.IsZero() && max(now.Sub(k.read), now.Round(0).Sub(k.read.Round(0))) <= age
}

// look waits for an attempt to read the issuer's data, unless the known data are enough and young.
// Old keys are enough after a failed attempt: one caller has waited for the attempt.
func (k *issuerKeys) look(ctx context.Context, enough func() bool) {
	if enough() && k.within(keysYoung) {
		return
	}
	k.begin()
	trying := k.trying
	if trying == nil || enough() && k.within(k.maxAge) && !k.failed.IsZero() {
		return
	}
	k.mu.Unlock()
	defer k.mu.Lock()
	select {
	case <-trying:
	case <-ctx.Done():
	}
}

// begin begins an attempt, at most one each keysPause.
func (k *issuerKeys) begin() {
	if now := k.now(); k.trying == nil && (k.tried.IsZero() || now.Sub(k.tried) >= keysPause) {
		k.tried, k.trying = now, make(chan struct{})
		go k.refresh()
	}
}

// keep reads the keys in time, until ctx ends, so that callers seldom wait.
func (k *issuerKeys) keep(ctx context.Context) {
	for ctx.Err() == nil {
		k.mu.Lock()
		k.begin()
		trying := k.trying
		k.mu.Unlock()
		if trying != nil {
			<-trying // within timeout
		}
		k.mu.Lock()
		pause := keysEvery
		if !k.failed.IsZero() {
			pause = keysPause
		}
		k.mu.Unlock()
		loop.Rest(ctx, pause)
	}
}

// known returns the key with the id for the algorithm. Without an id, the only key counts.
func (k *issuerKeys) known(id, algorithm string) *jose.JSONWebKey {
	if id == "" && len(k.keys) != 1 {
		return nil
	}
	for i := range k.keys {
		key := &k.keys[i]
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			return key
		}
	}
	return nil
}

func (k *issuerKeys) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), k.timeout)
	defer cancel()
	found, keys, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.trying)
	k.trying = nil
	switch {
	case err == nil:
		if !k.failed.IsZero() {
			k.log.Info("the keys of the issuer in http.jwt.issuer can be read again")
		}
		k.found, k.keys, k.read, k.failed = found, keys, k.now(), time.Time{}
	case k.failed.IsZero():
		k.failed = k.now()
		k.log.Error("the keys of the issuer in http.jwt.issuer cannot be read; those that were read before stay in force for http.jwt.keys-max-age", zap.Error(err))
	}
}

func (k *issuerKeys) unread() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed.IsZero() {
		return 0
	}
	return k.now().Sub(k.failed)
}

// discovery is the needed part of the issuer's discovery document.
type discovery struct {
	Issuer        string   `json:"issuer"`
	Keys          string   `json:"jwks_uri"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	NamesItself   bool     `json:"authorization_response_iss_parameter_supported"`

	ahead, within time.Duration // the issuer's clock is ahead of ours by at least ahead, and at most within more; within 0: not known
}

// trusted reports whether an address of the issuer is safe: nobody in between can change answers.
func (k *issuerKeys) trusted(at string) bool {
	return strings.HasPrefix(at, "https://") || strings.HasPrefix(at, "http://") && strings.HasPrefix(k.issuer, "http://")
}

// client asks the issuer. No redirect is followed: the issuer's own documents have the addresses,
// and a redirect would take a secret elsewhere.
func (k *issuerKeys) client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: k.tls(), DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (k *issuerKeys) askIssuer(ctx context.Context) (found discovery, keys []jose.JSONWebKey, err error) {
	client := k.client()
	at := strings.TrimSuffix(k.issuer, "/") + "/.well-known/openid-configuration"
	asked := k.now()
	date, err := get(ctx, client, at, &found)
	if err != nil {
		return found, nil, err
	}
	if got := k.now(); !date.IsZero() { // in whole seconds
		found.ahead, found.within = date.Sub(got), got.Sub(asked)+time.Second
	}
	switch {
	case found.Issuer != k.issuer:
		return found, nil, fmt.Errorf("%s is of the issuer %.200q: write that into http.jwt.issuer, if it is the right one", at, found.Issuer)
	case !k.trusted(found.Keys):
		return found, nil, fmt.Errorf("%s names keys at %.200q, which is not https", at, found.Keys)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if _, err := get(ctx, client, found.Keys, &set); err != nil {
		return found, nil, err
	}
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		// Keys of unknown kinds are none of ours.
		if err := json.Unmarshal(text, &key); err == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return found, nil, fmt.Errorf("%.200q has no public key for signatures", found.Keys)
	}
	return found, keys, nil
}

// get reads a JSON document. date is the server's own time of the answer; zero: not told.
func get(ctx context.Context, client *http.Client, at string, into any) (date time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return date, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return date, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return date, fmt.Errorf("%s has answered %d", at, resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys+1))
	switch {
	case err != nil:
		return date, fmt.Errorf("reading %s: %w", at, err)
	case len(text) > maxKeys:
		return date, fmt.Errorf("%s is larger than %d bytes", at, maxKeys)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return date, errors.New(at + " is not the JSON that is expected")
	}
	date, _ = http.ParseTime(resp.Header.Get("Date"))
	return date, nil
}
