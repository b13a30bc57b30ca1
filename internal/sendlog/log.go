package sendlog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/gofrs/flock"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/wrap"
)

// Intent announces an attempt to deliver a task.
type Intent struct {
	// Seq names the task and its version.
	Seq int64
	// Attempt is counted over all replays: task.SendNumber.
	Attempt int32
	Slot    int32
	// Epoch of the claim behind the attempt.
	Epoch int64
	// Due is in Unix ms.
	Due       int64
	Topic, ID string
	// BodyHash covers the stored task: key, value, headers and settings.
	BodyHash uint64
}

// Outcome is the result of an attempt. An intent without an outcome is in doubt.
type Outcome struct {
	Seq     int64
	Attempt int32 // as of the Intent
	// Acked says that Kafka acknowledged the record, at Partition and Offset.
	Acked bool
	// Refused says that Kafka refused the record for good, see Error. Neither: to be sent again.
	Refused   bool
	Partition int32
	Offset    int64
	// At is when, in Unix ms.
	At int64
	// Error of an attempt without an acknowledgement.
	Error string
}

// Key names one attempt to deliver one version of a task, within one log.
type Key struct {
	Seq     int64
	Attempt int32 // as of the Intent
}

// Proof names an attempt acknowledged by Kafka.
type Proof struct {
	Subject
	Attempt int32 // as of the Intent
}

// Config of a Log. The zero Config works.
type Config struct {
	// Retention is how long batches are kept; older ones are pruned about once an hour while
	// batches are appended, and on Open. It should be longer than the time until anyone restores a
	// database or reconciles. Default 72 h.
	Retention time.Duration
	// MaxBytes is about how much space the batches may take. Beyond it the oldest go before their
	// time; see bound.go. Default 64 GiB: 72 h of some 3000 tasks a second.
	MaxBytes int64
	// FullAgainEvery is how often a full log looks for room. Default 10 s.
	FullAgainEvery time.Duration
	// Existing refuses to make a log where there is none, for readers. Default false.
	Existing bool
	// Installation is the id of the log's installation. Another installation's log is refused: its
	// numbers mean other tasks here. Default none: any log is taken.
	Installation string
	// Now tells the time. A dispatcher sets the database's, as of tasks' places. Default time.Now.
	Now func() time.Time

	// Patience is how long the disk may leave an append, or Close, without an answer. Default 20 s.
	Patience time.Duration

	// Disk is called with each write and runs it, or fails; then all its callers fail. Default:
	// just runs it. For tests with something in between.
	Disk func(write func() error) error

	fs vfs.FS // of pebble, for tests
}

func (c Config) withDefaults() (Config, error) {
	if c.Retention < 0 {
		return c, fmt.Errorf("send log retention %v must not be negative", c.Retention)
	}
	if c.MaxBytes < 0 {
		return c, fmt.Errorf("send log bound of %d bytes must not be negative", c.MaxBytes)
	}
	c.Retention = cmp.Or(c.Retention, defaults.SendLogRetention)
	c.MaxBytes = cmp.Or(c.MaxBytes, defaults.SendLogBytes)
	c.FullAgainEvery = cmp.Or(c.FullAgainEvery, 10*time.Second)
	c.Patience = cmp.Or(c.Patience, 20*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Disk == nil {
		c.Disk = func(write func() error) error { return write() }
	}
	if c.fs == nil {
		c.fs = vfs.Default
	}
	return c, nil
}

// ErrLocked says that another process, or another Log of this one, has the directory open.
var ErrLocked = errors.New("the send log directory is in use by another process")

// ErrNoLog says that there is no send log in the directory, and Config.Existing asks for one.
var ErrNoLog = errors.New("there is no send log")

// ErrOtherInstallation says that another installation has written the log in the directory.
var ErrOtherInstallation = errors.New("the send log is another installation's")

// ErrClosed is what a Log returns after Close.
var ErrClosed = errors.New("the send log is closed")

// Log is safe for concurrent use.
type Log struct {
	cfg   Config
	dir   string
	log   *zap.Logger
	lock  *flock.Flock
	db    *pebble.DB
	mark  *watermark
	room  room
	fault *fault

	pool      sync.Pool // of requests; not shared among logs, whose channels may be of another test's time
	requests  chan *request
	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	committer sync.WaitGroup

	// reading is held by readers and, for good, by Close: no snapshot may outlive pebble.
	reading sync.RWMutex
	closed  bool

	// written is the number of the last batch on disk, moved by the committer.
	written atomic.Uint64

	// Of the committer alone, once it runs.
	lastAt    int64 // Unix ms of the last batch
	nextPrune time.Time
}

// Open opens the log in dir and creates both as needed. A directory in use is an error (ErrLocked).
// Missing or damaged batches are none: Replay and Acked report them.
func Open(dir string, cfg Config, log *zap.Logger) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("opening the send log: %w", err)
	}
	l := &Log{
		cfg: cfg, dir: dir, log: log, fault: newFault(log),
		requests: make(chan *request),
		closing:  make(chan struct{}),
	}
	if err := l.open(dir); err != nil {
		return nil, fmt.Errorf("opening the send log in %s: %w", dir, errors.Join(err, l.release()))
	}
	l.committer.Go(l.run)
	return l, nil
}

