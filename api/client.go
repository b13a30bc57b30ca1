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
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
)

// Client calls a running service over HTTP. It has the methods of Local.
type Client struct {
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
	// User is who uses this client, such as user@host, for the audit log. Default nobody.
	User string
	// TLS makes it HTTPS. Default plain HTTP.
	TLS *tls.Config
}

// maxAnswer limits the size of a response. The largest is a page of dead letters with their
// content.
const maxAnswer = 1 << 30

// NewClient makes a Client, which connects when it is first used.
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

// Task returns one task with its content, or look.ErrNotFound.
func (c *Client) Task(ctx context.Context, topic, id string) (Task, error) {
	var t Task
	err := c.get(ctx, "/task", url.Values{"topic": {topic}, "id": {id}}, &t, look.ErrNotFound)
	return t, err
}

// Tasks returns a page of tasks.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) (Tasks, error) {
	q := url.Values{}
	set(q, "topic", f.Topic)
	set(q, "id-prefix", f.IDPrefix)
	set(q, "tag", f.Tag)
	set(q, "state", f.State)
	set(q, "cursor", f.Cursor)
	set(q, "from", f.From)
	set(q, "to", f.To)
	set(q, "limit", f.Limit)
	set(q, "ended", f.Ended)
	set(q, "content", f.Content)
	var out Tasks
	err := c.get(ctx, "/tasks", q, &out, nil)
	return out, err
}

// Letter returns one dead letter, or deadletter.ErrNotFound.
func (c *Client) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	var l deadletter.Letter
	err := c.get(ctx, "/deadletters/"+strconv.FormatInt(id, 10), nil, &l, deadletter.ErrNotFound)
	return l, err
}

// Letters implements deadletter.Source.
func (c *Client) Letters(ctx context.Context, f letters.Filter, cursor string, content bool) (deadletter.Letters, error) {
	q := query(newLetterFilter(f))
	set(q, "cursor", cursor)
	set(q, "limit", f.Limit)
	set(q, "content", content)
	var out deadletter.Letters
	err := c.get(ctx, "/deadletters", q, &out, nil)
	return out, err
}

// CountLetters counts what a filter selects.
func (c *Client) CountLetters(ctx context.Context, f letters.Filter) (int64, error) {
	for n, q := int64(0), query(newLetterFilter(f)); ; {
		var out Count
		if err := c.get(ctx, "/deadletters/count", q, &out, nil); err != nil {
			return n, err
		}
		n += out.Count
		if out.Cursor == "" {
			return n, nil
		}
		q.Set("cursor", out.Cursor)
	}
}

// ReplayPage implements deadletter.Pager.
func (c *Client) ReplayPage(ctx context.Context, f letters.Filter, upTo int64, dryRun bool) (deadletter.Page, error) {
	filter := newLetterFilter(f)
	var out deadletter.Page
	err := c.post(ctx, "/deadletters/replay", ReplayRequest{LetterFilter: filter, All: !filter.selects(), DryRun: dryRun, After: f.After, Limit: f.Limit, UpTo: upTo}, &out)
	return out, err
}

// PurgePage implements deadletter.Purger.
func (c *Client) PurgePage(ctx context.Context, f letters.Filter, upTo int64) (deadletter.Purged, error) {
	filter := newLetterFilter(f)
	var out deadletter.Purged
	err := c.post(ctx, "/deadletters/purge", PurgeRequest{LetterFilter: filter, All: !filter.selects(), After: f.After, Limit: f.Limit, UpTo: upTo}, &out)
	return out, err
}

func query(f LetterFilter) url.Values {
	q := url.Values{}
	ids := make([]string, 0, len(f.IDs))
	for _, id := range f.IDs {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	set(q, "ids", strings.Join(ids, ","))
	set(q, "kind", f.Kind)
	set(q, "topic", f.Topic)
	set(q, "task_id", f.TaskID)
	set(q, "tag", f.Tag)
	set(q, "reason", f.Reason)
	set(q, "since", f.Since)
	set(q, "until", f.Until)
	set(q, "replayed", f.Replayed)
	return q
}

// set adds a parameter unless its value is the zero value.
func set[T comparable](q url.Values, name string, value T) {
	if value != *new(T) {
		q.Set(name, fmt.Sprint(value))
	}
}

// Segment encodes a part of a path. It also encodes . and .., with which a path would mean another.
func Segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

func (c *Client) get(ctx context.Context, path string, q url.Values, into any, missing error) error {
	return c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, into, missing)
}

func (c *Client) post(ctx context.Context, path string, request, into any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	return c.do(ctx, http.MethodPost, path, data, into, nil)
}

// postTimer sends a request about a timer.
func (c *Client) postTimer(ctx context.Context, topic, id, what string, request, into any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	return c.do(ctx, http.MethodPost, "/timers/"+Segment(topic)+"/"+Segment(id)+"/"+what, data, into, look.ErrNoTimer)
}

// MistakeError is an answer that refuses a request for what it says.
type MistakeError struct{ error }

func (c *Client) do(ctx context.Context, method, path string, data []byte, into any, missing error) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("asking the API: %w", err)
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
		return fmt.Errorf("no answer from the service at %s (http.addr): %w%s", req.URL.Host, err, tlsHint(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the API's answer: %w", err)
	}
	if ours := resp.Header.Get("Content-Type") == "application/problem+json"; ours && resp.StatusCode == http.StatusNotFound && missing != nil {
		return missing
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w (commands send http.token, NOTYET_HTTP_TOKEN)", failure(resp.Status, answer))
	}
	if resp.StatusCode == http.StatusUnprocessableEntity {
		return &MistakeError{failure(resp.Status, answer)}
	}
	if resp.StatusCode >= 300 {
		return failure(resp.Status, answer)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("reading the API's answer: %w", err)
	}
	return nil
}

// tlsHint names the setting that an error of the connection comes from.
func tlsHint(err error) string {
	if _, unverified := errors.AsType[*tls.CertificateVerificationError](err); unverified {
		return " (see http.tls.ca and http.tls.server-name)"
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return " (see http.tls.enabled)"
	}
	return ""
}

// plainToHTTPS is what Go's server answers to HTTP where it expects TLS.
const plainToHTTPS = "Client sent an HTTP request to an HTTPS server."

// failure parses the response as a problem document, if it is one.
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
