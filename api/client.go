package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Client calls a running service over HTTP. Its methods are those of Fleet.
type Client struct {
	// OnMissing is told of answers without some databases, by number. nil: nobody is.
	OnMissing func(numbers []int)

	base  string
	token string
	user  string
	http  *http.Client
}

// ClientConfig is how to reach the service. Addr is required.
type ClientConfig struct {
	// Addr is host:port.
	Addr string
	// Token is sent with each request. Default none.
	Token string
	// User of this client, such as user@host, for the audit log. Default nobody.
	User string
	// TLS turns HTTPS on. Default plain HTTP.
	TLS *tls.Config
}

// maxAnswer limits the size of a response. The largest is a page of dead letters with content.
const maxAnswer = 1 << 30

// NewClient makes a Client. The first call connects.
func NewClient(cfg ClientConfig) *Client {
	if strings.HasPrefix(cfg.Addr, ":") {
		cfg.Addr = "127.0.0.1" + cfg.Addr
	}
	scheme := "http://"
	// No proxy from the environment: only the service may see the token.
	transport := &http.Transport{TLSClientConfig: cfg.TLS}
	if cfg.TLS != nil {
		scheme = "https://"
	}
	// A redirect could send the token elsewhere, and the API never redirects.
	none := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: scheme + cfg.Addr + "/api/v1", token: cfg.Token, user: printable(cfg.User), http: &http.Client{Timeout: 60 * time.Second, Transport: transport, CheckRedirect: none}}
}

// get asks with the query parameters of an input; nil: none. missing is the error of a 404.
func get[T any](ctx context.Context, c *Client, path string, input any, missing error) (T, error) {
	return do[T](ctx, c, http.MethodGet, path+parameters(input), nil, missing)
}

func post[T any](ctx context.Context, c *Client, path string, request any, missing error) (T, error) {
	return do[T](ctx, c, http.MethodPost, path, request, missing)
}

// MistakeError is an answer about a mistake in the request.
type MistakeError struct{ error }

func do[T any](ctx context.Context, c *Client, method, path string, request any, missing error) (out T, err error) {
	var data []byte
	if request != nil {
		if data, err = Encode(request); err != nil {
			return out, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(data))
	if err != nil {
		return out, fmt.Errorf("asking the API: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.user != "" {
		req.Header.Set(userHeader, c.user)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, fmt.Errorf("no answer from the service at %s (http.addr): %w%s", req.URL.Host, err, tlsHint(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return out, fmt.Errorf("reading the API's answer: %w", err)
	}
	ours := resp.Header.Get("Content-Type") == "application/problem+json"
	switch status := resp.StatusCode; {
	case status == http.StatusNotFound && ours && missing != nil:
		return out, missing
	case status == http.StatusUnauthorized:
		return out, fmt.Errorf("%w (commands send http.token, NOTYET_HTTP_TOKEN)", failure(resp.Status, answer))
	case status == http.StatusUnprocessableEntity:
		return out, &MistakeError{failure(resp.Status, answer)}
	case status >= 300:
		return out, failure(resp.Status, answer)
	case status == http.StatusNoContent:
		return out, nil
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("reading the API's answer: %w", err)
	}
	if missing := MissingOf(out); c.OnMissing != nil && len(missing) > 0 {
		c.OnMissing(missing)
	}
	return out, nil
}

// tlsHint names the setting behind an error of the connection.
func tlsHint(err error) string {
	if _, unverified := errors.AsType[*tls.CertificateVerificationError](err); unverified {
		return " (see http.tls.ca and http.tls.server-name)"
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return " (see http.tls.enabled)"
	}
	return ""
}

// plainToHTTPS is the answer of Go's server to HTTP in place of TLS.
const plainToHTTPS = "Client sent an HTTP request to an HTTPS server."

// failure parses a problem document in the response, if there is one.
func failure(status string, answer []byte) error {
	var p huma.ErrorModel
	if strings.TrimSpace(string(answer)) == plainToHTTPS {
		return errors.New("the service speaks HTTPS: set http.tls.enabled, and http.tls.ca where the system does not trust its certificate")
	}
	if json.Unmarshal(answer, &p) != nil || p.Detail == "" {
		return fmt.Errorf("the API answered %s", status)
	}
	text := p.Detail
	for _, d := range p.Errors {
		if !strings.Contains(text, d.Message) {
			text += "; " + d.Location + " " + d.Message
		}
	}
	return fmt.Errorf("the API answered %s: %s", status, text)
}

// parameters are the nonzero fields of an operation's input with the tag query.
func parameters(input any) string {
	q := url.Values{}
	if input != nil {
		v := reflect.ValueOf(input)
		for _, f := range reflect.VisibleFields(v.Type()) {
			name, value := f.Tag.Get("query"), v.FieldByIndex(f.Index)
			if name == "" || value.IsZero() {
				continue
			}
			text := fmt.Sprint(value)
			if value.Kind() == reflect.Slice { // of numbers
				text = strings.Join(strings.Fields(strings.Trim(text, "[]")), ",")
			}
			q.Set(name, text)
		}
	}
	return "?" + q.Encode()
}

// Segment encodes a part of a path, also . and .., which would change the path.
func Segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

func timerPath(topic, id string) string { return "/timers/" + Segment(topic) + "/" + Segment(id) }
