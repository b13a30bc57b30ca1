package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// The table meta has the installation's single values: a number (value) or bytes (data) by name.

const kafkaCluster = "kafka.cluster"

// ErrOtherKafka: the database belongs to an installation on another Kafka cluster.
var ErrOtherKafka = errors.New("the database belongs to another Kafka cluster")

// KafkaCluster returns the id of the installation's Kafka cluster; "" where none is noted.
func (a Admin) KafkaCluster(ctx context.Context) (string, error) {
	id, err := tables.ReadMeta(ctx, a.h.DB, kafkaCluster)
	return string(id), wrap.Err(err, "reading the Kafka cluster")
}

// Secret returns 128 random bits, common to this installation's processes and unknown to others.
// The first call makes them.
func (a Admin) Secret(ctx context.Context, name string) (secret [16]byte, err error) {
	_, _ = rand.Read(secret[:]) // never fails
	kept, err := a.h.KeepMeta(ctx, "secret."+name, secret[:])
	if err != nil {
		return secret, fmt.Errorf("reading the secret %s: %w", name, err)
	}
	return [16]byte(kept), nil
}

// OnKafka notes the id of the installation's Kafka cluster. It fails with ErrOtherKafka if another
// one is noted. moved replaces the id.
func (a Admin) OnKafka(ctx context.Context, cluster string, moved bool) error {
	noted, err := a.h.KeepMeta(ctx, kafkaCluster, []byte(cluster))
	if err == nil && string(noted) != cluster && moved {
		_, err = a.h.Exec(ctx, "UPDATE meta SET data = ? WHERE name = ?", []byte(cluster), []byte(kafkaCluster))
		noted = []byte(cluster)
	}
	switch {
	case err != nil:
		return fmt.Errorf("noting the Kafka cluster: %w", err)
	case string(noted) != cluster:
		return fmt.Errorf("%w: %s, and kafka.brokers lead to %s", ErrOtherKafka, noted, cluster)
	}
	return nil
}

// common is a common setting of processes at work. Its row in meta has the value, and when noted.
type common struct {
	name   string // of the row
	what   string // for operators
	other  error  // another value is in use
	users  string // who is bound to it
	before string // what processes of the version before do, which note nothing
	older  string // SQL for those of them that are bound to it
	stays  bool   // once there are several databases
}

// ErrOtherElection: the dispatchers at work elect in another way. ErrOtherIndex: the services at
// work have another index. ErrOtherTarget: scanners at work have another target for a topic.
var (
	ErrOtherElection = errors.New("dispatchers at work elect in another way")
	ErrOtherIndex    = errors.New("services at work have another index")
	ErrOtherTarget   = errors.New("scanners at work have another target for an intake topic")
)

var (
	electionKind = common{"election.kind", "election.kind", ErrOtherElection, "dispatchers", "zookeeper", "LENGTH(owner) > 0", false}
	indexKind    = common{"index.kind", "index.kind", ErrOtherIndex, "services", "redis", "LENGTH(id) > 0", false}
)

// noted is a setting's value; "": nobody has noted one.
type noted struct {
	value string
	at    int64 // Unix ms, by the database's clock
}

// within tells whether it was noted within so many ms, by a clock that may have been set back.
func (n noted) within(ms, now int64) bool { return n.value != "" && now-n.at < ms && n.at-now < ms }

func (c common) read(ctx context.Context, q dialect.Querier, lock string) (noted, error) {
	rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, n *noted) error { return r.Scan(&n.value, &n.at) },
		"SELECT data, value FROM meta WHERE name = ?"+lock, []byte(c.name))
	if err != nil || len(rows) == 0 {
		return noted{}, err
	}
	return rows[0], nil
}

// ElectBy notes how dispatchers elect. Each leader asks again and again. Two elections at once
// would take the slots from each other without end. So ElectBy fails with ErrOtherElection while
// another way's leader has asked within handle.ServiceLease, and while an older dispatcher is
// alive, which elects through ZooKeeper and notes nothing.
func (a Admin) ElectBy(ctx context.Context, kind string) error {
	return a.share(ctx, electionKind, kind)
}

