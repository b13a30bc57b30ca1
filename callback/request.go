package callback

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/net/http/httpguts"

	"github.com/notyet/notyet/schemas"
)

// Request is one attempt of a callback.
type Request struct {
	// URL and Method come from the task. An empty Method is POST.
	URL, Method string

	// Body is the task's value, sent byte for byte; null is sent as an empty one. Body must not
	// change until Send has returned.
	Body []byte

	// Headers are the task's own. Send omits headers that are not valid in HTTP, concern the
	// connection or are notyet's.
	Headers []kgo.RecordHeader

	// Delivery names the attempt. Its Key is the idempotency key.
	Delivery schemas.Delivery

	// Timeout limits the request from the dial to the answer: notyet-ack-timeout. 0:
	// schemas.DefaultCallbackTimeout. Config.MaxTimeout is a further limit.
	Timeout time.Duration

	// Asks says, for metrics, that the origin is down, and the request asks whether it still is.
	Asks bool
}

// Headers of a Sender. A task's own headers of these names are not sent.
const (
	headerID        = "Notyet-Id"
	headerEncoding  = "Notyet-Id-Encoding"
	headerDue       = "Notyet-Due"
	headerAttempt   = "Notyet-Attempt"
	headerTag       = "Notyet-Tag"
	headerKey       = "Idempotency-Key"
	headerWebhookID = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// withheld are the headers of a task that are not sent: notyet sets them, or they concern one
// connection only (RFC 9110, 7.6.1). Names in a Connection header are withheld too.
var withheld = map[string]bool{
	headerID: true, headerEncoding: true, headerDue: true, headerAttempt: true, headerTag: true, headerKey: true,
	headerWebhookID: true, headerTimestamp: true, headerSignature: true,
	"Host": true, "Content-Length": true,
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true,
}

// httpRequest returns the signed request. at is the time of the signature: receivers accept one for
// five minutes, so each attempt is signed anew.
func httpRequest(ctx context.Context, r Request, target schemas.CallbackURL, keys signers, userAgent string, at time.Time) (*http.Request, error) {
	method := cmp.Or(r.Method, schemas.DefaultMethod)
	// A *bytes.Reader lets the transport send the body again, after the server has closed a reused
	// connection without an answer. The transport does so only because of the request's
	// Idempotency-Key.
	req, err := http.NewRequestWithContext(ctx, method, target.URL().String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header = ownHeaders(r.Headers)
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", userAgent)
	}
	d := r.Delivery
	id, encoded := encodeID(d.ID)
	req.Header.Set(headerID, id)
	if encoded {
		req.Header.Set(headerEncoding, "percent")
	}
	req.Header.Set(headerDue, strconv.FormatInt(d.Due, 10))
	req.Header.Set(headerAttempt, strconv.Itoa(d.Attempt))
	req.Header.Set(headerKey, d.Key)
	if d.Tag != "" {
		req.Header.Set(headerTag, d.Tag)
	}
	if len(keys) == 0 {
		return req, nil
	}
	signature, err := keys.sign(d.Key, at, r.Body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(headerWebhookID, d.Key)
	req.Header.Set(headerTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(headerSignature, signature)
	return req, nil
}

// ownHeaders returns the task's headers to send. Values of one name keep their order.
func ownHeaders(headers []kgo.RecordHeader) http.Header {
	out := make(http.Header, len(headers)+8)
	var named []string // by Connection headers
	for _, h := range headers {
		name := http.CanonicalHeaderKey(h.Key)
		plain := http.CanonicalHeaderKey(strings.ReplaceAll(h.Key, "_", "-")) // CGI and WSGI do not tell them apart
		if name == "Connection" {
			for token := range strings.SplitSeq(string(h.Value), ",") {
				named = append(named, http.CanonicalHeaderKey(strings.TrimSpace(token)))
			}
		}
		value := string(h.Value)
		if withheld[plain] || !httpguts.ValidHeaderFieldName(h.Key) || !httpguts.ValidHeaderFieldValue(value) {
			continue
		}
		out[name] = append(out[name], value)
	}
	for _, name := range named {
		delete(out, name)
	}
	return out
}

// encodeID returns an id as the value of a header, and whether the value is percent-encoded. An
// ASCII id stays plain. An id that HTTP cannot carry is encoded as a whole: other characters,
// controls, and blanks at the ends, which receivers strip. A header of its own tells the two forms
// apart, because an ASCII id can look like an encoded one.
func encodeID(id string) (value string, encoded bool) {
	if strings.TrimSpace(id) != id || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return url.PathEscape(id), true
	}
	return id, false
}
