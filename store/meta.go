package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// The table meta holds what the installation has one of: a number (value) or bytes (data) by name.

// installationID names the installation: 128 random bits, made once, by Migrate.
const installationID = "installation.id"

// kafkaCluster is the id of the Kafka cluster that the installation works on.
const kafkaCluster = "kafka.cluster"

// ErrOtherKafka says that the database belongs to an installation on another Kafka cluster.
var ErrOtherKafka = errors.New("the database belongs to another Kafka cluster")

// Installation returns the id of the installation, 32 hexadecimal digits. It never changes.
func (s *Store) Installation(ctx context.Context) (string, error) {
	id, err := tables.ReadMeta(ctx, s.db, installationID)
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the installation's id: %w", err)
	case len(id) == 0:
		return "", ErrNotMigrated
	}
	return string(id), nil
}

// KafkaCluster returns the id of the Kafka cluster that the installation works on; "" where none is noted.
func (s *Store) KafkaCluster(ctx context.Context) (string, error) {
	id, err := tables.ReadMeta(ctx, s.db, kafkaCluster)
	if err != nil {
		return "", fmt.Errorf("reading the Kafka cluster: %w", err)
	}
	return string(id), nil
}

// makeInstallation makes the installation's id, and the key of its lanes, unless there are some.
func (s *Store) makeInstallation(ctx context.Context) error {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	if _, err := s.keepMeta(ctx, installationID, hex.AppendEncode(nil, random[:16])); err != nil {
		return fmt.Errorf("making the installation's id: %w", err)
	}
	if _, err := s.keepMeta(ctx, handle.LanesKey, random[16:]); err != nil {
		return fmt.Errorf("making the key of lanes: %w", err)
	}
	return nil
}

// Secret returns 128 random bits that all processes of this installation have in common and nobody else knows. The first
// process that asks makes them.
func (s *Store) Secret(ctx context.Context, name string) (secret [16]byte, err error) {
	_, _ = rand.Read(secret[:]) // never fails
	kept, err := s.keepMeta(ctx, "secret."+name, secret[:])
	if err != nil {
		return secret, fmt.Errorf("reading the secret %s: %w", name, err)
	}
	return [16]byte(kept), nil
}

// OnKafka notes that the installation works on the Kafka cluster with this id. It fails with ErrOtherKafka if another
// one is noted. moved replaces what is noted.
func (s *Store) OnKafka(ctx context.Context, cluster string, moved bool) error {
	noted, err := s.keepMeta(ctx, kafkaCluster, []byte(cluster))
	if err == nil && string(noted) != cluster && moved {
		_, err = s.exec(ctx, "UPDATE meta SET data = ? WHERE name = ?", []byte(cluster), []byte(kafkaCluster))
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

// keepMeta stores data under a name that has none, and returns what the name has then.
func (s *Store) keepMeta(ctx context.Context, name string, data []byte) (kept []byte, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if kept, err = tables.ReadMeta(ctx, tx, name); err != nil || len(kept) > 0 {
			return err
		}
		kept = data
		res, err := tx.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ? AND COALESCE(LENGTH(data), 0) = 0", data, []byte(name)) // not what another process has stored meanwhile
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(name), data) // a second one is a duplicate: tried again
		return err
	})
	return kept, err
}

// electionKind names the kind of the election by which dispatchers share the slots, and when a leader of that kind last asked.
const electionKind = "election.kind"

// ErrOtherElection says that the dispatchers at work elect in another way.
var ErrOtherElection = errors.New("dispatchers at work elect in another way")

// elected is how dispatchers elect, as a leader has noted it; kind is "" where nobody has.
type elected struct {
	kind string
	at   int64 // Unix ms, by the database's clock
}

// within tells whether a leader has noted that within so many ms, by a clock that may have been set back.
func (e elected) within(ms, now int64) bool { return e.kind != "" && now-e.at < ms && e.at-now < ms }

func readElected(ctx context.Context, q dialect.Querier, lock string) (elected, error) {
	rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, e *elected) error { return r.Scan(&e.kind, &e.at) },
		"SELECT data, value FROM meta WHERE name = ?"+lock, []byte(electionKind))
	if err != nil || len(rows) == 0 {
		return elected{}, err
	}
	return rows[0], nil
}

// ElectBy notes that dispatchers elect in this way. Each leader asks again and again. Two elections at once would take the slots from each
// other without end. So ElectBy fails with ErrOtherElection while a leader of another way has asked within ServiceLease, and while a
// dispatcher of a version before is alive, which elects through ZooKeeper and notes nothing.
func (s *Store) ElectBy(ctx context.Context, kind string) error {
	clock, err := s.Time(ctx)
	if err != nil {
		return err
	}
	now := clock.UnixMilli()
	if noted, err := readElected(ctx, s.db, ""); err != nil || noted.kind == kind && noted.within(ServiceLease/3, now) {
		return err
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		noted, err := readElected(ctx, tx, s.locking(lockExclusive))
		if err != nil {
			return err
		}
		if noted.kind != kind {
			if err := s.noOtherElection(ctx, tx, kind, noted, now); err != nil {
				return err
			}
		}
		change := "UPDATE meta SET value = ?, data = ? WHERE name = ?"
		if noted.kind == "" {
			change = "INSERT INTO meta (value, data, name) VALUES (?, ?, ?)" // a second one is a duplicate: tried again
		}
		_, err = tx.ExecContext(ctx, change, now, []byte(kind), []byte(electionKind))
		return err
	})
}

func (s *Store) noOtherElection(ctx context.Context, tx *sql.Tx, kind string, noted elected, now int64) error {
	other, who := noted.kind, "dispatchers at work"
	if !noted.within(ServiceLease, now) {
		if kind == "zookeeper" {
			return nil
		}
		older, err := tables.Fetch(ctx, tx, func(r *sql.Rows, name *string) error { return r.Scan(name) },
			"SELECT owner FROM services WHERE LENGTH(owner) > 0 AND spreads = 0 AND seen > ? ORDER BY owner LIMIT 10", now-ServiceLease)
		if err != nil || len(older) == 0 {
			return err
		}
		other, who = "zookeeper", strings.Join(older, ", ")
	}
	return fmt.Errorf("%w: election.kind is %s here, and %s for %s: set the same one everywhere, and stop those of the other kind (one that was killed counts for %d s)",
		ErrOtherElection, kind, other, who, ServiceLease/1000)
}

// ElectedBy returns how dispatchers elect, as it is noted.
func (s *Store) ElectedBy(ctx context.Context) (string, error) {
	data, err := tables.ReadMeta(ctx, s.db, electionKind)
	return string(data), err
}
