package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
)

// ErrMap: a rule about the databases of targets has come or changed. Nothing was changed.
var ErrMap = errors.New("the rules about the databases of targets have changed")

// ErrMoving: a target is about to move, or its tasks follow it.
var ErrMoving = errors.New("targets move already, or their tasks follow them: try again in a moment")

// ShardMap is the name in table meta of the version of these rules. A batch that leaves out records
// of other databases holds a shared lock on the row, and a change of the rules an exclusive one.
const ShardMap = "shard.map"

// ShardNumber is the name in table meta of a database's number among several.
const ShardNumber = "shard.number"

// ShardHome is the name in table meta of the id of the installation's first database.
const ShardHome = "shard.home"

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

// MapVersion reads the version, above 0. The caller's transaction may lock the row. In another life
// the version is another one: the database may have forgotten rules, and may have had the very
// version that a scanner holds.
func (h *Handle) MapVersion(ctx context.Context, tx *sql.Tx, lock string) (int64, error) {
	type row struct {
		version int64
		life    string
	}
	rows, err := tables.Fetch(ctx, tx, func(r *sql.Rows, v *row) error { return r.Scan(&v.version, &v.life) }, "SELECT value, "+h.Life+" FROM meta WHERE name = ?"+h.Locking(lock), []byte(ShardMap))
	if err == nil && len(rows) == 0 {
		if err = EnsureMeta(ctx, tx, []byte(ShardMap), 0); err == nil {
			return h.MapVersion(ctx, tx, lock)
		}
	}
	if err != nil {
		return 0, wrap.Err(err, "reading the version of the rules about the databases of targets")
	}
	version := rows[0].version + 1
	if life := rows[0].life; life != "" {
		version ^= int64(xxhash.Sum64String(life) >> 1)
	}
	return max(version, 1), nil
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

// ReadRules reads all rules.
func ReadRules(ctx context.Context, q dialect.Querier) ([]shardmap.Rule, error) {
	rules, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *shardmap.Rule) error {
		var token []byte
		err := r.Scan(&v.N, &v.Pattern, &v.Part, &v.Parts, &v.Former, &v.Shard, &token, &v.Held, &v.Followed)
		v.Token, v.Cuts = string(token), map[shardmap.Partition]int64{}
		return err
	}, "SELECT n, pattern, part, parts, former, shard, token, held, followed FROM homes ORDER BY n")
	if err != nil {
		return nil, err
	}
	byN := make(map[int]*shardmap.Rule, len(rules))
	for i := range rules {
		byN[rules[i].N] = &rules[i]
	}
	type cut struct {
		n    int
		part shardmap.Partition
		at   int64
	}
	cuts, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *cut) error {
		var id []byte
		err := r.Scan(&v.n, &v.part.Topic, &id, &v.part.Partition, &v.at)
		copy(v.part.TopicID[:], id)
		return err
	}, "SELECT n, topic, topic_id, part, at FROM cuts")
	for _, c := range cuts {
		if rule := byN[c.n]; rule != nil {
			rule.Cuts[c.part] = c.at
		}
	}
	return rules, err
}

// Elsewhere returns a question about a target: why no task of it can come to be in this database;
// "": one can. The rules stay as they are until the end of the transaction. The question fails with
// ErrMoving while this is not known.
func Elsewhere(ctx context.Context, h *Handle, tx *sql.Tx) (func(target string) (string, error), error) {
	number, err := tables.ReadMeta(ctx, tx, ShardNumber)
	if err != nil || len(number) == 0 {
		return func(string) (string, error) { return "", nil }, err
	}
	own, err := strconv.Atoi(string(number))
	if err != nil {
		return nil, fmt.Errorf("%s is no number: %w", ShardNumber, err)
	}
	m := shardmap.Map{}
	if m.Version, err = h.MapVersion(ctx, tx, LockShared); err != nil {
		return nil, err
	}
	if m.Rules, err = ReadRules(ctx, tx); err != nil {
		return nil, err
	}
	return func(target string) (string, error) {
		if m.Moves(target) {
			return "", ErrMoving
		}
		if home := m.Home(target); home != own {
			return fmt.Sprintf("its target lives in database %d by now: schedule it there", home), nil
		}
		return "", nil
	}, nil
}
