package callback

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/net/http/httpguts"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

func TestOwnHeaders(t *testing.T) {
	for _, c := range []struct {
		in   []kgo.RecordHeader
		want http.Header
	}{
		{nil, http.Header{}},
		{recordtest.Headers("content-type", "application/json", "X-A", "1", "x-a", "2", "ce_id", "7"), http.Header{"Content-Type": {"application/json"}, "X-A": {"1", "2"}, "Ce_id": {"7"}}},
		{recordtest.Headers("authorization", "Bearer x", "cookie", "a=b", "user-agent", "mine"), http.Header{"Authorization": {"Bearer x"}, "Cookie": {"a=b"}, "User-Agent": {"mine"}}},
		{[]kgo.RecordHeader{{Key: "x-null"}}, http.Header{"X-Null": {""}}},
		{recordtest.Headers("x-latin", "\xe4\xff"), http.Header{"X-Latin": {"\xe4\xff"}}},
		// Not valid in HTTP: left out, so that they cannot become something else.
		{recordtest.Headers("", "x", "a b", "x", "a:b", "x", "ä", "x", "a\r\nb", "x", "x-a", "1\r\nX-B: 2", "x-b", "\x00", "x-c", "\x7f"), http.Header{}},
		// About the connection.
		{recordtest.Headers("connection", "X-Mine, close", "x-mine", "1", "keep-alive", "5", "proxy-connection", "x", "proxy-authorization", "x", "proxy-authenticate", "x",
			"te", "trailers", "trailer", "x", "transfer-encoding", "chunked", "upgrade", "h2c", "http2-settings", "x", "x-stays", "1"), http.Header{"X-Stays": {"1"}}},
		{recordtest.Headers("x-later", "1", "CONNECTION", " x-later "), http.Header{}},
		// Set by notyet or by HTTP.
		{recordtest.Headers("host", "evil.test", "content-length", "1", "Notyet-Id", "x", "notyet-due", "1", "notyet-attempt", "9", "notyet-tag", "x", "idempotency-key", "x",
			"webhook-id", "x", "webhook-timestamp", "1", "Webhook-Signature", "v1,x", "notyet_id", "x", "WEBHOOK_ID", "x", "idempotency_key", "x"), http.Header{}},
	} {
		require.Equal(t, c.want, ownHeaders(c.in), "%q", c.in)
	}
}

func FuzzOwnHeaders(f *testing.F) {
	f.Add("x-a", []byte("1"))
	f.Add("Connection", []byte("x-a, y"))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		for k, vs := range ownHeaders([]kgo.RecordHeader{{Key: name, Value: value}, {Key: "x-a", Value: []byte("1")}}) {
			require.False(t, withheld[k])
			require.True(t, httpguts.ValidHeaderFieldName(k))
			for _, v := range vs {
				require.True(t, httpguts.ValidHeaderFieldValue(v))
			}
		}
	})
}

func TestEncodeID(t *testing.T) {
	for id, want := range map[string]string{
		"order-1":              "order-1",
		"notyet.intake/3/42":   "notyet.intake/3/42",
		"a b":                  "a b",
		"100%":                 "100%",
		"größe/7":              "gr%C3%B6%C3%9Fe%2F7",
		"50% größer":           "50%25%20gr%C3%B6%C3%9Fer",
		"a\r\nX-Injected: yes": "a%0D%0AX-Injected:%20yes",
		"\x00":                 "%00",
		" a":                   "%20a",
		"a ":                   "a%20",
		"日本":                   "%E6%97%A5%E6%9C%AC",
	} {
		got, encoded := encodeID(id)
		require.Equal(t, want, got, "%q", id)
		require.True(t, httpguts.ValidHeaderFieldValue(got))
		require.Equal(t, got != id, encoded)
		if encoded {
			back, err := url.PathUnescape(got)
			require.NoError(t, err)
			require.Equal(t, id, back)
		}
	}
}

// TestNoTwoIDsLookAlike: a receiver can tell an id that is percent-encoded from one that looks so.
func TestNoTwoIDsLookAlike(t *testing.T) {
	target, rej := schemas.ParseCallbackURL([]byte("https://shop.example/"))
	require.Nil(t, rej)
	ids := []string{"ä", "%C3%A4", "%25C3%25A4", " a", "%20a", "a\n", "a%0A", "a"}
	seen := map[[2]string]string{}
	for _, id := range ids {
		req, err := httpRequest(t.Context(), Request{Headers: recordtest.Headers("notyet-id-encoding", "x"), Delivery: schemas.Delivery{ID: id}}, target, nil, "notyet", time.Now())
		require.NoError(t, err)
		value, encoding := req.Header.Get(headerID), req.Header.Get(headerEncoding)
		require.Empty(t, seen[[2]string{value, encoding}], "%q", id)
		seen[[2]string{value, encoding}] = id
		if encoding != "" {
			require.Equal(t, "percent", encoding)
			value, err = url.PathUnescape(value)
			require.NoError(t, err)
		}
		require.Equal(t, id, value)
	}
}

func TestWhatTheReceiverSees(t *testing.T) {
	type seen struct {
		method, target, host string
		header               http.Header
		body                 []byte
	}
	requests := make(chan seen, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		requests <- seen{r.Method, r.RequestURI, r.Host, r.Header, b.Bytes()}
	}))
	defer server.Close()
	s := newTestSender(t, Config{URLRules: everyone, UserAgent: "notyet/1.2"})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, method := range []string{"", "POST", "PUT", "PATCH", "DELETE", "GET"} {
		for _, body := range [][]byte{nil, {}, []byte("{}"), every, bytes.Repeat(every, 4096)} {
			o := s.Send(t.Context(), Request{
				URL: server.URL + "/a%2Fb//c?d=e%20f&g", Method: method, Body: body, Headers: recordtest.Headers("x-a", "1", "content-type", "text/plain", "host", "other"),
				Delivery: schemas.Delivery{ID: "größe", Due: 1790000060000, Attempt: 3, Key: "a-key", Tag: "vip,shop:7"},
			})
			require.Equal(t, Outcome{Verdict: Delivered, Status: 200, Sent: true}, o)
			got := <-requests
			if method == "" {
				require.Equal(t, "POST", got.method)
			} else {
				require.Equal(t, method, got.method)
			}
			require.Equal(t, "/a%2Fb//c?d=e%20f&g", got.target)
			require.Equal(t, server.URL, "http://"+got.host)
			require.True(t, bytes.Equal(body, got.body))
			delete(got.header, "Content-Length")
			require.Equal(t, http.Header{
				"X-A": {"1"}, "Content-Type": {"text/plain"}, "User-Agent": {"notyet/1.2"},
				"Notyet-Id": {"gr%C3%B6%C3%9Fe"}, "Notyet-Id-Encoding": {"percent"}, "Notyet-Due": {"1790000060000"}, "Notyet-Attempt": {"3"}, "Notyet-Tag": {"vip,shop:7"}, "Idempotency-Key": {"a-key"},
			}, got.header)
		}
	}
}

func TestTheTasksUserAgentWins(t *testing.T) {
	target, rej := schemas.ParseCallbackURL([]byte("https://shop.example/"))
	require.Nil(t, rej)
	req, err := httpRequest(t.Context(), Request{Headers: recordtest.Headers("user-agent", "mine")}, target, nil, "notyet", time.Now())
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, req.Header["User-Agent"])
}
