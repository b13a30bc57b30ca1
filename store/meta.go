package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

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
