package kafka

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// aboutTopic are answers to every record for the topic until an operator does something.
var aboutTopic = []error{
	kerr.UnknownTopicOrPartition, // after unknownTopicTries
	kerr.InvalidTopicException,
	kerr.TopicAuthorizationFailed,
}

// aboutRecord are answers to this record again and again.
var aboutRecord = []error{
	kerr.MessageTooLarge,
	kerr.RecordListTooLarge,
	kerr.InvalidRecord,  // such as a null key on a compacted topic
	kerr.CorruptMessage, // the same from older brokers; kgo does not retry it
	kerr.UnsupportedForMessageFormat,
	kerr.PolicyViolation,
}

// Permanent is the one question about a failed produce. true: it is the record, and the same record
// for the same topic will fail again: make it a dead letter. false: it is the world, so keep the
// record and try again. Everything unknown is the world's fault: no record is given up for an
// unforeseen error. A nil error is not permanent.
//
// UNKNOWN_TOPIC_ID is not permanent: the topic was deleted. If it is back under another id, the
// next try succeeds (NewProducer's clients forget the old one); otherwise the next try ends with
// UNKNOWN_TOPIC_OR_PARTITION, a permanent error.
//
// The record may be innocent of a permanent error: when one fails for good, kgo fails all other
// buffered records of the partition with the same error (see MaybeCollateral).
func Permanent(err error) bool {
	return MaybeCollateral(err) || slices.ContainsFunc(aboutTopic, func(target error) bool { return errors.Is(err, target) })
}

// ClockDiffers says whether the broker refused the timestamp of a record. Config.Now and the
// broker's clock are further apart than the topic allows (message.timestamp.after.max.ms, by
// default an hour), so every record gets this answer until somebody corrects a clock.
func ClockDiffers(err error) bool { return errors.Is(err, kerr.InvalidTimestamp) }

// refused says whether the broker has definitely not stored the record, by its own answer.
func refused(err error) bool { return Permanent(err) || ClockDiffers(err) }

// TopicMayCome says whether a Permanent error is about a missing or unwritable topic: either may be
// mended in a moment, without a change to the record.
func TopicMayCome(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed)
}

// MaybeCollateral says whether a Permanent error may be another record's, from the same batch or
// only the same partition's buffer. The error is final only after a NewSoloProducer client has said
// the same. False means: any record for the topic gets this error.
func MaybeCollateral(err error) bool {
	return slices.ContainsFunc(aboutRecord, func(target error) bool { return errors.Is(err, target) })
}

// ErrNotSent wraps errors of ours about a record never handed to a broker.
var ErrNotSent = errors.New("not sent")

// NotSent says whether an error proves that the record is not in the topic: refused by the broker,
// or never sent. After any other error the record may be there, or arrive later, and so it may
// after a refusal doubted by LostConnections.
func NotSent(err error) bool {
	return refused(err) && !errors.Is(err, errMaybeStored) || errors.Is(err, ErrNotSent) || errors.Is(err, kgo.ErrMaxBuffered)
}
