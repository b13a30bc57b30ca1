package intake

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// A request about a task being delivered waits in a table of its own until the outcome is known: it
// can neither be dropped nor take effect beside the delivery. The next transaction about the
// identity takes it from there.

type waitingChange struct {
	ident  []byte
	report bool
	size   int    // of data
	data   []byte // the change, encoded: only of what is to be stored
	change task.Change
}

func newWaitingChange(key [16]byte, c task.Change) (waitingChange, error) {
	data, err := encodeChange(c)
	return waitingChange{ident: key[:], report: c.Report != nil, size: len(data), data: data, change: c}, wrap.Err(err, "encoding a waiting request")
}

// encodedChange is a change as JSON, except for parts with arbitrary bytes: JSON would change a
// header's name that is not UTF-8.
type encodedChange struct {
	task.Change
	Body []byte // schemas.EncodeBody of the request
}

func encodeChange(c task.Change) ([]byte, error) {
	s := encodedChange{Change: c}
	if c.Request != nil {
		r := *c.Request
		s.Body = schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)
		r.Key, r.Value, r.Headers = nil, nil, nil
		s.Request = &r
	}
	return json.Marshal(s)
}

func decodeChange(data []byte) (task.Change, error) {
	var s encodedChange
	if err := json.Unmarshal(data, &s); err != nil || s.Request == nil {
		return s.Change, err
	}
	body, err := schemas.DecodeBody(s.Body)
	s.Request.Key, s.Request.Value, s.Request.Headers = body.Key, body.Value, body.Headers
	return s.Change, err
}

