package schemas

import (
	"fmt"
	"path"
	"slices"
	"time"
)

const (
	// DefaultMaxDelay is the default horizon: 3653 days, the most that ten calendar years can have.
	DefaultMaxDelay = 3653 * 24 * time.Hour

	// DefaultMaxValueBytes is the default bound on a request's value.
	DefaultMaxValueBytes = 1 << 20
)

// Limits is what an intake topic accepts. The zero value is usable.
type Limits struct {
	// MaxDelay is the horizon: how far behind the intake record's timestamp a due time may lie. A request beyond it is
	// rejected, never clamped. Default DefaultMaxDelay.
	MaxDelay time.Duration

	// MaxValueBytes is the largest value of a task. Default DefaultMaxValueBytes.
	MaxValueBytes int

	// AllowedTargets are patterns as of path.Match, of which a target topic must match one: "orders", "orders.*". A
	// callback URL is matched as a whole, and a * does not reach over its slashes. Default empty: every target.
	AllowedTargets []string

	// InternalTopics are notyet's own topics, which are never a target, like all that start with "__" and the intake
	// topic itself. Default nil: TopicIntake, TopicReports and TopicResults.
	InternalTopics []string
}

// Validate finds patterns that can never match. Decode takes them for patterns that match nothing.
func (l Limits) Validate() error {
	if l.MaxDelay < 0 || l.MaxValueBytes < 0 {
		return fmt.Errorf("checking limits: negative horizon %s or value size %d", l.MaxDelay, l.MaxValueBytes)
	}
	for _, p := range l.AllowedTargets {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("checking allowed target %q: %w", p, err)
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
	return l.MaxValueBytes
}

func (l Limits) allows(target string) bool {
	if len(l.AllowedTargets) == 0 {
		return true
	}
	for _, p := range l.AllowedTargets {
		if ok, err := path.Match(p, target); ok && err == nil {
			return true
		}
	}
	return false
}

// internal tells whether the topic is one that must not receive tasks.
func (l Limits) internal(topic, intake string) bool {
	if reserved(topic) || topic == intake {
		return true
	}
	if l.InternalTopics == nil {
		return topic == TopicIntake || topic == TopicReports || topic == TopicResults
	}
	return slices.Contains(l.InternalTopics, topic)
}
