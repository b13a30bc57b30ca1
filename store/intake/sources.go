package intake

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Source is one partition of an intake topic. Its id and a record's offset make the seq of the
// record's task. So a record makes at most one task, and the same again after a restore.
type Source struct {
	ID        int
	Topic     string
	TopicID   [16]byte // tells the topic from an earlier one of the same name, whose offsets began at 0 too
	Partition int32
	Next      int64 // the first offset that is not stored yet
	Epoch     Epoch
	Proof     Proof
	// Generation counts the restarts of the partition before this source. Retired, in Unix ms, is
	// when the partition was restarted as another source; 0: it was not. Nothing more is stored for
	// a retired source, but its tasks, letters and pending events are still there.
	Generation int
	Retired    int64
	// Stands says why a scanner, after a minute, could not go on at Next; mostly "".
	Stands string
}

// DeliveryKey names one attempt of the task of the record at offset. After Kafka's log has lost the
// record, another one may have the same offset. Therefore the key contains the generation.
func (s *Source) DeliveryKey(offset int64, attempt int) string {
	id := s.TopicID
	if s.Generation > 0 {
		sum := sha256.Sum256(binary.BigEndian.AppendUint32(id[:], uint32(s.Generation)))
		id = [16]byte(sum[:16])
	}
	return schemas.DeliveryKey(id, s.Partition, offset, attempt)
}

const (
	firstSource = 16
	lastSource  = 31_999 // those above, up to 1<<15 - 1, are for measurements; seq stays positive
)

const sourceColumns = "src, topic, topic_id, part, next_offset, epoch, epoch_from, epoch_to, generation, retired_at, stands_at, stands, proof_at, proof_time, proof_sum"

func scanSource(r *sql.Rows, s *Source) error {
	var id, stands []byte
	var at int64
	if err := r.Scan(&s.ID, &s.Topic, &id, &s.Partition, &s.Next, &s.Epoch.Number, &s.Epoch.From, &s.Epoch.To, &s.Generation, &s.Retired, &at, &stands, &s.Proof.At, &s.Proof.Time, &s.Proof.Sum); err != nil {
		return err
	}
	if at == s.Next {
		s.Stands = string(stands)
	}
	copy(s.TopicID[:], id)
	return nil
}

// Sources reads all sources, the retired ones too.
func (in Intake) Sources(ctx context.Context) ([]Source, error) {
	out, err := tables.Fetch(ctx, in.h.Reads(), scanSource, "SELECT "+sourceColumns+" FROM sources ORDER BY src")
	return out, wrap.Err(err, "reading the sources")
}

// InUse returns the sources that are not retired: at most one for each partition of a topic.
func InUse(all []Source) []Source {
	return slices.DeleteFunc(slices.Clone(all), func(s Source) bool { return s.Retired != 0 })
}

// Stand returns how far the database has each partition of intakes, and its life: see
// store/life.go. Of several sources of a partition, the furthest counts: the group may still have
// the offset of the source before a restart, or of an earlier topic of the name.
func (in Intake) Stand(ctx context.Context) (life string, stored map[string]map[int32]int64, err error) {
	type row struct {
		topic      []byte
		part, next sql.NullInt64
	}
	rows, err := tables.Fetch(ctx, in.h.Reads(), func(r *sql.Rows, v *row) error { return r.Scan(&life, &v.topic, &v.part, &v.next) },
		"SELECT "+in.h.Life+", s.topic, s.part, s.next_offset FROM (SELECT 1 AS one) AS o LEFT JOIN sources AS s ON s.src >= o.one")
	stored = map[string]map[int32]int64{}
	for _, v := range rows {
		topic, part := string(v.topic), int32(v.part.Int64)
		if !v.part.Valid { // there is no source
			continue
		}
		if stored[topic] == nil {
			stored[topic] = map[int32]int64{}
		}
		stored[topic][part] = max(stored[topic][part], v.next.Int64)
	}
	return life, stored, wrap.Err(err, "reading how far the intake is stored")
}

// FindSource reads a partition's source. False: it has none.
func (in Intake) FindSource(ctx context.Context, topic string, topicID [16]byte, partition int32) (Source, bool, error) {
	var src Source
	var found bool
	err := in.h.Transact(ctx, func(tx *sql.Tx) (err error) {
		src, found, err = findSource(ctx, tx, topic, topicID, partition)
		return err
	})
	return src, found, wrap.Err(err, "reading the source of %s/%d", topic, partition)
}