func scanWaiting(r *sql.Rows, h *waitingChange) error {
	var data []byte
	err := r.Scan(&h.ident, &h.report, &h.size, &data)
	if err == nil {
		if h.change, err = decodeChange(data); err != nil {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return err
}

// topic returns the target that the change is about.
func (h waitingChange) topic() string {
	switch c := h.change; {
	case c.Request != nil:
		return c.Request.Topic
	case c.Report != nil:
		return c.Report.Topic
	}
	return ""
}

func (h waitingChange) of(match func(topic string) bool) bool {
	topic := h.topic()
	return topic != "" && match(topic)
}

// errDamaged: a waiting request or a timer cannot be read. Only changes to it may fail for this.
var errDamaged = errors.New("what is stored for this id cannot be read")

type queueSize struct {
	reports, requests int
	bytes             int // of the requests
}

// requestQueue is an identity's waiting changes, as a batch works on them.
type requestQueue struct {
	queueSize
	due     []waitingChange // taken from the table, to be decided now
	added   []waitingChange // came with this batch and must wait
	decided []int64         // decided: out of the table
}

// A transaction takes at most this much of the waiting changes, because all writers of tasks wait
// for its locks. The first of each queue come first, so nothing is overtaken.
const (
	waitingPiece   = 400
	waitingReports = 1000 // of reports: small, and decided in a moment
	waitingBytes   = 8 << 20
)

// readWaiting fetches the waiting changes of this batch's identities that can be decided now, in
// the order of arrival: all of them if the task has ended or is pending again, the reports if the
// task waits. The rest is neither read nor written: new requests go behind it.
func (w *work) readWaiting(ctx context.Context, list []*identity) error {
	requests, reports := piece{rows: waitingPiece, bytes: waitingBytes}, piece{rows: waitingReports, bytes: waitingBytes}
	for part := range slices.Chunk(list, tables.MaxRows) {
		if err := countWaiting(ctx, w.tx, part); err != nil {
			return fmt.Errorf("looking for waiting requests: %w", err)
		}
		var free, reported []*identity
		for _, id := range part {
			id.now = id.before
			switch ph := w.phase(id); {
			case id.queue.reports+id.queue.requests == 0, ph == task.Unsure:
			case ph != task.InFlight && ph != task.Between, w.resolving && id.queue.reports == 0: // see answerable
				free = append(free, id)
			case ph == task.Between && id.queue.reports > 0:
				reported = append(reported, id)
			}
		}
		if err := w.takeWaiting(ctx, reported, " AND report = 1", &reports); err != nil {
			return err
		}
		if err := w.takeWaiting(ctx, free, "", &requests); err != nil {
			return err
		}
	}
	return nil
}

// countWaiting counts each identity's waiting changes. The whole table is mostly nearly empty, and
// read in a fraction of the time of a look-up for each identity.
func countWaiting(ctx context.Context, tx *sql.Tx, list []*identity) error {
	byKey, keys := keysOf(list)
	type count struct {
		ident    []byte
		report   bool
		n, bytes int
	}
	read := func(query string, args ...any) ([]count, error) {
		return tables.Fetch(ctx, tx, func(r *sql.Rows, c *count) error { return r.Scan(&c.ident, &c.report, &c.n, &c.bytes) }, query, args...)
	}
	var counts []count
	var err error
	few := len(list) / 4
	if few > 0 {
		counts, err = read("SELECT ident, report, 1, size FROM waiting LIMIT ?", few)
	}
	if err == nil && len(counts) == few {
		counts, err = read("SELECT ident, report, COUNT(*), SUM(size) FROM waiting WHERE ident IN ("+tables.Marks(len(keys))+") GROUP BY ident, report", keys...)
	}
	for _, c := range counts {
		id := byKey[[16]byte(c.ident)]
		switch {
		case id == nil:
		case c.report:
			id.queue.reports += c.n
		default:
			id.queue.requests, id.queue.bytes = id.queue.requests+c.n, id.queue.bytes+c.bytes
		}
	}
	return err
}

func keysOf(list []*identity) (map[[16]byte]*identity, []any) {
	byKey, keys := make(map[[16]byte]*identity, len(list)), make([]any, len(list))
	for i, id := range list {
		byKey[id.key], keys[i] = id, id.key[:]
	}
	return byKey, keys
}

type piece struct{ rows, bytes int }

func (p piece) empty() bool { return p.rows <= 0 || p.bytes <= 0 }

// takeWaiting reads the identities' first waiting changes: reports before requests, oldest first.
func (w *work) takeWaiting(ctx context.Context, list []*identity, which string, left *piece) error {
	if len(list) == 0 || left.empty() {
		return nil
	}
	byKey, keys := keysOf(list)
	type row struct {
		seq  int64
		size int
	}
	rows, err := tables.Fetch(ctx, w.tx, func(r *sql.Rows, v *row) error { return r.Scan(&v.seq, &v.size) },
		"SELECT seq, size FROM waiting WHERE ident IN ("+tables.Marks(len(keys))+")"+which+" ORDER BY report DESC, arrived LIMIT ?", append(keys, left.rows)...)
	if err != nil || len(rows) == 0 {
		return err
	}
	var seqs []int64
	for _, v := range rows {
		if left.empty() {
			break
		}
		seqs = append(seqs, v.seq)
		left.rows, left.bytes = left.rows-1, left.bytes-v.size
	}
	taken, err := tables.Fetch(ctx, w.tx, scanWaiting, "SELECT ident, report, size, request FROM waiting WHERE seq IN ("+tables.Marks(len(seqs))+") ORDER BY report DESC, arrived"+w.intake.h.Locking(handle.LockExclusive), tables.Args(seqs)...)
	if err != nil {
		return fmt.Errorf("reading %d waiting requests: %w", len(seqs), err)
	}
	for _, h := range taken {
		l := &byKey[[16]byte(h.ident)].queue
		l.due = append(l.due, h)
	}
	return nil
}

// add puts a change into the queue. False: there is no room.
func (l *requestQueue) add(h waitingChange) bool {
	if h.report {
		if l.reports >= schemas.MaxWaitingReports {
			return false
		}
		l.reports++
	} else {
		if l.requests >= schemas.MaxWaiting || l.bytes+h.size > schemas.MaxWaitingBytes {
			return false
		}
		l.requests, l.bytes = l.requests+1, l.bytes+h.size
	}
	l.added = append(l.added, h)
	return true
}

func (l *requestQueue) remove(h waitingChange) {
	l.decided = append(l.decided, h.change.Seq)
	if h.report {
		l.reports--
	} else {
		l.requests, l.bytes = l.requests-1, l.bytes-h.size
	}
}

// writeWaiting deletes decided changes from the table and adds new ones. It touches no others.
func (w *work) writeWaiting(ctx context.Context, list []*identity) error {
	var over []int64
	var rows []waitingChange
	for _, id := range list {
		over = append(over, id.queue.decided...)
		rows = append(rows, id.queue.added...)
	}
	slices.Sort(over)
	if err := tables.ExecIn(ctx, w.tx, "DELETE FROM waiting WHERE seq", over); err != nil {
		return fmt.Errorf("forgetting %d requests that waited: %w", len(over), err)
	}
	w.applied.Waiting = len(rows)
	return tables.Pieces(rows, func(h waitingChange) int { return h.size }, func(part []waitingChange) error {
		a := make([]any, 0, 4*len(part))
		for _, h := range part {
			a = append(a, h.change.Seq, h.ident, h.report, h.data)
		}
		_, err := w.tx.ExecContext(ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES "+strings.Repeat(",(?,?,?,?)", len(part))[1:], a...)
		return wrap.Err(err, "storing %d waiting requests", len(part))
	})
}

// Resolvable looks at up to look identities with waiting requests behind after, and returns those
// that can be decided now, for Batch.Resolve. A report can be decided once its task is not in
// flight any more, a cancel or a fire once the task's slot is sure, a stop also once the task
// waits, anything else once the task has ended. The next look goes on at next; the zero identity is
// the beginning. So all have their turn, however many cannot be decided.
func (in Intake) Resolvable(ctx context.Context, after [16]byte, look int) (ready [][16]byte, next [16]byte, err error) {
	return in.resolvableWhere(ctx, "", after, look)
}

// LastArrived returns the arrival of the newest waiting request, for Undecided.
func (in Intake) LastArrived(ctx context.Context) (last int64, err error) {
	err = in.h.Reads().QueryRowContext(ctx, "SELECT COALESCE(MAX(arrived), 0) FROM waiting").Scan(&last)
	return last, wrap.Err(err, "looking for the newest waiting request")
}

// manyDecidable identities are not counted one by one.
const manyDecidable = 5000

// Undecided counts the identities whose requests can be decided now, of those that arrived until
// last. Where there are many, it counts all requests instead. Requests that wait for the end of a
// delivery do not count: some of them become decidable all the time.
func (in Intake) Undecided(ctx context.Context, last int64) (n int, err error) {
	for after := ([16]byte{}); ; {
		ready, next, err := in.resolvableWhere(ctx, fmt.Sprint(" AND arrived <= ", last), after, 1000)
		if n += len(ready); err == nil && n >= manyDecidable {
			err = in.h.Reads().QueryRowContext(ctx, "SELECT COUNT(*) FROM waiting WHERE arrived <= ?", last).Scan(&n)
			next = [16]byte{}
		}
		if err != nil || next == [16]byte{} {
			return n, wrap.Err(err, "counting the requests that wait")
		}
		after = next
	}
}

// WaitingFor returns a target among those that match for which a change waits; "": there is none.
// Nobody can decide one that is unreadable, so it keeps no target.
func (in Moves) WaitingFor(ctx context.Context, match func(topic string) bool) (string, error) {
	type row struct {
		seq   int64
		topic string
	}
	scan := func(r *sql.Rows, v *row) error {
		var data []byte
		err := r.Scan(&v.seq, &data)
		if c, damage := decodeChange(data); damage == nil {
			v.topic = waitingChange{change: c}.topic()
		}
		return err
	}
	for after := int64(-1); ; {
		rows, err := tables.Fetch(ctx, in.h.Reads(), scan, "SELECT seq, request FROM waiting WHERE seq > ? ORDER BY seq LIMIT 100", after)
		if err != nil || len(rows) == 0 {
			return "", wrap.Err(err, "reading for which targets changes wait")
		}
		for _, v := range rows {
			if after = v.seq; v.topic != "" && match(v.topic) {
				return v.topic, nil
			}
		}
	}
}

func (in Intake) resolvableWhere(ctx context.Context, which string, after [16]byte, look int) (ready [][16]byte, next [16]byte, err error) {
	type row struct {
		key   [16]byte
		ready bool
	}
	seen, err := tables.Fetch(ctx, in.h.Reads(), func(r *sql.Rows, v *row) error {
		var key []byte
		err := r.Scan(&key, &v.ready)
		copy(v.key[:], key)
		return err
	}, in.resolvable(which), after[:], look)
	if err != nil {
		return nil, after, fmt.Errorf("looking for requests whose wait is over: %w", err)
	}
	for _, v := range seen {
		if v.ready {
			ready = append(ready, v.key)
		}
	}
	if len(seen) == look {
		next = seen[look-1].key
	}
	return ready, next, nil
}

// again is in the forgotten requests among those that wait: task.Change.Again.
const again = `"Again":true`

// CancelledAgain returns which of the tasks, claimed and not sent, have a cancel or a stop that
// waits, and that the database had forgotten: their claim may have been given back before it came.
func (in Intake) CancelledAgain(ctx context.Context, seqs []int64) ([]int64, error) {
	out, err := tables.FetchIn(ctx, in.h.DB, func(r *sql.Rows, seq *int64) error { return r.Scan(seq) },
		fmt.Sprintf(`SELECT DISTINCT t.seq FROM tasks t JOIN waiting x ON x.ident = t.ident WHERE x.report = 0 AND x.size < 8192 AND INSTR(x.request, '%s') > 0
 AND INSTR(x.request, '"Op":%d,') + INSTR(x.request, '"Op":%d,') > 0 AND t.seq`, again, schemas.OpCancel, schemas.OpStop), slices.Sorted(slices.Values(seqs)), "")
	return out, wrap.Err(err, "looking for cancels of %d tasks in doubt", len(seqs))
}

// answerable tells whether the first waiting request for w.ident can be decided before the task
// ends. A cancel or a fire came while the slot was unsure, and is too late if the task was claimed
// meanwhile, unless it is a forgotten one. A stop takes effect once the task waits, as in
// task.Decide. Requests longer than any client has reason to write wait until the task has ended.
var answerable = fmt.Sprintf(`(SELECT x.size < 8192 AND (INSTR(x.request, '"Op":%d,') + INSTR(x.request, '"Op":%d,') > 0
 AND (t.pos > s.claimed OR t.state > 0 OR INSTR(x.request, '`+again+`') = 0) OR t.pos > s.claimed AND (t.state = %d OR t.idle = t.pos) AND INSTR(x.request, '"Op":%d,') > 0) FROM waiting x WHERE x.ident = w.ident AND x.report = 0 ORDER BY x.arrived LIMIT 1)`,
	schemas.OpCancel, schemas.OpFire, task.StateReport, schemas.OpStop)

// resolvable reads one index entry for each identity, and one request where a task in flight has no
// waiting report: a thousand may wait for each, for hours, and every scanner looks again and again.
func (in Intake) resolvable(which string) string {
	return "SELECT w.ident, COALESCE(t.seq IS NULL OR t.slot < 0 OR t.pos <= s.done OR (t.pos > s.claimed AND (w.report = 1 OR t.state = 0) AND NOT " + in.h.Unsure("s") + ")" +
		" OR (w.report = 0 AND NOT " + in.h.Unsure("s") + " AND " + answerable + "), 0)" +
		" FROM (SELECT ident, MAX(report) AS report FROM waiting WHERE ident > ?" + which + " GROUP BY ident ORDER BY ident LIMIT ?) w" +
		" LEFT JOIN tasks t ON t.ident = w.ident LEFT JOIN slots s ON s.slot = t.slot ORDER BY w.ident"
}
