package scanner

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
)

// verdict says whether the log of a partition still has what was stored of it.
type verdict int

const (
	intact verdict = iota
	// unsure: the log knows neither the leader epoch that was stored nor a later one. A healthy leader would.
	unsure
	// diverged: records that are stored are gone from the log, and their offsets are or will be
	// those of others. Kafka does so when it elects a leader that is not in sync, or when all
	// copies of a partition lost their last records.
	diverged
)

// judge compares what is stored of a partition with the partition's log. It returns the offset
// below which they are the same.
//
// Within one log, an offset and a leader epoch identify a record, and epochs never decrease. So if
// the log has the last stored record with its epoch, it has all that is stored. Kafka says up to
// which offset it has records of that epoch. What lies below the start of the log was deleted by
// retention and can no longer be compared.
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

// errDiverged says that a record is not the one that was stored at its offset, or cannot follow what is stored.
var errDiverged = errors.New("the log is not the one that was stored")

// fits tells by a record's offset and leader epoch whether it can be of the log that was stored.
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
