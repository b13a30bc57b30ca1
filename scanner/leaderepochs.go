package scanner

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
)

// verdict says whether a log still has the stored records of its partition.
type verdict int

const (
	intact verdict = iota
	// unsure: the log knows neither the stored leader epoch nor a later one. Healthy leaders would.
	unsure
	// diverged: the log lost stored records, and gives their offsets to others. Kafka does so when
	// a leader not in sync is elected, or when all copies of a partition lost their last records.
	diverged
)

// judge compares a stored partition with its log. Below the returned offset, both are the same.
//
// Within one log, an offset and a leader epoch identify a record, and epochs never decrease. So a
// log with the last stored record, under the same epoch, has all stored records. Kafka says where
// an epoch ends. Retention has deleted the offsets below the log's start: these are not compared.
func judge(src intake.Source, log kafka.Extent) (verdict, int64) {
	same, e := min(src.Next, log.End), src.Epoch
	result := intact
	if log.End < src.Next {
		result = diverged
	}
	if e.Number >= 0 && e.To > log.Start {
		switch {
		case log.EpochEnd < 0 && result == intact:
			result = unsure
		case log.EpochEnd < 0:
		case log.Epoch < e.Number: // it never had that epoch: what it has in its place is of an earlier leader, which went further
			result, same = diverged, min(same, e.From, log.EpochEnd)
		case log.EpochEnd < e.To:
			result, same = diverged, min(same, log.EpochEnd)
		}
	}
	return result, max(same, log.Start)
}

// errDiverged: a record is not the stored one of its offset, or cannot follow the stored ones.
var errDiverged = errors.New("the log is not the one that was stored")

// fits tells by offset and leader epoch whether a record can be of the stored log.
func fits(src *intake.Source, r *kgo.Record) error {
	e := src.Epoch
	if e.Number < 0 || r.LeaderEpoch < 0 {
		return nil
	}
	wrong := r.Offset >= e.To && r.LeaderEpoch < e.Number || // epochs do not fall
		r.Offset < e.To && r.LeaderEpoch > e.Number ||
		r.Offset < e.To && r.Offset >= e.From && r.LeaderEpoch != e.Number
	if !wrong {
		return nil
	}
	return fmt.Errorf("%s/%d: the record at offset %d is of leader epoch %d, and %d is stored of the offsets %d to %d: %w",
		src.Topic, src.Partition, r.Offset, r.LeaderEpoch, e.Number, e.From, e.To-1, errDiverged)
}
