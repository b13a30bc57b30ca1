package copies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// Named compares the name of a process's copy of the database with the one that the scanners' group
// has. All is required.
type Named struct {
	Client       *kgo.Client
	Group        string
	Topics       []string // that the scanners read
	Installation string
	Began        string                                // the copy's name when the process began
	Now          func(context.Context) (string, error) // the copy's name in the database
	Log          *zap.Logger
}

// Run returns kafka.ErrOlderCopy once a command has given another copy of the database a newer
// name. Otherwise it looks until ctx ends. A process may have been paused during a look, which is
// then old: the next look follows at once.
func (n Named) Run(ctx context.Context) error {
	var began time.Time
	for warned := false; ctx.Err() == nil; loop.Rest(ctx, every-time.Since(began)) {
		began = time.Now()
		err := n.Compare(ctx)
		if errors.Is(err, kafka.ErrOlderCopy) {
			return err
		}
		if err != nil && !warned && ctx.Err() == nil {
			warned = true
			n.Log.Warn("whether another copy of the database has taken the place of this one is not known; the service goes on. Dispatchers need the right Describe on the scanners' group and topics", zap.String("group", n.Group), zap.Error(err))
		}
	}
	return nil
}

// Compare returns kafka.ErrOlderCopy if the group names another copy of the database, and this one
// is not newer, or if the database has another name than at the start. The group is read first:
// names are written there first.
func (n Named) Compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	group, err := kafka.GroupClaim(ctx, n.Client, n.Group, n.Topics...)
	if err != nil {
		return err
	}
	return n.Replaced(ctx, group)
}

// Replaced is Compare for a known claim of the group.
func (n Named) Replaced(ctx context.Context, group kafka.Claim) error {
	ours := kafka.Claim{Installation: n.Installation}
	name, err := n.Now(ctx)
	if err == nil {
		ours.Copy, err = kafka.ParseCopy(name)
	}
	if err != nil {
		return err
	}
	if err := group.Replaces(ours, n.Group); err != nil || name == n.Began {
		return err
	}
	return fmt.Errorf("%w: this process began with copy %q, and mysql.dsn leads to copy %q now: start it again", kafka.ErrOlderCopy, n.Began, name)
}