// IndexBy notes the services' kind of index. Each asks before its start, and again and again. With
// two kinds nobody would hear who wakes whom, and tasks would be late. So IndexBy fails with
// ErrOtherIndex, as ElectBy does.
func (a Admin) IndexBy(ctx context.Context, kind string) error { return a.share(ctx, indexKind, kind) }

// intakeTargets begins the names of rows with an intake topic's own target; noTarget means none.
const (
	intakeTargets = "intake.target."
	noTarget      = "none"
	readsIntakes  = "CAST(kind AS CHAR) <> 'dispatcher'" // SQLite has bytes there, which differ from any text
)

// IntakeFor notes the scanners' target for an intake topic, "" for none. Each asks before its
// start, and again and again. With two targets, chance would choose. So IntakeFor fails with
// ErrOtherTarget, as ElectBy does. Among several databases a topic keeps its target for good: they
// have the topic up to different offsets, and records between would have two homes, or none.
func (a Admin) IntakeFor(ctx context.Context, topic, target string) error {
	key := sha256.Sum256([]byte(topic)) // a topic's name may be longer than a row's
	return a.share(ctx, common{intakeTargets + hex.EncodeToString(key[:16]), "the target of " + topic + " in intake.topics", ErrOtherTarget, "scanners", noTarget, readsIntakes, true}, cmp.Or(target, noTarget))
}

func (a Admin) share(ctx context.Context, c common, value string) error {
	clock, err := a.h.Time(ctx)
	if err != nil {
		return err
	}
	now := clock.UnixMilli()
	if n, err := c.read(ctx, a.h.DB, ""); err != nil || n.value == value && n.within(handle.ServiceLease/3, now) {
		return err
	}
	return a.h.Transact(ctx, func(tx *sql.Tx) error {
		n, err := c.read(ctx, tx, a.h.Locking(handle.LockExclusive))
		if err != nil {
			return err
		}
		if n.value != value {
			if err := c.free(ctx, tx, value, n, now); err != nil {
				return err
			}
		}
		change := "UPDATE meta SET value = ?, data = ? WHERE name = ?"
		if n.value == "" {
			change = "INSERT INTO meta (value, data, name) VALUES (?, ?, ?)" // a second one is a duplicate: tried again
		}
		_, err = tx.ExecContext(ctx, change, now, []byte(value), []byte(c.name))
		return err
	})
}

// free fails while another value is in use.
func (c common) free(ctx context.Context, tx *sql.Tx, value string, n noted, now int64) error {
	other, who := n.value, c.users+" at work"
	if c.stays && n.value != "" {
		err := handle.CheckAlone(ctx, tx)
		if err != nil && !errors.Is(err, handle.ErrOneOfSeveral) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %s is %s here, and was %s: it cannot change, since the installation has several databases; name another topic", c.other, c.what, value, n.value)
		}
	}
	if !n.within(handle.ServiceLease, now) {
		if value == c.before {
			return nil
		}
		older, err := tables.Fetch(ctx, tx, func(r *sql.Rows, name *string) error { return r.Scan(name) },
			"SELECT CASE WHEN LENGTH(owner) > 0 THEN owner ELSE id END FROM services WHERE "+c.older+" AND spreads = 0 AND seen > ? ORDER BY owner, id LIMIT 10", now-handle.ServiceLease)
		if err != nil || len(older) == 0 {
			return err
		}
		other, who = c.before, strings.Join(older, ", ")
	}
	return fmt.Errorf("%w: %s is %s here, and %s for %s: set the same one everywhere, and stop those of the other kind (one that was killed counts for %d s)",
		c.other, c.what, value, other, who, handle.ServiceLease/1000)
}

// ElectedBy returns the noted way in which dispatchers elect.
func (a Admin) ElectedBy(ctx context.Context) (string, error) {
	n, err := electionKind.read(ctx, a.h.DB, "")
	return n.value, err
}

// IndexedBy returns the noted kind of the index.
func (a Admin) IndexedBy(ctx context.Context) (string, error) {
	n, err := indexKind.read(ctx, a.h.DB, "")
	return n.value, err
}
