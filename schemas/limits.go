package schemas

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Limits on callers' sizes. docs/limits.md lists them beside the stages' limits, and a test
// compares.
//
// Kafka's own limit on a record counts compressed bytes, so it limits none of these: 20 MiB of
// zeros arrive in a few kB.
const (
	// MaxKeyBytes is the largest key of a request.
	MaxKeyBytes = 64 << 10

	// MaxHeaders is the largest number of headers of a request, including notyet's own.
	MaxHeaders = 128

	// MaxHeaderBytes bounds the sum of a request's header names and values, also of notyet's own.
	MaxHeaderBytes = 64 << 10

	// DefaultMaxValueBytes is the default limit of a request's value.
	DefaultMaxValueBytes = 1 << 20

	// MaxValueBytes is the highest limit of a request's value that an intake topic can set. A task
	// is one row, whose column holds 16 MiB.
	MaxValueBytes = 8 << 20

	// MaxRejectedBytes is how much of a rejected record its dead letter keeps. The intake has all.
	MaxRejectedBytes = 64 << 10

	// MaxIDLen is the longest id in bytes.
	MaxIDLen = 255

	// MaxTimerIDLen is the longest timer id in bytes. A run's id is "<timer id>@<run ms>", which
	// adds one byte and 13 digits (until the year 2286).
	MaxTimerIDLen = MaxIDLen - 1 - 13

	// MaxTopicLen is Kafka's own limit of a topic's name.
	MaxTopicLen = 249

	// MaxIntakeTopicLen is the longest name of an intake topic in bytes for which every DefaultID
	// stays within MaxIDLen: two slashes, 10 digits of partition and 19 of offset follow.
	MaxIntakeTopicLen = MaxIDLen - 2 - 10 - 19

	// MaxTags is how many tags a task has at most, and MaxTagLen how long each is in bytes.
	MaxTags   = 4
	MaxTagLen = 64

	// MaxURLLen is the longest callback URL in bytes: what proxies and servers commonly accept.
	MaxURLLen = 2048

	// MaxWaiting is how many requests may wait for the end of one task's delivery. They are decided
	// one by one, so this limits one id's work.
	MaxWaiting = 1000

	// MaxWaitingBytes limits the sum of the waiting requests' stored bytes.
	MaxWaitingBytes = 32 << 20

	// MaxWaitingReports is how many reports may wait until their delivery is known. One decides;
	// the others are duplicates, or guesses without a delivery.
	MaxWaitingReports = 100

	// DefaultMaxDelay is the default horizon: 3653 days, the most in ten calendar years.
	DefaultMaxDelay = 3653 * 24 * time.Hour
)

// Limits is what an intake topic accepts. The zero value works.
type Limits struct {
	// MaxDelay is the horizon: how far after the intake record's timestamp a due time may be. A
	// request beyond is rejected, never clamped. Default DefaultMaxDelay.
	MaxDelay time.Duration

	// MaxValueBytes is the largest value of a request in bytes, at most the constant of that name.
	// Default DefaultMaxValueBytes.
	MaxValueBytes int

	// AllowedTargets are patterns as of path.Match. A target topic, or the origin of a callback,
	// must match one: "orders", "orders.*", "https://*.shop.example". A * does not match the
	// slashes of an origin, so "*" allows every topic and no callback. Default empty: every target.
	AllowedTargets []string

	// Target is the intake's own target topic: a request need not name it, and may name no other,
	// and none by a URL. Default none: each request names its target.
	Target string

	// Callbacks returns why a URL is not called, or nil, for requests to be delivered. Default nil:
	// every URL is accepted here; the dispatcher checks it again.
	Callbacks func(CallbackURL) *Rejection

	// Aliases are other schedulers whose records are understood beside notyet's own. Default none:
	// their headers are the caller's own.
	Aliases []Alias

	// InternalTopics are notyet's own topics, never a target, like the intake topic and topics that
	// start with "__". Default nil: TopicIntake, TopicReports, TopicResults and TopicCancels.
	InternalTopics []string
}

// Validate returns an error for an impossible target or a malformed pattern. Decode matches none.
func (l Limits) Validate() error {
	if l.MaxDelay < 0 || l.MaxValueBytes < 0 {
		return fmt.Errorf("checking limits: negative horizon %s or value size %d", l.MaxDelay, l.MaxValueBytes)
	}
	if l.MaxValueBytes > MaxValueBytes {
		return fmt.Errorf("checking limits: a value size of %d bytes, and at most %d are possible", l.MaxValueBytes, MaxValueBytes)
	}
	if l.Target != "" && (!ValidTopic(l.Target) || l.internal(l.Target, "")) {
		return fmt.Errorf("checking target %q: it is not a topic of the business", l.Target)
	}
	for _, a := range l.Aliases {
		if !slices.Contains(Aliases, a) {
			return fmt.Errorf("checking alias %q: there are etf1 and nats", a)
		}
	}
	for _, p := range l.AllowedTargets {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("checking allowed target %q: %w", p, err)
		}
		if _, host, ok := strings.Cut(p, "://"); ok && strings.Contains(host, "/") {
			return fmt.Errorf("checking allowed target %q: it has a path, and is compared with origins such as https://shop.example: it would match none", p)
		}
	}
	return nil
}

func (l Limits) maxDelay() int64 {
	if l.MaxDelay == 0 {
		return DefaultMaxDelay.Milliseconds()
	}
	return l.MaxDelay.Milliseconds()
}

func (l Limits) maxValue() int {
	if l.MaxValueBytes == 0 {
		return DefaultMaxValueBytes
	}
	return min(l.MaxValueBytes, MaxValueBytes)
}

// size checks how large a record is, before anything of it is read.
func (l Limits) size(r *kgo.Record) *Rejection {
	headers := 0
	for i := range r.Headers {
		headers += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	switch {
	case len(r.Headers) > MaxHeaders:
		return tooLarge("record headers", "are "+strconv.Itoa(len(r.Headers))+" in number", MaxHeaders)
	case headers > MaxHeaderBytes:
		return tooLarge("record headers", "have "+strconv.Itoa(headers)+" bytes", MaxHeaderBytes)
	case len(r.Key) > MaxKeyBytes:
		return tooLarge("record key", "has "+strconv.Itoa(len(r.Key))+" bytes", MaxKeyBytes)
	case len(r.Value) > l.maxValue():
		return tooLarge("record value", "has "+strconv.Itoa(len(r.Value))+" bytes", l.maxValue())
	}
	return nil
}

func tooLarge(what, problem string, bound int) *Rejection {
	return &Rejection{Header: what, Problem: problem, Fix: "send at most " + strconv.Itoa(bound) + ", or a reference to what is larger"}
}

func (l Limits) allows(target string) bool {
	if len(l.AllowedTargets) == 0 {
		return true
	}
	return slices.ContainsFunc(l.AllowedTargets, func(pattern string) bool {
		ok, err := path.Match(pattern, target)
		return ok && err == nil
	})
}

// speaksFor reports whether requests of the intake may be about the target; "": about every one.
func (l *Limits) speaksFor(target, intake string) bool {
	if target == "" {
		return l.Target == "" && len(l.AllowedTargets) == 0
	}
	return (l.Target == "" || target == l.Target) && l.allows(target) && !l.internal(target, intake)
}

// internal reports whether the topic must not receive tasks.
func (l Limits) internal(topic, intake string) bool {
	if reserved(topic) || topic == intake {
		return true
	}
	if l.InternalTopics == nil {
		return topic == TopicIntake || topic == TopicReports || topic == TopicResults || topic == TopicCancels
	}
	return slices.Contains(l.InternalTopics, topic)
}
