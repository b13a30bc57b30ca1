package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// The names in table meta of a database's number in its installation, and of the id of the
// installation's first database.
const (
	shardNumber = "shard.number"
	shardHome   = "shard.home"
)

// ErrOtherShard: the database is another one of its installation, or of another installation.
var ErrOtherShard = errors.New("the database is another one than mysql.shards says")

// Shard returns the database's number in its installation, and the id of the installation's first
// database. Before JoinShard the number is -1.
func (a Admin) Shard(ctx context.Context) (number int, home string, err error) {
	number, home, err = shardIn(ctx, a.h.DB)
	return number, home, wrap.Err(err, "reading which database of its installation this is")
}

func shardIn(ctx context.Context, q dialect.Querier) (number int, home string, err error) {
	text, err := tables.ReadMeta(ctx, q, shardNumber)
	if err != nil || len(text) == 0 {
		return -1, "", err
	}
	if number, err = strconv.Atoi(string(text)); err != nil {
		return -1, "", fmt.Errorf("%s is no number: %w", shardNumber, err)
	}
	of, err := tables.ReadMeta(ctx, q, shardHome)
	return number, string(of), err
}

// JoinShard notes for good that the database has this number in the installation whose first
// database has the id home. It may be called again. It fails with ErrOtherShard where another
// number or home is noted, and where the database has worked as an installation of its own.
func (a Admin) JoinShard(ctx context.Context, number int, home string) error {
	if number < 0 || home == "" {
		return fmt.Errorf("joining database %d to installation %q: both are needed", number, home)
	}
	return a.h.Transact(ctx, func(tx *sql.Tx) error {
		was, of, err := shardIn(ctx, tx)
		switch {
		case err != nil:
			return err
		case was == number && of == home:
			return nil
		case was >= 0:
			return fmt.Errorf("%w: it is number %d of the installation whose first database is %s", ErrOtherShard, was, of)
		}
		own, err := tables.ReadMeta(ctx, tx, handle.InstallationID)
		if err != nil {
			return err
		}
		used := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM sources) OR EXISTS (SELECT 1 FROM tasks)").Scan(&used); err != nil {
			return err
		}
		if used && string(own) != home {
			return fmt.Errorf("%w: it has requests of an installation of its own, %s: name an empty one", ErrOtherShard, own)
		}
		for name, value := range map[string]string{shardNumber: strconv.Itoa(number), shardHome: home} {
			if _, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(name), []byte(value)); err != nil { // a second one is a duplicate: tried again
				return err
			}
		}
		return nil
	})
}
