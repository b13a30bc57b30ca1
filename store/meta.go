package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/notyet/notyet/task"
)

// The table meta holds what the installation has one of: a number (value) or bytes (data) by name.

// installationID names the installation: 128 random bits, made once, by Migrate.
const installationID = "installation.id"

// kafkaCluster is the id of the Kafka cluster that the installation works on.
const kafkaCluster = "kafka.cluster"

// lanesKey is the key of the hash in lanes: 128 random bits, made once, by Migrate. It never leaves the database and the
// processes, other than the id, which many read.
const lanesKey = "lanes.key"

// ErrOtherKafka says that the database belongs to an installation on another Kafka cluster.
var ErrOtherKafka = errors.New("the database belongs to another Kafka cluster")

// Installation returns the id of the installation, 32 hexadecimal digits. It never changes.
func (s *Store) Installation(ctx context.Context) (string, error) {
	id, err := readMeta(ctx, s.db, installationID)
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
	id, err := readMeta(ctx, s.db, kafkaCluster)
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
	if _, err := s.keepMeta(ctx, lanesKey, random[16:]); err != nil {
		return fmt.Errorf("making the key of lanes: %w", err)
	}
	return nil
}

// LaneKey returns the key of the hash in the installation's lanes. It never changes.
func (s *Store) LaneKey(ctx context.Context) (task.LaneKey, error) { return s.laneKey(ctx, s.db) }

// laneKey reads the key once. q is the caller's transaction, if it has one: there may be no other connection.
func (s *Store) laneKey(ctx context.Context, q querier) (task.LaneKey, error) {
	if key := s.lanes.Load(); key != nil {
		return *key, nil
	}
	data, err := readMeta(ctx, q, lanesKey)
	var key task.LaneKey
	switch {
	case err != nil:
		return key, fmt.Errorf("reading the key of lanes: %w", err)
	case len(data) != len(key):
		return key, ErrNotMigrated
	}
	key = task.LaneKey(data)
	s.lanes.Store(&key)
	return key, nil
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
		if kept, err = readMeta(ctx, tx, name); err != nil || len(kept) > 0 {
			return err
		}
		kept = data
		res, err := tx.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ?", data, []byte(name))
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

// readMeta returns nothing for a name that has no data.
func readMeta(ctx context.Context, q querier, name string) ([]byte, error) {
	rows, err := fetch(ctx, q, func(r *sql.Rows, data *[]byte) error { return r.Scan(data) }, "SELECT data FROM meta WHERE name = ?", []byte(name))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}
