package schemas

import (
	"bytes"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// This file reads the target of a request for an HTTP callback, by the text alone. The callback
// package's guard decides whether an installation calls that target.

// Callback is the HTTP request that delivers a task, instead of a record on a topic.
type Callback struct {
	URL    string // "": the task goes to a topic
	Method string // "": DefaultMethod
}

// CallbackSettings returns the settings of an HTTP callback when its request sets nothing else. An
// empty method is DefaultMethod.
func CallbackSettings(url, method string) Settings {
	s := defaults
	s.Callback.set(url)
	if method != "" {
		s.Callback.Method = method
	}
	s.AckTimeout = DefaultCallbackTimeout
	return s
}

func (c *Callback) set(url string) {
	c.URL = url
	if c.Method == "" {
		c.Method = DefaultMethod
	}
}

// DefaultMethod is the method of a callback whose request names none.
const DefaultMethod = "POST"

// DefaultCallbackTimeout is the default of notyet-ack-timeout for callbacks.
const DefaultCallbackTimeout = 30 * time.Second

// methods are the values of HeaderMethod.
var methods = []string{"POST", "PUT", "PATCH", "DELETE", "GET"}

// ParseMethod reads the value of HeaderMethod.
func ParseMethod(v []byte) (string, *Rejection) {
	if !slices.Contains(methods, string(v)) {
		return "", &Rejection{Header: HeaderMethod, Value: shown(v), Problem: "is none of its values", Fix: "write one of " + strings.Join(methods, ", ")}
	}
	return string(v), nil
}

// CallbackURL is the checked URL of an HTTP callback.
type CallbackURL struct {
	// Origin stands wherever the name of a target topic stands: "https://shop.example",
	// "http://[2001:db8::1]:8080". Scheme and host are in lower case, without the scheme's usual
	// port. So each origin has one form. It is no valid topic name, and no longer than one.
	Origin string

	// Scheme is http or https.
	Scheme string

	// Host is a name in lower case, or an IP address in its usual form and without brackets.
	Host string

	// Port is the URL's port, or the usual one of the scheme.
	Port uint16

	path url.URL // path and query, without scheme and host
}

// URL returns the URL with the checked host.
func (c CallbackURL) URL() *url.URL {
	u := c.path
	u.Scheme, u.Host = c.Scheme, strings.TrimPrefix(c.Origin, c.Scheme+"://")
	return &u
}

// ParseCallbackURL reads the value of HeaderURL: an absolute http or https URL of at most MaxURLLen
// bytes without user info and fragment. The host is an ASCII name, an IPv4 address of four decimal
// numbers or an IPv6 address in brackets. Other forms are rejected because resolvers and libraries
// disagree: 127.1, 0177.0.0.1 and 2130706433 are 127.0.0.1 for some and names for others.
func ParseCallbackURL(v []byte) (CallbackURL, *Rejection) { return parseCallbackURL(HeaderURL, v) }

// ParseOrigin reads an origin in the place of a topic, such as the value of HeaderTopic, and
// returns the origin's one form.
func ParseOrigin(v []byte) (string, *Rejection) {
	c, rej := parseCallbackURL(HeaderTopic, v)
	if rej != nil {
		return "", rej
	}
	if c.path.Path != "" || c.path.RawQuery != "" || c.path.ForceQuery {
		return "", &Rejection{Header: HeaderTopic, Value: shownURL(v), Problem: "has more than an origin", Fix: "write " + c.Origin}
	}
	return c.Origin, nil
}

// ParseTarget reads the name of a target, as in HeaderTopic: a topic's, or an origin, in its one
// form.
func ParseTarget(v []byte) (string, *Rejection) {
	if bytes.Contains(v, []byte("://")) {
		return ParseOrigin(v)
	}
	if !ValidTopic(string(v)) {
		return "", &Rejection{Header: HeaderTopic, Value: shownTarget(v), Problem: "is not a topic name" + topicFault(v), Fix: "write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)"}
	}
	return string(v), nil
}

// topicFault names the first character that no topic has, where shownTarget cuts it.
func topicFault(v []byte) string {
	if i := bytes.IndexAny(v, `/\@`); i >= 0 {
		return " because of its " + string(v[i])
	}
	return ""
}

// shownTarget is an error's quotation of a topic's name, which may be a URL with a mistake.
func shownTarget(v []byte) string {
	if bytes.ContainsAny(v, `/\@`) {
		return shownURL(v)
	}
	return shown(v)
}

// TargetName returns the one form of a target's name in a question. A name of no target stays as it
// is: nothing is found under it.
func TargetName(name string) string {
	if target, rej := ParseTarget([]byte(name)); rej == nil {
		return target
	}
	return name
}

// IsOrigin reports whether a target is written like an origin: no topic's name has a "/".
func IsOrigin(target string) bool { return strings.Contains(target, "/") }

// shownURL is an error's quotation of a URL, or of a URL with mistakes: its scheme and its host.
// The rest may be a secret, and before an @ stands a password.
func shownURL(v []byte) string {
	if bytes.IndexByte(v, '@') >= 0 || bytes.Contains(v, []byte("%40")) {
		return ""
	}
	origin := urlOrigin.Find(v)
	if rest := v[len(origin):]; len(rest) > 0 && string(rest) != "/" {
		return shown(origin) + "…"
	}
	return shown(v)
}

var urlOrigin = regexp.MustCompile(`^(\w+://)?[\w.:\[\]-]*`)

func parseCallbackURL(name string, v []byte) (CallbackURL, *Rejection) {
	bad := func(problem, fix string) (CallbackURL, *Rejection) {
		return CallbackURL{}, &Rejection{Header: name, Value: shownURL(v), Problem: problem, Fix: fix}
	}
	if len(v) > MaxURLLen {
		return bad("has "+strconv.Itoa(len(v))+" bytes", "write a URL of at most "+strconv.Itoa(MaxURLLen)+" bytes")
	}
	const fix = "write an absolute http or https URL, such as https://shop.example/hooks"
	u, err := url.Parse(string(v))
	if err != nil || !utf8.Valid(v) {
		return bad("is not a URL", fix)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Host == "":
		return bad("is not an absolute http or https URL", fix)
	case u.User != nil: // its value is not repeated: it may be a password
		return CallbackURL{}, &Rejection{Header: name, Problem: "has user info", Fix: "leave it out, and send credentials in a header of your own, such as authorization"}
	case strings.ContainsRune(string(v), '#'):
		return bad("has a fragment", "leave out # and what follows it")
	}
	c := CallbackURL{Scheme: u.Scheme}
	var problem, remedy string
	if c.Host, problem, remedy = parseHost(u.Hostname()); problem != "" {
		return bad(problem, remedy)
	}
	if c.Port, problem, remedy = parsePort(u); problem != "" {
		return bad(problem, remedy)
	}
	if bytes.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) { // the query is sent as it is
		return bad("has a blank or a character that is not ASCII", "write it percent-encoded, a blank as %20")
	}
	c.Origin = origin(c.Scheme, c.Host, c.Port)
	if len(c.Origin) > MaxTopicLen {
		return bad("has an origin of "+strconv.Itoa(len(c.Origin))+" bytes", "write one of at most "+strconv.Itoa(MaxTopicLen))
	}
	u.Scheme, u.Host = "", ""
	c.path = *u
	return c, nil
}

