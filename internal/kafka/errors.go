package kafka

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// aboutTopic are answers that every record for the topic will get until an
// operator does something.
var aboutTopic = []error{
	kerr.UnknownTopicOrPartition, // after unknownTopicTries
	kerr.InvalidTopicException,
	kerr.TopicAuthorizationFailed,
}

// aboutRecord are answers that the same record will get again.
var aboutRecord = []error{
	kerr.MessageTooLarge,
	kerr.RecordListTooLarge,
	kerr.InvalidRecord,  // such as a null key on a compacted topic
	kerr.CorruptMessage, // the same from older brokers; kgo does not retry it
	kerr.UnsupportedForMessageFormat,
	kerr.PolicyViolation,
}

// Permanent is the one question about a failed produce: is it the record (true:
// the same record for the same topic will fail again, make it a dead letter) or
// is it the world (false: keep it and try again)? Everything unknown is the
// world's fault: no record is given up for an error that nobody foresaw. A nil
// error is not permanent.
//
// UNKNOWN_TOPIC_ID is not permanent: the topic was deleted. If it is back under
// another id, the next try succeeds (NewProducer's clients forget the old one);
// if it is not, the next try ends with UNKNOWN_TOPIC_OR_PARTITION, which is.
//
// The record may be innocent of a permanent error: when one fails for good, kgo
// fails all that it holds for that partition with the same error (see
// MaybeCollateral).
func Permanent(err error) bool {
	return MaybeCollateral(err) || slices.ContainsFunc(aboutTopic, func(target error) bool { return errors.Is(err, target) })
}

// ClockDiffers says that the broker refused the timestamp of a record. Config.Now and the broker's
// clock are further apart than the topic allows (message.timestamp.after.max.ms, by default an
// hour), so every record gets this answer until somebody corrects a clock.
func ClockDiffers(err error) bool { return errors.Is(err, kerr.InvalidTimestamp) }

// refused says that the broker has answered that it did not store the record.
func refused(err error) bool { return Permanent(err) || ClockDiffers(err) }

// TopicMayCome says whether a Permanent error is that of a topic that does not exist, or may not be written: either may be mended in
// a moment, without a change to the record.
func TopicMayCome(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed)
}

// MaybeCollateral says whether a Permanent error may be that of another record,
// which shared a batch or only a partition's buffer with this one. Then make the
// sentence final only after a NewSoloProducer client has said the same. False
// means that any record for the topic gets this error.
func MaybeCollateral(err error) bool {
	return slices.ContainsFunc(aboutRecord, func(target error) bool { return errors.Is(err, target) })
}

// ErrNotSent wraps errors of ours about a record that was never handed to a broker.
var ErrNotSent = errors.New("not sent")

// NotSent says whether an error proves that the record is not in its topic: the broker refused it, or it was never sent. After
// every other error it may be there, or come to be there; so it may after a refusal that LostConnections doubts.
func NotSent(err error) bool {
	return refused(err) && !errors.Is(err, errMaybeStored) || errors.Is(err, ErrNotSent) || errors.Is(err, kgo.ErrMaxBuffered)
}
