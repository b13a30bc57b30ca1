package kafka

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// aboutTopic are answers that every record for the topic will get until an
// operator does something.
var aboutTopic = []error{
	kerr.UnknownTopicOrPartition, // after unknownTopicTries
	kerr.UnknownTopicID,          // deleted, perhaps created again: see Permanent
	kerr.InvalidTopicException,
	kerr.TopicAuthorizationFailed,
}

// aboutRecord are answers that the same record will get again.
var aboutRecord = []error{
	kerr.MessageTooLarge,
	kerr.RecordListTooLarge,
	kerr.InvalidRecord,    // such as a null key on a compacted topic
	kerr.CorruptMessage,   // the same from older brokers; kgo does not retry it
	kerr.InvalidTimestamp, // beyond message.timestamp.*.max.ms
	kerr.UnsupportedForMessageFormat,
	kerr.PolicyViolation,
}

// Permanent is the one question about a failed produce: is it the record (true:
// the same record for the same topic will fail again, make it a dead letter) or
// is it the world (false: keep it and try again)? Everything unknown is the
// world's fault: no record is given up for an error that nobody foresaw. A nil
// error is not permanent.
//
// A record may be innocent all the same, in two ways, so make the sentence final
// only by a NewSoloProducer client:
//
//   - When one record fails for good, kgo fails all that it holds for that
//     partition, with the same error.
//   - A client that produced to a topic before it was deleted and created again
//     answers UNKNOWN_TOPIC_ID until its PurgeTopicsFromProducing is called.
func Permanent(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return slices.ContainsFunc(aboutTopic, is) || slices.ContainsFunc(aboutRecord, is)
}
