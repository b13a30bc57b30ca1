package schemas

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestParseCallbackURL(t *testing.T) {
	for _, c := range []struct{ in, origin, url string }{
		{"https://shop.example", "https://shop.example", "https://shop.example"},
		{"https://shop.example/", "https://shop.example", "https://shop.example/"},
		{"https://shop.example:443/a", "https://shop.example", "https://shop.example/a"},
		{"http://shop.example:80/a", "http://shop.example", "http://shop.example/a"},
		{"https://shop.example:80/a", "https://shop.example:80", "https://shop.example:80/a"},
		{"https://shop.example:8443/a?b=c%20d", "https://shop.example:8443", "https://shop.example:8443/a?b=c%20d"},
		{"HTTPS://Shop.EXAMPLE/A", "https://shop.example", "https://shop.example/A"},
		{"https://a/b%2Fc;d?", "https://a", "https://a/b%2Fc;d?"},
		{"https://a/%C3%A4%20b?c=%20", "https://a", "https://a/%C3%A4%20b?c=%20"},
		{"https://a?b", "https://a", "https://a?b"},
		{"http://my_service:9000/x", "http://my_service:9000", "http://my_service:9000/x"},
		{"https://xn--bcher-kva.example/", "https://xn--bcher-kva.example", "https://xn--bcher-kva.example/"},
		{"https://1a/", "https://1a", "https://1a/"},
		{"https://0x.example/", "https://0x.example", "https://0x.example/"},
		// Addresses are what they say. Whether they may be called is another question.
		{"http://127.0.0.1:81/", "http://127.0.0.1:81", "http://127.0.0.1:81/"},
		{"https://[2001:DB8::0:1]/", "https://[2001:db8::1]", "https://[2001:db8::1]/"},
		{"https://[::FFFF:127.0.0.1]:8443/", "https://[::ffff:127.0.0.1]:8443", "https://[::ffff:127.0.0.1]:8443/"},
	} {
		got, rej := ParseCallbackURL([]byte(c.in))
		require.Nil(t, rej, c.in)
		require.Equal(t, c.origin, got.Origin, c.in)
		require.Equal(t, c.url, got.URL().String(), c.in)
		require.Equal(t, strings.ToLower(got.URL().Hostname()), got.Host, c.in)
		require.False(t, ValidTopic(got.Origin), "an origin is never mistaken for a topic")
		require.True(t, IsOrigin(got.Origin))
	}
}

func TestParseCallbackURLRejects(t *testing.T) {
	const (
		absolute = "is not an absolute http or https URL: write an absolute http or https URL, such as https://shop.example/hooks"
		notURL   = "is not a URL: write an absolute http or https URL, such as https://shop.example/hooks"
		number   = "has a number as its host: write an IPv4 address as four decimal numbers without leading zeros, such as 192.0.2.1"
		zone     = "has a zone or an escaped character in its host: write a name such as shop.example, or an address such as 192.0.2.1 or [2001:db8::1]"
		host     = "has no valid host: write a name such as shop.example, or an address such as 192.0.2.1 or [2001:db8::1]"
		port     = "has no valid port: write a port from 1 to 65535 without leading zeros"
		user     = "notyet-url has user info: leave it out, and send credentials in a header of your own, such as authorization"
		escape   = "has a blank or a character that is not ASCII: write it percent-encoded, a blank as %20"
		fragment = "has a fragment: leave out # and what follows it"
	)
	for in, want := range map[string]string{
		"":                               absolute,
		"/a":                             absolute,
		"//a/b":                          absolute,
		"shop.example/a":                 absolute,
		"https:a":                        absolute,
		"https:///a":                     absolute,
		"https://:80/":                   host,
		"ftp://a/":                       absolute,
		"file:///etc/passwd":             absolute,
		"gopher://127.0.0.1:6379/_INFO":  absolute,
		"unix:///var/run/docker.sock":    absolute,
		"javascript:alert(1)":            absolute,
		"https://a b/":                   notURL,
		"https://a/\x00":                 notURL,
		"https://a/\r\nX: y":             notURL,
		"https://a/%zz":                  notURL,
		"https://[::1/":                  notURL,
		"https://a/#b":                   fragment,
		"https://a/#":                    fragment,
		"https://u@a/":                   user,
		"https://u:p@a/":                 user,
		"https://@a/":                    user,
		"https://shop.example@127.0.0.1": user,
		"https://a:/":                    "has a colon without a port: leave out the colon, or write a port",
		"https://a:0/":                   port,
		"https://a:65536/":               port,
		"https://a:0443/":                port,
		"https://a:99999999999999999/":   port,
		"https://a../":                   host,
		"https://shop.example./":         host,
		"https://a\\b/":                  notURL,
		"https://a,b/":                   host,
		"https://" + strings.Repeat("a", 64) + ".example/": host,
		"https://bücher.example/":                          "has a host that is not ASCII: write its punycode form (xn--…)",
		"https://１２７.0.0.1/":                               "has a host that is not ASCII: write its punycode form (xn--…)",
		"https://a%2e/":                                    notURL,
		"https://[fe80::1%25lo]/":                          zone,
		"https://2130706433/":                              number,
		"https://0177.0.0.1/":                              number,
		"https://0x7f.0.0.1/":                              number,
		"https://0x7f000001/":                              number,
		"https://127.1/":                                   number,
		"https://127.0.0.01/":                              number,
		"https://127.0.0.1.2/":                             number,
		"https://256.0.0.1/":                               number,
		"https://a.0x/":                                    number,
		"https://a.7/":                                     number,
		"https://" + strings.Repeat("a.", 130) + "a/":      "has an origin of 269 bytes: write one of at most 249",
		"https://a/" + strings.Repeat("b", MaxURLLen):      "has 2058 bytes: write a URL of at most 2048 bytes",
		"https://a/\xff":                                   notURL,
		"https://a/b c":                                    escape,
		"https://a/?b=c d":                                 escape,
		"https://a/ä":                                      escape,
		"https://a/?ä":                                     escape,
	} {
		_, rej := ParseCallbackURL([]byte(in))
		require.NotNil(t, rej, in)
		require.NotContains(t, rej.Error(), "\n")
		require.NotRegexp(t, `[a-z]/.*b|@`, rej.Value, "a path may be a secret, and what stands before an @ a password")
		if want == user {
			require.Equal(t, want, rej.Error(), in)
			continue
		}
		require.Equal(t, HeaderURL, rej.Header)
		require.Equal(t, want, rej.Problem+": "+rej.Fix, in)
	}
}

