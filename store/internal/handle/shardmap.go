package handle

import (
	"context"
	"database/sql"
	"errors"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
)

// ErrMap: a rule about the databases of targets has come or changed. Nothing was changed.
var ErrMap = errors.New("the rules about the databases of targets have changed")

// ShardMap is the name in table meta of the version of these rules. A batch that leaves out records
// of other databases holds a shared lock on the row, and a change of the rules an exclusive one.
const ShardMap = "shard.map"

// ShardNumber is the name in table meta of a database's number among several.
const ShardNumber = "shard.number"

// ErrOneOfSeveral: a program that knows one database would take the records of the others' targets.
var ErrOneOfSeveral = errors.New("the database is one of several of its installation, and this program knows it alone")

// CheckAlone returns ErrOneOfSeveral if the database is one of several. The others may have come
// while the program stood still.
func CheckAlone(ctx context.Context, tx *sql.Tx) error {
	number, err := tables.ReadMeta(ctx, tx, ShardNumber)
	if err == nil && len(number) > 0 {
		err = ErrOneOfSeveral
	}
	return err
}

// MapVersion reads the version, above 0. The caller's transaction may lock the row.
func (h *Handle) MapVersion(ctx context.Context, tx *sql.Tx, lock string) (int64, error) {
	version, there, err := tables.One[int64](ctx, tx, "SELECT value FROM meta WHERE name = ?"+h.Locking(lock), []byte(ShardMap))
	if err == nil && !there {
		err = EnsureMeta(ctx, tx, []byte(ShardMap), 0)
	}
	return version + 1, wrap.Err(err, "reading the version of the rules about the databases of targets")
}

// CheckMap returns ErrMap if the rules have another version, and holds this one until the end of
// the transaction. 0: there is one database.
func (h *Handle) CheckMap(ctx context.Context, tx *sql.Tx, version int64) error {
	if version == 0 {
		return nil
	}
	now, err := h.MapVersion(ctx, tx, LockShared)
	if err == nil && now != version {
		err = ErrMap
	}
	return err
}
