package callback

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestJudge(t *testing.T) {
	now := time.Now()
	for status := 100; status < 700; status++ {
		want := Dead
		switch {
		case status >= 200 && status < 300:
			want = Delivered
		case status == 408, status == 425, status == 429, status >= 500 && status < 600:
			want = Retry
		}
		o := judge("https://shop.example", status, http.Header{"Retry-After": {"7"}}, []byte("no\nsuch page"), now)
		require.Equal(t, want, o.Verdict, status)
		require.Equal(t, status, o.Status)
		require.True(t, o.Sent)
		switch want {
		case Delivered:
			require.Equal(t, Outcome{Verdict: Delivered, Status: status, Sent: true}, o)
		case Retry:
			require.Equal(t, 7*time.Second, o.After)
			require.Empty(t, o.Kind, "whoever counts attempts knows the kind")
		case Dead:
			require.Zero(t, o.After)
			require.Equal(t, schemas.KindCallback, o.Kind)
		}
		if want != Delivered {
			require.Equal(t, "https://shop.example answered "+strconv.Itoa(status)+": no\nsuch page", o.Reason)
		}
	}
	require.Equal(t, "https://shop.example answered 307, a redirect to https://new.example/hook: redirects are not followed, schedule with the right URL",
		judge("https://shop.example", 307, http.Header{"Location": {"https://new.example/hook"}}, nil, now).Reason)
	require.Less(t, len(judge("https://shop.example", 301, http.Header{"Location": {strings.Repeat("x", 100_000)}}, nil, now).Reason), 500)
	require.NotContains(t, judge("https://shop.example", 201, http.Header{"Location": {"https://new.example/hook"}}, nil, now).Reason, "redirect")
	require.Equal(t, "https://shop.example answered 404", judge("https://shop.example", 404, nil, nil, now).Reason)
}

func TestPauseIsTheLonger(t *testing.T) {
	require.Equal(t, 5*time.Second, Outcome{Verdict: Retry}.Pause(5*time.Second))
	require.Equal(t, 5*time.Second, Outcome{Verdict: Retry, After: time.Second}.Pause(5*time.Second))
	require.Equal(t, time.Minute, Outcome{Verdict: Retry, After: time.Minute}.Pause(5*time.Second))
	require.Equal(t, 2*time.Hour, Outcome{Verdict: Retry, After: time.Hour}.Pause(2*time.Hour), "the hour limits the receiver, not the task")
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2027, 3, 28, 1, 59, 30, 500e6, time.UTC)
	for in, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"120":                            2 * time.Minute,
		" 120 ":                          2 * time.Minute,
		"3600":                           time.Hour,
		"3601":                           time.Hour,
		"99999999999999999999999999":     time.Hour,
		"-1":                             0,
		"+1":                             0,
		"1.5":                            0,
		"1e3":                            0,
		"soon":                           0,
		"٣":                              0,
		"Sun, 28 Mar 2027 02:00:00 GMT":  29500 * time.Millisecond,
		"Sunday, 28-Mar-27 02:00:00 GMT": 29500 * time.Millisecond,
		"Sun Mar 28 02:00:00 2027":       29500 * time.Millisecond,
		"Sun, 28 Mar 2027 01:00:00 GMT":  0,
		"Fri, 28 Mar 2036 02:00:00 GMT":  time.Hour,
		"2027-03-28T02:00:00Z":           0,
	} {
		require.Equal(t, want, retryAfter(in, now), in)
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120")
	f.Add("Sun, 28 Mar 2027 02:00:00 GMT")
	f.Fuzz(func(t *testing.T, v string) {
		d := retryAfter(v, time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC))
		require.True(t, d >= 0 && d <= maxRetryAfter, d)
	})
}

// A receiver's answer reaches events, dead letters and terminals.
func TestAnswersArePrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä €\n\tx":    "plain ä €\n\tx",
		"\x1b[31mred\x07":   "\uFFFD[31mred\uFFFD",
		"a\x00b\x7fc\u0085": "a\uFFFDb\uFFFDc\uFFFD",
		"cut €"[:6]:         "cut ",
		"\xff\xfe":          "\uFFFD\uFFFD",
	} {
		require.Equal(t, want, printable([]byte(in)), "%q", in)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add([]byte("\x00\xff€"))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), reasonBytes)]
		o := judge("https://"+strings.Repeat("a", 241), 503, nil, b, time.Now())
		require.True(t, utf8.ValidString(o.Reason))
		require.LessOrEqual(t, len(o.Reason), 4096, "the column of a dead letter's reason")
		require.NotContains(t, o.Reason, "\x1b")
	})
}