// A path may be a secret, and what stands before an @ a password. That holds for what was meant as a URL, too.
func TestAnErrorRepeatsNoSecretOfAURL(t *testing.T) {
	for _, v := range []string{
		"hooks.shop.example/T000/SECRET?next=https://shop.example", "https//hooks.shop.example/SECRET?n=http://a", "/services/SECRET?x=a://b/c",
		"https:/shop.example/SECRET?next=http://x", "https:shop.example/SECRET", "https://shop.example%2FSECRET", "https://user%3ASECRET%40shop.example/",
		"https://shop.example;SECRET", "https://shop.example\tSECRET", "https://shop.example:443&token=SECRET", "https://shop.example／SECRET",
		"https:\\\\shop.example\\SECRET", "https://SECRET:x＠shop", "https://user:SECRET@shop.example/%zz", "SECRET@shop.example", "https//user:SECRET@shop.example",
	} {
		_, rej := ParseCallbackURL([]byte(v))
		require.NotNil(t, rej, v)
		if !strings.HasPrefix(v, "https://SECRET") { // nobody can tell
			require.NotContains(t, rej.Error(), "SECRET", v)
		}
		if !strings.ContainsAny(v, "/\\@") {
			continue
		}
		_, rej = ParseTarget([]byte(v))
		require.NotNil(t, rej, v)
		if !strings.HasPrefix(v, "https://SECRET") {
			require.NotContains(t, rej.Error(), "SECRET", v)
		}
	}
	_, rej := ParseTarget([]byte("orders!"))
	require.Contains(t, rej.Error(), `notyet-topic "orders!" is not a topic name`)
}

func TestParseOrigin(t *testing.T) {
	got, rej := ParseOrigin([]byte("HTTPS://Shop.example:443"))
	require.Nil(t, rej)
	require.Equal(t, "https://shop.example", got)
	for in, want := range map[string]string{
		"https://shop.example/":    `notyet-topic "https://shop.example/" has more than an origin: write https://shop.example`,
		"https://shop.example/a":   `notyet-topic "https://shop.example…" has more than an origin: write https://shop.example`,
		"https://shop.example?a=b": `notyet-topic "https://shop.example…" has more than an origin: write https://shop.example`,
		"https://shop.example?":    `notyet-topic "https://shop.example…" has more than an origin: write https://shop.example`,
		"shop.example":             `notyet-topic "shop.example" is not an absolute http or https URL: write an absolute http or https URL, such as https://shop.example/hooks`,
	} {
		_, rej := ParseOrigin([]byte(in))
		require.NotNil(t, rej, in)
		require.EqualError(t, rej, want)
	}
	require.False(t, IsOrigin("orders"))
}

func TestParseMethod(t *testing.T) {
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "GET"} {
		got, rej := ParseMethod([]byte(m))
		require.Nil(t, rej)
		require.Equal(t, m, got)
	}
	for _, m := range []string{"", "post", "HEAD", "OPTIONS", "CONNECT", "TRACE", "GET\r\n", "GET "} {
		_, rej := ParseMethod([]byte(m))
		require.NotNil(t, rej, m)
		require.Contains(t, rej.Error(), "is none of its values: write one of POST, PUT, PATCH, DELETE, GET")
	}
}

