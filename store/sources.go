package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Source is one partition of an intake topic. Its id and an intake offset make the seq of the task that the record
// schedules, so a record can make at most one task, and the same one again after the database was restored.
type Source struct {
	ID        int
	Topic     string
	TopicID   [16]byte // tells the topic from an earlier one of the same name, whose offsets began at 0 too
	Partition int32
	Next      int64 // the first offset that is not stored yet
}

const (
	// ExitSource is the outbox source of events about tasks that left their line; the owner of slot 0 looks after it.
	ExitSource  = 2
	firstSource = 16
	lastSource  = 31_999 // behind it lie those that measurements make up, until 1<<15 - 1: seq stays positive
	offsetBits  = 48
)

// Seq packs a source and an offset.
func Seq(source int, offset int64) int64 { return int64(source)<<offsetBits | offset }

// SplitSeq is the inverse of Seq.
func SplitSeq(seq int64) (source int, offset int64) {
	return int(seq >> offsetBits), seq & (1<<offsetBits - 1)
}

// replayShift leaves room for sixteen million attempts between two replays of a task.
const replayShift = 24

// Sending names an attempt (from 1) among all that a task ever sees: a replay begins to count anew, and must not be taken for what
// was sent before it.
func Sending(replay, attempt int) int32 { return int32(replay)<<replayShift + int32(attempt) }

const sourceColumns = "src, topic, topic_id, part, next_offset"

func scanSource(r *sql.Rows, s *Source) error {
	var id []byte
	if err := r.Scan(&s.ID, &s.Topic, &id, &s.Partition, &s.Next); err != nil {
		return err
	}
	copy(s.TopicID[:], id)
	return nil
}

// Sources reads all sources.
func (s *Store) Sources(ctx context.Context) ([]Source, error) {
	out, err := fetch(ctx, s.db, scanSource, "SELECT "+sourceColumns+" FROM sources ORDER BY src")
	if err != nil {
		return nil, fmt.Errorf("reading the sources: %w", err)
	}
	return out, nil
}

// Source reads a partition's source, and makes it, to begin at offset first, when the partition is new here.
func (s *Store) Source(ctx context.Context, topic string, topicID [16]byte, partition int32, first int64) (Source, error) {
	src := Source{Topic: topic, TopicID: topicID, Partition: partition}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT src, next_offset FROM sources WHERE topic = ? AND topic_id = ? AND part = ?", []byte(topic), topicID[:], partition).Scan(&src.ID, &src.Next)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		taken, err := fetch(ctx, tx, func(r *sql.Rows, id *int) error { return r.Scan(id) }, "SELECT src FROM sources ORDER BY src")
		if err != nil {
			return err
		}
		if src.ID = freeSource(taken, topic, topicID, partition); src.ID == 0 {
			return fmt.Errorf("no source id is left: %d partitions of intake topics have been seen", len(taken))
		}
		src.Next = first
		_, err = tx.ExecContext(ctx, "INSERT INTO sources ("+sourceColumns+") VALUES (?,?,?,?,?)", src.ID, []byte(topic), topicID[:], partition, first)
		return err
	})
	if err != nil {
		return Source{}, fmt.Errorf("reading the source of %s/%d: %w", topic, partition, err)
	}
	return src, nil
}

// freeSource derives the id from what it stands for, so that a partition that was made known after a backup gets the same one
// when the backup has been restored: the send logs name tasks by it. Of two whose ids are the same, about one pair among
// 250 partitions, the second takes the next that is free. 0: none is.
func freeSource(taken []int, topic string, topicID [16]byte, partition int32) int {
	const ids = lastSource - firstSource + 1
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(append([]byte(topic), topicID[:]...), uint32(partition)))
	begin := int(binary.BigEndian.Uint64(sum[:]) % ids)
	for i := range ids {
		id := firstSource + (begin+i)%ids
		if _, found := slices.BinarySearch(taken, id); !found {
			return id
		}
	}
	return 0
}

// Advance says which intake offsets a batch covers: [From, To) of one source.
type Advance struct {
	Source   int
	From, To int64
}

// advance moves the stored offsets with the tasks, in their transaction. It fails with ErrFenced when one of them is not where
// it is to be moved from: the records are stored already, or another reader is at them.
func (s *Store) advance(ctx context.Context, tx *sql.Tx, moves []Advance) error {
	return chunks(moves, func(part []Advance) error {
		cases := "CASE src" + strings.Repeat(" WHEN ? THEN ?", len(part)) + " END"
		var to, from, sources []any
		for _, a := range part {
			to = append(to, a.Source, a.To)
			from = append(from, a.Source, a.From)
			sources = append(sources, a.Source)
		}
		res, err := tx.ExecContext(ctx, "UPDATE sources SET next_offset = "+cases+" WHERE src IN ("+marks(len(part))+") AND next_offset "+s.expect()+" "+cases, slices.Concat(to, sources, from)...)
		if err != nil {
			return fmt.Errorf("moving the offsets of %d sources: %w", len(part), err)
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n != int64(len(part)) {
			return fmt.Errorf("moving the offsets of sources %v: %w", part, ErrFenced)
		}
		return nil
	})
}
