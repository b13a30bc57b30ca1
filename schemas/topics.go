package schemas

import (
	"strconv"
	"strings"
)

// Default names of notyet's own topics. All of them can be configured.
const (
	TopicIntake  = "notyet.intake"
	TopicReports = "notyet.reports"
	TopicResults = "notyet.results"
	// TopicCancels is where notyet puts the cancels of many, for nobody but scanners.
	TopicCancels = "notyet.cancels"
	// TopicWakes is there with index.kind mysql only, and for nobody but dispatchers.
	TopicWakes = "notyet.wakes"
)

// DefaultID returns the id of a task whose request gives none: "<intake
// topic>/<partition>/<offset>". It is also the key of a rejection without a usable id.
func DefaultID(topic string, partition int32, offset int64) string {
	return topic + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(offset, 10)
}

// ValidTopic reports whether Kafka would accept the name: 1 to 249 of [a-zA-Z0-9._-], but not "."
// or "..".
func ValidTopic(name string) bool {
	if len(name) == 0 || len(name) > MaxTopicLen || name == "." || name == ".." {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// reserved reports whether the topic belongs to Kafka itself.
func reserved(topic string) bool { return strings.HasPrefix(topic, "__") }