func findSource(ctx context.Context, q dialect.Querier, topic string, topicID [16]byte, partition int32) (Source, bool, error) {
	found, err := tables.Fetch(ctx, q, scanSource, "SELECT "+sourceColumns+" FROM sources WHERE topic = ? AND topic_id = ? AND part = ? AND retired_at = 0", []byte(topic), topicID[:], partition)
	if err != nil || len(found) == 0 {
		return Source{}, false, err
	}
	return found[0], true, nil
}

// Source reads a partition's source. A new partition's source begins at offset first.
func (in Intake) Source(ctx context.Context, topic string, topicID [16]byte, partition int32, first int64) (Source, error) {
	return in.SourceAfter(ctx, topic, topicID, partition, first, 0)
}

// SourceAfter is Source, of a partition with restarts that the database may have forgotten.
func (in Intake) SourceAfter(ctx context.Context, topic string, topicID [16]byte, partition int32, first int64, restarts int) (Source, error) {
	var src Source
	err := in.h.Transact(ctx, func(tx *sql.Tx) (err error) {
		var found bool
		if src, found, err = findSource(ctx, tx, topic, topicID, partition); err != nil || found {
			return err
		}
		src = Source{Topic: topic, TopicID: topicID, Partition: partition, Next: first, Epoch: Epoch{Number: -1}, Proof: Proof{At: -1}, Generation: restarts}
		return insertSource(ctx, tx, &src)
	})
	return src, wrap.Err(err, "reading the source of %s/%d", topic, partition)
}

func insertSource(ctx context.Context, tx *sql.Tx, src *Source) error {
	taken, err := tables.Fetch(ctx, tx, func(r *sql.Rows, id *int) error { return r.Scan(id) }, "SELECT src FROM sources ORDER BY src")
	if err != nil {
		return err
	}
	if src.ID = freeSource(taken, *src); src.ID == 0 {
		return fmt.Errorf("no source id is left: %d partitions of intake topics have been seen", len(taken))
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO sources (src, topic, topic_id, part, next_offset, epoch, epoch_from, epoch_to, generation, retired_at) VALUES ("+tables.Marks(10)+")",
		src.ID, []byte(src.Topic), src.TopicID[:], src.Partition, src.Next, src.Epoch.Number, src.Epoch.From, src.Epoch.To, src.Generation, src.Retired)
	return err
}

// CopySources adds the sources of another database of the installation, with their ids.
func CopySources(ctx context.Context, tx *sql.Tx, all []Source) error {
	for _, s := range all {
		if _, err := tx.ExecContext(ctx, "INSERT INTO sources ("+sourceColumns+") VALUES ("+tables.Marks(15)+")", s.ID, []byte(s.Topic), s.TopicID[:], s.Partition, s.Next,
			s.Epoch.Number, s.Epoch.From, s.Epoch.To, s.Generation, s.Retired, -1, []byte{}, s.Proof.At, s.Proof.Time, s.Proof.Sum); err != nil {
			return err
		}
	}
	return nil
}

// freeSource derives the id from topic, topic id, partition and generation. So a partition first
// seen after a backup gets the same id again after the restore, and send logs name tasks by it.
// Among 250 partitions, about one pair has the same id; then the next free id is taken. 0: none.
func freeSource(taken []int, src Source) int {
	const ids = lastSource - firstSource + 1
	stands := binary.BigEndian.AppendUint32(append([]byte(src.Topic), src.TopicID[:]...), uint32(src.Partition))
	if src.Generation > 0 {
		stands = binary.BigEndian.AppendUint32(stands, uint32(src.Generation))
	}
	sum := sha256.Sum256(stands)
	begin := int(binary.BigEndian.Uint64(sum[:]) % ids)
	for i := range ids {
		id := firstSource + (begin+i)%ids
		if _, found := slices.BinarySearch(taken, id); !found {
			return id
		}
	}
	return 0
}

// maxStands is the most bytes kept of why a partition stands.
const maxStands = 1024

// Stands notes, for operators, why a scanner cannot go on with a source at an offset. The note
// lapses once the source moves.
func (in Intake) Stands(ctx context.Context, source int, at int64, why string) error {
	if len(why) > maxStands {
		why = why[:maxStands]
	}
	_, err := in.h.Exec(ctx, "UPDATE sources SET stands_at = ?, stands = ? WHERE src = ? AND next_offset = ?", at, []byte(why), source, at)
	return wrap.Err(err, "noting why source %d stands", source)
}

