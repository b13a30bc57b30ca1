package access

import (
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
)

// Bounds of reading the issuer's keys.
const (
	// keysEvery is how old the keys may be before they are read again. A key that the issuer has taken
	// back is accepted for so long.
	keysEvery = 5 * time.Minute
	// keysPause is between two attempts, whatever callers send.
	keysPause   = 10 * time.Second
	keysTimeout = 5 * time.Second
	maxKeys     = 1 << 20 // bytes of a document
)

// issuerKeys are the public keys of the issuer. They are first read when a token needs one. While the
// issuer is away, those that were read stay in force: without the issuer no new token comes.
type issuerKeys struct {
	issuer  string
	tls     func() *tls.Config
	timeout time.Duration
	now     func() time.Time
	log     *zap.Logger

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	read   time.Time     // when they were read; zero: never
	tried  time.Time     // when the last attempt began; zero: never
	failed time.Time     // since when attempts fail; zero: the last one did not
	trying chan struct{} // closed when the attempt that runs ends; nil: none runs
}

func newIssuerKeys(cfg JWT, now func() time.Time, log *zap.Logger) *issuerKeys {
	if cfg.TLS == nil {
		cfg.TLS = func() *tls.Config { return nil }
	}
	return &issuerKeys{issuer: cfg.Issuer, tls: cfg.TLS, timeout: keysTimeout, now: now, log: log}
}

// find returns the key with the id. It waits for an attempt to read keys if it does not know the id.
func (k *issuerKeys) find(ctx context.Context, id, algorithm string) (*jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.known(id, algorithm)
	if now := k.now(); k.trying == nil && (key == nil || now.Sub(k.read) >= keysEvery) && (k.tried.IsZero() || now.Sub(k.tried) >= keysPause) {
		k.tried, k.trying = now, make(chan struct{})
		go k.refresh()
	}
	if trying := k.trying; key == nil && trying != nil {
		k.mu.Unlock()
		select {
		case <-trying:
		case <-ctx.Done():
		}
		k.mu.Lock()
		key = k.known(id, algorithm)
	}
	switch {
	case key != nil:
		return key, nil
	case k.read.IsZero() || !k.failed.IsZero():
		return nil, errIssuerAway
	}
	return nil, errUnknownKey
}

// known returns the key with the id for the algorithm. A token without an id is signed with the only key.
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

// refresh is one attempt.
func (k *issuerKeys) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), k.timeout)
	defer cancel()
	keys, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.trying)
	k.trying = nil
	switch {
	case err == nil:
		if !k.failed.IsZero() {
			k.log.Info("the keys of the issuer in http.jwt.issuer can be read again")
		}
		k.keys, k.read, k.failed = keys, k.now(), time.Time{}
	case k.failed.IsZero():
		k.failed = k.now()
		k.log.Error("the keys of the issuer in http.jwt.issuer cannot be read; those that were read before stay in force", zap.Error(err))
	}
}

// unread returns for how long attempts have failed.
func (k *issuerKeys) unread() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed.IsZero() {
		return 0
	}
	return k.now().Sub(k.failed)
}

// fetch reads the discovery document, and the keys that it names.
func (k *issuerKeys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: k.tls(), DisableKeepAlives: true},
		// The issuer's own address says where its keys are.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	at := strings.TrimSuffix(k.issuer, "/") + "/.well-known/openid-configuration"
	if err := get(ctx, client, at, &discovery); err != nil {
		return nil, err
	}
	switch {
	case discovery.Issuer != k.issuer:
		return nil, fmt.Errorf("%s is of the issuer %.200q: write that into http.jwt.issuer, if it is the right one", at, discovery.Issuer)
	case !strings.HasPrefix(discovery.Keys, "https://") && !strings.HasPrefix(k.issuer, "http://"):
		return nil, fmt.Errorf("%s names keys at %.200q, which is not https", at, discovery.Keys)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := get(ctx, client, discovery.Keys, &set); err != nil {
		return nil, err
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		// Keys of kinds that we do not know are none of ours.
		if err := json.Unmarshal(text, &key); err == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%.200q has no public key for signatures", discovery.Keys)
	}
	return keys, nil
}

func get(ctx context.Context, client *http.Client, at string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s has answered %d", at, resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", at, err)
	case len(text) > maxKeys:
		return fmt.Errorf("%s is larger than %d bytes", at, maxKeys)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errors.New(at + " is not the JSON that is expected")
	}
	return nil
}