// The target of a callback is its URL's origin, in its one form, however a request names it.
func TestDecodeCallback(t *testing.T) {
	const at = "1790000060000"
	for _, c := range []struct {
		record   *kgo.Record
		topic    string
		callback Callback
		timeout  time.Duration
	}{
		{intake(HeaderURL, "HTTPS://Shop.example:443/a?b", HeaderAt, at), "https://shop.example", Callback{"HTTPS://Shop.example:443/a?b", "POST"}, DefaultCallbackTimeout},
		{intake(HeaderMethod, "GET", HeaderURL, "http://a:81", HeaderAt, at), "http://a:81", Callback{"http://a:81", "GET"}, DefaultCallbackTimeout},
		{intake(HeaderURL, "https://a", HeaderMethod, "POST", HeaderAckTimeout, "1m", HeaderAt, at), "https://a", Callback{"https://a", "POST"}, time.Minute},
		{intake(HeaderAckTimeout, "5s", HeaderURL, "https://a", HeaderAt, at), "https://a", Callback{"https://a", "POST"}, 5 * time.Second},
		{intake(HeaderOp, "cancel", HeaderID, "x", HeaderURL, "https://a/b/c"), "https://a", Callback{}, time.Minute},
		{intake(HeaderOp, "fire", HeaderID, "x", HeaderTopic, "HTTPS://A:443"), "https://a", Callback{}, time.Minute},
		{intake(HeaderOp, "timer-delete", HeaderID, "x", HeaderTopic, "https://a:444"), "https://a:444", Callback{}, time.Minute},
		{intake(HeaderOp, "timer", HeaderID, "x", HeaderCron, "@daily", HeaderURL, "https://a/b"), "https://a", Callback{"https://a/b", "POST"}, DefaultCallbackTimeout},
	} {
		r, err := Decode(c.record, Limits{})
		require.NoError(t, err)
		require.Equal(t, c.topic, r.Topic)
		require.Equal(t, c.callback, r.Settings.Callback)
		require.Equal(t, c.timeout, r.Settings.AckTimeout)
		body, err := DecodeBody(EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings))
		require.NoError(t, err)
		require.Equal(t, r.Settings, body.Settings)
	}
}

// A rejection is addressed to the task that was meant, so that its sender finds it.
func TestRejectedCallbackNamesItsOrigin(t *testing.T) {
	for _, r := range []*kgo.Record{intake(HeaderURL, "https://A/b"), intake(HeaderURL, "https://a/b", HeaderMethod, "HEAD"), intake(HeaderTopic, "https://a")} {
		_, err := Decode(r, Limits{})
		var rej *Rejection
		require.ErrorAs(t, err, &rej)
		require.Equal(t, "https://a", rej.Topic)
	}
}

func TestTargetName(t *testing.T) {
	for name, want := range map[string]string{"orders": "orders", "HTTPS://A:443": "https://a", "https://a/b": "https://a/b", "": "", "no topic": "no topic"} {
		require.Equal(t, want, TargetName(name))
	}
}

// A report about a callback names its origin in any form.
func TestReportOfACallback(t *testing.T) {
	r, err := DecodeReport(EncodeReport(TopicReports, Report{Topic: "HTTPS://A:443", ID: "x", Attempt: 1, Status: StatusOK, RetryAfter: NoRetryAfter}))
	require.NoError(t, err)
	require.Equal(t, "https://a", r.Topic)
	_, err = DecodeReport(EncodeReport(TopicReports, Report{Topic: "https://a/b", ID: "x", Attempt: 1, Status: StatusOK, RetryAfter: NoRetryAfter}))
	require.ErrorContains(t, err, "write the topic of the delivered record, or the origin that was called")
}

// FuzzParseCallbackURL: never panics; what it accepts has one origin, and the URL that is called has
// the checked host and no user info.
func FuzzParseCallbackURL(f *testing.F) {
	for _, s := range []string{
		"https://shop.example:8443/a?b#c", "HTTP://[::FFFF:7f00:1]:80", "https://u:p@a/", "https://127.1/", "https://0x7f.1", "https://a%2eb/",
		"https://[fe80::1%25lo]/", "http://a:080/", "https://ä/", "https:a", "https://a/%2F//..?%zz",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		c, rej := ParseCallbackURL(v)
		if rej != nil {
			require.NotContains(t, rej.Error(), "\n")
			require.NotEmpty(t, rej.Fix)
			return
		}
		require.LessOrEqual(t, len(c.Origin), MaxTopicLen)
		require.False(t, ValidTopic(c.Origin))
		u := c.URL()
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		require.Equal(t, c.Host, u.Hostname())
		again, rej := ParseCallbackURL([]byte(u.String()))
		if len(u.String()) > MaxURLLen { // escaping makes it longer
			return
		}
		require.Nil(t, rej)
		require.Equal(t, c.Origin, again.Origin)
		require.Equal(t, u.String(), again.URL().String())
		origin, rej := ParseOrigin([]byte(c.Origin))
		require.Nil(t, rej)
		require.Equal(t, c.Origin, origin)
	})
}
