package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/schemas"
)

// Intakes are the topics of requests, and their common settings.
type Intakes struct {
	// Topics are the intake topics. In the file an entry can have settings of its own: {topic:
	// orders.later, target: orders}. Default notyet.intake.
	Topics []Intake `key:"topics"`
	// AllowedTargets are patterns for target topics and origins of callbacks, such as billing.*
	// or https://*.shop.example. Requests for others are rejected. Default every one, with a
	// warning.
	AllowedTargets []string `key:"allowed-targets" live:"some" restricts:"write patterns; * allows every topic, https://* every HTTP callback"`
	// MaxDelay is how far ahead a due time may be. Default 87672h (10 years).
	MaxDelay time.Duration `key:"max-delay" live:"yes"`
	// MaxValueBytes is the largest value of a request, at most 8MiB. Default 1MiB.
	MaxValueBytes Size `key:"max-value-bytes" live:"yes"`
	// Aliases are other schedulers whose records are understood: etf1, nats. Default none.
	Aliases []string `key:"aliases" live:"yes"`
	// RequestsPerSecond is the most requests of one intake in a second. Default none.
	RequestsPerSecond int `key:"requests-per-second" live:"number" restricts:"write a number"`
	// PendingTasks is the most pending tasks of one intake. Default none.
	PendingTasks int `key:"pending-tasks" live:"number" restricts:"write a number"`
	// PendingBytes is the most bytes of one intake's pending tasks. Default none.
	PendingBytes Size `key:"pending-bytes" live:"number" restricts:"write a number"`
	// Beyond says what happens to requests beyond these three: wait or reject. Default wait.
	Beyond string `key:"beyond"`
	// UnknownTargets is the most names of missing target topics of one intake. Further ones are
	// rejected. Default 100.
	UnknownTargets int `key:"unknown-targets" live:"number" restricts:"write a number"`
}

// The fates of requests beyond a quota.
const (
	BeyondWait   = "wait"
	BeyondReject = "reject"
)

func (in Intake) hasQuota() bool {
	return in.RequestsPerSecond != 0 || in.PendingTasks != 0 || in.PendingBytes != 0
}

// Intake is one intake topic. Left out settings come from Intakes.
type Intake struct {
	Topic          string        `key:"topic"`
	Target         string        `key:"target"` // the topic that all its requests are for; "": each names its own
	AllowedTargets []string      `key:"allowed-targets" live:"some"`
	MaxDelay       time.Duration `key:"max-delay" live:"yes"`
	MaxValueBytes  Size          `key:"max-value-bytes" live:"yes"`
	Aliases        []string      `key:"aliases" live:"yes"`

	// The quotas. 0: none; of UnknownTargets there is always one.
	RequestsPerSecond int    `key:"requests-per-second" live:"number"`
	PendingTasks      int    `key:"pending-tasks" live:"number"`
	PendingBytes      Size   `key:"pending-bytes" live:"number"`
	Beyond            string `key:"beyond"` // BeyondWait or BeyondReject
	UnknownTargets    int    `key:"unknown-targets" live:"number"`

	own map[string]bool // the keys that the entry itself has
}

// Limits returns the limits of the named intake topic. false: the topic is none of our intakes.
func (c *Config) Limits(topic string) (l schemas.Limits, ok bool) {
	for _, in := range c.Intake.Topics {
		if in.Topic == topic {
			var aliases []schemas.Alias
			for _, a := range in.Aliases {
				aliases = append(aliases, schemas.Alias(a))
			}
			return schemas.Limits{
				Aliases: aliases, MaxDelay: in.MaxDelay, MaxValueBytes: int(in.MaxValueBytes), Target: in.Target, AllowedTargets: in.AllowedTargets, InternalTopics: c.OwnTopics(),
			}, true
		}
	}
	return schemas.Limits{}, false
}

// Unrestricted returns the intake topics without allowed-targets: open to every target topic.
func (c *Config) Unrestricted() []string {
	var names []string
	for _, in := range c.Intake.Topics {
		if len(in.AllowedTargets) == 0 {
			names = append(names, in.Topic)
		}
	}
	return names
}

// OwnTargets returns the intakes' own targets, each once.
func (c *Config) OwnTargets() []string {
	var targets []string
	for _, in := range c.Intake.Topics {
		if in.Target != "" && !slices.Contains(targets, in.Target) {
			targets = append(targets, in.Target)
		}
	}
	return targets
}

// IntakeNames returns the names of the intake topics.
func (c *Config) IntakeNames() []string {
	names := make([]string, 0, len(c.Intake.Topics))
	for _, in := range c.Intake.Topics {
		names = append(names, in.Topic)
	}
	return names
}

// ReadTopics returns the scanners' topics.
func (c *Config) ReadTopics() []string {
	return append(c.IntakeNames(), c.Reports.Topic, c.Cancels.Topic)
}

// OwnTopics returns all topics of the installation, never a target.
func (c *Config) OwnTopics() []string {
	own := append(c.ReadTopics(), c.Results.Topic)
	if c.Index.Kind == KindMySQL {
		own = append(own, c.Wakes.Topic)
	}
	return own
}

// The largest quotas. The one of requests also holds for a target's rate.
const (
	maxRequestsPerSecond = 1_000_000
	maxPendingTasks      = 1_000_000_000
	maxPendingBytes      = 1 << 40
	maxUnknownTargets    = 10_000
)

// quotas checks the set quotas of one intake, or of all.
func (l *loader) quotas(in Intake, where string, set func(key string) bool) {
	check := func(key string, value, least, most int64) {
		if !set(key) || value >= least && value <= most {
			return
		}
		shown, name := strconv.FormatInt(value, 10), where
		if in.Topic != "" {
			shown = in.Topic + ", " + key + ": " + shown
		} else {
			name += "." + key
		}
		l.bad(name, shown, "is a quota out of range", fmt.Sprintf("write %s: %d to %d, or remove it", key, least, most))
	}
	check("requests-per-second", int64(in.RequestsPerSecond), 1, maxRequestsPerSecond)
	check("pending-tasks", int64(in.PendingTasks), 1, maxPendingTasks)
	check("pending-bytes", int64(in.PendingBytes), int64(max(in.MaxValueBytes, 1)), maxPendingBytes)
	check("unknown-targets", int64(in.UnknownTargets), 1, maxUnknownTargets)
}

func (l *loader) beyond(key, of, value string, quota bool) {
	switch {
	case value != BeyondWait && value != BeyondReject:
		l.bad(key, of+value, "is none of its values", "write wait or reject")
	case !quota:
		l.bad(key, of+value, "means nothing without a quota", "add requests-per-second, pending-tasks or pending-bytes, or remove beyond")
	}
}