// knownSources caches the sources' constant parts. A source in no table is asked for each time.
// None of its tasks was ever delivered, so that is rare.
type knownSources struct {
	mu sync.RWMutex
	by map[int]Source
}

func (k *knownSources) get(id int) (Source, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	src, ok := k.by[id]
	return src, ok
}

func (k *knownSources) learn(all []Source) {
	by := make(map[int]Source, len(all))
	for _, src := range all {
		by[src.ID] = src
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by = by
}

// knowSources caches the sources of the tasks at hand, whose deliveries must be named.
func (w *work) knowSources(ctx context.Context, list []*identity) error {
	for _, id := range list {
		if w.newSource(id) {
			return w.intake.known.read(ctx, w.tx)
		}
	}
	return nil
}

func (k *knownSources) read(ctx context.Context, tx *sql.Tx) error {
	all, err := tables.Fetch(ctx, tx, scanSource, "SELECT "+sourceColumns+" FROM sources")
	if err != nil {
		return fmt.Errorf("reading the sources: %w", err)
	}
	runs, err := runSources(ctx, tx)
	if err != nil {
		return err
	}
	k.learn(append(all, runs...))
	return nil
}

// readAdvanced caches the sources of a batch, because the events about its requests name their
// positions. The made-up sources of measurements are in no table.
func (k *knownSources) readAdvanced(ctx context.Context, tx *sql.Tx, moves []Advance) error {
	for _, a := range moves {
		if _, ok := k.get(a.Source); !ok && a.Source >= firstSource && a.Source <= lastSource {
			return k.read(ctx, tx)
		}
	}
	return nil
}

// position returns where a request stands in its intake topic; "": its source is not known.
func (k *knownSources) position(seq int64) string {
	id, offset := task.SplitSeq(seq)
	src, ok := k.get(id)
	if !ok {
		return ""
	}
	return schemas.DefaultID(src.Topic, src.Partition, offset)
}

// topic returns the intake topic of a request; "": its source is not known.
func (k *knownSources) topic(seq int64) string {
	id, _ := task.SplitSeq(seq)
	src, _ := k.get(id)
	return src.Topic
}

func (w *work) newSource(id *identity) bool {
	unknown := func(seq int64) bool {
		src, _ := task.SplitSeq(seq)
		_, ok := w.intake.known.get(src)
		return !ok
	}
	// A waiting request may have come through another process's partition.
	if slices.ContainsFunc(id.queue.due, func(h waitingChange) bool { return h.change.Request != nil && unknown(h.change.Seq) }) {
		return true
	}
	if id.before != nil && unknown(id.before.Seq) {
		return true
	}
	// Evidence may take a task of this very batch to the wait for a report.
	return w.intake.evidence != nil && slices.ContainsFunc(id.changes, func(c task.Change) bool { return unknown(c.Seq) })
}

// foreign tells whether a report is about a delivery of another task: an earlier task of the same
// id, or this one before a replay. A report without a delivery counts as one about this task.
func (k *knownSources) foreign(rep *schemas.Report, t *task.Task) bool {
	if rep == nil || rep.Delivery == "" || t == nil {
		return false
	}
	id, offset := task.SplitSeq(t.Seq)
	src, ok := k.get(id)
	return !ok || rep.Delivery != src.DeliveryKey(offset, int(task.SendNumber(t.Replay, rep.Attempt)))
}

// Restart retires a source whose log has lost records, and begins another one for the partition at
// offset from. Stored tasks are delivered and events published. The new source has its own numbers,
// so a record at a reused offset makes another task. ErrFenced: the source has changed since the
// read: a scanner stored more or somebody restarted it already.
func (in Intake) Restart(ctx context.Context, src Source, from int64) (Source, error) {
	now, err := in.h.Time(ctx)
	if err != nil {
		return Source{}, err
	}
	next := src
	next.Next, next.Generation, next.Epoch, next.Proof = from, src.Generation+1, Epoch{Number: -1}, Proof{At: -1}
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE sources SET retired_at = ? WHERE src = ? AND next_offset = ? AND retired_at = 0", now.UnixMilli(), src.ID, src.Next)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n != 1 {
			return handle.ErrFenced
		}
		if err := insertSource(ctx, tx, &next); err != nil {
			return err
		}
		_, err = in.h.Audit(ctx, tx, 1)
		return err
	})
	return next, wrap.Err(err, "restarting %s/%d at offset %d", src.Topic, src.Partition, from)
}
