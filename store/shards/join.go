package shards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ErrOneOfSeveral: the caller knows one database alone, of several.
var ErrOneOfSeveral = handle.ErrOneOfSeveral

// ErrOtherShard: the database has another number, or is part of another installation.
var ErrOtherShard = errors.New("the database is another one than mysql.shards says")

// Number returns the database's number in its installation, and the id of the installation's first
// database. Before Join the number is -1. With ErrRemoved it returns what they were.
func (s Shards) Number(ctx context.Context) (number int, home string, err error) {
	number, home, err = numberIn(ctx, s.h.DB)
	return number, home, wrap.Err(err, "reading which database of its installation this is")
}

func numberIn(ctx context.Context, q dialect.Querier) (number int, home string, err error) {
	text, err := tables.ReadMeta(ctx, q, handle.ShardNumber)
	if err != nil || len(text) == 0 {
		return -1, "", err
	}
	if number, err = strconv.Atoi(string(text)); err != nil {
		return -1, "", fmt.Errorf("%s is no number: %w", handle.ShardNumber, err)
	}
	of, err := tables.ReadMeta(ctx, q, handle.ShardHome)
	if err != nil {
		return -1, "", err
	}
	gone, err := tables.ReadMeta(ctx, q, shardRemoved)
	if err == nil && len(gone) > 0 {
		err = ErrRemoved
	}
	return number, string(of), err
}

// Stand is where an installation stands for a database that joins it: the rules in force, and how
// far the first database has stored the intake.
type Stand struct {
	Rules   []shardmap.Rule
	Sources []intake.Source
}

// Stand returns where the installation stands by this database, its first one.
func (s Shards) Stand(ctx context.Context) (out Stand, err error) {
	all, err := intake.New(s.h.Ref()).Sources(ctx) // before the rules: a rule holds from what is stored on, or from later
	if err != nil {
		return out, err
	}
	out.Sources = intake.InUse(all)
	m, err := s.Map(ctx)
	if err == nil && m.Announced() != nil {
		err = ErrMoving
	}
	out.Rules = m.Rules
	return out, err
}

// MostDatabases bounds an installation: the runs of each have a source of their own.
const MostDatabases = task.LastRunSource - task.RunSource + 1

// Join notes for good that the database has this number in the installation whose first database
// has the id home, and begins where the installation stands. It may be called again. It fails with
// ErrOtherShard where another number or home is noted, and where the database has worked as an
// installation of its own.
func (s Shards) Join(ctx context.Context, number int, home string, from Stand) error {
	if number < 0 || home == "" {
		return fmt.Errorf("joining database %d to installation %q: both are needed", number, home)
	}
	if number >= MostDatabases {
		return fmt.Errorf("an installation has at most %d databases", MostDatabases)
	}
	return s.h.Transact(ctx, func(tx *sql.Tx) error {
		was, of, err := numberIn(ctx, tx)
		switch {
		case err != nil:
			return err
		case was == number && of == home:
			return noteJoined(ctx, tx)
		case was >= 0:
			return fmt.Errorf("%w: it is number %d of the installation whose first database is %s", ErrOtherShard, was, of)
		}
		own, err := tables.ReadMeta(ctx, tx, handle.InstallationID)
		if err != nil {
			return err
		}
		if number > 0 && string(own) == home {
			return fmt.Errorf("%w: it is a copy of the first one, and would deliver its tasks once more: name an empty one", ErrOtherShard)
		}
		used := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM sources) OR EXISTS (SELECT 1 FROM tasks)").Scan(&used); err != nil {
			return err
		}
		if used && string(own) != home {
			return fmt.Errorf("%w: it has requests of an installation of its own, %s: name an empty one", ErrOtherShard, own)
		}
		if string(own) == home {
			if err := s.require(ctx, tx); err != nil {
				return err
			}
		} else if err := s.begin(ctx, tx, from); err != nil {
			return err
		}
		for name, value := range map[string]string{handle.ShardNumber: strconv.Itoa(number), handle.ShardHome: home} {
			if _, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, 0, ?)", []byte(name), []byte(value)); err != nil { // a second one is a duplicate: tried again
				return err
			}
		}
		return noteJoined(ctx, tx)
	})
}

// noteJoined notes up to which rule the database knew the installation when it joined, or was last
// joined by another one: no removal from before concerns it. See alone.
func noteJoined(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE meta SET value = (SELECT COALESCE(MAX(n), 0) FROM homes) WHERE name = ?", []byte(handle.ShardNumber))
	return err
}

// begin copies where the installation stands. Later rules come by Tend.
func (s Shards) begin(ctx context.Context, tx *sql.Tx, from Stand) error {
	for _, r := range from.Rules {
		if err := insertRule(ctx, tx, r, 0); err != nil {
			return err
		}
	}
	return intake.CopySources(ctx, tx, from.Sources)
}

// require has programs end without knowledge of several databases.
func (s Shards) require(ctx context.Context, tx *sql.Tx) error {
	rows, err := tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+s.h.SlotColumns()+" FROM slots ORDER BY slot"+s.h.Locking(handle.LockExclusive))
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE slots SET turn = ?", handle.NextTurn(rows)); err != nil {
		return err
	}
	return handle.Require(ctx, tx, handle.Shards, true)
}

// ErrUnknowing: services without a database of the installation are alive.
var ErrUnknowing = errors.New("services are alive that do not know the database")

// KnownToAll fails with ErrUnknowing, and names them, while services are alive that do not know
// database number of mysql.shards.
func (s Shards) KnownToAll(ctx context.Context, number int) error {
	now, err := s.h.Time(ctx)
	if err != nil {
		return err
	}
	names, err := tables.Fetch(ctx, s.h.DB, func(r *sql.Rows, name *string) error { return r.Scan(name) },
		"SELECT id FROM services WHERE spreads <= ? AND seen > ? ORDER BY id LIMIT 10", number, now.UnixMilli()-handle.ServiceLease)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w: %s: give them all entries of mysql.shards, in this release, and restart them (one that was killed counts for %d s)",
			ErrUnknowing, strings.Join(names, ", "), handle.ServiceLease/1000)
	}
	return wrap.Err(err, "asking which services know database %d", number)
}
