package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/shards"
)

// Joined fails unless the database is number k of the installation whose first database has the id
// home. Where home is "", that database is away, and the number alone counts. The first database
// need not say anything: before the second one came, it was alone. A process with one database
// would take the records of all targets: it needs an installation with one.
func Joined(ctx context.Context, home string, st *store.Store, k, databases int) error {
	number, of, err := shards.New(st).Number(ctx)
	switch {
	case errors.Is(err, shards.ErrRemoved):
		return fmt.Errorf("%w: take entry %d out of mysql.shards, and restart", shards.ErrRemoved, k)
	case err != nil:
		return err
	case number >= 0 && databases == 1:
		return fmt.Errorf("%w: mysql.dsn is database %d of the installation %s, which has several: set mysql.shards, with all of them", shards.ErrOtherShard, number, of)
	case number < 0 && k > 0:
		return fmt.Errorf("database %d of mysql.shards is not part of the installation yet: run notyet shards add %d", k, k)
	case number >= 0 && number != k:
		return fmt.Errorf("%w: entry %d of mysql.shards is database %d of the installation %s: put the entries in their order", shards.ErrOtherShard, k, number, of)
	case number >= 0 && home != "" && of != home:
		return fmt.Errorf("%w: entry %d of mysql.shards belongs to the installation %s, and entry 0 is %s: name a database of this installation", shards.ErrOtherShard, k, of, home)
	}
	return nil
}