// lockPatience is how long Open waits for the directory's lock: Examine has it for a moment.
const lockPatience = 500 * time.Millisecond

func (l *Log) open(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "db")); l.cfg.Existing && err != nil {
		return fmt.Errorf("%w: %w", ErrNoLog, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	bound, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	switch _, err := lock.TryLockContext(bound, lockPatience/50); {
	case errors.Is(err, context.DeadlineExceeded):
		return ErrLocked
	case err != nil:
		return fmt.Errorf("locking: %w", err)
	}
	l.lock = lock

	if err := l.cfg.claim(dir); err != nil {
		return err
	}
	var err error
	if l.mark, err = openWatermark(filepath.Join(dir, "watermark")); err != nil {
		return err
	}
	if err = l.openDB(filepath.Join(dir, "db")); err != nil {
		return err
	}
	return l.position()
}

// openDB runs pebble's Open on a goroutine that a fatal error can leave behind.
func (l *Log) openDB(dir string) error {
	opened := make(chan error, 1)
	go func() {
		db, err := pebble.Open(dir, l.options())
		if err == nil {
			l.db = db
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case <-l.fault.broken:
		return l.fault.err()
	}
}

func (l *Log) options() *pebble.Options {
	return &pebble.Options{
		FS:                 l.cfg.fs,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLog{l.fault},
		EventListener:      l.fault.events(),
		// Nothing is read twice. Keys only grow, so compaction moves tables without rewriting, and
		// a bigger memtable only saves files. There are two of them.
		MemTableSize: 8 << 20,
		CacheSize:    8 << 20,
	}
}

// position finds where to go on, behind the watermark: lost numbers are not given out again.
func (l *Log) position() error {
	last, at, err := l.last()
	if err != nil {
		return fmt.Errorf("finding the last batch: %w", err)
	}
	l.lastAt = at
	l.written.Store(max(last, l.mark.value))
	if last < l.mark.value {
		l.log.Error("send log lost its last batches",
			zap.Uint64("last", last), zap.Uint64("written", l.mark.value))
	}
	return nil
}

// last returns number and time of the last batch. Without any: the number before the first kept.
func (l *Log) last() (number uint64, at int64, err error) {
	it, err := l.db.NewIter(batchKeys())
	if err != nil {
		return 0, 0, err
	}
	if it.Last() {
		number = keyNumber(it.Key())
		if h, ok := decodeHeader(it.Value()); ok {
			at = h.at
		}
	}
	if err := it.Close(); err != nil {
		return 0, 0, err
	}
	if number == 0 {
		first, err := readFirst(l.db)
		return first - 1, 0, err
	}
	return number, at, nil
}

// Close waits for appends and readers under way, then closes the files. A disk without an answer
// within Patience breaks the log, and its files stay open. Later appends fail with ErrClosed.
// Closing again does nothing.
func (l *Log) Close() error {
	l.closeOnce.Do(func() {
		close(l.closing)
		err := l.patiently(func() error { l.committer.Wait(); return l.fault.err() })
		if err == nil { // otherwise pebble is in no state to be closed, and what it holds ends with the process
			err = l.patiently(l.closeFiles)
		}
		if err != nil {
			l.closeErr = fmt.Errorf("closing the send log: %w", err)
		}
	})
	return l.closeErr
}

// patiently waits for a step of closing while the disk may be silent. Then the log breaks.
func (l *Log) patiently(step func() error) error {
	done := make(chan error, 1)
	go func() { done <- step() }()
	select {
	case err := <-done:
		return err
	case <-l.fault.broken:
	case <-time.After(l.cfg.Patience):
		l.fault.breakWith(errSilent(l.cfg.Patience))
	}
	return l.fault.err()
}

func (l *Log) closeFiles() error {
	l.reading.Lock()
	defer l.reading.Unlock()
	l.closed = true
	return l.release()
}

// release closes what is open, the lock last.
func (l *Log) release() error {
	var errs []error
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	if l.mark != nil {
		errs = append(errs, l.mark.close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Unlock())
	}
	return errors.Join(errs...)
}

// AppendIntents writes the intents as one batch. After nil they are on disk. After an error they
// may be: the caller must not send, or must send as if they were not. The error is ErrBroken,
// ErrClosed, ErrFull or the context's.
func (l *Log) AppendIntents(ctx context.Context, intents []Intent) error {
	if len(intents) == 0 {
		return nil
	}
	if err := l.Full(); err != nil {
		return err
	}
	r := l.newRequest()
	r.value = appendIntents(r.value, intents)
	return wrap.Err(l.append(ctx, r), "appending %d intents to the send log", len(intents))
}

// AppendOutcomes writes the outcomes as one batch, as AppendIntents does.
func (l *Log) AppendOutcomes(ctx context.Context, outcomes []Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	r := l.newRequest()
	r.value = appendOutcomes(r.value, outcomes)
	return wrap.Err(l.append(ctx, r), "appending %d outcomes to the send log", len(outcomes))
}

// firstKey holds the number of the first kept batch. The batches themselves have 'b' and the
// big-endian number, for the order by number.
var firstKey = []byte{'f'}

func batchKey(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{'b'}, number)
}

func keyNumber(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }

func batchKeys() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{'b'}, UpperBound: []byte{'c'}}
}