func origin(scheme, host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != usualPort(scheme) {
		host += ":" + strconv.Itoa(int(port))
	}
	return scheme + "://" + host
}

func usualPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}

func parsePort(u *url.URL) (port uint16, problem, fix string) {
	text := u.Port()
	if text == "" {
		if strings.HasSuffix(u.Host, ":") {
			return 0, "has a colon without a port", "leave out the colon, or write a port"
		}
		return usualPort(u.Scheme), "", ""
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, "has no valid port", "write a port from 1 to 65535 without leading zeros"
	}
	return uint16(n), "", ""
}

// parseHost returns the one form of a host, or what is wrong with it.
func parseHost(text string) (host, problem, fix string) {
	const form = "write a name such as shop.example, or an address such as 192.0.2.1 or [2001:db8::1]"
	if strings.ContainsAny(text, "%") {
		return "", "has a zone or an escaped character in its host", form
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.String(), "", ""
	}
	host = strings.ToLower(text)
	for i := 0; i < len(host); i++ {
		if host[i] >= utf8.RuneSelf {
			return "", "has a host that is not ASCII", "write its punycode form (xn--…)"
		}
		if !hostByte(host[i]) {
			return "", "has no valid host", form
		}
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			return "", "has no valid host", form
		}
	}
	if numeric(labels[len(labels)-1]) {
		return "", "has a number as its host", "write an IPv4 address as four decimal numbers without leading zeros, such as 192.0.2.1"
	}
	return host, "", ""
}

// hostByte allows the underscore: internal names have it.
func hostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || isDigit(c) || c == '-' || c == '.' || c == '_'
}

// numeric reports whether the last label makes a host an IPv4 address to some resolver: a decimal,
// octal or hexadecimal number.
func numeric(label string) bool {
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}
